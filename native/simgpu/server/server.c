/* SPDX-License-Identifier: Apache-2.0 */
/* The process that is the simulated devices: one thread, one epoll; it sleeps unless somebody asks or waits. */
#define _GNU_SOURCE
#include "simgpu/server/state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include "cuda.h"
#include "prompt.h"

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

struct server server;

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

int server_watch(struct source *src, int fd)
{
	/* A kick is never read: who kicks shares its flags, and a read would block where O_NONBLOCK is cleared. */
	struct epoll_event ev = {.events = src->what == SRC_KICK ? EPOLLIN | EPOLLET : EPOLLIN, .data.ptr = src};
	return epoll_ctl(server.epoll, EPOLL_CTL_ADD, fd, &ev);
}

/* What it had is free at once, also for whoever asks in the same round; it itself goes at the end of the round. */
static void let_go(struct client *c)
{
	c->closing = true;
	for (struct link **at = &server.links; *at;) {
		if ((*at)->channel.client == c)
			close_channel(c, at);
		else
			at = &(*at)->next;
	}
	while (c->allocs)
		free_alloc(c, &c->allocs);
}

static void close_client(struct client *c)
{
	let_go(c);
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

/* --------------------------------------------------------------------------------------------------------------- clients */

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
			let_go(c);
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

static void accept_client(int listening)
{
	int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
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
	c->may_inject = listening == server.control;
	c->start_time = process_start_time(c->pid);
	for (int i = 0; i < 3; i++) {
		c->src[i].client = c;
		c->src[i].what = i == 0 ? SRC_CLIENT : i == 1 ? SRC_KICK : SRC_DEATH;
	}
	/* A child that inherited the connection without knowing it must not keep its parent's memory alive. */
	c->death = (int)syscall(SYS_pidfd_open, c->pid, 0);
	c->next = server.clients;
	server.clients = c;
	if (server_watch(&c->src[0], fd) < 0 || (c->death >= 0 && server_watch(&c->src[2], c->death) < 0))
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
		accept_client(server.listen);
		return true;
	case SRC_CONTROL:
		accept_client(server.control);
		return true;
	case SRC_TIMER:
		(void)!read(server.timer, &count, sizeof count);
		server.armed_ns = SIM_NEVER;
		return true;
	case SRC_KICK:
		return true;
	case SRC_CLIENT:
		client_ready(src->client);
		return true;
	case SRC_DEATH:
		let_go(src->client);
		return true;
	case SRC_SIGNAL:
		return false;
	}
	return true;
}

static int listen_on(const char *path, mode_t mode)
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
	if (bind(fd, (struct sockaddr *)&addr, sizeof addr) < 0 || chmod(path, mode) < 0 || listen(fd, 128) < 0) {
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
	server.epoll = epoll_create1(EPOLL_CLOEXEC);
	server.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int signals = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
	server.armed_ns = SIM_NEVER;
	server.listen = listen_on(o->socket, geteuid() == 0 ? 0666 : 0600);
	server.control = server.listen >= 0 && o->control ? listen_on(o->control, 0600) : -1;
	if (server.listen < 0 || (o->control && server.control < 0))
		return -1;
	server.m->record = make_record(o->record);
	if (!server.m->record) {
		fprintf(stderr, "aliquot-simgpu: cannot make the record %s: %s\n", o->record, strerror(errno));
		return -1;
	}
	/* A device is never late because programs keep the machine's processors busy: so this goes before all of them, where that is allowed, the arbiter among
	 * them. (Who floods it with calls keeps a processor busy with that, as no real device would.) */
	be_prompt(2, -20);
	src[0].what = SRC_LISTEN;
	src[1].what = SRC_TIMER;
	src[2].what = SRC_SIGNAL;
	src[3].what = SRC_CONTROL;
	if (server_watch(&src[0], server.listen) < 0 || server_watch(&src[1], server.timer) < 0 || server_watch(&src[2], signals) < 0 ||
	    (server.control >= 0 && server_watch(&src[3], server.control) < 0)) {
		fprintf(stderr, "aliquot-simgpu: cannot wait for events: %s\n", strerror(errno));
		return -1;
	}
	return 0;
}

int serve(struct model *m, const struct options *o)
{
	struct source src[4] = {0};
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
	if (o->control)
		unlink(o->control);
	munmap(m->record, sizeof *m->record);
	return 0;
}
