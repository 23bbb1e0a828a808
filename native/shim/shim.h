/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim.h: what the parts of the shim know of each other. README.md says how they hang together; native/abi.h is the contract
 * with the agent and the arbiter.
 */
#ifndef ALIQUOT_SHIM_H
#define ALIQUOT_SHIM_H

#include <stddef.h>

#include "abi.h"
#include "cuda.h"
#include "util.h"

/* What cuda.h does not declare, because nobody may call it under a share. */
#define HOOK(symbol, base, version, per_thread, kind)
#define REFUSED(symbol, base, version, why) CUresult symbol(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
#include "paths.def"

#define SHIM_VERSION ALQ_SHIM_WAITS
#define EXPORT __attribute__((visibility("default")))

/* ----------------------------------------------------------------------------------------------------- page.c, task.c, line.c */

enum shim_state {
	SHIM_NEW = 0, /* nobody has called yet */
	SHIM_OFF,     /* not under Aliquot: everything passes through untouched */
	SHIM_ON,
	SHIM_FAILED,  /* under Aliquot, and it does not work: the driver is refused */
};

/* The task of this process. The pages stay mapped for good; only a forked child lets go of them. */
struct task {
	int state;                 /* enum shim_state; release */
	const struct alq_ctl *ctl;
	struct alq_tel *tel;
	uint32_t grants;
	uint32_t slot;             /* ours in tel; changes only if an arbiter that lost everything gives another */
	int bell;                  /* eventfd; -1: none */
	uint64_t alone_ns;         /* when the line to the arbiter was found broken; 0: it stands; release */
	char folder[PATH_MAX];
};

extern struct task task;

/* Finds the task and opens its pages, without registering. Returns the state; speaks on stderr when it is SHIM_FAILED. */
enum shim_state task_open(bool writable);
/* task_open, then registers with the arbiter; waits up to ALQ_REGISTER_NS for one. Once per process; later calls return the state. */
enum shim_state task_start(void);
/* Rings the arbiter's bell. */
void task_ring(void);
/* Whether nobody grants leases: the line broke and no arbiter has shown itself since, or one is there and has been silent for too long. */
bool task_arbiter_lost(uint64_t now);
/* Asks that all processes of the task together may hold want bytes on a device. An answer is waited for until then, and for 2 s at least. */
enum asked {
	ASK_GRANTED,
	ASK_REFUSED,
	ASK_LOST, /* there is no line, or it broke, or no answer came */
};
enum asked line_ask_memory(uint32_t grant, uint64_t want, uint64_t until);
/* One attempt to register; true when done. quiet: say nothing. */
bool line_connect(void);
/* Keeps the registration: connects again when the arbiter comes back. */
void line_keep(void);
/* In a forked child: forget the line. */
void line_forget(void);
/* Has forked children let go of everything; called before any lock is taken. */
void task_watch_forks(void);
/* After registering: says in the slot how many functions were looked up that are not known, also before. */
void driver_republish(void);
void driver_forget(void);
void contexts_forget(void);

static inline bool task_on(void)
{
	return __builtin_expect(get_acquire(&task.state) == SHIM_ON, 1);
}

static inline struct alq_tel_grant *tel_of(uint32_t grant)
{
	return &task.tel->slot[get(&task.slot)].grant[grant];
}

/* A policy field of a grant that may not be torn: floors and ceilings read as one. */
struct policy {
	uint32_t flags, floor, ceiling;
	uint64_t mem_ceiling, mem_device;
};

void task_policy(uint32_t grant, struct policy *out);

/* --------------------------------------------------------------------------------------------------------------- cost.c */

/*
 * What a launch is expected to take on the device, learned from what it took. One entry a function and grid size (or graph, or
 * kind and size of copy). Fields are written under the meter's lock, and read without by nobody.
 */
struct cost {
	uint64_t key;     /* 0: free */
	uint64_t est_ns;  /* 0: never measured */
	uint32_t pending; /* launches under way while it had never been measured */
	uint16_t doubted; /* measurements in a row that others' work may have made longer */
	uint16_t leaps;   /* measurements in a row far above est_ns */
	uint64_t leap_ns; /* the least of these */
	uint64_t was_ns;  /* est_ns before a change that nothing was measured after; 0: none */
	uint32_t version; /* moved on when what was launched before teaches nothing any more */
	uint16_t same;    /* changes in a row after which it took as long as before */
};

#define COSTS_BITS 12
#define COSTS (1u << COSTS_BITS)

static inline uint64_t cost_key(const void *function, uint64_t size)
{
	uint64_t key = (uint64_t)(uintptr_t)function ^ size * 0x9e3779b97f4a7c15ull;
	return key == 0 ? 1 : key;
}

/* The first place in a table of COSTS to look for a key. */
static inline uint64_t cost_home(uint64_t key)
{
	return key * 0xd6e8feb86659fd93ull >> (64 - COSTS_BITS);
}

/* Finds an entry, or makes one, which may push out another. */
struct cost *cost_seek(struct cost *table, uint64_t key);

static inline struct cost *cost_find(struct cost *table, uint64_t key)
{
	struct cost *c = &table[cost_home(key)];
	return likely(c->key == key) ? c : cost_seek(table, key);
}

/* Takes in one measurement. doubted: others' work may have made it longer. */
void cost_learn(struct cost *c, uint64_t measured_ns, bool doubted);
/* Whether a doubted measurement is all that there is to go by. */
bool cost_trusts(const struct cost *c);
/* Finds an entry, or NULL. */
struct cost *cost_look(struct cost *table, uint64_t key);
/* What is launched has been changed, and may take another time; gone: it will be something else altogether. */
void cost_changed(struct cost *c, bool gone);

/* --------------------------------------------------------------------------------------------------- gate.c, meter.c, watch.c */

/* One launch between gate_enter and gate_leave. */
struct pass {
	struct meter *meter; /* NULL: not gated */
	struct stream *stream;
	struct batch *batch;
	struct part *part; /* of the batch, where it is counted */
	struct cost *cost;
	uint64_t est_ns;
	uint64_t behind_ns; /* so long it will wait on the device for work of other processes of the share */
	bool locked; /* it leaves under the lock, for there is more to do than to count that it has left: its batch is full, say */
	bool unknown;
	bool paced; /* let through by the floor's schedule, while the arbiter is away */
};

/*
 * Lets a launch into stream (of whatever context) through when lease and run-ahead allow it. per_thread: NULL means the
 * calling thread's default stream. On success the launch must follow, then gate_leave with its result.
 */
CUresult gate_enter(struct pass *pass, CUstream stream, bool per_thread, uint64_t key);
void gate_leave(struct pass *pass, CUresult result);

/* Whether a call into this stream is only written down. per_thread as above. */
bool gate_capturing(CUstream stream, bool per_thread);

/* Before a stream, a context go away: what is open in them is closed, nobody touches them afterwards. */
void meter_stream_gone(CUstream stream);
void meter_context_gone(CUcontext context);
/* Around stream captures, from before one begins until its end, that of its stream or of its context: meanwhile nothing of ours is put into any
 * stream that is not being launched into. What _begins returns is for _began, once the driver has answered. */
struct stream *meter_capture_begins(CUstream stream, bool per_thread);
void meter_capture_began(struct stream *s, bool began);
void meter_capture_ended(CUstream stream, bool per_thread);
/* A stream was created that waits for the legacy default stream. */
void meter_blocking_stream(void);
/* The grant of the current context's device; -1: none of ours. */
int meter_current_grant(void);
/* A graph has been changed, or (gone) its handle will be another's. */
void meter_graph_changed(CUgraphExec exec, bool gone);
/* After registering again: makes the slot say what is outstanding. */
void meter_republish(void);
/* In a forked child: forget everything. */
void meter_forget(void);

/* ------------------------------------------------------------------------------------------------------------- memory.c */

/* Reserves bytes of a grant for this process, over all processes of the task at once. False: refused, and nothing is reserved. */
bool memory_reserve(uint32_t grant, uint64_t bytes);
void memory_return(uint32_t grant, uint64_t bytes);
/* Charges what the driver has taken already, also where that is more than is granted: then nothing is reserved until as much has been returned. */
void memory_charge(uint32_t grant, uint64_t bytes);
/* The same for what the program did not ask for itself. */
bool memory_reserve_overhead(uint32_t grant, uint64_t bytes);
/* Reserves as overhead what a driver may need for something of unknown size, after it had no memory for it. False: that was not for memory lent
 * of our floor, and trying again helps nothing. */
bool memory_room(uint32_t grant, uint64_t *bytes);
void memory_return_overhead(uint32_t grant, uint64_t bytes);
/* What the share shows: total is the ceiling, free what would succeed now. */
void memory_view(uint32_t grant, uint64_t *free_bytes, uint64_t *total_bytes);
/* What all processes of the task hold on a device. */
uint64_t memory_sum(uint32_t grant);
/* What this process holds of a grant, overhead included. */
uint64_t memory_own(uint32_t grant);
/* What a request may take from the device, bytes: whole steps, as the driver takes them. */
#define MEMORY_STEP (2ull << 20)
uint64_t memory_round(uint64_t bytes);
/* Makes the slot say again what this process holds, after it changed or was zeroed. */
void memory_republish(void);
void memory_forget(void);

/* --------------------------------------------------------------------------------------------------------- pool.c, graph.c */

/* memory_reserve; where it does not fit, what this process' pools keep is given back to the device first. */
bool pools_reserve(uint32_t grant, uint64_t bytes);
/* After something at which pools let go: charges what they hold now. */
void pools_settle(void);
void pools_forget(void);
void graphs_forget(void);
void modules_forget(void);
/* Charges what the driver took for code and variables that it had put off until a launch used them, by its own books; it goes with the context.
 * LATER: there is no room for it, or it cannot be told now. Costs a driver up to a millisecond. */
enum settled { SETTLED_NOTHING, SETTLED_CHARGED, SETTLED_LATER };
enum settled modules_settle(uint32_t grant, CUcontext context);
/* Keeps contexts from being made, which take memory before it is charged. False: one is being made now. */
bool contexts_hold(void);
void contexts_let_go(void);
void limits_forget(void);

/* ------------------------------------------------------------------------------------------------------------- blocks.c */

/* BLOCK_PIECE: under 1 MiB, cut by the driver out of a block with others; the block is charged, in pieces.c. */
enum block_kind { BLOCK_PLAIN = 1, BLOCK_MANAGED, BLOCK_ARRAY, BLOCK_MIPMAP, BLOCK_EXTERNAL, BLOCK_GRAPH, BLOCK_MODULE, BLOCK_PIECE, BLOCK_LIMIT };

/* One allocation: enough to uncharge it, and, once memory can be parked, to find and move it. */
struct block {
	uint64_t key;     /* address or handle; 0: free, 1: was used */
	uint64_t bytes;   /* charged; 0 for a piece */
	CUcontext context;
	uint32_t grant;
	uint32_t kind;    /* enum block_kind */
};

/* Keys of what is charged for a context as such. Contexts lie at multiples of 8, so these are no other's. */
enum context_key { KEY_LATE = 1, KEY_LIMITS, KEYS_END = 8 }; /* a limit's is KEY_LIMITS + its number */

static inline uint64_t context_key(CUcontext context, uint32_t which)
{
	return (uint64_t)(uintptr_t)context + which;
}

bool blocks_add(const struct block *b);
bool blocks_take(uint64_t key, struct block *out);
/* The driver frees what blocks_take took out: _leaving before the call, _left after it, which puts it back if the driver did not free it. */
struct leaving {
	bool looked;
	bool all;      /* the books are of all processes */
	uint64_t held; /* by the driver's books */
	uint64_t own;  /* charged to this process then */
};
void blocks_leaving(const struct block *b, struct leaving *l);
void blocks_left(const struct block *b, const struct leaving *l, CUresult result);
/* What the driver holds for sure of a grant, bytes: plain allocations and modules; how many pieces there are; and blocks_added then. */
struct blocks_sum {
	uint64_t plain, pieces, added;
};
void blocks_sum(uint32_t grant, struct blocks_sum *out);
/* Moves on with each allocation that is put into the table. */
uint64_t blocks_added(void);
/* Takes out every block of a context that is being destroyed and returns its memory. */
void blocks_drop_context(CUcontext context);

void blocks_forget(void);

/* --------------------------------------------------------------------------------------------------- physical.c, ipc.c */

/* Virtual memory: a physical handle is charged until it is released, mapped nowhere, and nobody has a descriptor of it. */
bool physical_add(uint64_t handle, uint64_t bytes, uint32_t grant);
/* False: the handle is not known. */
bool physical_retain(uint64_t handle);
/* Around the driver's release of a handle, which may be another's before the driver has answered: _leaving gives what _left is to be given. */
uint64_t physical_leaving(uint64_t handle);
void physical_left(uint64_t number, CUresult result);
/* A descriptor was made by which others may get it. */
void physical_export(uint64_t handle, int fd);
/* Charges what is about to be mapped and is not charged yet: memory of which nothing told how much it is. False: there is no room. */
bool physical_claim(uint64_t handle, uint64_t bytes);
/* False: there is no memory to book it in. */
bool physical_map(uint64_t handle, uint64_t address, uint64_t bytes);
void physical_unmap(uint64_t address, uint64_t bytes);
/* Returns what stayed charged because of descriptors that are gone by now. False: nothing. */
bool physicals_settle(void);
void physical_forget(void);
/* Returns what is open of others' memory in a context that is being destroyed. */
void ipc_drop_context(CUcontext context);
void ipc_forget(void);

/* ------------------------------------------------------------------------------------------------------------- pieces.c */

/* A piece was allocated, for which a block was reserved; returns that where the block was charged before. False: there is no memory to remember
 * the block in, and it stays reserved. */
bool pieces_made(const struct block *piece);
/* Around the driver's freeing of a piece, once it did. */
void pieces_leaving(const struct block *piece, struct leaving *l);
void pieces_left(const struct block *piece, const struct leaving *l);
/* An allocation was made of whole blocks: empty ones whose addresses it has are gone. */
void pieces_covered(uint64_t address, uint64_t bytes);
/*
 * Returns what empty blocks are charged of which the driver's books say that they are gone. again: also when none became empty since the
 * books were read last. False: nothing. Costs a driver up to a millisecond, where there are empty ones.
 */
bool pieces_trim(uint32_t grant, bool again);
/* 1: a module is about to be loaded; 0: it was; -1: it was not, or it was unloaded. */
void pieces_module(int change);
/* 1: the driver is about to destroy a context; -1: what was charged for it has been returned, or it was not destroyed. */
void pieces_ending(int change);
void pieces_drop_context(CUcontext context);
void pieces_forget(void);

/* --------------------------------------------------------------------------------------------------------------- view.c */

/* Finds out which of the driver's devices are the task's; called once the driver is initialised. */
void view_start(void);
int view_count(void);
CUresult view_device(int ordinal, CUdevice *device);
/* The grant of a driver's device; -1: none of ours. */
int view_grant(CUdevice device);
/* The driver's device of a grant; false: the program does not see it. */
bool view_grant_device(uint32_t grant, CUdevice *device);
/* Has CUDA_VISIBLE_DEVICES name the task's devices, while the driver reads it; undone by _end. */
void view_visible_begin(void);
void view_visible_end(void);

/* What this process holds on a device by the driver's own books; false: not known. */
bool overhead_read(uint32_t grant, uint64_t *bytes);

#endif
