/* SPDX-License-Identifier: Apache-2.0 */
/* The process that is the simulated devices: one thread, one epoll; it sleeps unless somebody asks or waits. */
#define _GNU_SOURCE
#include "simgpu/server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include "cuda.h"
#include "simgpu/costs.h"

struct alloc {
	uint64_t id, bytes;
	uint64_t number; /* that other processes know it by; 0: none. Of those that hold one, one has the bytes and the others 0 */
	uint32_t device, channel;
	struct alloc *next;
};

struct client {
	struct source { /* what epoll hands back */
		enum { SRC_LISTEN, SRC_TIMER, SRC_SIGNAL, SRC_CLIENT, SRC_KICK, SRC_DEATH } what;
		struct client *client;
	} src[3];
	int fd, kick, death;
	pid_t pid;
	uint64_t start_time;
	struct alloc *allocs;
	uint32_t listens; /* devices whose notices it wants */
	uint64_t listen_types;
	bool closing;
	struct client *next;
};

struct link { /* a client's channels */
	struct channel channel;
	struct link *next;
};

struct server {
	struct model *m;
	struct client *clients;
	struct link *links;
	int epoll, listen, timer;
	uint32_t next_channel;
	uint64_t next_alloc;
	uint64_t armed_ns;
};

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static struct server server;

struct channel *client_channel(struct client *client, uint32_t id)
{
	for (struct link *l = server.links; l; l = l->next)
		if (l->channel.id == id && l->channel.client == client)
			return &l->channel;
	return NULL;
}

/* Field 22 of /proc/pid/stat: counted from after the name, which may hold anything. */
static uint64_t process_start_time(pid_t pid)
{
	char path[64], text[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	char *p = strrchr(text, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p + 1, NULL, 10) : 0;
}

static int watch(struct source *src, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = src};
	return epoll_ctl(server.epoll, EPOLL_CTL_ADD, fd, &ev);
}

/* --------------------------------------------------------------------------------------------------------------- memory */

static void row_add(const struct client *c, uint32_t device, int64_t bytes)
{
	record_begin(server.m->record);
	for (uint32_t i = 0; i < server.m->record->rows; i++) {
		struct sim_record_row *r = &server.m->record->row[i];
		if (r->pid == c->pid && r->device == device && r->start_time == c->start_time)
			r->bytes += (uint64_t)bytes;
	}
	record_end(server.m->record, server.m->record->updated_ns);
}

/* Who else holds memory of that number on a device; *of is whose it is. NULL: nobody. */
static struct alloc *shared_find(uint64_t number, uint32_t device, struct client **of)
{
	for (struct client *c = server.clients; c && number; c = c->next)
		for (struct alloc *a = c->allocs; a; a = a->next)
			if (a->number == number && a->device == device) {
				*of = c;
				return a;
			}
	return NULL;
}

static void free_alloc(struct client *c, struct alloc **at)
{
	struct alloc *a = *at;
	struct client *heir;
	*at = a->next;
	struct alloc *other = shared_find(a->number, a->device, &heir);
	row_add(c, a->device, -(int64_t)a->bytes);
	if (other) {
		other->bytes += a->bytes;
		row_add(heir, a->device, (int64_t)a->bytes);
	} else {
		server.m->device[a->device].used -= a->bytes;
	}
	free(a);
}

static uint32_t share_memory(struct client *c, uint64_t id, uint64_t number)
{
	for (struct alloc *a = c->allocs; a; a = a->next)
		if (a->id == id) {
			a->number = number;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

static uint32_t take_memory(struct client *c, struct channel *ch, uint64_t bytes, uint64_t *id)
{
	struct device *d = ch->device;
	uint64_t capacity = d->info.memory - d->info.reserved;
	if (d->no_memory || bytes > capacity || d->used > capacity - bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct alloc *a = malloc(sizeof *a);
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*a = (struct alloc){.id = ++server.next_alloc, .bytes = bytes, .device = d->index, .channel = ch->id, .next = c->allocs};
	c->allocs = a;
	d->used += bytes;
	record_begin(server.m->record);
	ch->row->record->bytes += bytes;
	record_end(server.m->record, server.m->record->updated_ns);
	*id = a->id;
	return CUDA_SUCCESS;
}

/* One more holder of memory that has a number. bytes: to be taken if it has none yet; 0: then it is an error. */
static uint32_t import_memory(struct client *c, struct channel *ch, uint64_t number, uint64_t bytes, uint64_t *id)
{
	struct client *of;
	if (!ch || !number || bytes % SIM_GRANULE)
		return CUDA_ERROR_INVALID_VALUE;
	bool held = shared_find(number, ch->device->index, &of);
	if (!held && !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	uint32_t status = take_memory(c, ch, held ? 0 : bytes, id);
	if (status == CUDA_SUCCESS)
		c->allocs->number = number;
	return status;
}

/* ------------------------------------------------------------------------------------------------------------- contexts */

static void close_channel(struct client *c, struct link **at)
{
	struct link *l = *at;
	for (struct alloc **a = &c->allocs; *a;) {
		if ((*a)->channel == l->channel.id)
			free_alloc(c, a);
		else
			a = &(*a)->next;
	}
	model_detach(server.m, &l->channel, now_ns());
	munmap(l->channel.shared, sizeof *l->channel.shared);
	*at = l->next;
	free(l);
}

static uint32_t open_channel(struct client *c, struct device *d, int *fd, uint32_t *id)
{
	if (d->gone)
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	if (d->fault)
		return d->fault;
	*fd = (int)syscall(SYS_memfd_create, "simgpu-channel", 1u /* MFD_CLOEXEC */);
	if (*fd < 0 || ftruncate(*fd, sizeof(struct sim_channel)) < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	struct sim_channel *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	struct link *l = calloc(1, sizeof *l);
	if (shared == MAP_FAILED || !l) {
		if (shared != MAP_FAILED)
			munmap(shared, sizeof *shared);
		free(l);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	shared->magic = SIM_MAGIC;
	shared->version = SIM_VERSION;
	shared->id = *id = ++server.next_channel;
	shared->device = d->index;
	atomic_store(&shared->quiet_head, SIM_NEVER);
	l->channel = (struct channel){.id = *id, .client = c, .device = d, .shared = shared};
	model_attach(server.m, &l->channel, c->pid, c->start_time, now_ns());
	uint64_t alloc;
	uint32_t status = l->channel.row ? take_memory(c, &l->channel, server.m->costs.context_bytes, &alloc) : CUDA_ERROR_OUT_OF_MEMORY;
	l->next = server.links;
	server.links = l;
	if (status != CUDA_SUCCESS && l->channel.row) {
		close_channel(c, &server.links);
	} else if (status != CUDA_SUCCESS) {
		server.links = l->next;
		munmap(shared, sizeof *shared);
		free(l);
	}
	return status;
}

static void close_client(struct client *c)
{
	for (struct link **at = &server.links; *at;) {
		if ((*at)->channel.client == c)
			close_channel(c, at);
		else
			at = &(*at)->next;
	}
	while (c->allocs)
		free_alloc(c, &c->allocs);
	for (struct client **at = &server.clients; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	close(c->fd);
	if (c->kick >= 0)
		close(c->kick);
	if (c->death >= 0)
		close(c->death);
	free(c);
}

/* --------------------------------------------------------------------------------------------------------------- faults */

static void notify_listeners(uint32_t device, uint64_t type, uint64_t data)
{
	struct sim_notice notice = {.call = SIM_LISTEN, .device = device, .type = type, .data = data};
	for (struct client *c = server.clients; c; c = c->next)
		if ((c->listens & (1u << device)) && (c->listen_types & type))
			(void)!send(c->fd, &notice, sizeof notice, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* What the contexts on a device get to see after an XID; the public catalogue of XIDs says what each means. */
static uint32_t xid_result(uint64_t xid)
{
	switch (xid) {
	case 13:
	case 43:
	case 45:
		return CUDA_ERROR_LAUNCH_FAILED;
	case 31:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	case 48:
	case 94:
	case 95:
		return CUDA_ERROR_ECC_UNCORRECTABLE;
	case 63:
	case 92:
		return CUDA_SUCCESS; /* noted by the driver; no context is harmed */
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

static void fault_contexts(struct device *d, pid_t pid, uint32_t result)
{
	for (struct channel *ch = d->channels; ch; ch = ch->next)
		if (!pid || ch->client->pid == pid)
			model_fault(ch, result);
}

static uint32_t inject(struct device *d, const struct sim_request *r)
{
	const uint64_t xid_event = 8; /* nvmlEventTypeXidCriticalError */
	model_advance(server.m, now_ns());
	switch (r->arg[0]) {
	case SIM_FAULT_XID:
		if (xid_result(r->arg[1]) != CUDA_SUCCESS)
			fault_contexts(d, (pid_t)r->arg[2], xid_result(r->arg[1]));
		if (r->arg[1] == 79)
			d->gone = true;
		notify_listeners(d->index, xid_event, r->arg[1]);
		return CUDA_SUCCESS;
	case SIM_FAULT_GONE:
		d->gone = true;
		fault_contexts(d, 0, CUDA_ERROR_UNKNOWN);
		return CUDA_SUCCESS;
	case SIM_FAULT_HANG:
		d->hung = true;
		return CUDA_SUCCESS;
	case SIM_FAULT_OOM:
		d->no_memory = true;
		return CUDA_SUCCESS;
	case SIM_FAULT_BACK:
		d->gone = d->hung = d->no_memory = false;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---------------------------------------------------------------------------------------------------------------- calls */

static void list_processes(struct device *d, struct sim_answer *a, uint64_t first)
{
	uint64_t now = now_ns(), n = 0;
	model_advance(server.m, now);
	for (uint32_t i = 0; i < server.m->record->rows; i++) {
		struct row *row = &server.m->row[i];
		if (row->record->device != d->index || !row->contexts)
			continue;
		if (n >= first && n - first < SIM_PROC_MAX)
			a->proc[n - first] =
				(struct sim_proc){.pid = row->record->pid, .load = load_read(&row->load, now), .bytes = row->record->bytes};
		n++;
	}
	a->value[0] = n;
}

static void status_of(struct device *d, struct sim_answer *a)
{
	model_advance(server.m, now_ns());
	a->value[0] = d->record->busy_ns;
	a->value[1] = d->record->switch_ns;
	a->value[2] = d->record->launches;
	for (struct channel *ch = d->channels; ch; ch = ch->next)
		a->value[3]++;
	a->value[4] = d->used;
	a->value[5] = d->gone;
	a->value[6] = d->hung;
	a->info = d->info;
}

static void hello(struct client *c, const struct sim_request *r, struct sim_answer *a, int *fd)
{
	const struct costs *k = &server.m->costs;
	a->value[0] = server.m->devices;
	a->costs[0] = k->kernel_min_ns;
	a->costs[1] = k->kernel_default_ns;
	a->costs[2] = k->copy_start_ns;
	a->costs[3] = k->context_bytes;
	if (r->arg[0] != SIM_VERSION) {
		a->status = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
		return;
	}
	if (c->kick < 0) {
		c->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (c->kick < 0 || watch(&c->src[1], c->kick) < 0)
			a->status = CUDA_ERROR_OPERATING_SYSTEM;
	}
	*fd = c->kick;
}

/* Answers one request. *fd is a descriptor to send along; *give says that it is closed here afterwards. */
static void answer(struct client *c, const struct sim_request *r, struct sim_answer *a, int *fd, bool *give)
{
	struct device *d = r->device < server.m->devices ? &server.m->device[r->device] : NULL;
	struct channel *ch;
	bool wants_device = r->call != SIM_HELLO && r->call != SIM_DESTROY && r->call != SIM_ALLOC && r->call != SIM_FREE && r->call != SIM_SYNC && r->call != SIM_SHARE && r->call != SIM_IMPORT;
	if (wants_device && !d) {
		a->status = CUDA_ERROR_INVALID_DEVICE;
		return;
	}
	switch (r->call) {
	case SIM_HELLO:
		hello(c, r, a, fd);
		return;
	case SIM_DEVICE:
		a->info = d->info;
		a->value[0] = d->gone;
		return;
	case SIM_CONTEXT: {
		uint32_t id = 0;
		a->status = open_channel(c, d, fd, &id);
		a->value[0] = id;
		*give = true;
		return;
	}
	case SIM_DESTROY:
		for (struct link **at = &server.links; *at; at = &(*at)->next)
			if ((*at)->channel.id == r->arg[0] && (*at)->channel.client == c) {
				close_channel(c, at);
				return;
			}
		a->status = CUDA_ERROR_INVALID_CONTEXT;
		return;
	case SIM_ALLOC:
		ch = client_channel(c, (uint32_t)r->arg[0]);
		if (!ch || !r->arg[1] || r->arg[1] % SIM_GRANULE)
			a->status = CUDA_ERROR_INVALID_VALUE;
		else
			a->status = take_memory(c, ch, r->arg[1], &a->value[0]);
		return;
	case SIM_FREE:
		for (struct alloc **at = &c->allocs; *at; at = &(*at)->next)
			if ((*at)->id == r->arg[0]) {
				free_alloc(c, at);
				return;
			}
		a->status = CUDA_ERROR_INVALID_VALUE;
		return;
	case SIM_SHARE:
		a->status = share_memory(c, r->arg[0], r->arg[1]);
		return;
	case SIM_IMPORT:
		a->status = import_memory(c, client_channel(c, (uint32_t)r->arg[0]), r->arg[1], r->arg[2], &a->value[0]);
		return;
	case SIM_MEMORY:
		a->value[0] = d->info.memory - d->info.reserved;
		a->value[1] = d->no_memory ? 0 : a->value[0] - d->used;
		a->value[2] = d->info.reserved;
		a->value[3] = d->gone;
		return;
	case SIM_SYNC:
		model_advance(server.m, now_ns());
		return;
	case SIM_PROCESSES:
		list_processes(d, a, r->arg[0]);
		return;
	case SIM_LOAD: {
		uint64_t now = now_ns();
		model_advance(server.m, now);
		a->value[0] = load_read(&d->load, now);
		a->value[1] = load_read(&d->copy_load, now);
		a->value[2] = d->gone;
		return;
	}
	case SIM_LISTEN:
		c->listens |= 1u << d->index;
		c->listen_types |= r->arg[0];
		return;
	case SIM_INJECT:
		a->status = inject(d, r);
		return;
	case SIM_STATUS:
		status_of(d, a);
		return;
	default:
		a->status = CUDA_ERROR_INVALID_VALUE;
	}
}

static void send_answer(struct client *c, const struct sim_answer *a, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec io = {.iov_base = (void *)a, .iov_len = sizeof *a};
	struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};
	if (fd >= 0 && a->status == CUDA_SUCCESS) {
		msg.msg_control = control.room;
		msg.msg_controllen = sizeof control.room;
		struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(h), &fd, sizeof fd);
	}
	if (sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof *a)
		c->closing = true;
}

static void client_ready(struct client *c)
{
	for (;;) {
		struct sim_request r;
		ssize_t n = recv(c->fd, &r, sizeof r, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n != sizeof r) {
			c->closing = true;
			return;
		}
		struct sim_answer a = {.call = r.call, .status = CUDA_SUCCESS};
		int fd = -1;
		bool give = false;
		answer(c, &r, &a, &fd, &give);
		send_answer(c, &a, fd);
		if (give && fd >= 0)
			close(fd);
	}
}

static void accept_client(void)
{
	int fd = accept4(server.listen, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	struct ucred cred;
	socklen_t len = sizeof cred;
	struct client *c = calloc(1, sizeof *c);
	if (!c || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
		free(c);
		close(fd);
		return;
	}
	c->fd = fd;
	c->kick = -1;
	c->pid = cred.pid;
	c->start_time = process_start_time(c->pid);
	for (int i = 0; i < 3; i++) {
		c->src[i].client = c;
		c->src[i].what = i == 0 ? SRC_CLIENT : i == 1 ? SRC_KICK : SRC_DEATH;
	}
	/* A child that inherited the connection without knowing it must not keep its parent's memory alive. */
	c->death = (int)syscall(SYS_pidfd_open, c->pid, 0);
	c->next = server.clients;
	server.clients = c;
	if (watch(&c->src[0], fd) < 0 || (c->death >= 0 && watch(&c->src[2], c->death) < 0))
		close_client(c);
}

/* ------------------------------------------------------------------------------------------------------------ main loop */

static void arm(void)
{
	uint64_t at = model_deadline(server.m);
	if (at == server.armed_ns)
		return;
	struct itimerspec spec = {0};
	if (at != SIM_NEVER) {
		spec.it_value.tv_sec = (time_t)(at / 1000000000ull);
		spec.it_value.tv_nsec = (long)(at % 1000000000ull);
	}
	timerfd_settime(server.timer, TFD_TIMER_ABSTIME, &spec, NULL);
	server.armed_ns = at;
}

static bool handle(struct source *src)
{
	uint64_t count;
	switch (src->what) {
	case SRC_LISTEN:
		accept_client();
		return true;
	case SRC_TIMER:
		(void)!read(server.timer, &count, sizeof count);
		server.armed_ns = SIM_NEVER;
		return true;
	case SRC_KICK:
		(void)!read(src->client->kick, &count, sizeof count);
		return true;
	case SRC_CLIENT:
		client_ready(src->client);
		return true;
	case SRC_DEATH:
		src->client->closing = true;
		return true;
	case SRC_SIGNAL:
		return false;
	}
	return true;
}

static int listen_on(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	if (snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path) >= (int)sizeof addr.sun_path) {
		fprintf(stderr, "aliquot-simgpu: the socket's path %s is longer than %zu characters; choose a shorter one\n", path,
			sizeof addr.sun_path - 1);
		return -1;
	}
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0) {
		fprintf(stderr, "aliquot-simgpu: another one already serves %s\n", path);
		close(fd);
		return -1;
	}
	unlink(path);
	if (bind(fd, (struct sockaddr *)&addr, sizeof addr) < 0 || chmod(path, 0666) < 0 || listen(fd, 128) < 0) {
		fprintf(stderr, "aliquot-simgpu: cannot listen on %s: %s\n", path, strerror(errno));
		close(fd);
		return -1;
	}
	return fd;
}

/* The record appears whole under its name, so that nobody maps half a one. */
static struct sim_record *make_record(const char *path)
{
	char temporary[4096];
	if (snprintf(temporary, sizeof temporary, "%s.new", path) >= (int)sizeof temporary)
		return NULL;
	int fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return NULL;
	struct sim_record *r = MAP_FAILED;
	if (posix_fallocate(fd, 0, sizeof *r) == 0 && fchmod(fd, 0644) == 0)
		r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (r == MAP_FAILED)
		return NULL;
	r->magic = SIM_RECORD_MAGIC;
	r->version = SIM_RECORD_VERSION;
	r->size = sizeof *r;
	r->devices = server.m->devices;
	for (uint32_t i = 0; i < server.m->devices; i++) {
		struct device *d = &server.m->device[i];
		d->record = &r->device[i];
		memcpy(d->record->uuid, d->info.uuid, sizeof d->record->uuid);
		d->record->since_ns = d->t_ns = now_ns();
	}
	r->updated_ns = now_ns();
	if (rename(temporary, path) < 0) {
		munmap(r, sizeof *r);
		return NULL;
	}
	return r;
}

static int open_server(const struct options *o, struct source *src)
{
	sigset_t stop;
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGINT);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_TIMERSLACK, 1);
	server.epoll = epoll_create1(EPOLL_CLOEXEC);
	server.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int signals = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
	server.armed_ns = SIM_NEVER;
	server.listen = listen_on(o->socket);
	if (server.listen < 0)
		return -1;
	server.m->record = make_record(o->record);
	if (!server.m->record) {
		fprintf(stderr, "aliquot-simgpu: cannot make the record %s: %s\n", o->record, strerror(errno));
		return -1;
	}
	src[0].what = SRC_LISTEN;
	src[1].what = SRC_TIMER;
	src[2].what = SRC_SIGNAL;
	if (watch(&src[0], server.listen) < 0 || watch(&src[1], server.timer) < 0 || watch(&src[2], signals) < 0) {
		fprintf(stderr, "aliquot-simgpu: cannot wait for events: %s\n", strerror(errno));
		return -1;
	}
	return 0;
}

int serve(struct model *m, const struct options *o)
{
	struct source src[3] = {0};
	server.m = m;
	if (open_server(o, src) < 0)
		return 1;
	printf("aliquot-simgpu: %u devices on %s\n", m->devices, o->socket);
	fflush(stdout);
	for (bool on = true; on;) {
		struct epoll_event events[32];
		int n = epoll_wait(server.epoll, events, 32, -1);
		for (int i = 0; i < n; i++)
			on = handle(events[i].data.ptr) && on;
		for (struct client *c = server.clients, *next; c; c = next) {
			next = c->next;
			if (c->closing)
				close_client(c);
		}
		model_advance(m, now_ns());
		arm();
	}
	while (server.clients)
		close_client(server.clients);
	unlink(o->socket);
	munmap(m->record, sizeof *m->record);
	return 0;
}
