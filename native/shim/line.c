/* SPDX-License-Identifier: Apache-2.0 */
/*
 * line.c: the line to the arbiter: registration, memory asked for, and a thread that does nothing but notice that the line broke
 * and register again, with the slot held before, so that the counters and the memory of this process stay where they are.
 */
#include "shim.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#define ANSWER_S 2 /* how long an answer may take before the line counts as broken */
#define RETRY_LEAST_NS NS_PER_MS /* the next arbiter comes within some milliseconds, as a rule: soon at first, then twice as long each time, */
#define RETRY_MOST_NS (20 * NS_PER_MS)

static struct {
	struct lock lock; /* one question at a time; guards fd */
	int fd;
	bool registered;  /* a slot was held before */
} line = {.fd = -1};

/* A socket's address holds 107 characters, a path may have more: then the folder is named by a descriptor. */
static int line_open(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int folder = -1;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (strlen(task.folder) + sizeof("/arbiter.sock") <= sizeof(to.sun_path)) {
		snprintf(to.sun_path, sizeof(to.sun_path), "%.90s/arbiter.sock", task.folder);
	} else {
		folder = open(task.folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
		snprintf(to.sun_path, sizeof(to.sun_path), "/proc/self/fd/%d/arbiter.sock", folder);
	}
	struct timeval wait = {.tv_sec = ANSWER_S};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	int failed = connect(fd, (struct sockaddr *)&to, sizeof(to));
	if (folder >= 0)
		close(folder);
	if (failed) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Reads the welcome and the bell that comes with it. */
static bool line_welcomed(int fd, struct alq_welcome *welcome, int *bell)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = welcome, .iov_len = sizeof(*welcome)};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)};
	ssize_t n;
	do
		n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	*bell = -1;
	for (struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&msg); c != NULL; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(bell, CMSG_DATA(c), sizeof(*bell));
	}
	bool good = n == (ssize_t)sizeof(*welcome) && welcome->type == ALQ_WELCOME && welcome->status == ALQ_OK && *bell >= 0 &&
		    welcome->slot < ALQ_MAX_PROCS;
	if (!good && *bell >= 0)
		close(*bell);
	return good;
}

static void line_refused(const struct alq_welcome *w)
{
	if (w->type != ALQ_WELCOME || w->status == ALQ_OK)
		return;
	static uint32_t said;
	if (said == w->status)
		return;
	said = w->status;
	if (w->status == ALQ_ERR_VERSION)
		say("the arbiter speaks another version than this library; start the workload again after the update");
	else if (w->status == ALQ_ERR_FULL)
		say("this task already has %d processes on its devices, and more cannot be; end one first", ALQ_MAX_PROCS);
	else
		say("the arbiter refuses this process: its task is being ended");
}

/* The new line and bell take the old one's place. A bell that is closed while another thread rings it harms nobody: dup2 keeps
 * the number. */
static void line_take(int fd, const struct alq_welcome *welcome, int bell)
{
	if (task.bell < 0) {
		put(&task.bell, bell);
	} else {
		dup3(bell, task.bell, O_CLOEXEC);
		close(bell);
	}
	lock_take(&line.lock);
	line.fd = fd;
	line.registered = true;
	lock_give(&line.lock);
	put(&task.slot, welcome->slot);
	put(&task.tel->slot[welcome->slot].shim_version, SHIM_VERSION);
	put_release(&task.alone_ns, 0);
	memory_republish();
	meter_republish();
}

bool line_connect(void)
{
	struct alq_hello hello = {
		.type = ALQ_HELLO,
		.magic = ALQ_ABI_MAGIC,
		.version = ALQ_ABI_VERSION,
		.shim_version = SHIM_VERSION,
		.slot = line.registered ? (int32_t)get(&task.slot) : -1,
	};
	struct alq_welcome welcome = {0};
	int bell;
	int fd = line_open();
	if (fd < 0)
		return false;
	if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello) || !line_welcomed(fd, &welcome, &bell)) {
		line_refused(&welcome);
		close(fd);
		return false;
	}
	line_take(fd, &welcome, bell);
	return true;
}

static void line_drop(void)
{
	lock_take(&line.lock);
	if (line.fd >= 0)
		close(line.fd);
	line.fd = -1;
	lock_give(&line.lock);
}

/* Whoever waits at a gate is to look again: nobody opens it any more. Repeated while there is no line, so that one who looked just before and
 * sleeps since is reached too. */
static void line_alert(void)
{
	for (uint32_t g = 0; g < task.grants; g++)
		futex_wake(&task.ctl->grant[g].gate, INT_MAX, true);
}

static void *line_keeper(void *unused)
{
	for (;;) {
		struct pollfd p = {.fd = line.fd, .events = POLLRDHUP};
		int n = poll(&p, 1, -1);
		if (n < 0 || (n > 0 && p.revents == 0))
			continue;
		put_release(&task.alone_ns, clock_now());
		line_drop();
		for (uint64_t pause = RETRY_LEAST_NS; !line_connect(); pause = 2 * pause < RETRY_MOST_NS ? 2 * pause : RETRY_MOST_NS) {
			uint32_t never = 0;
			line_alert();
			futex_wait_until(&never, 0, clock_now() + pause, false);
		}
	}
	return unused;
}

void line_keep(void)
{
	if (thread_start(line_keeper, NULL) != 0)
		say("no thread could be started to keep the line to the arbiter; after a restart of it this program runs at its floor");
}

enum asked line_ask_memory(uint32_t grant, uint64_t want, uint64_t until)
{
	struct alq_mem_ask ask = {.type = ALQ_MEM_ASK, .grant = grant, .want = want};
	struct alq_mem_answer answer = {0};
	lock_take(&line.lock);
	bool sent = line.fd >= 0 && send(line.fd, &ask, sizeof(ask), MSG_NOSIGNAL) == (ssize_t)sizeof(ask);
	ssize_t n = -1;
	if (sent) {
		do
			n = recv(line.fd, &answer, sizeof(answer), 0);
		while (n < 0 && (errno == EINTR || (errno == EAGAIN && clock_now() < until)));
		/* A late answer would be taken for the next one's: the line is given up, and the keeper makes a new one. */
		if (n != (ssize_t)sizeof(answer) || answer.type != ALQ_MEM_ANSWER)
			shutdown(line.fd, SHUT_RDWR);
	}
	lock_give(&line.lock);
	if (n != (ssize_t)sizeof(answer) || answer.type != ALQ_MEM_ANSWER)
		return ASK_LOST;
	return answer.status == ALQ_OK && answer.granted >= want ? ASK_GRANTED : ASK_REFUSED;
}

void line_forget(void)
{
	if (line.fd >= 0)
		close(line.fd);
	if (task.bell >= 0)
		close(task.bell);
	task.bell = -1;
	line.fd = -1;
	line.registered = false;
	line.lock.word = 0;
	task.alone_ns = 0;
}
