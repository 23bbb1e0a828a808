/* SPDX-License-Identifier: Apache-2.0 */
/* away.c: an arbiter that is there and does not run, and one that is of another version than pages or programs. */
#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
	rig_leave(&t);
	rig_close(&rig);
}
