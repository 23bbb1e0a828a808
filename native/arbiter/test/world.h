/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h: tenants and devices under virtual time, for tests of the core. Tenants behave as the shim does: they launch while their gate
 * is open, their deadline is ahead and their run-ahead allows it, else they wait and ring. Devices slice time among contexts, or run
 * what came first. What the device ran for each lane is the truth that shares are judged by; the core never sees it.
 */
#ifndef ALIQUOT_TEST_WORLD_H
#define ALIQUOT_TEST_WORLD_H

#include "../core.h"

#define MS 1000000ull
#define US 1000ull
#define SECOND 1000000000ull
#define MAX_LANES 64
#define MAX_DEVICES 16
#define MAX_NODES 2
#define QUEUE 64

struct lane { /* one grant and the program that uses it */
	struct core *core;     /* the arbiter of its node */
	int grant, task, device;
	uint64_t kernel;       /* ns */
	uint64_t estimate;     /* what its shim takes a kernel for */
	uint64_t gap;          /* >0: the program waits for each kernel and then this long */
	uint64_t period;       /* >0: brings `batch` kernels each period, else it always has more */
	uint64_t batch;
	uint64_t jitter;       /* of the period */
	bool poisson;          /* batches come at random, a period apart in the mean */
	uint64_t asked[QUEUE]; /* when each batch came that is not done, by its count */
	uint64_t batches, done; /* that came, and that were heard to have ended */
	uint64_t *took;        /* of each batch that is done, from when it came, ns: room for `room` */
	uint64_t room;
	uint64_t notice;       /* how late its shim hears that a kernel has ended, ns */
	uint64_t spread;       /* kernels last kernel × (1000 ± spread) / 1000 ns */
	uint64_t tail;         /* one in tail_one_in lasts so much longer, ns */
	uint64_t tail_one_in;
	int group;             /* >0: lanes that go on together, a kernel each */
	bool meets;            /* their kernels wait for each other on their devices, as collectives do, before they do what they do */
	int after;             /* >0: one thread launches for them all, for this one after lane after−1 */
	bool off;
	bool stopped;          /* its processes are (SIGSTOP): nothing is launched or heard; what is on the device goes on */
	bool slips;            /* launches though its gate is closed: its thread had looked at it before */
	bool liar;             /* says that it measures nothing */
	bool several;          /* processes, each of which measures the others' work too: twice what it is */

	uint64_t backlog, next_arrival;
	uint64_t pump_at, bell_at;
	uint64_t outstanding, remaining; /* kernels; ns of the first */
	uint64_t arrived[QUEUE]; /* when each outstanding kernel was launched, by its count */
	uint64_t heard_at[QUEUE]; /* when its shim hears of the end of each completed kernel, by its count */
	uint64_t launched, completed, busy_until, wait_since;
	uint64_t heard;        /* of completed, what its shim knows of */
	uint64_t measured;     /* ns that those lasted */
	uint64_t truth;        /* ns the device ran for it */
	bool waited_for_drain;
	bool coming;           /* a launch waits behind what is queued */
};

/* What a core's observations are made in. */
struct world_node {
	struct world *world;
	struct core *core;
};

struct world {
	struct core *core;                /* of the first node */
	struct world_node node[MAX_NODES];
	int nodes;
	struct lane lane[MAX_LANES];
	int lanes;
	int device[MAX_DEVICES], devices; /* their cores' indices */
	int node_of[MAX_DEVICES];
	bool gone[MAX_DEVICES];           /* fallen off the bus: nothing on it goes on */
	int running[MAX_DEVICES];         /* lane, or −1 */
	uint64_t slice_end[MAX_DEVICES];
	uint64_t slice;                   /* 0: first come, first served, whole kernels */
	uint64_t switch_cost, switch_left[MAX_DEVICES];
	uint64_t busy[MAX_DEVICES], switching[MAX_DEVICES];
	uint64_t now, next_run;
	uint64_t latency;                 /* from a bell to the arbiter, from a gate to the tenant */
	uint64_t seed;
	uint64_t runs;                    /* of the core */
	bool absent;                      /* the arbiter does not run: bells ring on until it does */
};

struct world *world_new(uint64_t seed, int devices);
/* Another node, with an arbiter and devices of its own, behind those that there are. */
void world_node(struct world *world, int devices);
void world_free(struct world *world);
struct lane *world_add(struct world *world, uint32_t floor, uint32_t ceiling, uint32_t weight, uint64_t kernel);
/* A task with a lane on each of the first n devices, whose kernels go on together. Returns the first lane. */
struct lane *world_add_gang(struct world *world, int first, int n, uint32_t floor, uint32_t ceiling, uint64_t kernel);
void world_run(struct world *world, uint64_t until);
/* The lanes from a on, n of them, and those from b on are one program: their kernels go on together. */
void world_join(struct world *world, struct lane *a, struct lane *b, int n);
/* The arbiter of the first node dies and another adopts its tasks with these books, as native/arbiter/tasks.c does. */
void world_adopt(struct world *world, const struct core_books *books);
/* Kernels that the lane's shim takes for outstanding. */
uint64_t lane_queued(const struct lane *lane);
uint64_t world_random(struct world *world, uint64_t below);
void check(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
int check_failures(void);

#endif
