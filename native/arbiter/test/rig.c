/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define load(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define store(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

static struct rig *current;
uint32_t rig_shim_version = ALQ_SHIM_WAITS;

static void remove_folder(const char *path)
{
	pid_t pid = fork();
	if (pid == 0) {
		execlp("rm", "rm", "-rf", "--", path, (char *)NULL);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
}

void rig_fail(const char *file, int line, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "%s:%d: ", file, line);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	if (current) {
		struct rig *rig = current;
		current = NULL;
		rig_close(rig);
	}
	exit(1);
}

uint64_t rig_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void rig_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

void rig_open(struct rig *rig, const char *program)
{
	char path[256];
	*rig = (struct rig){.program = program};
	snprintf(rig->run, sizeof rig->run, "/tmp/aliquot-arbiter-test-XXXXXX");
	CHECK(mkdtemp(rig->run), "mkdtemp: %s", strerror(errno));
	current = rig;
	snprintf(path, sizeof path, "%s/devices", rig->run);
	mkdir(path, 0700);
	snprintf(path, sizeof path, "%s/tasks", rig->run);
	mkdir(path, 0700);
}

void rig_close(struct rig *rig)
{
	current = NULL;
	if (rig->arbiter)
		rig_kill(rig);
	remove_folder(rig->run);
}

void rig_start(struct rig *rig, const char *kill_at)
{
	char answer[512];
	rig->arbiter = fork();
	CHECK(rig->arbiter >= 0, "fork: %s", strerror(errno));
	if (rig->arbiter == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (kill_at)
			setenv("ALIQUOT_KILL_AT", kill_at, 1);
		execl(rig->program, rig->program, "--run", rig->run, (char *)NULL);
		_exit(127);
	}
	if (!kill_at)
		WAIT(rig_try(rig, "ping", answer, sizeof answer));
}

int rig_wait(struct rig *rig)
{
	int status;
	while (waitpid(rig->arbiter, &status, 0) < 0)
		CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
	rig->arbiter = 0;
	return status;
}

void rig_kill(struct rig *rig)
{
	kill(rig->arbiter, SIGKILL);
	rig_wait(rig);
}

int rig_dial(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

bool rig_try(struct rig *rig, const char *line, char *answer, size_t size)
{
	char path[256];
	snprintf(path, sizeof path, "%s/arbiter.ctl", rig->run);
	int fd = rig_dial(path);
	if (fd < 0)
		return false;
	ssize_t n = send(fd, line, strlen(line), MSG_NOSIGNAL) < 0 ? -1 : recv(fd, answer, size - 1, 0);
	close(fd);
	if (n <= 0)
		return false;
	answer[n] = '\0';
	return true;
}

void rig_ask(struct rig *rig, const char *want, const char *format, ...)
{
	char line[256], answer[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	CHECK(rig_try(rig, line, answer, sizeof answer), "no answer to \"%s\"", line);
	CHECK(!strncmp(answer, want, strlen(want)), "\"%s\" was answered \"%s\", not \"%s\"", line, answer, want);
}

static void *make_page(const char *path, enum alq_kind kind, size_t size, uint32_t grants, const char *uid)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && !ftruncate(fd, (off_t)size), "page %s: %s", path, strerror(errno));
	struct alq_header *h = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(h != MAP_FAILED, "map %s: %s", path, strerror(errno));
	close(fd);
	*h = (struct alq_header){.magic = ALQ_ABI_MAGIC, .version = ALQ_ABI_VERSION, .minor = ALQ_ABI_MINOR, .kind = kind,
		.size = (uint32_t)size, .grants = grants, .created_ns = rig_now()};
	snprintf(h->uid, sizeof h->uid, "%s", uid);
	return h;
}

struct alq_device *rig_device(struct rig *rig, const char *uuid, uint64_t capacity)
{
	char path[256];
	snprintf(path, sizeof path, "%s/devices/%s", rig->run, uuid);
	struct alq_device *d = make_page(path, ALQ_KIND_DEVICE, sizeof *d, 0, uuid);
	snprintf(d->uuid, sizeof d->uuid, "%s", uuid);
	d->mem_capacity = capacity;
	return d;
}

void rig_policy(struct alq_ctl_grant *g, uint32_t floor, uint32_t ceiling, uint64_t mem_floor, uint64_t mem_ceiling)
{
	uint32_t seq = load(&g->policy_seq);
	store(&g->policy_seq, seq + 1);
	store(&g->compute_floor, floor);
	store(&g->compute_ceiling, ceiling);
	store(&g->weight, floor ? floor : 1);
	store(&g->mem_floor, mem_floor);
	store(&g->mem_ceiling, mem_ceiling);
	store(&g->policy_seq, seq + 2);
}

struct pages rig_task(struct rig *rig, const char *uid, int grants, const char *const *devices, uint32_t floor, uint32_t ceiling,
	uint64_t mem_floor, uint64_t mem_ceiling)
{
	char folder[200], path[256];
	struct pages p;
	snprintf(folder, sizeof folder, "%s/tasks/%s", rig->run, uid);
	CHECK(!mkdir(folder, 0755), "mkdir %s: %s", folder, strerror(errno));
	snprintf(path, sizeof path, "%s/ctl", folder);
	p.ctl = make_page(path, ALQ_KIND_CTL, sizeof *p.ctl, (uint32_t)grants, uid);
	snprintf(path, sizeof path, "%s/tel", folder);
	p.tel = make_page(path, ALQ_KIND_TEL, sizeof *p.tel, (uint32_t)grants, uid);
	snprintf(path, sizeof path, "%s/book", folder);
	p.book = make_page(path, ALQ_KIND_BOOK, sizeof *p.book, (uint32_t)grants, uid);
	for (int k = 0; k < grants; k++) {
		snprintf(p.ctl->grant[k].device, ALQ_UUID_LEN, "%s", devices[k]);
		rig_policy(&p.ctl->grant[k], floor, ceiling, mem_floor, mem_ceiling);
		p.ctl->grant[k].mem_granted = mem_floor;
	}
	return p;
}

uint32_t rig_register(struct rig *rig, const char *uid, const struct pages *pages, int32_t slot, struct tenant *tenant)
{
	char path[256];
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct alq_welcome welcome = {0};
	struct iovec iov = {.iov_base = &welcome, .iov_len = sizeof welcome};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	struct alq_hello hello = {.type = ALQ_HELLO, .magic = ALQ_ABI_MAGIC, .version = ALQ_ABI_VERSION, .shim_version = rig_shim_version, .slot = slot};
	snprintf(path, sizeof path, "%s/tasks/%s/arbiter.sock", rig->run, uid);
	*tenant = (struct tenant){.pages = *pages, .line = rig_dial(path), .bell = -1};
	CHECK(tenant->line >= 0, "connect to %s: %s", path, strerror(errno));
	CHECK(send(tenant->line, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello, "hello: %s", strerror(errno));
	CHECK(recvmsg(tenant->line, &msg, MSG_CMSG_CLOEXEC) == sizeof welcome, "no welcome: %s", strerror(errno));
	CHECK(welcome.type == ALQ_WELCOME, "answered with message %u", welcome.type);
	if (welcome.status != ALQ_OK) {
		close(tenant->line);
		return welcome.status;
	}
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	CHECK(c && c->cmsg_type == SCM_RIGHTS, "a welcome without a bell");
	memcpy(&tenant->bell, CMSG_DATA(c), sizeof tenant->bell);
	tenant->slot = welcome.slot;
	CHECK(welcome.arbiter_epoch == load(&pages->ctl->arbiter_epoch), "epochs differ");
	return ALQ_OK;
}

void rig_leave(struct tenant *t)
{
	close(t->line);
	close(t->bell);
}

void rig_mem_ask(struct tenant *t, uint32_t grant, uint64_t want)
{
	struct alq_mem_ask ask = {.type = ALQ_MEM_ASK, .grant = grant, .want = want};
	CHECK(send(t->line, &ask, sizeof ask, MSG_NOSIGNAL) == sizeof ask, "ask: %s", strerror(errno));
}

bool rig_mem_answered(struct tenant *t, uint32_t *status)
{
	struct alq_mem_answer answer = {0};
	ssize_t n = recv(t->line, &answer, sizeof answer, MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return false;
	CHECK(n == sizeof answer && answer.type == ALQ_MEM_ANSWER, "no answer: %s", strerror(errno));
	*status = answer.status;
	return true;
}

uint32_t rig_mem(struct tenant *t, uint32_t grant, uint64_t want, uint64_t *granted)
{
	struct alq_mem_answer answer = {0};
	rig_mem_ask(t, grant, want);
	CHECK(recv(t->line, &answer, sizeof answer, 0) == sizeof answer && answer.type == ALQ_MEM_ANSWER, "no answer: %s", strerror(errno));
	if (granted)
		*granted = answer.granted;
	return answer.status;
}

static void ring(struct tenant *t)
{
	uint64_t one = 1;
	ssize_t n = write(t->bell, &one, sizeof one);
	(void)n; /* a full eventfd rings all the same */
}

bool rig_may_launch(const struct tenant *t, int grant)
{
	const struct alq_ctl_grant *c = &t->pages.ctl->grant[grant];
	return (__atomic_load_n(&c->gate, __ATOMIC_ACQUIRE) & ALQ_GATE_OPEN) && rig_now() < load(&c->lease_end_ns);
}

void rig_gate(struct tenant *t, int grant)
{
	struct alq_ctl_grant *c = &t->pages.ctl->grant[grant];
	struct alq_tel_grant *g = &t->pages.tel->slot[t->slot].grant[grant];
	uint64_t until = rig_now() + 60000000000ull;
	while (!rig_may_launch(t, grant)) {
		if (!load(&g->wait_since_ns))
			store(&g->wait_since_ns, rig_now());
		ring(t);
		uint32_t word = load(&c->gate);
		if (rig_may_launch(t, grant))
			break;
		struct timespec patience = {.tv_nsec = 100000000};
		syscall(SYS_futex, &c->gate, FUTEX_WAIT, word, &patience, NULL, 0);
		CHECK(rig_now() < until, "the gate stayed closed");
	}
	store(&g->wait_since_ns, 0);
}

void rig_launch(struct tenant *t, int grant, uint64_t ns)
{
	struct alq_tel_grant *g = &t->pages.tel->slot[t->slot].grant[grant];
	uint64_t now = rig_now();
	store(&g->last_launch_ns, now);
	store(&g->launched_ns, g->launched_ns + ns);
	store(&g->busy_until_ns, (g->busy_until_ns > now ? g->busy_until_ns : now) + ns);
	store(&g->launched, g->launched + 1);
}

void rig_done(struct tenant *t, int grant)
{
	struct alq_tel_grant *g = &t->pages.tel->slot[t->slot].grant[grant];
	store(&g->completed_ns, g->launched_ns);
	store(&g->device_ns, g->launched_ns);
	store(&g->busy_until_ns, 0);
	store(&g->completed, g->launched);
	ring(t);
}
