/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbiter.h: the process around the core. One thread: it waits for bells, processes, lines of the agent and the core's next wake-up, reads
 * the tenants' pages, lets the core decide, and publishes gates and books.
 */
#ifndef ALIQUOT_ARBITER_H
#define ALIQUOT_ARBITER_H

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

#include "../abi.h"
#include "../point.h"
#include "core.h"
#include "stall.h"

#ifndef ARBITER_VERSION /* a test builds another */
#define ARBITER_VERSION "1"
#endif
#define HEARTBEAT_NS 80000000ull       /* sooner than ALQ_HEARTBEAT_NS, so that being late does not show */
#define RUN_AHEAD_NS 1000000u          /* of a share, divided among its processes that use the device */
#define RUN_AHEAD_LAUNCHES 10u
#define USES_NS 100000000ull           /* one that launched no longer ago uses it still */
#define MEM_CHUNK (64ull << 20)        /* memory above the floor is granted and given back in such steps */
#define LINES 16                       /* of agents at the same time; others wait for one */
#define MAX_CONNECTIONS (ALQ_MAX_PROCS + 16) /* of one task, registered or not */

#define load(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)

enum source_kind {
	SOURCE_TIMER,
	SOURCE_SIGNAL,
	SOURCE_CONTROL,        /* the socket that the agent connects to */
	SOURCE_CONTROL_LINE,   /* a connection of the agent */
	SOURCE_TASK,           /* a task's socket */
	SOURCE_PROCESS,        /* a connection of a process */
	SOURCE_BELL,
	SOURCE_PIDFD,
};

struct source { /* what an epoll event is about */
	enum source_kind kind;
	void *owner;
	int fd;
};

struct process { /* of a task: a connection, or a slot that an earlier arbiter gave and that has not registered again */
	struct process *next;
	struct task *task;
	struct source line, bell, pidfd;
	int slot;              /* −1 until it has registered */
	pid_t pid;             /* 0: not known, then only the connection tells its end */
	uint64_t start_time;
	bool gone;             /* to be freed once the events at hand are done */

	/* What was last read of its counters, so that those that go back or leap harm nobody. */
	struct {
		uint64_t launched, completed, launched_ns, completed_ns, device_ns;
	} seen[ALQ_MAX_GRANTS];
	struct stall stall[ALQ_MAX_GRANTS];

	uint32_t shim_version; /* by its own word */
	struct {               /* asked for within the floor, and not answered yet (owed.c) */
		bool on;
		uint32_t grant;
		uint64_t want, since_ns, until_ns;
	} wait;
	uint64_t leaving[ALQ_MAX_GRANTS]; /* bytes that it held when its line ended; they are free once it has ended itself */

	uint64_t ring_tokens_at; /* the bell may be heard again from here on, minus a few in advance */
	bool muted;
};

struct task_grant {
	int core;              /* index in the core */
	int device;            /* index in node.device */
	struct core_policy policy;
	uint32_t policy_seq;
	uint64_t mem_floor, mem_ceiling;
	uint64_t launched, launched_ns, device_ns; /* sums over processes, past ones too */
	uint64_t leased;       /* lease last published */
};

struct task {
	char uid[ALQ_UID_LEN];
	char folder[PATH_MAX];
	int core;              /* index in the core */
	int grants;
	struct alq_ctl *ctl;
	struct alq_tel *tel;
	struct alq_book *book;
	uid_t user;            /* owner of tel when it was mapped; whose the task is says task_owner */
	bool spoiled;          /* its tel was no page when it was mapped: zeros are read instead, and what is granted counts as used */
	struct source listener;
	struct task_grant grant[ALQ_MAX_GRANTS];
	struct process *processes;
	int connections;
	bool live;             /* a process has a slot */
	struct task *next_garbage; /* once deleted, until the events at hand are done */
};

struct device {
	struct alq_device *page;
	char uuid[ALQ_UUID_LEN];
	int core;
	uint64_t mem_capacity;
	struct {               /* what owners wait for, as published (owed.c); bytes 0: nobody does */
		uint64_t bytes, since_ns;
		char uid[ALQ_UID_LEN];
	} wanted;
};

struct node {
	char run[PATH_MAX - 256];
	int epoll, timer;
	uint64_t epoch, now;
	bool ending;
	bool adopting;                      /* not all that is granted is known yet */
	struct source control, signal, timer_source;
	struct source line[LINES];          /* of agents; fd −1: free */
	struct core core;
	struct stalls stalls;
	struct device device[CORE_DEVICES]; /* as in the core */
	struct task *task[CORE_TASKS];      /* as in the core */
	struct {
		struct task *task;
		int grant;
	} of_grant[CORE_GRANTS];            /* as in the core */
	struct process *garbage;
	struct task *task_garbage;
	int spare;                          /* a descriptor to give up when there are no more */
	uint64_t heartbeat_at;              /* next; CORE_NEVER: no process anywhere */
	uint64_t look_at;                   /* at work between heartbeats; CORE_NEVER: not */
	uint64_t unmute_at;
	int waiting;                        /* processes whose asks within floors are not answered yet, */
	uint64_t owed_at;                   /* when they are looked at next; */
	bool freed;                         /* memory may have come free since they were, so sooner, */
	uint64_t owed_rest;                 /* but not before this: looking takes a small part of the time, however many wait */
};

/* Calls for each grant on a device. */
#define EACH_ON_DEVICE(node, number, t, k)                                                                             \
	for (int i_ = 0; i_ < (node)->core.device[number].grants; i_++)                                                \
		for (struct task *t = (node)->of_grant[(node)->core.device[number].grant[i_]].task; t; t = NULL)       \
			for (int k = (node)->of_grant[(node)->core.device[number].grant[i_]].grant; k >= 0; k = -1)

/* main.c */
uint64_t clock_now(void);
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
int watch(struct node *node, struct source *source, uint32_t events);
void unwatch(struct node *node, struct source *source);

/* page.c: maps and checks pages. NULL after saying why into `why`. A page cut short while it is mapped reads as zeros from then on. */
void *page_map(int folder, const char *name, enum alq_kind kind, char *why, size_t why_size, uid_t *owner);
void *page_zeros(enum alq_kind kind); /* in place of a page that cannot be believed; NULL: no memory */
void page_unmap(void *page, enum alq_kind kind);
size_t page_size(enum alq_kind kind);
void page_guard(void);

/* tasks.c: tasks and devices come and go. 0, or −1 after saying why. */
int device_load(struct node *node, const char *uuid, char *why, size_t why_size);
void devices_look(struct node *node); /* at the state that the agent gives them */
struct task *task_find(struct node *node, const char *uid);
int task_load(struct node *node, const char *uid, char *why, size_t why_size);
void task_delete(struct node *node, struct task *task);
void task_free(struct task *task);
void task_policy(struct node *node, struct task *task);
uid_t task_owner(const struct task *task); /* now: it may be given to a user after it has come */
void adopt_all(struct node *node);
bool name_ok(const char *name, size_t size);

/* books.c */
void books_restore(struct node *node, struct task *task);
void device_restore(struct node *node, int device);
void publish_gates(struct node *node);
void publish_run_ahead(struct node *node, struct task *task, int grant);
void publish_task(struct node *node, struct task *task);
void publish_device(struct node *node, int device);
void publish_stalls(struct node *node); /* after a look at every process' work */
void stalls_anew(struct node *node); /* as if nothing had been seen of it */
void publish_all(struct node *node);
void ledger_move(struct node *node, struct task *task);

/* observe.c */
void observe(void *context, int grant, uint64_t now, struct core_observation *out);

/* process.c: the processes of tasks */
int task_listen(struct node *node, struct task *task, char *why, size_t why_size);
void process_accept(struct node *node, struct task *task);
void process_read(struct node *node, struct process *process);
void process_answer(struct node *node, struct process *process, uint32_t grant, uint32_t status); /* to what it asked */
void process_end(struct node *node, struct process *process);
void process_adopt(struct node *node, struct task *task);
void collect_garbage(struct node *node);

/* bell.c */
void process_rang(struct node *node, struct process *process);
void processes_unmute(struct node *node);

/* memory.c */
#define MEM_WAITS 256u /* beside enum alq_status: what is lent of the floor has to come back first */
uint32_t memory_ask(struct node *node, struct task *task, uint32_t grant, uint64_t want);
uint64_t memory_of(const struct alq_tel_grant *entry); /* what a process says that it holds, as far as it can be */
uint64_t memory_free(struct node *node, int device);
void memory_look(struct node *node); /* at what has changed without a word */
void memory_policy(struct node *node, struct task *task, int grant);
void memory_give_back(struct node *node, struct task *task);
void memory_hints(struct node *node, int device);

/* owed.c: asks within floors that wait for what is lent */
void owed_keep(struct node *node, struct process *process, uint32_t grant, uint64_t want);
void owed_forget(struct node *node, struct process *process);
void owed_freed(struct node *node);
uint64_t owed_due(const struct node *node); /* when to look; CORE_NEVER: nobody waits */
void owed_look(struct node *node);

/* control.c: the agent's line */
int control_open(struct node *node);
void control_accept(struct node *node);
void control_read(struct node *node, struct source *line);

#endif
