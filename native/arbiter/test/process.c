/* SPDX-License-Identifier: Apache-2.0 */
/* process.c: the arbiter as a process, with tenants that behave, lie, crash and scribble. argv[1] is the arbiter, with named points. */
#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *program;
const char *const D0[] = {"SIM-0"};

/* A few leases of both tenants, whoever comes first. */
void exchange(struct tenant *a, struct tenant *b, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		struct tenant *who = i % 2 ? b : a;
		rig_gate(who, 0);
		rig_launch(who, 0, MS / 10);
		rig_done(who, 0);
	}
}

void check_rows(struct rig *rig, const struct alq_device *d, const struct pages *tasks, int n)
{
	rig_ask(rig, "ok 1", "ping"); /* settles and writes the books */
	uint64_t rows = d->unreserved_idle_ns + d->down_ns + d->ended.own_ns + d->ended.lent_ns + d->ended.reserved_idle_ns +
		d->ended.burst_free_ns;
	for (int i = 0; i < n; i++) {
		const struct alq_split *s = &tasks[i].book->grant[0].split;
		rows += s->own_ns + s->lent_ns + s->reserved_idle_ns + s->burst_free_ns;
	}
	/* Read while it may be written: the heartbeat's settling is awaited out. */
	if (rows != d->updated_ns - d->since_ns)
		FAIL("rows add up to %llu ns, the books are %llu ns long", (unsigned long long)rows,
			(unsigned long long)(d->updated_ns - d->since_ns));
}

static void test_leases(void)
{
	struct rig rig;
	struct tenant a, b;
	rig_open(&rig, program);
	struct alq_device *d = rig_device(&rig, D0[0], 16 * GIB);
	struct pages p[2] = {rig_task(&rig, "a", 1, D0, 250, 1000, GIB, 2 * GIB), rig_task(&rig, "b", 1, D0, 500, 800, GIB, 2 * GIB)};
	rig_start(&rig, NULL);
	rig_ask(&rig, "ok", "add a"); /* found at the start already */
	CHECK(rig_register(&rig, "a", &p[0], -1, &a) == ALQ_OK, "a was refused");
	CHECK(rig_register(&rig, "b", &p[1], -1, &b) == ALQ_OK, "b was refused");
	CHECK(p[0].tel->slot[a.slot].pid == getpid() && p[0].tel->slot[a.slot].state == ALQ_SLOT_LIVE, "the slot is not this process'");
	uint64_t beat = load(&p[0].ctl->heartbeat_ns);
	WAIT(load(&p[0].ctl->heartbeat_ns) > beat);

	exchange(&a, &b, 20);
	rig_gate(&a, 0);
	rig_launch(&a, 0, MS);
	CHECK(!rig_may_launch(&b, 0) || !rig_may_launch(&a, 0), "both gates are open with work on the device");
	rig_done(&a, 0);
	rig_leave(&a);
	rig_leave(&b);
	WAIT(load(&p[0].tel->slot[0].state) == ALQ_SLOT_FREE && load(&p[1].tel->slot[0].state) == ALQ_SLOT_FREE);
	WAIT(load(&p[0].book->grant[0].launches_ended) == 11);
	check_rows(&rig, d, p, 2);
	CHECK(p[0].book->grant[0].leases > 0 && p[0].book->grant[0].held_ns > 0, "nothing was booked");

	/* A task that goes leaves its rows with the device. */
	rig_ask(&rig, "ok", "del a");
	rig_ask(&rig, "ok", "del a");
	check_rows(&rig, d, &p[1], 1);
	CHECK(d->ended.own_ns + d->ended.burst_free_ns > 0, "the rows of the task that ended are lost");

	/* A device that is down closes gates and counts as down. */
	CHECK(rig_register(&rig, "b", &p[1], -1, &b) == ALQ_OK, "b was refused");
	store(&d->state, ALQ_DEVICE_DOWN);
	rig_ask(&rig, "ok", "device %s", D0[0]);
	CHECK(!rig_may_launch(&b, 0), "a gate is open on a device that is down");
	WAIT(load(&d->down_ns) > 0);
	store(&d->state, ALQ_DEVICE_OK);
	rig_ask(&rig, "ok", "device %s", D0[0]);
	rig_gate(&b, 0);
	rig_leave(&b);
	WAIT(load(&p[1].tel->slot[0].state) == ALQ_SLOT_FREE);
	check_rows(&rig, d, &p[1], 1);

	rig_ask(&rig, "error: ", "add nobody");
	rig_ask(&rig, "error: ", "add ../a");
	rig_ask(&rig, "error: ", "policy nobody");
	rig_ask(&rig, "error: ", "dance");
	rig_ask(&rig, "ok", "quit");
	int status = rig_wait(&rig);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "it did not end in order: status %#x", (unsigned)status);
	rig_close(&rig);
}

static void test_ungated_and_resize(void)
{
	struct rig rig;
	struct tenant t;
	rig_open(&rig, program);
	rig_device(&rig, D0[0], 16 * GIB);
	rig_start(&rig, NULL);
	struct pages p = rig_task(&rig, "t", 1, D0, 250, 1000, GIB, 2 * GIB);
	rig_ask(&rig, "ok", "add t");
	CHECK(rig_register(&rig, "t", &p, -1, &t) == ALQ_OK, "refused");
	WAIT(load(&p.ctl->grant[0].gate) & ALQ_GATE_UNGATED);
	rig_policy(&p.ctl->grant[0], 250, 600, GIB, 2 * GIB);
	rig_ask(&rig, "ok", "policy t");
	WAIT(!(load(&p.ctl->grant[0].gate) & ALQ_GATE_UNGATED));
	rig_gate(&t, 0);
	rig_policy(&p.ctl->grant[0], 250, 1000, GIB, 2 * GIB); /* and without a word, within a heartbeat */
	WAIT(load(&p.ctl->grant[0].gate) & ALQ_GATE_UNGATED);
	store(&p.ctl->grant[0].policy_flags, ALQ_POLICY_STOPPED);
	rig_policy(&p.ctl->grant[0], 250, 1000, GIB, 2 * GIB);
	WAIT(!(load(&p.ctl->grant[0].gate) & ALQ_GATE_OPEN));
	CHECK(rig_mem(&t, 0, GIB + 1, NULL) == ALQ_ERR_REFUSED, "memory for a task that is being ended");
	rig_leave(&t);
	rig_close(&rig);
}

static void test_memory(void)
{
	struct rig rig;
	struct tenant a, b;
	uint64_t granted;
	rig_open(&rig, program);
	struct alq_device *d = rig_device(&rig, D0[0], 10 * GIB);
	struct pages p[2] = {rig_task(&rig, "a", 1, D0, 250, 800, 4 * GIB, 8 * GIB), rig_task(&rig, "b", 1, D0, 250, 800, 4 * GIB, 6 * GIB)};
	rig_start(&rig, NULL);
	CHECK(rig_register(&rig, "a", &p[0], -1, &a) == ALQ_OK && rig_register(&rig, "b", &p[1], -1, &b) == ALQ_OK, "refused");
	CHECK(rig_mem(&a, 0, 4 * GIB, &granted) == ALQ_OK && granted == 4 * GIB, "its floor is refused");
	CHECK(rig_mem(&a, 7, GIB, NULL) == ALQ_ERR_REFUSED, "a grant that is none");
	CHECK(rig_mem(&a, 0, 8 * GIB + 1, NULL) == ALQ_ERR_NO_MEM, "more than its ceiling");
	CHECK(rig_mem(&a, 0, 6 * GIB + 1, NULL) == ALQ_ERR_NO_MEM, "the floor of another");
	CHECK(load(&p[0].ctl->grant[0].mem_free_hint) == 2 * GIB, "the hint is %llu", (unsigned long long)load(&p[0].ctl->grant[0].mem_free_hint));
	store(&p[0].tel->slot[a.slot].grant[0].mem_used, 6 * GIB);
	CHECK(rig_mem(&a, 0, 6 * GIB, &granted) == ALQ_OK && granted == 6 * GIB, "what nobody reserved is refused");
	CHECK(d->mem_reserved == 10 * GIB, "%llu reserved", (unsigned long long)d->mem_reserved);
	CHECK(rig_mem(&b, 0, 4 * GIB + 1, NULL) == ALQ_ERR_NO_MEM, "what another uses");
	/* What a does not use any more is b's for the asking. */
	store(&p[0].tel->slot[a.slot].grant[0].mem_used, 4 * GIB + 1);
	CHECK(rig_mem(&b, 0, 5 * GIB, &granted) == ALQ_OK && granted >= 5 * GIB, "what another gave back");
	CHECK(load(&p[0].ctl->grant[0].mem_granted) >= 4 * GIB + 1, "taken from under its user");
	CHECK(load(&p[0].ctl->grant[0].mem_granted) + load(&p[1].ctl->grant[0].mem_granted) <= 10 * GIB, "more than there is");
	/* A ceiling below use takes nothing away, and gives nothing. */
	rig_policy(&p[0].ctl->grant[0], 250, 800, 2 * GIB, 3 * GIB);
	rig_ask(&rig, "ok", "policy a");
	CHECK(load(&p[0].ctl->grant[0].mem_granted) == 4 * GIB + 1, "granted %llu", (unsigned long long)load(&p[0].ctl->grant[0].mem_granted));
	CHECK(rig_mem(&a, 0, 4 * GIB + 2, NULL) == ALQ_ERR_NO_MEM, "above the new ceiling");
	/* Lies reserve nothing. */
	store(&p[1].tel->slot[b.slot].grant[0].mem_used, UINT64_MAX);
	store(&p[1].tel->slot[b.slot].grant[0].mem_overhead, UINT64_MAX);
	CHECK(rig_mem(&a, 0, 3 * GIB, NULL) == ALQ_OK, "another's lie refuses what is granted already");
	CHECK(load(&p[1].ctl->grant[0].mem_granted) <= 6 * GIB, "a lie is granted");
	rig_leave(&a);
	rig_leave(&b);
	rig_close(&rig);
}

/*
 * Killed at a point the Nth time that it comes by, and back: what was granted stands, the rows add up, the same process goes on in its
 * slot. Returns whether it came by so often; if not, all this must hold after an orderly end.
 */
static bool test_killed(const char *name, int hit)
{
	char point[64];
	struct rig rig;
	struct tenant a, b, again;
	int status = 0;
	char answer[512];
	uint64_t granted;
	snprintf(point, sizeof point, "%s:%d", name, hit);
	rig_open(&rig, program);
	struct alq_device *d = rig_device(&rig, D0[0], 10 * GIB);
	struct pages p[3] = {rig_task(&rig, "a", 1, D0, 250, 800, GIB, 8 * GIB), rig_task(&rig, "b", 1, D0, 500, 800, GIB, 8 * GIB),
		rig_task(&rig, "c", 1, D0, 100, 800, GIB, 8 * GIB)};
	pid_t child = 0;
	store(&p[1].ctl->grant[0].policy_flags, ALQ_POLICY_LEND_MEM);
	if (!strncmp(point, "arbiter.adopt", 13)) {
		rig_start(&rig, point);
		status = rig_wait(&rig);
	} else {
		/* A child is the tenant that meets the dying arbiter. */
		rig_start(&rig, NULL);
		CHECK(rig_register(&rig, "a", &p[0], -1, &a) == ALQ_OK && rig_register(&rig, "b", &p[1], -1, &b) == ALQ_OK, "refused");
		exchange(&a, &b, 4);
		store(&p[0].tel->slot[a.slot].grant[0].mem_used, 2 * GIB);
		CHECK(rig_mem(&a, 0, 2 * GIB, &granted) == ALQ_OK, "memory is refused");
		rig_kill(&rig);
		rig_start(&rig, point);
		child = fork();
		if (child == 0) {
			struct tenant t;
			/* Each of these may be cut short by the end of the arbiter. */
			signal(SIGALRM, SIG_DFL);
			alarm(60);
			while (!rig_try(&rig, "ping", answer, sizeof answer))
				rig_pause();
			freopen("/dev/null", "w", stderr);
			rig_register(&rig, "a", &p[0], -1, &t);
			for (uint64_t round = 0; round < 4; round++) {
				store(&p[0].tel->slot[t.slot].grant[0].mem_used, 3 * GIB);
				rig_mem(&t, 0, (4 + round % 2) * GIB, &granted);
				store(&p[0].tel->slot[t.slot].grant[0].mem_used, GIB);
				rig_gate(&t, 0);
				rig_launch(&t, 0, MS);
				rig_done(&t, 0);
			}
			rig_register(&rig, "b", &p[1], -1, &t);
			store(&p[1].tel->slot[t.slot].grant[0].mem_used, 7 * GIB);
			rig_mem(&t, 0, 7 * GIB, &granted); /* with the floor of c, */
			struct tenant owner;
			rig_register(&rig, "c", &p[2], -1, &owner);
			rig_mem_ask(&owner, 0, GIB); /* which wants it and is told to wait */
			WAIT(load(&d->mem_wanted) != 0);
			rig_leave(&owner);
			rig_leave(&t);
			rig_try(&rig, "del c", answer, sizeof answer);
			rig_try(&rig, "quit", answer, sizeof answer);
			_exit(0);
		}
		status = rig_wait(&rig);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	bool reached = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	CHECK(reached || (hit > 1 && WIFEXITED(status) && WEXITSTATUS(status) == 0), "%s: never reached; status %#x", point, (unsigned)status);

	rig_start(&rig, NULL);
	if (!child)
		CHECK(rig_register(&rig, "a", &p[0], -1, &a) == ALQ_OK && rig_register(&rig, "b", &p[1], -1, &b) == ALQ_OK, "refused");
	uint64_t sum = 0;
	for (int i = 0; i < 3; i++)
		sum += load(&p[i].ctl->grant[0].mem_granted);
	CHECK(sum <= 10 * GIB, "%s: %llu bytes granted, more than there is", point, (unsigned long long)sum);
	CHECK(load(&d->mem_reserved) <= 10 * GIB, "%s: floors cannot be had", point);
	if (child) {
		CHECK(load(&p[0].ctl->grant[0].mem_granted) >= 2 * GIB, "%s: memory in use was taken away", point);
		CHECK(rig_register(&rig, "a", &p[0], (int32_t)a.slot, &again) == ALQ_OK && again.slot == a.slot, "%s: not its slot", point);
		CHECK(p[0].tel->slot[a.slot].grant[0].launched >= 2, "%s: its counters are lost", point);
		rig_gate(&again, 0);
		rig_launch(&again, 0, MS / 10);
		rig_done(&again, 0);
		CHECK(p[0].book->grant[0].leases > 0, "%s: the books are lost", point);
		rig_leave(&a);
		rig_leave(&b);
	} else {
		exchange(&a, &b, 2);
		again = a;
		rig_leave(&b);
	}
	rig_leave(&again);
	rig_ask(&rig, "ok", "add c");
	WAIT(load(&p[0].tel->slot[0].state) == ALQ_SLOT_FREE);
	rig_ask(&rig, "ok 1", "ping");
	struct pages left[3] = {p[0], p[1], p[2]};
	check_rows(&rig, d, left, 3);
	rig_close(&rig);
	return reached;
}

static void use(struct tenant *t)
{
	rig_gate(t, 0);
	rig_launch(t, 0, MS / 10);
	rig_done(t, 0);
}

/* What may be queued is a share's: its processes that launch have equal parts of it, and one alone has it all. */
static void test_run_ahead(void)
{
	struct rig rig;
	struct tenant t;
	int ready[2];
	rig_open(&rig, program);
	rig_device(&rig, D0[0], 16 * GIB);
	struct pages p = rig_task(&rig, "t", 1, D0, 250, 800, GIB, 2 * GIB);
	const struct alq_ctl_grant *c = &p.ctl->grant[0];
	rig_start(&rig, NULL);
	CHECK(rig_register(&rig, "t", &p, -1, &t) == ALQ_OK, "refused");
	CHECK(load(&c->run_ahead_ns) == MS && load(&c->run_ahead_launches) == 10, "one process may queue %u ns, %u launches", load(&c->run_ahead_ns),
		load(&c->run_ahead_launches));
	CHECK(!pipe(ready), "pipe: %s", strerror(errno));
	pid_t child[3];
	char x;
	for (int i = 0; i < 3; i++) {
		child[i] = fork();
		if (child[i] == 0) {
			if (rig_register(&rig, "t", &p, -1, &t) != ALQ_OK)
				_exit(1);
			for (bool told = false;; told = told || write(ready[1], "x", 1) == 1)
				use(&t);
		}
		CHECK(read(ready[0], &x, 1) == 1, "child %d has no turn", i);
	}
	WAIT((use(&t), load(&c->run_ahead_ns) == MS / 4 && load(&c->run_ahead_launches) == 2));
	CHECK(load(&c->run_ahead_share_ns) == MS, "a share of several may queue %u ns", load(&c->run_ahead_share_ns));
	for (int i = 0; i < 3; i++) {
		kill(child[i], SIGKILL);
		waitpid(child[i], NULL, 0);
	}
	WAIT((use(&t), load(&c->run_ahead_ns) == MS && load(&c->run_ahead_launches) == 10));
	rig_leave(&t);
	close(ready[0]);
	close(ready[1]);
	rig_close(&rig);
}

/* One registers, is killed with -9 while it holds the device, and the other goes on; slots run out in order. */
static void test_tenant_dies(void)
{
	struct rig rig;
	struct tenant t;
	int ready[2];
	rig_open(&rig, program);
	rig_device(&rig, D0[0], 16 * GIB);
	struct pages p[2] = {rig_task(&rig, "a", 1, D0, 500, 800, GIB, 2 * GIB), rig_task(&rig, "b", 1, D0, 250, 800, GIB, 2 * GIB)};
	rig_start(&rig, NULL);
	CHECK(!pipe(ready), "pipe: %s", strerror(errno));
	pid_t child = fork();
	if (child == 0) {
		rig_register(&rig, "a", &p[0], -1, &t);
		rig_gate(&t, 0);
		rig_launch(&t, 0, 1000 * MS);
		_exit(write(ready[1], "x", 1) == 1 ? pause() : 1);
	}
	char x;
	CHECK(read(ready[0], &x, 1) == 1, "the child did not get the device");
	CHECK(rig_register(&rig, "b", &p[1], -1, &t) == ALQ_OK, "refused");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	rig_gate(&t, 0);
	WAIT(load(&p[0].tel->slot[0].state) == ALQ_SLOT_FREE);
	rig_leave(&t);

	/* One slot a process, as many as there are; a place that is left is given again. */
	pid_t children[ALQ_MAX_PROCS];
	for (int i = 0; i < ALQ_MAX_PROCS; i++) {
		children[i] = fork();
		if (children[i] == 0)
			_exit(rig_register(&rig, "a", &p[0], -1, &t) == ALQ_OK && write(ready[1], "x", 1) == 1 ? pause() : 1);
	}
	for (int i = 0; i < ALQ_MAX_PROCS; i++)
		CHECK(read(ready[0], &x, 1) == 1, "child %d is refused", i);
	CHECK(rig_register(&rig, "a", &p[0], -1, &t) == ALQ_ERR_FULL, "more processes than slots");
	for (int i = 0; i < ALQ_MAX_PROCS; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
	WAIT(rig_register(&rig, "a", &p[0], -1, &t) == ALQ_OK);
	rig_leave(&t);
	close(ready[0]);
	close(ready[1]);
	rig_close(&rig);
}

/* A process that has lost its line registers again while the arbiter still holds that: same slot, what stands in it goes on, and the old line ends. */
static void test_line_renewed(void)
{
	struct rig rig;
	struct tenant first, second;
	uint64_t granted;
	rig_open(&rig, program);
	rig_device(&rig, D0[0], 16 * GIB);
	struct pages p = rig_task(&rig, "a", 1, D0, 500, 800, GIB, 2 * GIB);
	rig_start(&rig, NULL);
	CHECK(rig_register(&rig, "a", &p, -1, &first) == ALQ_OK, "refused");
	struct alq_tel_grant *t = &p.tel->slot[first.slot].grant[0];
	rig_gate(&first, 0);
	rig_launch(&first, 0, MS);
	__atomic_store_n(&t->mem_used, GIB / 2, __ATOMIC_SEQ_CST);
	uint64_t launched = load(&t->launched);
	CHECK(rig_register(&rig, "a", &p, (int32_t)first.slot, &second) == ALQ_OK && second.slot == first.slot, "not its slot");
	CHECK(load(&p.tel->slot[first.slot].state) == ALQ_SLOT_LIVE && load(&t->launched) == launched && load(&t->mem_used) == GIB / 2,
	      "what stood in its slot is gone");
	char byte;
	CHECK(read(first.line, &byte, 1) == 0, "the old line stands");
	rig_done(&second, 0);
	rig_gate(&second, 0);
	CHECK(rig_mem(&second, 0, GIB, &granted) == ALQ_OK, "no answer on the new line");
	rig_leave(&first);
	rig_leave(&second);
	rig_close(&rig);
}

int main(int argc, char **argv)
{
	static const char *const points[] = {"arbiter.adopt.devices", "arbiter.adopt.tasks", "arbiter.add.mapped", "arbiter.slot.cleared",
		"arbiter.register.before", "arbiter.gate.before", "arbiter.gate.after", "arbiter.book.half", "arbiter.device.half",
		"arbiter.memory.before", "arbiter.memory.after", "arbiter.memory.lowered", "arbiter.memory.lent", "arbiter.floor.wanted", "arbiter.del.moved", "arbiter.quit.written"};
	CHECK(argc > 1, "usage: %s ARBITER", argv[0]);
	program = argv[1];
	test_leases();
	test_ungated_and_resize();
	test_memory();
	test_lend();
	test_lend_hung_up();
	test_lend_away();
	test_lend_race();
	test_tenant_dies();
	test_line_renewed();
	test_stopped_arbiter();
	test_versions();
	test_stale_slots();
	test_stalls();
	test_hostile_bell();
	test_hostile_page();
	test_spoiled_page();
	test_given_user();
	test_run_ahead();
	test_crowd();
	test_fuzz();
	const int most = 8; /* of the times that a point comes by; those of adoption come by once a life */
	int deaths = 0;
	for (size_t i = 0; i < sizeof points / sizeof points[0]; i++)
		for (int hit = 1; hit <= (strncmp(points[i], "arbiter.adopt", 13) ? most : 1); hit++) {
			if (!test_killed(points[i], hit))
				break;
			deaths++;
		}
	printf("arbiter: leases, limits, memory, run-ahead, hostile tenants, fuzz, %d deaths at %zu points\n", deaths, sizeof points / sizeof points[0]);
	return 0;
}
