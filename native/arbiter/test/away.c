/* SPDX-License-Identifier: Apache-2.0 */
/* away.c: an arbiter that is there and does not run, one of another version than pages or programs, one that finds slots of the ended. */
#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void stop(const struct rig *rig)
{
	int status;
	CHECK(!kill(rig->arbiter, SIGSTOP), "stop: %s", strerror(errno));
	CHECK(waitpid(rig->arbiter, &status, WUNTRACED) == rig->arbiter && WIFSTOPPED(status), "it did not stop");
}

/*
 * Stopped (SIGSTOP, or a machine that was paused) while one has the device and another waits for it: who had the device is not charged for a
 * time in which it let nobody in, who waited is not owed it, and the rows add up.
 */
void test_stopped_arbiter(void)
{
	static const uint64_t pauses[] = {250 * MS, 1200 * MS};
	for (int i = 0; i < 2; i++) {
		struct rig rig;
		struct tenant a, b;
		uint64_t one = 1;
		rig_open(&rig, program);
		struct alq_device *d = rig_device(&rig, D0[0], 16 * GIB);
		struct pages p[2] = {rig_task(&rig, "a", 1, D0, 500, 1000, GIB, 2 * GIB), rig_task(&rig, "b", 1, D0, 500, 1000, GIB, 2 * GIB)};
		rig_start(&rig, NULL);
		CHECK(rig_register(&rig, "a", &p[0], -1, &a) == ALQ_OK && rig_register(&rig, "b", &p[1], -1, &b) == ALQ_OK, "refused");
		exchange(&a, &b, 10);
		rig_ask(&rig, "ok", "ping");
		rig_gate(&a, 0);
		rig_launch(&a, 0, MS / 10);
		store(&p[1].tel->slot[b.slot].grant[0].wait_since_ns, rig_now());
		stop(&rig);
		uint64_t held = p[0].book->grant[0].held_ns, since = rig_now();
		CHECK(write(b.bell, &one, sizeof one) == sizeof one, "bell: %s", strerror(errno));
		rig_done(&a, 0);
		WAIT(rig_now() > since + pauses[i]);
		CHECK(!kill(rig.arbiter, SIGCONT), "continue: %s", strerror(errno));
		check_rows(&rig, d, p, 2);
		/* Longer than programs wait for a heartbeat, they are taken to have kept to their floors. */
		uint64_t own = pauses[i] > ALQ_ARBITER_LOST_NS ? (rig_now() - since) / 2 : 0, most = held + own + 60 * MS;
		CHECK(p[0].book->grant[0].held_ns <= most, "charged %llu ms for a pause of %llu ms",
			(unsigned long long)((p[0].book->grant[0].held_ns - held) / MS), (unsigned long long)(pauses[i] / MS));
		CHECK(p[0].book->grant[0].credit_ns > -60 * (int64_t)MS, "owes %lld ms for a pause of %llu ms",
			(long long)(-p[0].book->grant[0].credit_ns / (int64_t)MS), (unsigned long long)(pauses[i] / MS));
		CHECK(p[1].book->grant[0].credit_ns < 60 * (int64_t)MS, "is owed %lld ms for a pause of %llu ms",
			(long long)(p[1].book->grant[0].credit_ns / (int64_t)MS), (unsigned long long)(pauses[i] / MS));
		exchange(&b, &a, 10);
		rig_leave(&a);
		rig_leave(&b);
		rig_close(&rig);
	}
}

/* The status with which a program of another version is turned away. */
static uint32_t greet(const struct rig *rig, const char *uid, uint32_t version)
{
	struct alq_hello hello = {.type = ALQ_HELLO, .magic = ALQ_ABI_MAGIC, .version = version, .slot = -1};
	struct alq_welcome welcome = {0};
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	snprintf(to.sun_path, sizeof to.sun_path, "%.60s/tasks/%s/arbiter.sock", rig->run, uid);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof to), "connect: %s", strerror(errno));
	CHECK(send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello, "hello: %s", strerror(errno));
	CHECK(recv(fd, &welcome, sizeof welcome, 0) == sizeof welcome && welcome.type == ALQ_WELCOME, "no welcome");
	uint32_t status = welcome.status;
	CHECK(status == ALQ_OK || recv(fd, &welcome, sizeof welcome, 0) == 0, "the line stays open");
	close(fd);
	return status;
}

/* Pages and programs of another version than the arbiter's are refused by name of both, and harm no others; pages are left as they are. */
void test_versions(void)
{
	struct rig rig;
	struct tenant t;
	char answer[512];
	rig_open(&rig, program);
	rig_device(&rig, D0[0], 16 * GIB);
	struct pages p[2] = {rig_task(&rig, "ours", 1, D0, 500, 800, GIB, 2 * GIB), rig_task(&rig, "newer", 1, D0, 250, 800, GIB, 2 * GIB)};
	p[0].ctl->header.minor = p[0].tel->header.minor = p[0].book->header.minor = ALQ_ABI_MINOR + 1; /* taken, and left so */
	p[1].ctl->header.version = p[1].tel->header.version = p[1].book->header.version = ALQ_ABI_VERSION + 1;
	rig_start(&rig, NULL);
	rig_ask(&rig, "error: task newer is not known", "policy newer");
	CHECK(rig_try(&rig, "add newer", answer, sizeof answer) && strstr(answer, "version 2, this arbiter speaks version 1"), "answered \"%s\"", answer);
	CHECK(load(&p[1].ctl->arbiter_epoch) == 0 && load(&p[1].ctl->heartbeat_ns) == 0, "it wrote into a page that it does not understand");
	CHECK(greet(&rig, "ours", ALQ_ABI_VERSION + 1) == ALQ_ERR_VERSION, "a newer program is let in");
	CHECK(greet(&rig, "ours", ALQ_ABI_VERSION - 1) == ALQ_ERR_VERSION, "an older program is let in");
	CHECK(rig_register(&rig, "ours", &p[0], -1, &t) == ALQ_OK, "refused");
	rig_gate(&t, 0);
	rig_launch(&t, 0, MS / 10);
	rig_done(&t, 0);
	CHECK(p[0].ctl->header.minor == ALQ_ABI_MINOR + 1, "the minor version of a page was changed");
	rig_leave(&t);
	rig_close(&rig);
}

/* When a process started: field 22 of /proc/PID/stat, behind its name, which ends with the last bracket. */
static uint64_t started(pid_t pid)
{
	char path[64], text[1024];
	unsigned long long at = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	FILE *file = fopen(path, "re");
	CHECK(file, "%s: %s", path, strerror(errno));
	text[fread(text, 1, sizeof text - 1, file)] = '\0';
	fclose(file);
	const char *rest = strrchr(text, ')');
	CHECK(rest && sscanf(rest + 1, " %*c%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s %llu", &at) == 1 && at, "%s: no start", path);
	return at;
}

static pid_t bystander(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0, "fork: %s", strerror(errno));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(pause());
	}
	return pid;
}

/* As an earlier arbiter left it. */
static void leave_slot(const struct pages *p, int slot, pid_t pid, uint64_t start, uint64_t launched)
{
	struct alq_slot *s = &p->tel->slot[slot];
	s->pid = pid;
	s->start_time = start;
	s->grant[0].launched = s->grant[0].completed = launched;
	s->grant[0].mem_used = GIB / 4;
	s->state = ALQ_SLOT_LIVE;
}

/*
 * Slots that an earlier arbiter gave: a process that lives keeps its own; one whose process has ended is freed, also where a living one
 * has its pid by now, which is told by when that started. What a freed one launched stays counted, and its place and memory are there again.
 */
void test_stale_slots(void)
{
	enum { OURS, REUSED, ENDED, NEVER, SLOTS };
	struct rig rig;
	struct tenant t;
	rig_open(&rig, program);
	rig_device(&rig, D0[0], 16 * GIB);
	struct pages p = rig_task(&rig, "a", 1, D0, 250, 800, GIB, 2 * GIB);
	pid_t living = bystander(), ended = bystander();
	uint64_t ended_start = started(ended);
	kill(ended, SIGKILL);
	waitpid(ended, NULL, 0);
	leave_slot(&p, OURS, getpid(), started(getpid()), 1);
	leave_slot(&p, REUSED, living, started(living) - 1, 20);
	leave_slot(&p, ENDED, ended, ended_start, 300);
	leave_slot(&p, NEVER, -1, started(living), 4000);
	rig_start(&rig, NULL); /* it has adopted the task when it answers */
	const struct alq_slot *s = p.tel->slot;
	CHECK(load(&s[OURS].state) == ALQ_SLOT_LIVE && s[OURS].pid == getpid(), "a living process has lost its slot");
	CHECK(load(&s[REUSED].state) == ALQ_SLOT_FREE && s[REUSED].pid == 0, "a slot is kept for a process whose pid another has");
	CHECK(load(&s[ENDED].state) == ALQ_SLOT_FREE, "a slot is kept for a process that has ended");
	CHECK(load(&s[NEVER].state) == ALQ_SLOT_FREE, "a slot is kept for what is no process");
	CHECK(s[REUSED].grant[0].mem_used == 0 && s[REUSED].grant[0].launched == 0, "a freed slot is not empty");
	uint64_t launches = load(&p.book->grant[0].launches_ended);
	CHECK(launches == 4320, "%llu launches of processes that have ended, not 4320", (unsigned long long)launches);

	/* Who registers again goes on in its slot. */
	CHECK(rig_register(&rig, "a", &p, OURS, &t) == ALQ_OK && t.slot == OURS, "not its slot");
	CHECK(s[OURS].grant[0].launched == 1, "its counters are lost");
	CHECK(load(&s[OURS].start_time) == started(getpid()), "its start is not in its slot");
	rig_leave(&t);
	WAIT(load(&s[OURS].state) == ALQ_SLOT_FREE);
	CHECK(load(&p.book->grant[0].launches_ended) == 4321, "what it launched is not counted");
	kill(living, SIGKILL);
	waitpid(living, NULL, 0);
	rig_close(&rig);
}

/* What the page of a device says that it is sick of, read whole; false: of nothing. */
static bool sick(const struct alq_device *d, char uid[ALQ_UID_LEN], int *pid)
{
	uint32_t seq;
	bool is;
	do {
		seq = __atomic_load_n(&d->seq, __ATOMIC_SEQ_CST);
		is = load(&d->stall_since_ns) != 0;
		memcpy(uid, d->stall_uid, ALQ_UID_LEN);
		*pid = (int)load(&d->stall_pid);
	} while ((seq & 1) != 0 || seq != __atomic_load_n(&d->seq, __ATOMIC_SEQ_CST));
	return is;
}

/* Two tenants beside each other until the device is sick: the hog's work does not end, the owner launches again and again. Where `again`, the
 * hog's process registers anew each time that the owner has launched. */
static void fall_sick(struct rig *rig, const struct alq_device *d, struct pages *hog, struct tenant *h, struct tenant *owner, bool again)
{
	char uid[ALQ_UID_LEN];
	int pid;
	for (uint64_t until = rig_now() + 60000 * MS; !sick(d, uid, &pid);) {
		CHECK(rig_now() < until, "never sick%s", again ? " of a process that registers again and again" : "");
		rig_gate(owner, 0);
		rig_launch(owner, 0, 4 * MS);
		uint64_t end = rig_now() + 8 * MS; /* half of the device is left to it */
		WAIT(rig_now() > end);
		store(&owner->pages.tel->slot[owner->slot].grant[0].wait_since_ns, rig_now()); /* one that never idles, however slow this machine is */
		rig_done(owner, 0);
		struct tenant old = *h;
		if (!again)
			continue;
		CHECK(rig_register(rig, "hog", hog, (int32_t)old.slot, h) == ALQ_OK && h->slot == old.slot, "not its slot");
		rig_leave(&old);
	}
	CHECK(!strcmp(uid, "hog") && pid == getpid(), "sick of %s, process %d", uid, pid);
}

/*
 * Work that does not end: a process that registers again and again does not make it look new; an arbiter that was not there begins anew, since
 * nobody's work was heard of meanwhile; and with its task it is gone from the page at once, before its place is another's.
 */
void test_stalls(void)
{
	struct rig rig;
	struct tenant h, owner;
	rig_open(&rig, program);
	struct alq_device *d = rig_device(&rig, D0[0], 16 * GIB);
	struct pages p[2] = {rig_task(&rig, "hog", 1, D0, 100, 1000, GIB, 2 * GIB), rig_task(&rig, "owner", 1, D0, 900, 1000, GIB, 2 * GIB)};
	rig_start(&rig, NULL);
	CHECK(rig_register(&rig, "hog", &p[0], -1, &h) == ALQ_OK && rig_register(&rig, "owner", &p[1], -1, &owner) == ALQ_OK, "refused");
	exchange(&h, &owner, 5);
	rig_gate(&h, 0);
	rig_launch(&h, 0, MS);
	fall_sick(&rig, d, &p[0], &h, &owner, true);

	stop(&rig);
	uint64_t paused = rig_now();
	WAIT(rig_now() > paused + 250 * MS);
	uint64_t goes_on = rig_now();
	CHECK(!kill(rig.arbiter, SIGCONT), "continue: %s", strerror(errno));
	WAIT(load(&d->stall_since_ns) == 0 || load(&d->stall_since_ns) > goes_on);
	fall_sick(&rig, d, &p[0], &h, &owner, false);
	CHECK(load(&d->stall_since_ns) > goes_on, "what was not heard of is held against it");

	rig_ask(&rig, "ok", "del hog");
	CHECK(load(&d->stall_since_ns) == 0 && d->stall_uid[0] == 0, "sick of a task that is no more");
	rig_leave(&h);
	rig_leave(&owner);
	rig_close(&rig);
}
