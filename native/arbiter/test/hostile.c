/* SPDX-License-Identifier: Apache-2.0 */
/* hostile.c: tenants that misuse what they are given (bell, page, socket) harm nobody but themselves, nor do crowds. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The bell's flags and count belong to whoever holds it: a tenant makes reads of it block, rings until it is not heard for a while, and
 * takes what it rang back. The arbiter must not wait for it.
 */
void test_hostile_bell(void)
{
	struct rig rig;
	struct tenant good, bad;
	rig_open(&rig, program);
	rig_device(&rig, D0[0], 16 * GIB);
	struct pages p[2] = {rig_task(&rig, "good", 1, D0, 500, 800, GIB, 2 * GIB), rig_task(&rig, "bad", 1, D0, 250, 800, GIB, 2 * GIB)};
	rig_start(&rig, NULL);
	CHECK(rig_register(&rig, "good", &p[0], -1, &good) == ALQ_OK && rig_register(&rig, "bad", &p[1], -1, &bad) == ALQ_OK, "refused");
	CHECK(!fcntl(bad.bell, F_SETFL, 0), "fcntl: %s", strerror(errno));
	for (int round = 0; round < 8; round++) {
		pid_t child = fork(); /* it may block in the read, as the arbiter must not */
		if (child == 0) {
			uint64_t one = 1;
			for (uint64_t until = rig_now() + 2 * MS; rig_now() < until;)
				if (write(bad.bell, &one, sizeof one) != sizeof one)
					_exit(1);
			_exit(read(bad.bell, &one, sizeof one) == sizeof one ? pause() : 1);
		}
		for (int beats = 0; beats < 2; beats++) { /* it lives, also once it would have read */
			uint64_t beat = load(&p[0].ctl->heartbeat_ns);
			WAIT(load(&p[0].ctl->heartbeat_ns) > beat);
		}
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	exchange(&good, &bad, 4); /* and hears both */
	rig_leave(&bad);
	rig_leave(&good);
	rig_close(&rig);
}

/* A tenant cuts its own page short and scribbles over it: the other one goes on. */
void test_hostile_page(void)
{
	struct rig rig;
	struct tenant good, bad;
	char path[256];
	rig_open(&rig, program);
	rig_device(&rig, D0[0], 16 * GIB);
	struct pages p[2] = {rig_task(&rig, "good", 1, D0, 500, 800, GIB, 2 * GIB), rig_task(&rig, "bad", 1, D0, 250, 800, GIB, 2 * GIB)};
	rig_start(&rig, NULL);
	CHECK(rig_register(&rig, "good", &p[0], -1, &good) == ALQ_OK && rig_register(&rig, "bad", &p[1], -1, &bad) == ALQ_OK, "refused");
	uint64_t seed = 42;
	uint64_t *words = (uint64_t *)p[1].tel->slot;
	for (int round = 0; round < 200; round++) {
		for (size_t i = 0; i < sizeof(struct alq_slot) / 8; i++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			store(&words[i], seed % 3 ? seed : seed % 5 ? rig_now() + seed % (10 * MS) : 0);
		}
		uint64_t one = 1;
		CHECK(write(bad.bell, &one, sizeof one) == sizeof one, "bell");
		rig_gate(&good, 0);
		rig_launch(&good, 0, MS / 10);
		rig_done(&good, 0);
	}
	snprintf(path, sizeof path, "%s/tasks/bad/tel", rig.run);
	CHECK(!truncate(path, 0), "truncate: %s", strerror(errno));
	uint64_t beat = load(&p[0].ctl->heartbeat_ns);
	WAIT(load(&p[0].ctl->heartbeat_ns) > beat); /* it has looked, and lives */
	exchange(&good, &good, 2);
	rig_ask(&rig, "ok", "del bad");
	rig_ask(&rig, "ok", "policy good");
	rig_leave(&bad);
	rig_leave(&good);
	rig_close(&rig);
}

/* A tenant spoils the page that it may write, and the arbiter is replaced: the next one still holds the task to its limits and counts what it has. */
void test_spoiled_page(void)
{
	static const char *const ways[] = {"scribbled over", "cut short", "made unreadable"};
	for (int way = 0; way < 3; way++) {
		struct rig rig;
		struct tenant good, bad;
		char path[256];
		rig_open(&rig, program);
		struct alq_device *d = rig_device(&rig, D0[0], 10 * GIB);
		struct pages bp = rig_task(&rig, "bad", 1, D0, 250, 1000, GIB, 8 * GIB);
		rig_start(&rig, NULL);
		CHECK(rig_register(&rig, "bad", &bp, -1, &bad) == ALQ_OK, "refused");
		store(&bp.tel->slot[bad.slot].grant[0].mem_used, 4 * GIB);
		CHECK(rig_mem(&bad, 0, 4 * GIB, NULL) == ALQ_OK, "memory is refused");
		WAIT(load(&bp.ctl->grant[0].gate) & ALQ_GATE_UNGATED);
		snprintf(path, sizeof path, "%s/tasks/bad/tel", rig.run);
		if (way == 0)
			store(&bp.tel->header.magic, 0);
		else
			CHECK(way == 1 ? !truncate(path, 64) : !unlink(path) && !mkfifo(path, 0), "%s: %s", path, strerror(errno));
		rig_kill(&rig);
		struct pages gp = rig_task(&rig, "good", 1, D0, 250, 1000, GIB, 9 * GIB);
		rig_start(&rig, NULL);
		rig_ask(&rig, "ok", "policy bad"); /* it is known */
		CHECK(!(load(&bp.ctl->grant[0].gate) & ALQ_GATE_UNGATED), "%s: it runs without limit beside another", ways[way]);
		CHECK(load(&d->mem_reserved) == 5 * GIB, "%s: %llu bytes reserved", ways[way], (unsigned long long)load(&d->mem_reserved));
		CHECK(rig_register(&rig, "good", &gp, -1, &good) == ALQ_OK, "refused");
		CHECK(rig_mem(&good, 0, 6 * GIB + 1, NULL) == ALQ_ERR_NO_MEM, "%s: what the other holds is granted again", ways[way]);
		CHECK(rig_mem(&good, 0, 6 * GIB, NULL) == ALQ_OK, "%s: what is left is refused", ways[way]);
		exchange(&good, &good, 4);
		rig_leave(&good);
		rig_leave(&bad);
		rig_ask(&rig, "ok", "del bad");
		rig_close(&rig);
	}
}

/* Whether a process of this user is let in as one of the task. */
static bool admits(const struct rig *rig, uid_t user)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		struct alq_hello hello = {.type = ALQ_HELLO, .magic = ALQ_ABI_MAGIC, .version = ALQ_ABI_VERSION, .shim_version = rig_shim_version, .slot = -1};
		struct alq_welcome welcome = {0};
		char path[256];
		snprintf(path, sizeof path, "%s/tasks/t/arbiter.sock", rig->run);
		if (setuid(user))
			_exit(2);
		int fd = rig_dial(path);
		if (fd < 0 || send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
			_exit(1);
		_exit(recv(fd, &welcome, sizeof welcome, 0) != sizeof welcome || welcome.status != ALQ_OK);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) < 2, "a process of user %u", user);
	return !WEXITSTATUS(status);
}

/* A task is given to a user while it is there: processes of that one come in and no others', now and by the next arbiter, whoever its page belongs to. */
void test_given_user(void)
{
	if (geteuid() != 0)
		return; /* others' processes are needed */
	struct rig rig;
	char path[4][256];
	static const char *const names[] = {"arbiter.sock", "user", "tel", ".."};
	struct stat st;
	rig_open(&rig, program);
	rig_device(&rig, D0[0], 10 * GIB);
	rig_task(&rig, "t", 1, D0, 250, 1000, GIB, 2 * GIB);
	for (int i = 0; i < 4; i++)
		snprintf(path[i], sizeof path[i], "%s/tasks/t/%s", rig.run, names[i]);
	CHECK(!chmod(rig.run, 0755) && !chmod(path[3], 0755), "chmod: %s", strerror(errno));
	rig_start(&rig, NULL);
	CHECK(!chmod(path[0], 0666), "chmod: %s", strerror(errno)); /* so that the arbiter is who refuses */
	CHECK(!admits(&rig, 1000) && admits(&rig, 0), "it is anybody's before it is given");
	CHECK(!symlink("1000", path[1]), "symlink: %s", strerror(errno));
	CHECK(admits(&rig, 1000), "user 1000, whom it was given to, is turned away");
	CHECK(!admits(&rig, 1001), "user 1001 comes in, and it is user 1000's");
	CHECK(!chown(path[2], 1001, 1001), "chown: %s", strerror(errno)); /* as the root of a container may */
	rig_kill(&rig);
	rig_start(&rig, NULL);
	CHECK(!stat(path[0], &st) && st.st_uid == 1000, "the socket is user %u's, not 1000's", st.st_uid);
	CHECK(admits(&rig, 1000) && !admits(&rig, 1001), "the next arbiter lets others in");
	rig_ask(&rig, "ok", "del t");
	rig_close(&rig);
}

/* Random messages on both sockets, and random bytes in pages that are added. */
void test_fuzz(void)
{
	struct rig rig;
	struct tenant t;
	char path[256], answer[1100];
	uint64_t seed = 7;
	rig_open(&rig, program);
	rig_device(&rig, D0[0], 16 * GIB);
	struct pages p = rig_task(&rig, "t", 1, D0, 500, 800, GIB, 2 * GIB);
	rig_start(&rig, NULL);
	for (int round = 0; round < 300; round++) {
		union {
			unsigned char bytes[300];
			uint32_t words[75];
		} message;
		for (size_t i = 0; i < 75; i++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			message.words[i] = (seed >> 33) % 4 ? (uint32_t)(seed >> 32) : (uint32_t)((seed >> 40) % 5);
		}
		struct sockaddr_un to = {.sun_family = AF_UNIX};
		snprintf(to.sun_path, sizeof to.sun_path, round % 2 ? "%s/tasks/t/arbiter.sock" : "%s/arbiter.ctl", rig.run);
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof to), "connect: %s", strerror(errno));
		size_t size = round % 3 ? sizeof(struct alq_hello) : (seed >> 20) % sizeof message + 1;
		CHECK(send(fd, message.bytes, size, MSG_NOSIGNAL) > 0, "send: %s", strerror(errno));
		close(fd);
	}
	for (int round = 0; round < 30; round++) {
		char uid[16];
		snprintf(uid, sizeof uid, "f%d", round);
		struct pages f = rig_task(&rig, uid, 1, D0, 100, 800, GIB, 2 * GIB);
		unsigned char *bytes = round % 3 == 0 ? (unsigned char *)f.ctl : round % 3 == 1 ? (unsigned char *)f.tel : (unsigned char *)f.book;
		for (int i = 0; i < 2000; i++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			bytes[(seed >> 33) % (round % 2 ? 5000 : 200)] = (unsigned char)(seed >> 56);
		}
		if (round % 5 == 4) {
			snprintf(path, sizeof path, "%s/tasks/%s/%s", rig.run, uid, round % 2 ? "tel" : "book");
			CHECK(!truncate(path, 4096), "truncate: %s", strerror(errno));
		}
		char line[64];
		snprintf(line, sizeof line, "add %s", uid);
		CHECK(rig_try(&rig, line, answer, sizeof answer), "it died of a page");
		rig_ask(&rig, "ok", "del %s", uid);
	}
	CHECK(rig_register(&rig, "t", &p, -1, &t) == ALQ_OK, "refused after all that");
	rig_gate(&t, 0);
	rig_leave(&t);
	rig_close(&rig);
}

/* More questions at once than it has lines: each is answered, in turn. */
void test_crowd(void)
{
	enum { ASKING = 100 };
	struct rig rig;
	int fd[ASKING];
	char answer[512];
	rig_open(&rig, program);
	rig_start(&rig, NULL);
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	snprintf(to.sun_path, sizeof to.sun_path, "%.90s/arbiter.ctl", rig.run);
	for (int i = 0; i < ASKING; i++) {
		fd[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		CHECK(fd[i] >= 0 && !connect(fd[i], (struct sockaddr *)&to, sizeof to), "connect %d: %s", i, strerror(errno));
		CHECK(send(fd[i], "ping", 4, MSG_NOSIGNAL) == 4, "send %d: %s", i, strerror(errno));
	}
	for (int i = 0; i < ASKING; i++) {
		CHECK(recv(fd[i], answer, sizeof answer, 0) > 2 && !memcmp(answer, "ok ", 3), "question %d is not answered", i);
		close(fd[i]);
	}
	rig_ask(&rig, "ok", "quit");
	rig_wait(&rig);
	rig_close(&rig);
}
