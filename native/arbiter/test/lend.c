/* SPDX-License-Identifier: Apache-2.0 */
/* lend.c: floors of memory that are lent to shares that may be stopped for them, and how their owners have them back. */
#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)

static uint64_t granted(const struct pages *p)
{
	return load(&p->ctl->grant[0].mem_granted);
}

static void use(const struct pages *p, const struct tenant *t, uint64_t bytes)
{
	store(&p->tel->slot[t->slot].grant[0].mem_used, bytes);
}

static struct pages lender(struct rig *rig, const char *uid, uint64_t floor, uint64_t ceiling)
{
	return rig_task(rig, uid, 1, D0, 100, 800, floor, ceiling);
}

static struct pages borrower(struct rig *rig, const char *uid, uint64_t floor, uint64_t ceiling)
{
	struct pages p = rig_task(rig, uid, 1, D0, 100, 800, floor, ceiling);
	store(&p.ctl->grant[0].policy_flags, ALQ_POLICY_LEND_MEM);
	return p;
}

/* Two heartbeats have gone by since, and with them all that is looked at without a cause. */
static void let_pass(const struct pages *p)
{
	for (int i = 0; i < 2; i++) {
		uint64_t beat = load(&p->ctl->heartbeat_ns);
		WAIT(load(&p->ctl->heartbeat_ns) != beat);
	}
}

/* What is idle of a floor is lent to one that may be stopped and to no other; its owner waits for it, and has it once it is back. */
void test_lend(void)
{
	struct rig rig;
	struct tenant a, b, c, n;
	uint64_t most;
	uint32_t status;
	rig_open(&rig, program);
	struct alq_device *d = rig_device(&rig, D0[0], 10 * GIB);
	struct pages pa = lender(&rig, "a", 6 * GIB, 6 * GIB), pb = borrower(&rig, "b", GIB, 10 * GIB), pc = lender(&rig, "c", 0, 4 * GIB);
	rig_start(&rig, NULL);
	CHECK(rig_register(&rig, "a", &pa, -1, &a) == ALQ_OK && rig_register(&rig, "b", &pb, -1, &b) == ALQ_OK &&
		rig_register(&rig, "c", &pc, -1, &c) == ALQ_OK, "refused");
	use(&pb, &b, 9 * GIB);
	CHECK(rig_mem(&c, 0, 3 * GIB + 1, NULL) == ALQ_ERR_NO_MEM, "a floor is lent to one that may not be stopped");
	CHECK(rig_mem(&b, 0, 9 * GIB, &most) == ALQ_OK && most == 9 * GIB, "idle floors are not lent: %llu granted", (unsigned long long)most);
	CHECK(granted(&pa) == GIB && granted(&pc) == 0, "%llu and %llu are granted beside it", (unsigned long long)granted(&pa), (unsigned long long)granted(&pc));
	CHECK(load(&d->mem_reserved) == 7 * GIB, "%llu cannot be had back", (unsigned long long)load(&d->mem_reserved));
	CHECK(load(&pa.ctl->grant[0].mem_free_hint) == 5 * GIB, "the owner does not see its floor");
	CHECK(rig_mem(&a, 0, GIB, NULL) == ALQ_OK, "what is not lent of a floor");
	use(&pa, &a, GIB);

	rig_mem_ask(&a, 0, 4 * GIB);
	WAIT(load(&d->mem_wanted) == 3 * GIB);
	CHECK(load(&d->mem_wanted_since_ns) != 0 && !strcmp((const char *)d->mem_wanted_uid, "a"), "the page says it is for \"%s\"", (const char *)d->mem_wanted_uid);
	CHECK(rig_mem(&b, 0, 9 * GIB + 1, NULL) == ALQ_ERR_NO_MEM && rig_mem(&c, 0, 1, NULL) == ALQ_ERR_NO_MEM, "lent while its owner waits");
	CHECK(load(&pb.ctl->grant[0].mem_free_hint) == 0, "hope while an owner waits");
	use(&pb, &b, 7 * GIB);
	WAIT(load(&d->mem_wanted) == GIB);
	let_pass(&pa);
	CHECK(!rig_mem_answered(&a, &status), "an owner has what is not back");
	CHECK(rig_mem(&b, 0, 8 * GIB, NULL) == ALQ_ERR_NO_MEM, "lent again while its owner waits");
	use(&pb, &b, 6 * GIB);
	WAIT(rig_mem_answered(&a, &status));
	CHECK(status == ALQ_OK && granted(&pa) == 4 * GIB, "with status %u it has %llu", status, (unsigned long long)granted(&pa));
	WAIT(load(&d->mem_wanted) == 0);
	use(&pa, &a, 4 * GIB);

	/* A new task's floor is had in the same way. */
	struct pages pn = lender(&rig, "n", 2 * GIB, 2 * GIB);
	rig_ask(&rig, "ok", "add n");
	CHECK(granted(&pn) == 0 && load(&d->mem_reserved) == 9 * GIB, "a new task has %llu of memory that another uses", (unsigned long long)granted(&pn));
	CHECK(rig_register(&rig, "n", &pn, -1, &n) == ALQ_OK, "refused");
	rig_mem_ask(&n, 0, 2 * GIB);
	WAIT(load(&d->mem_wanted) == 2 * GIB);
	use(&pb, &b, 3 * GIB);
	WAIT(rig_mem_answered(&n, &status));
	CHECK(status == ALQ_OK && granted(&pn) == 2 * GIB, "a new floor is refused");
	/* With room again each has its floor without asking. */
	use(&pb, &b, GIB);
	WAIT(granted(&pa) == 6 * GIB);
	rig_leave(&a);
	rig_leave(&b);
	rig_leave(&c);
	rig_leave(&n);
	rig_close(&rig);
}

/* A process that has closed its line holds its memory as long as it lives. */
void test_lend_hung_up(void)
{
	struct rig rig;
	struct tenant a, b;
	int told[2], go[2];
	char x;
	uint32_t status;
	rig_open(&rig, program);
	struct alq_device *d = rig_device(&rig, D0[0], 10 * GIB);
	struct pages pa = lender(&rig, "a", 6 * GIB, 6 * GIB), pb = borrower(&rig, "b", 0, 10 * GIB);
	rig_start(&rig, NULL);
	CHECK(!pipe(told) && !pipe(go), "pipe: %s", strerror(errno));
	CHECK(rig_register(&rig, "a", &pa, -1, &a) == ALQ_OK, "refused");
	pid_t child = fork();
	if (child == 0) {
		if (rig_register(&rig, "b", &pb, -1, &b) != ALQ_OK)
			_exit(1);
		use(&pb, &b, 10 * GIB);
		if (rig_mem(&b, 0, 10 * GIB, NULL) != ALQ_OK || write(told[1], "x", 1) != 1 || read(go[0], &x, 1) != 1)
			_exit(1);
		rig_leave(&b);
		_exit(write(told[1], "x", 1) == 1 ? pause() : 1);
	}
	CHECK(read(told[0], &x, 1) == 1, "nothing is lent");
	rig_mem_ask(&a, 0, 6 * GIB);
	WAIT(load(&d->mem_wanted) == 6 * GIB);
	CHECK(write(go[1], "x", 1) == 1 && read(told[0], &x, 1) == 1, "it does not hang up");
	WAIT(load(&pb.tel->slot[0].state) == ALQ_SLOT_FREE);
	let_pass(&pa);
	CHECK(!rig_mem_answered(&a, &status) && load(&d->mem_wanted) == 6 * GIB, "what a process holds that lives is another's");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	WAIT(rig_mem_answered(&a, &status));
	CHECK(status == ALQ_OK && granted(&pa) == 6 * GIB, "the memory of one that is dead is not free: status %u", status);
	rig_leave(&a);
	for (int i = 0; i < 2; i++) {
		close(told[i]);
		close(go[i]);
	}
	rig_close(&rig);
}

/* The arbiter dies while an owner waits: who asks the next one waits there. What else ends the waiting ends it at once. */
void test_lend_away(void)
{
	struct rig rig;
	struct tenant a, b, again;
	uint32_t status;
	rig_open(&rig, program);
	struct alq_device *d = rig_device(&rig, D0[0], 10 * GIB);
	struct pages pa = lender(&rig, "a", 6 * GIB, 6 * GIB), pb = borrower(&rig, "b", 0, 10 * GIB);
	rig_start(&rig, NULL);
	CHECK(rig_register(&rig, "a", &pa, -1, &a) == ALQ_OK && rig_register(&rig, "b", &pb, -1, &b) == ALQ_OK, "refused");
	use(&pb, &b, 10 * GIB);
	CHECK(rig_mem(&b, 0, 10 * GIB, NULL) == ALQ_OK, "nothing is lent");
	rig_mem_ask(&a, 0, 2 * GIB);
	WAIT(load(&d->mem_wanted) == 2 * GIB);
	rig_kill(&rig);
	rig_start(&rig, NULL);
	CHECK(load(&d->mem_wanted) == 0, "it is wanted by one that has not asked");
	CHECK(granted(&pa) == 0 && granted(&pb) == 10 * GIB, "granted are %llu and %llu", (unsigned long long)granted(&pa), (unsigned long long)granted(&pb));
	CHECK(rig_register(&rig, "a", &pa, (int32_t)a.slot, &again) == ALQ_OK, "refused");
	rig_mem_ask(&again, 0, 2 * GIB);
	WAIT(load(&d->mem_wanted) == 2 * GIB);
	/* A borrower that registers again has held its memory all the time: in its slot, or in another where it had hung up. */
	rig_leave(&b);
	CHECK(rig_register(&rig, "b", &pb, (int32_t)b.slot, &b) == ALQ_OK && granted(&pb) == 10 * GIB, "%llu are granted to one that is back",
		(unsigned long long)granted(&pb));
	uint32_t had = b.slot;
	rig_leave(&b);
	WAIT(load(&pb.tel->slot[had].state) == ALQ_SLOT_FREE);
	CHECK(rig_register(&rig, "b", &pb, -1, &b) == ALQ_OK && granted(&pb) == 10 * GIB, "%llu are granted to one that hung up",
		(unsigned long long)granted(&pb));
	CHECK(load(&pb.tel->slot[b.slot].grant[0].mem_used) == 10 * GIB, "it is said to hold %llu",
		(unsigned long long)load(&pb.tel->slot[b.slot].grant[0].mem_used));
	let_pass(&pa);
	CHECK(!rig_mem_answered(&again, &status) && load(&d->mem_wanted) == 2 * GIB, "what a borrower holds that was back is another's");
	store(&pa.ctl->grant[0].policy_flags, ALQ_POLICY_STOPPED);
	rig_policy(&pa.ctl->grant[0], 100, 800, 6 * GIB, 6 * GIB);
	rig_ask(&rig, "ok", "policy a");
	WAIT(rig_mem_answered(&again, &status));
	CHECK(status == ALQ_ERR_REFUSED, "one that is being ended is answered %u", status);
	WAIT(load(&d->mem_wanted) == 0);
	store(&pa.ctl->grant[0].policy_flags, 0);
	rig_policy(&pa.ctl->grant[0], 100, 800, 6 * GIB, 6 * GIB);
	rig_ask(&rig, "ok", "policy a");

	/* A library that takes a line for broken after 2 s is answered before. */
	rig_leave(&again);
	rig_leave(&a);
	rig_shim_version = ALQ_SHIM_WAITS - 1;
	CHECK(rig_register(&rig, "a", &pa, -1, &a) == ALQ_OK, "refused");
	rig_shim_version = ALQ_SHIM_WAITS;
	uint64_t from = rig_now();
	CHECK(rig_mem(&a, 0, 2 * GIB, NULL) == ALQ_ERR_NO_MEM, "memory that is lent");
	CHECK(rig_now() - from < 2000 * MS, "an older library is answered after %llu ms", (unsigned long long)((rig_now() - from) / MS));
	WAIT(load(&d->mem_wanted) == 0);

	/* One that goes waits no more. */
	rig_mem_ask(&a, 0, 2 * GIB);
	WAIT(load(&d->mem_wanted) == 2 * GIB);
	rig_leave(&a);
	WAIT(load(&d->mem_wanted) == 0);
	rig_leave(&b);
	rig_close(&rig);
}

/* ---------------------------------------------------------------------------------------------------------------- race */

#define TRIES 100000 /* of all together */
#define RACERS 4

struct counted { /* what the device has given out, by its own word */
	uint64_t held, most, waits, lent;
};

struct racer {
	struct tenant tenant;
	struct pages pages;
	bool lends;
	uint64_t floor, used, random;
};

static uint64_t draw(struct racer *r)
{
	r->random = r->random * 6364136223846793005ull + 1442695040888963407ull;
	return r->random >> 33;
}

/* Takes memory as the shim does: published, looked at, and only then the device's. False: refused. */
static bool take(struct racer *r, struct counted *device, uint64_t bytes)
{
	uint64_t *shown = &r->pages.tel->slot[r->tenant.slot].grant[0].mem_used;
	for (int asks = 0;; asks++) {
		uint64_t want = r->used + bytes;
		store(shown, want);
		if (want <= granted(&r->pages))
			break;
		store(shown, r->used);
		bool own = want <= r->floor;
		if ((!own && asks >= 3) || rig_mem(&r->tenant, 0, want, NULL) != ALQ_OK) {
			CHECK(!own, "an owner is refused %llu of its floor", (unsigned long long)want);
			return false;
		}
	}
	r->used += bytes;
	if (r->used > r->floor)
		__atomic_fetch_add(&device->lent, 1, __ATOMIC_RELAXED);
	uint64_t held = __atomic_add_fetch(&device->held, bytes, __ATOMIC_SEQ_CST), most = load(&device->most);
	while (held > most && !__atomic_compare_exchange_n(&device->most, &most, held, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return true;
}

static void give(struct racer *r, struct counted *device, uint64_t bytes)
{
	__atomic_sub_fetch(&device->held, bytes, __ATOMIC_SEQ_CST);
	r->used -= bytes;
	store(&r->pages.tel->slot[r->tenant.slot].grant[0].mem_used, r->used);
}

/* Takes and gives at random; one that borrows gives all back when an owner waits, as if it were stopped. */
static void race(struct racer *r, struct counted *device, const struct alq_device *page)
{
	for (int i = 0; i < TRIES / RACERS; i++) {
		if (r->lends && load(&page->mem_wanted) != 0) {
			__atomic_fetch_add(&device->waits, 1, __ATOMIC_RELAXED);
			give(r, device, r->used);
		}
		uint64_t bytes = (1 + draw(r) % 64) * 8 * MIB;
		if (draw(r) % 3 != 0)
			take(r, device, bytes);
		else
			give(r, device, bytes < r->used ? bytes : r->used);
	}
	give(r, device, r->used);
}

void test_lend_race(void)
{
	struct rig rig;
	rig_open(&rig, program);
	struct alq_device *d = rig_device(&rig, D0[0], 4 * GIB);
	struct racer racer[RACERS] = {{.pages = lender(&rig, "a", GIB, GIB), .floor = GIB}, {.pages = lender(&rig, "b", GIB, 2 * GIB), .floor = GIB},
		{.pages = borrower(&rig, "c", GIB, 4 * GIB), .floor = GIB, .lends = true}, {.pages = borrower(&rig, "d", 0, 4 * GIB), .lends = true}};
	const char *const names[RACERS] = {"a", "b", "c", "d"};
	struct counted *device = mmap(NULL, sizeof *device, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(device != MAP_FAILED, "mmap: %s", strerror(errno));
	rig_start(&rig, NULL);
	pid_t child[RACERS];
	for (int i = 0; i < RACERS; i++) {
		child[i] = fork();
		if (child[i] != 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		racer[i].random = (uint64_t)i + 1;
		CHECK(rig_register(&rig, names[i], &racer[i].pages, -1, &racer[i].tenant) == ALQ_OK, "refused");
		race(&racer[i], device, d);
		_exit(0);
	}
	for (int i = 0; i < RACERS; i++) {
		int status;
		waitpid(child[i], &status, 0);
		CHECK(status == 0, "%s ended with %#x", names[i], (unsigned)status);
	}
	CHECK(device->held == 0 && device->most <= 4 * GIB, "%llu were held at once", (unsigned long long)device->most);
	CHECK(device->lent > 1000 && device->waits > 0, "above floors %llu times, waited for %llu times: no race", (unsigned long long)device->lent,
		(unsigned long long)device->waits);
	CHECK(device->most > 3 * GIB, "at most %llu were held: the limit was not pressed against", (unsigned long long)device->most);
	munmap(device, sizeof *device);
	rig_close(&rig);
}
