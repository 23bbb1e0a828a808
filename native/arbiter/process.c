/* SPDX-License-Identifier: Apache-2.0 */
/* process.c: the processes of tasks register, ask for memory, and end. */
#include "arbiter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "sockets.h"

int task_listen(struct node *node, struct task *task, char *why, size_t why_size)
{
	char path[PATH_MAX + 16];
	snprintf(path, sizeof path, "%s/arbiter.sock", task->folder);
	int fd = socket_listen(path, 0600, why, why_size);
	if (fd < 0)
		return -1;
	/* Asked for now that the socket is there: whoever gives the task to a user from here on finds it, and gives it, too. */
	uid_t user = task_owner(task);
	if (user != geteuid() && chown(path, user, (gid_t)-1)) {
		snprintf(why, why_size, "hand %s over to user %u: %s", path, user, strerror(errno));
		close(fd);
		return -1;
	}
	task->listener = (struct source){.kind = SOURCE_TASK, .owner = task, .fd = fd};
	return watch(node, &task->listener, EPOLLIN);
}

/* Field 22 of /proc/PID/stat: when the process started. 0: there is none. */
static uint64_t start_time_of(pid_t pid)
{
	char path[64], text[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return 0;
	size_t n = fread(text, 1, sizeof text - 1, file);
	fclose(file);
	text[n] = '\0';
	char *at = strrchr(text, ')'); /* the name may hold anything */
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

static struct process *process_new(struct task *task)
{
	struct process *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->task = task;
	p->slot = -1;
	p->line = (struct source){.kind = SOURCE_PROCESS, .owner = p, .fd = -1};
	p->bell = (struct source){.kind = SOURCE_BELL, .owner = p, .fd = -1};
	p->pidfd = (struct source){.kind = SOURCE_PIDFD, .owner = p, .fd = -1};
	p->next = task->processes;
	task->processes = p;
	task->connections++;
	return p;
}

static void watch_death(struct node *node, struct process *p)
{
	if (p->pid <= 0)
		return;
	p->pidfd.fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	if (p->pidfd.fd >= 0)
		watch(node, &p->pidfd, EPOLLIN);
}

static void clear_slot(struct task *task, int slot)
{
	struct alq_slot *s = &task->tel->slot[slot];
	uint64_t launched[ALQ_MAX_GRANTS];
	for (int k = 0; k < task->grants; k++)
		launched[k] = load(&s->grant[k].launched);
	__atomic_store_n(&s->state, ALQ_SLOT_FREE, __ATOMIC_RELEASE);
	memset(s, 0, sizeof *s);
	ALQ_POINT("arbiter.slot.cleared");
	for (int k = 0; k < task->grants; k++) {
		uint64_t *ended = &task->book->grant[k].launches_ended;
		store(ended, load(ended) + launched[k]);
	}
}

static void note_live(struct node *node, struct task *task)
{
	task->live = false;
	for (struct process *p = task->processes; p; p = p->next)
		task->live |= p->slot >= 0;
	if (task->live && node->heartbeat_at == CORE_NEVER)
		node->heartbeat_at = node->now;
}

/* Frees the slot of a process that has ended or hung up. */
static void vacate(struct node *node, struct process *p)
{
	clear_slot(p->task, p->slot);
	p->slot = -1;
	note_live(node, p->task);
	core_touch(&node->core, p->task->core, node->now);
}

/* Whether a process without a slot holds memory all the same. */
static bool holds(const struct process *p)
{
	bool any = false;
	for (int k = 0; k < p->task->grants; k++)
		any |= p->leaving[k] != 0;
	return any;
}

void process_end(struct node *node, struct process *p)
{
	struct task *task = p->task;
	if (p->gone)
		return;
	struct process **at = &task->processes;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	task->connections--;
	unwatch(node, &p->line);
	unwatch(node, &p->bell);
	unwatch(node, &p->pidfd);
	owed_forget(node, p);
	p->gone = true;
	p->next = node->garbage;
	node->garbage = p;
	if (p->slot >= 0)
		vacate(node, p);
	else if (!holds(p))
		return; /* nothing, or what has gone on in another's name */
	memory_give_back(node, task);
	owed_freed(node);
}

/*
 * Its line has ended. That of a process that has just begun to end closes before the driver has taken its memory back, so what it holds counts
 * as used until it has ended itself. One that only closed its line holds it, too.
 */
static void process_hung_up(struct node *node, struct process *p)
{
	struct pollfd dead = {.fd = p->pidfd.fd, .events = POLLIN};
	if (p->slot >= 0 && p->pidfd.fd >= 0 && poll(&dead, 1, 0) == 0)
		for (int k = 0; k < p->task->grants; k++) {
			const struct alq_tel_grant *t = &p->task->tel->slot[p->slot].grant[k];
			p->leaving[k] = memory_of(t);
		}
	if (!holds(p)) {
		process_end(node, p);
		return;
	}
	owed_forget(node, p);
	unwatch(node, &p->line);
	unwatch(node, &p->bell);
	vacate(node, p);
}

void collect_garbage(struct node *node)
{
	while (node->garbage) {
		struct process *p = node->garbage;
		node->garbage = p->next;
		free(p);
	}
	while (node->task_garbage) {
		struct task *task = node->task_garbage;
		node->task_garbage = task->next_garbage;
		task_free(task);
	}
}

void process_accept(struct node *node, struct task *task)
{
	int fd = accept4(task->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE) && node->spare >= 0) {
		/* Turned away, not left in the queue, where it would wake us for ever. */
		close(node->spare);
		close(accept4(task->listener.fd, NULL, NULL, SOCK_CLOEXEC));
		node->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
		complain("no descriptors are left: a process of task %s is turned away; raise the limit of open files", task->uid);
	}
	if (fd < 0)
		return;
	uid_t uid;
	pid_t pid;
	bool known = !socket_peer(fd, &uid, &pid) && (uid == 0 || uid == geteuid() || uid == task_owner(task));
	struct process *p = known && task->connections < MAX_CONNECTIONS ? process_new(task) : NULL;
	if (!p) {
		close(fd);
		return;
	}
	p->line.fd = fd;
	if (watch(node, &p->line, EPOLLIN | EPOLLRDHUP))
		process_end(node, p);
}

static struct process *holder_of(struct task *task, int slot)
{
	for (struct process *p = task->processes; p; p = p->next)
		if (p->slot == slot)
			return p;
	return NULL;
}

/* The slot for a process: the one it says it had, if an earlier connection of the same process held it, else a free one. */
static int choose_slot(struct node *node, struct task *task, struct process *p, int32_t had)
{
	for (struct process *o = task->processes, *next; o; o = next) {
		next = o->next;
		if (o == p || o->pid != p->pid || o->start_time != p->start_time || p->pid == 0 || (o->slot < 0 && o->line.fd >= 0))
			continue;
		int slot = o->slot;
		if (slot >= 0 && slot == had) {
			/* Its counters and memory go on. */
			memcpy(p->seen, o->seen, sizeof p->seen);
			memcpy(p->stall, o->stall, sizeof p->stall);
			o->slot = -1;
			process_end(node, o);
			return slot;
		}
		/* It had hung up. What it holds is said by its new slot, until it says so itself. */
		memcpy(p->leaving, o->leaving, sizeof p->leaving);
		memset(o->leaving, 0, sizeof o->leaving);
		process_end(node, o);
	}
	for (int slot = 0; slot < ALQ_MAX_PROCS; slot++)
		if (!holder_of(task, slot))
			return slot;
	return -1;
}

static void welcome(struct process *p, uint32_t status, uint64_t epoch)
{
	struct alq_welcome w = {.type = ALQ_WELCOME, .status = status, .slot = p->slot < 0 ? 0 : (uint32_t)p->slot, .arbiter_epoch = epoch};
	socket_send(p->line.fd, &w, sizeof w, status == ALQ_OK ? p->bell.fd : -1);
}

static uint32_t admit(struct node *node, struct process *p, const struct alq_hello *hello)
{
	struct task *task = p->task;
	uid_t uid;
	if (hello->magic != ALQ_ABI_MAGIC || hello->version != ALQ_ABI_VERSION)
		return ALQ_ERR_VERSION;
	if (socket_peer(p->line.fd, &uid, &p->pid))
		return ALQ_ERR_REFUSED;
	p->start_time = p->pid > 0 ? start_time_of(p->pid) : 0;
	if (p->pid > 0 && p->start_time == 0)
		return ALQ_ERR_REFUSED; /* it has ended already */
	bool again = false;
	int slot = choose_slot(node, task, p, hello->slot);
	if (slot < 0)
		return ALQ_ERR_FULL;
	struct alq_slot *s = &task->tel->slot[slot];
	again = slot == hello->slot && load(&s->state) == ALQ_SLOT_LIVE && load(&s->pid) == p->pid && load(&s->start_time) == p->start_time;
	p->bell.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (p->bell.fd < 0 || watch(node, &p->bell, EPOLLIN | EPOLLET))
		return ALQ_ERR_REFUSED;
	if (!again) {
		memset(s, 0, sizeof *s);
		memset(p->seen, 0, sizeof p->seen);
		for (int k = 0; k < task->grants; k++)
			__atomic_store_n(&s->grant[k].mem_used, p->leaving[k], __ATOMIC_SEQ_CST);
	}
	memset(p->leaving, 0, sizeof p->leaving);
	store(&s->pid, p->pid);
	store(&s->start_time, p->start_time);
	store(&s->registered_ns, node->now);
	__atomic_store_n(&s->state, ALQ_SLOT_LIVE, __ATOMIC_RELEASE);
	p->slot = slot;
	p->shim_version = hello->shim_version;
	p->ring_tokens_at = node->now;
	return ALQ_OK;
}

static void greet(struct node *node, struct process *p, const struct alq_hello *hello)
{
	uint32_t status = p->slot >= 0 ? ALQ_ERR_REFUSED : admit(node, p, hello);
	if (status != ALQ_OK) {
		welcome(p, status, node->epoch);
		process_end(node, p);
		return;
	}
	watch_death(node, p);
	ALQ_POINT("arbiter.register.before");
	/* The heartbeat is fresh before the process looks for it. */
	store(&p->task->ctl->heartbeat_ns, node->now);
	note_live(node, p->task);
	welcome(p, ALQ_OK, node->epoch);
	core_touch(&node->core, p->task->core, node->now);
}

void process_answer(struct node *node, struct process *p, uint32_t grant, uint32_t status)
{
	struct alq_mem_answer answer = {.type = ALQ_MEM_ANSWER, .status = status};
	if (grant < (uint32_t)p->task->grants)
		answer.granted = load(&p->task->ctl->grant[grant].mem_granted);
	if (socket_send(p->line.fd, &answer, sizeof answer, -1))
		process_hung_up(node, p); /* it does not read its answers */
}

static void asked(struct node *node, struct process *p, const struct alq_mem_ask *ask)
{
	uint32_t status = memory_ask(node, p->task, ask->grant, ask->want);
	if (status == MEM_WAITS)
		owed_keep(node, p, ask->grant, ask->want);
	else
		process_answer(node, p, ask->grant, status);
}

void process_read(struct node *node, struct process *p)
{
	union {
		uint32_t type;
		struct alq_hello hello;
		struct alq_mem_ask ask;
		char space[64];
	} message;
	for (int i = 0; i < 8 && !p->gone && p->line.fd >= 0; i++) { /* a few at a time: others have their turn */
		ssize_t n = recv(p->line.fd, &message, sizeof message, MSG_DONTWAIT | MSG_TRUNC);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n == (ssize_t)sizeof message.hello && message.type == ALQ_HELLO) {
			greet(node, p, &message.hello);
		} else if (n == (ssize_t)sizeof message.ask && message.type == ALQ_MEM_ASK && p->slot >= 0 && !p->wait.on) {
			asked(node, p, &message.ask);
		} else {
			process_hung_up(node, p); /* the end, or nothing we know */
		}
	}
}

/* The slots that an earlier arbiter gave: those of processes that live are kept until they register again, the others are freed. */
void process_adopt(struct node *node, struct task *task)
{
	for (int slot = 0; slot < ALQ_MAX_PROCS; slot++) {
		struct alq_slot *s = &task->tel->slot[slot];
		if (load(&s->state) != ALQ_SLOT_LIVE)
			continue;
		pid_t pid = load(&s->pid);
		uint64_t start = pid > 0 ? start_time_of(pid) : 0;
		struct process *p = start && start == load(&s->start_time) ? process_new(task) : NULL;
		if (!p) {
			clear_slot(task, slot);
			continue;
		}
		p->slot = slot;
		p->pid = pid;
		p->start_time = start;
		for (int k = 0; k < task->grants; k++) {
			/* What it did before is in the books. */
			p->seen[k].launched = load(&s->grant[k].launched);
			p->seen[k].completed = load(&s->grant[k].completed);
			p->seen[k].launched_ns = load(&s->grant[k].launched_ns);
			p->seen[k].completed_ns = load(&s->grant[k].completed_ns);
			p->seen[k].device_ns = load(&s->grant[k].device_ns);
		}
		watch_death(node, p);
	}
	note_live(node, task);
}
