/* SPDX-License-Identifier: Apache-2.0 */
/* state.h: what the server keeps, and what its files know of each other. All of it belongs to the one thread that serves. */
#ifndef ALIQUOT_SIMGPU_STATE_H
#define ALIQUOT_SIMGPU_STATE_H

#include "simgpu/server/server.h"

struct alloc {
	uint64_t id, bytes;
	uint64_t number; /* that other processes know it by; 0: none. Of those that hold one, one has the bytes and the others 0 */
	uint32_t device, channel;
	struct alloc *next;
};

struct client {
	struct source { /* what epoll hands back */
		enum { SRC_LISTEN, SRC_CONTROL, SRC_TIMER, SRC_SIGNAL, SRC_CLIENT, SRC_KICK, SRC_DEATH } what;
		struct client *client;
	} src[3];
	int fd, kick, death;
	pid_t pid;
	bool may_inject; /* it came over the control socket: faults harm all who are on a device, and a container's root is root, too */
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
	int control; /* where faults are taken; -1: nowhere */
	uint32_t next_channel;
	uint64_t next_alloc;
	uint64_t armed_ns;
};

extern struct server server;

/* server.c: has epoll wait for a descriptor; 0, or -1 with errno. */
int server_watch(struct source *src, int fd);

/* memory.c. They return a CUresult. */
uint32_t take_memory(struct client *c, struct channel *ch, uint64_t bytes, uint64_t *id);
void free_alloc(struct client *c, struct alloc **at);
/* An allocation may be held by others, who know it by a number. */
uint32_t share_memory(struct client *c, uint64_t id, uint64_t number);
/* One more holder of memory that has a number. bytes: to be taken if it has none yet; 0: then it is an error. */
uint32_t import_memory(struct client *c, struct channel *ch, uint64_t number, uint64_t bytes, uint64_t *id);
uint32_t open_channel(struct client *c, struct device *d, int *fd, uint32_t *id);
void close_channel(struct client *c, struct link **at);

/* calls.c: answers one request. *fd is a descriptor to send along; *give says that it is closed here afterwards. */
void answer(struct client *c, const struct sim_request *r, struct sim_answer *a, int *fd, bool *give);

#endif
