/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h: the simulated libcuda.so.1 from inside.
 *
 * One lock (api.lock) guards all that is said here, except where it says otherwise; it is never held while waiting for the device or while a
 * program's function runs. Waiting is a futex on the channel.
 *
 * What the device does takes its time in the server; what it does to bytes is done here, as actions: the server says in what order
 * they fall due, and whoever comes first does them (a thread that waits, or the context's worker).
 */
#ifndef ALIQUOT_SIMGPU_CUDA_INTERNAL_H
#define ALIQUOT_SIMGPU_CUDA_INTERNAL_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_EXACT_NAMES
#pragma GCC visibility push(default)
#include "cuda.h"
#pragma GCC visibility pop

#include "simgpu/costs.h"
#include "simgpu/wire.h"

/* -------------------------------------------------------------------------------------------------------------- library */

struct library {
	pthread_mutex_t lock;
	pthread_mutex_t wire_lock; /* guards the socket; taken after lock or without it */
	bool ready, forked;
	int socket, kick;
	uint32_t devices;
	struct sim_info info[SIM_MAX_DEVICES];
	uint64_t kernel_min_ns, kernel_default_ns, copy_start_ns, context_bytes;
	CUcontext primary[SIM_MAX_DEVICES];
	unsigned primary_refs[SIM_MAX_DEVICES];
	unsigned primary_flags[SIM_MAX_DEVICES];
	bool puts_off; /* CUDA_MODULE_LOADING=LAZY: what a module takes, until something of it is first used */
	uint64_t ids; /* for streams, contexts, captures, buffers */
};
extern struct library api;

/* Every entry point begins with one of these: initialised, not forked; and for the second, a current context without a fault. On success
 * the lock is held. */
CUresult enter(void);
CUresult enter_context(CUcontext *out);
/* How a call begins that has nothing to undo: on to the next line with the lock held, or back with what is wrong. */
#define TRY(call)                               \
	do {                                    \
		CUresult try_ = (call);         \
		if (try_ != CUDA_SUCCESS)       \
			return try_;            \
	} while (0)
static inline CUresult leave(CUresult r)
{
	pthread_mutex_unlock(&api.lock);
	return r;
}

/* A call to the server. Returns its CUresult; a server that is gone is CUDA_ERROR_UNKNOWN. */
CUresult server_call(struct sim_request *request, struct sim_answer *answer, int *fd);
void kick_server(void);
uint64_t now_ns(void);

/* -------------------------------------------------------------------------------------------------------------- handles */

enum handle {
	H_CONTEXT = 1, H_STREAM, H_EVENT, H_MODULE, H_FUNCTION, H_LIBRARY, H_KERNEL, H_GRAPH, H_NODE, H_EXEC, H_POOL, H_ARRAY, H_MIPMAP,
	H_PHYSICAL, H_LINK, H_USER, H_EXTERNAL,
};
void handle_add(const void *p, enum handle kind);
void handle_remove(const void *p);
bool handle_is(const void *p, enum handle kind);

/* ----------------------------------------------------------------------------------------------------------------- work */

enum work_kind {
	W_EMPTY, W_KERNEL, W_COPY, W_SET, W_HOST, W_CALLBACK, W_RECORD, W_WAIT, W_WRITE, W_AWAIT, W_GRAPH, W_BATCH,
	W_ALLOC, W_FREE, /* only in graphs */
	W_UNPACK,        /* never in graphs */
};

struct region { /* bytes to move: rows of width bytes, height rows, depth slices */
	char *src, *dst;
	size_t src_pitch, src_slice, dst_pitch, dst_slice;
	size_t width, height, depth;
	bool src_host, dst_host; /* crosses the bus there */
	bool pageable;           /* touches host memory that is not pinned */
};

struct fill { /* bytes to set */
	char *dst;
	size_t pitch, width, height; /* width in elements */
	uint32_t value, element;
};

struct unpack { /* bytes to decompress */
	const uint8_t *src;
	uint8_t *dst;
	size_t bytes, room, expected; /* to be read; the most and those said to be written */
	uint32_t *actual;
};

struct value { /* a word of memory to write or to wait for */
	void *at;
	uint64_t value;
	uint32_t flags;
	bool wide;
};

struct kernel {
	CUfunction function;
	unsigned grid[3], block[3], shared;
	char *params; /* a copy of them, owned; NULL: none */
	size_t param_bytes;
	uint64_t ns;
};

/* One thing for a stream to do: submitted, or kept as a node of a graph. */
struct work {
	enum work_kind kind;
	union {
		struct kernel kernel;
		struct {
			struct region region;
			CUDA_MEMCPY3D asked;
		} copy;
		struct {
			struct fill fill;
			CUDA_MEMSET_NODE_PARAMS asked;
		} set;
		struct {
			CUhostFn fn;
			CUstreamCallback callback;
			void *data;
			CUstream stream;
		} host;
		CUevent event; /* RECORD, WAIT in a graph */
		struct value value;
		struct unpack unpack;
		CUgraph graph;
		struct graph_memory *memory; /* ALLOC, FREE */
		struct {
			unsigned count, flags;
			CUcontext context;
			CUstreamBatchMemOpParams *ops; /* owned */
		} batch;
	};
};

void unpack_bytes(const struct unpack *u);
uint64_t unpack_ns(uint32_t device, const struct unpack *u);
CUresult work_copy(struct work *to, const struct work *from);
void work_free(struct work *w);

/* ------------------------------------------------------------------------------------------------------------- contexts */

struct action {
	_Atomic bool pending;
	struct work work;
	uint32_t slot;
	uint64_t seq;
};

struct host_call {
	struct work work;
	uint32_t slot;
	uint64_t seq;
	struct host_call *next;
};

struct CUctx_st {
	uint64_t id;
	uint32_t device;
	unsigned flags, version;
	bool primary, dead;
	unsigned users; /* threads that wait in it: freed by the last */
	unsigned attached; /* by cuCtxAttach, beyond the call that made it */
	struct sim_channel *channel;
	uint64_t head;
	CUstream legacy, streams; /* streams: all, by next */
	CUevent events;
	CUmodule modules;
	struct chunk *chunks; /* of plain allocations */
	uint32_t next_stream, next_event;
	uint32_t *free_streams, *free_events; /* stacks of slots used before */
	uint32_t free_stream_count, free_event_count;
	size_t limit[16];
	int cache, banks;
	uint32_t peers; /* devices whose memory it may use */

	pthread_mutex_t act_lock; /* guards what follows; taken without api.lock or after it */
	struct action act[SIM_RING];
	uint64_t drained; /* actions done or handed to the worker */
	struct host_call *calls, **calls_end;
	bool has_worker, stop;
	pthread_t worker;
};

struct CUstream_st {
	CUcontext context;
	uint64_t id;
	uint32_t slot;
	unsigned flags;
	int priority;
	bool per_thread, destroyed;
	uint64_t last; /* its last operation */
	struct capture *capture;
	CUgraphNode *tips; /* capture: what its next node depends on, owned */
	size_t tip_count;
	CUlaunchAttributeValue attribute[16];
	CUstream next;
};

struct CUevent_st {
	CUcontext context;
	uint32_t slot;
	unsigned flags;
	uint32_t stream_slot;
	uint64_t seq; /* its newest record; 0: none */
	struct capture *capture;
	CUgraphNode *tips;
	size_t tip_count;
	CUevent next;
};

CUresult context_current(CUcontext *out); /* CUDA_ERROR_INVALID_CONTEXT if there is none */
/* A context by which memory of the device is held: the current one if it is of that device, else the primary one, else any; NULL: none. */
CUcontext context_on(uint32_t device);
CUresult context_check(CUcontext c);      /* that it exists, and its fault */
void context_forget(CUcontext c);
void context_unuse(CUcontext c); /* after users++ */

/* The stream that a handle means for the current context. */
CUresult stream_of(CUstream h, CUstream *out);
CUresult enter_stream(CUstream h, CUstream *s); /* begins a call on a stream; on success the lock is held */
void slot_back(uint32_t **stack, uint32_t *count, uint32_t slot); /* to be used again */
CUstream stream_per_thread(CUcontext c);
CUresult stream_make(CUcontext c, unsigned flags, int priority, CUstream *out);
void stream_drop(CUstream s);
void event_drop(CUevent e);

/* Submits or, if the stream is being captured, adds to its graph. Takes ownership of what the work owns, also on failure. May let the lock go
 * while the ring is full. */
CUresult issue(CUstream s, struct work *w);
CUresult submit(CUstream s, struct work *w); /* never captures */
CUresult submit_run(CUstream s, uint64_t ns, uint32_t launches); /* several kernels as one operation */
CUresult submit_wait(CUstream s, CUcontext of, uint64_t seq);

/* Waits, with the lock held on entry and on return but not in between. */
CUresult await(CUcontext c, uint32_t slot, uint64_t seq);
CUresult await_stream(CUstream s);
CUresult await_context(CUcontext c);
bool ended(CUcontext c, uint32_t slot, uint64_t seq); /* as of now */
CUresult worker_start(CUcontext c); /* with act_lock or before anybody else knows the context */
void worker_stop(CUcontext c);
void actions_drain(CUcontext c); /* does what is due */
#define WATCHDOG_NS 1000000000ull /* how often one who waits looks whether the server still lives */
#define VALUE_POLL_NS 200000ull   /* how often memory is read that a stream waits for: the host's stores give no notice */
void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns);

/* -------------------------------------------------------------------------------------------------------------- capture */

struct capture {
	uint64_t id;
	CUgraph graph;
	bool own_graph; /* made by the capture */
	CUstreamCaptureMode mode;
	CUstreamCaptureStatus status;
	CUstream origin;
	pthread_t thread;
	unsigned refs; /* streams in it */
	struct capture *next;
};
CUresult capture_add(CUstream s, struct work *w);
/* Whether the calling thread may do what would break a capture; breaks it if not. */
CUresult capture_unsafe(void);
/* The same for the legacy stream, which may not be used beside the capture of a blocking stream. */
CUresult capture_legacy(CUcontext c);
void capture_leave(CUstream s);
extern struct capture *captures;

#include "simgpu/cuda/memory.h"

/* -------------------------------------------------------------------------------------------------------------- modules */

struct param {
	size_t offset, size;
};

struct legacy { /* kept between the calls of an old launch */
	unsigned block[3], shared;
	size_t bytes;
	char params[4096];
};

struct CUfunc_st {
	CUmodule module;
	CUkernel kernel;
	char name[256];
	struct param param[64];
	unsigned params;
	size_t param_bytes;
	int ns_param; /* index of the parameter that says the duration; -1: none */
	uint64_t ns;
	int dynamic_shared, carveout;
	struct legacy legacy;
	CUfunction next;
};

struct CUkern_st {
	CUlibrary library;
	CUfunction function;
	CUkernel next;
};

struct CUmod_st {
	CUcontext context;
	CUlibrary library;
	CUfunction functions;
	struct variable {
		char name[256];
		size_t bytes;
		CUdeviceptr at;
		struct variable *next;
	} *variables;
	char *put_off; /* its text, until its variables are made; NULL: they are */
	CUmodule next;
};

char *ptx_strip(const char *text);                      /* a copy without comments; NULL: memory is out */
CUresult ptx_check(const char *text);                   /* that it is PTX at all */
CUresult ptx_entries(CUmodule m, const char *text);     /* its kernels */
CUresult ptx_globals(CUmodule m, const char *text);     /* its variables outside of functions */
bool fat_is(const char *image); /* whatever it is, of which the first byte is not 0 */
char *fat_text(const char *image); /* the text in it, owned by the caller; NULL: none, but machine code or text that is compressed */
CUresult module_load(CUcontext c, const void *image, CUmodule *out);
void module_free(CUmodule m);
CUresult module_ready(CUmodule m);                      /* makes what was put off */
CUresult function_of(CUfunction f, CUfunction *out); /* a CUkernel may be passed as a CUfunction */
CUresult kernel_fill(struct kernel *k, CUfunction f, const unsigned grid[3], const unsigned block[3], unsigned shared, void **params, void **extra);

/* --------------------------------------------------------------------------------------------------------------- graphs */

struct CUgraphNode_st {
	CUgraph graph;
	struct work work;
	CUgraphNode *deps;
	size_t dep_count;
	bool enabled;
	uint64_t number; /* order of creation */
	CUgraphNode original; /* in a clone: what it was made from */
	CUgraphNode next;
};

struct CUgraph_st {
	CUgraphNode nodes, *end;
	size_t count;
	uint64_t numbers;
	CUgraphNode owner; /* the child graph node it belongs to; NULL: none */
	struct retained *retained;
};

CUresult graph_node_add(CUgraph g, const CUgraphNode *deps, size_t count, struct work *w, CUgraphNode *out);
/* Memory of graphs. Work made here holds it until it is freed. again: what an earlier launch allocated may be used again. */
CUresult graph_memory_make(CUDA_MEM_ALLOC_NODE_PARAMS *p, struct work *w);
CUresult graph_memory_free_work(CUdeviceptr p, struct work *w);
void graph_memory_ref(struct graph_memory *m);
void graph_memory_unref(struct graph_memory *m);
CUresult graph_memory_take(struct graph_memory *m, CUcontext c, bool again);
void graph_memory_give(struct graph_memory *m);
void graph_memory_forget(CUcontext c);
CUgraph graph_new(void);
void graph_free(CUgraph g);

#endif
