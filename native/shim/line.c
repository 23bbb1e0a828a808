/* SPDX-License-Identifier: Apache-2.0 */
/*
 * line.c: the line to the arbiter: registration, memory asked for, and a thread that does nothing but notice that the line broke
 * and register again, with the slot held before, so that the counters and the memory of this process stay where they are.
 */
#include "descriptor.h"
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

/* Signal that a bell would send if it sent any: all eventfds are one file to fstat, and nothing else tells ours from the program's. */
#define BELL_MARK 63

static struct {
	struct lock lock;    /* one question at a time; guards what follows */
	int fd;
	struct file_id file; /* what fd is open on */
	uint32_t made;       /* how many lines there have been */
	bool registered;     /* a slot was held before */
	struct lock making;  /* one at a time */
	struct file_id bell; /* of all bells; written before there is one */
} line = {.fd = -1};

/* Whether the line, or the bell, is still ours: the program may have closed it, and have a file of its own by its number. */
static bool line_is(void)
{
	return file_is(line.fd, &line.file);
}

static bool bell_is(int fd)
{
	return file_is(fd, &line.bell) && fcntl(fd, F_GETSIG) == BELL_MARK;
}

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

/* The new line and bell take the old one's place. A bell that is closed while another thread rings it harms nobody: dup3 keeps
 * the number. */
static void line_take(int fd, const struct alq_welcome *welcome, int bell)
{
	fcntl(bell, F_SETSIG, BELL_MARK);
	if (!bell_is(task.bell)) {
		if (line.bell.ino == 0)
			file_of(bell, &line.bell);
		put_release(&task.bell, bell);
	} else {
		dup3(bell, task.bell, O_CLOEXEC);
		close(bell);
	}
	lock_take(&line.lock);
	if (line_is())
		close(line.fd);
	line.fd = fd;
	file_of(fd, &line.file);
	put(&line.made, line.made + 1);
	line.registered = true;
	lock_give(&line.lock);
	put(&task.slot, welcome->slot);
	put(&task.tel->slot[welcome->slot].shim_version, SHIM_VERSION);
	put_release(&task.alone_ns, 0);
	driver_republish();
	memory_republish();
	meter_republish();
}

static bool line_make(void)
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

/* In place of the line of that number, unless another has taken its place already. */
static bool line_renew(uint32_t made)
{
	int cancel = cancel_off();
	lock_take(&line.making);
	bool done = get(&line.made) != made || line_make();
	lock_give(&line.making);
	cancel_restore(cancel);
	return done;
}

bool line_connect(void)
{
	return line_renew(get(&line.made));
}

/* The program has closed the line or the bell. The arbiter lets the old line go for the new one, which has the keeper look. */
static void line_mend(uint32_t made)
{
	if (get_acquire(&task.alone_ns) == 0)
		line_renew(made);
}

void task_ring(void)
{
	uint64_t one = 1;
	int cancel = cancel_off();
	uint32_t made = get(&line.made);
	int bell = get_acquire(&task.bell);
	if (bell >= 0 && !bell_is(bell)) {
		line_mend(made);
		bell = get_acquire(&task.bell);
	}
	if (bell_is(bell)) {
		ssize_t full = write(bell, &one, sizeof(one)); /* then it rings already */
		(void)full;
	}
	cancel_restore(cancel);
}

static void line_drop(void)
{
	lock_take(&line.lock);
	if (line_is())
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

/* Sleeps until a line has broken. Returns its number. */
static uint32_t line_watch(void)
{
	for (;;) {
		lock_take(&line.lock);
		struct pollfd p = {.fd = line.fd, .events = POLLRDHUP};
		uint32_t made = line.made;
		bool ours = line_is();
		lock_give(&line.lock);
		int n = ours ? poll(&p, 1, -1) : 1;
		if ((!ours || (n > 0 && p.revents != 0)) && get(&line.made) == made)
			return made;
	}
}

static void *line_keeper(void *unused)
{
	for (;;) {
		uint32_t made = line_watch();
		put_release(&task.alone_ns, clock_now());
		line_drop();
		for (uint64_t pause = RETRY_LEAST_NS; !line_renew(made); pause = 2 * pause < RETRY_MOST_NS ? 2 * pause : RETRY_MOST_NS) {
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

/* Asks over the line that there is. *made: its number. False: it is not ours any more. */
static bool line_ask(const struct alq_mem_ask *ask, struct alq_mem_answer *answer, uint64_t until, uint32_t *made)
{
	lock_take(&line.lock);
	*made = line.made;
	bool ours = line_is();
	bool sent = ours && send(line.fd, ask, sizeof(*ask), MSG_NOSIGNAL) == (ssize_t)sizeof(*ask);
	ssize_t n = -1;
	if (sent) {
		do
			n = recv(line.fd, answer, sizeof(*answer), 0);
		while (n < 0 && (errno == EINTR || (errno == EAGAIN && clock_now() < until)));
		/* A late answer would be taken for the next one's: the line is given up, and the keeper makes a new one. */
		if ((n != (ssize_t)sizeof(*answer) || answer->type != ALQ_MEM_ANSWER) && line_is())
			shutdown(line.fd, SHUT_RDWR);
	}
	lock_give(&line.lock);
	if (n != (ssize_t)sizeof(*answer))
		answer->type = 0;
	return ours;
}

enum asked line_ask_memory(uint32_t grant, uint64_t want, uint64_t until)
{
	struct alq_mem_ask ask = {.type = ALQ_MEM_ASK, .grant = grant, .want = want};
	struct alq_mem_answer answer = {0};
	uint32_t made;
	int cancel = cancel_off();
	if (!line_ask(&ask, &answer, until, &made)) {
		line_mend(made);
		line_ask(&ask, &answer, until, &made);
	}
	cancel_restore(cancel);
	if (answer.type != ALQ_MEM_ANSWER)
		return ASK_LOST;
	return answer.status == ALQ_OK && answer.granted >= want ? ASK_GRANTED : ASK_REFUSED;
}

void line_forget(void)
{
	if (line_is())
		close(line.fd);
	if (bell_is(task.bell))
		close(task.bell);
	task.bell = -1;
	line.fd = -1;
	line.registered = false;
	line.lock.word = line.making.word = 0;
	task.alone_ns = 0;
}
