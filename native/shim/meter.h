/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meter.h: how launches are counted and their time on the device is measured; shared by gate.c (who may go), place.c (contexts), route.c
 * (streams), meter.c (batches of launches between two events) and watch.c (the thread that waits for these events).
 *
 * Everything here belongs to the lock of the meter that it hangs on. No driver function is called while it is held: what a driver
 * call needs is marked busy first, so that nobody takes it away meanwhile.
 */
#ifndef ALIQUOT_SHIM_METER_H
#define ALIQUOT_SHIM_METER_H

#include "clock.h"
#include "driver.h"
#include "shim.h"

#define BATCHES 64 /* of one context, outstanding at a time */
#define PARTS 8    /* different launches in one batch */
#define STREAM_BUCKETS 64

/*
 * Launches into one stream, one after the other, with an event before (or the event after the batch before) and one after. A launch is counted
 * before the driver has it, and taken out again if that refuses it. First what every launch changes.
 */
struct batch {
	uint32_t entered;        /* launches that passed gate_enter, */
	uint32_t left;           /* and those of them that passed gate_leave, which may be without the lock; with BATCH_FULL */
	uint32_t launches;
	uint32_t unknown;        /* of these, never measured before */
	uint64_t est_ns;
	uint64_t ends_ns;        /* when its launches should have ended, had the device nothing else to do */
	uint64_t lease_end_ns;   /* of the lease under which the last of them went */
	bool timed;              /* its start is known */
	bool fresh;              /* the first of a lease: it may have waited for the work of the one before */
	bool shared;             /* part of it ran outside our lease */
	bool sample;             /* to be closed right after its first launch, so that its end is exact */
	bool paced;              /* launched without a lease, beside others: what it measures beyond what was expected is theirs */
	bool dropped;            /* its context has ended while launches in it were in flight, and all of it was booked then */
	bool late;               /* its end event came when its work had ended already: what it measures is too much */
	uint32_t parts;
	struct part {
		struct cost *cost;
		uint32_t launches, unknown;
		uint32_t version; /* of the cost, when it was launched */
		uint64_t est_ns;
	} part[PARTS];
	struct batch *next;      /* in its stream's queue, or in the list of free ones */
	struct batch *before;    /* whose end is this one's start; NULL: its own start event */
	struct stream *stream;
	CUevent start, end;
	uint32_t refs;           /* the queue, the batch after it, the context's origin */
	uint64_t expect_ns;      /* ends_ns with all else that was queued when it was closed */
	uint64_t behind_ns;      /* its start event lies so long before its first launch could begin */
	int64_t end_at;          /* on the context's time line; INT64_MIN: not known */
};

#define BATCH_FULL (1u << 31) /* in left: whoever leaves it last closes it, or who finds that all have left */

struct stream {
	struct stream *next;     /* in its bucket, or in the list of free ones */
	struct context *context; /* always the same */
	CUstream handle;         /* may be read without the lock, to find it */
	uint32_t thread;         /* whose default stream this is; 0: nobody's */
	bool gone;               /* the same; destroyed; kept until its queue is empty */
	bool draws;              /* a capture began in it */
	bool at_once;            /* an event put in later would change what other streams wait for */
	uint32_t recording;      /* events being put in right now */
	uint32_t batches;        /* ever */
	struct batch *open, *head, *tail;
};

struct context {
	struct context *next;
	struct meter *meter;
	CUcontext handle;        /* NULL: destroyed; release */
	bool over;               /* destroyed, and nothing of it is left: may be used again */
	bool ready;              /* has its events */
	struct stream *bucket[STREAM_BUCKETS];
	struct stream *spare;
	struct batch batch[BATCHES];
	struct batch *free;
	/* The device's time line as events tell it, in ns from an origin that moves on now and then (events give float milliseconds). */
	CUevent origin_event;
	struct batch *origin;
	int64_t origin_at;
	int64_t covered_at;      /* device time up to here is accounted */
};

struct meter {
	struct lock lock;
	uint32_t grant;
	const struct alq_ctl_grant *ctl; /* of the grant */
	uint32_t done;           /* futex: changes when work has ended */
	uint32_t room_waiters;
	uint32_t watch;          /* futex: changes when the watcher is to look again */
	bool watch_sleeps;       /* without a time limit */
	bool watching;           /* the thread runs */
	uint32_t gate_waiters;
	uint64_t drained_ns;     /* when nothing was outstanding any more; 0: something is */
	bool returns;            /* last time it launched again soon after that */
	uint64_t outstanding, outstanding_ns, outstanding_unknown;
	uint64_t busy_until_ns;
	uint64_t turn_end_ns;    /* to where it last moved the share's schedule for a long launch */
	uint64_t lease_id;       /* under which the last batch was opened */
	struct quick_clock clock;
	CUcontext fresh;         /* something was launched in it that never was before, and the driver's books were not read since; NULL: no */
	uint64_t books_at;       /* when they may be read next, */
	uint64_t books_gap;      /* and so long after that again; 0: they never were */
	struct context *contexts;
	struct context *watched; /* the watcher is in the driver with this one */
	struct cost costs[COSTS];
};

extern struct meter *meters[ALQ_MAX_GRANTS];
extern uint32_t captures;         /* stream captures open in this process */
extern uint32_t blocking_streams; /* created by the program, ever */

static inline bool stream_is_default(CUstream handle)
{
	return (uintptr_t)handle <= (uintptr_t)CU_STREAM_PER_THREAD;
}

/* The context of a stream, which for a default stream is the calling thread's; NULL: none, or on no device of ours. */
struct context *meter_context(CUstream stream);
struct context *meter_current(void);

/*
 * Streams by their handles alone, two places for each; default streams are not in it. Written under the lock of the stream's meter, read without:
 * whoever finds one by it looks again under the lock whether it is still that one.
 */
#define ROUTES_BITS 10
#define ROUTES (1u << ROUTES_BITS)
extern struct stream *routes[ROUTES];

static inline uint64_t route_home(CUstream handle)
{
	return (uintptr_t)handle * 0x9e3779b97f4a7c15ull >> (64 - ROUTES_BITS);
}

/* Of a handle that is no default stream's; NULL: it must be looked for. */
static inline struct stream *stream_known(CUstream handle)
{
	for (uint64_t home = route_home(handle), i = 0; i < 2; i++) {
		struct stream *s = get_acquire(&routes[home ^ i]);
		if (likely(s != NULL && get(&s->handle) == handle && !get(&s->gone)))
			return s;
	}
	return NULL;
}

static inline struct stream **stream_bucket(struct context *c, CUstream handle, uint32_t thread)
{
	uint64_t h = ((uintptr_t)handle ^ ((uint64_t)thread << 32)) * 0x9e3779b97f4a7c15ull;
	return &c->bucket[h >> 58];
}

/* Finds a stream, or makes it; NULL: there is no memory, or the context has ended. */
struct stream *stream_seek(struct context *c, CUstream handle, bool per_thread);

static inline struct stream *stream_of(struct context *c, CUstream handle, bool per_thread)
{
	struct stream *s = *stream_bucket(c, handle, 0);
	bool first = s != NULL && s->handle == handle && s->thread == 0 && !s->gone && (handle != NULL || !per_thread);
	return likely(first) ? s : stream_seek(c, handle, per_thread);
}

/* The batch that the next launch into a stream belongs to; sets *start when its start event must be recorded first. */
struct batch *batch_open(struct stream *s, uint64_t now, bool *start);

/* Whether launches are between gate_enter and gate_leave: who finds none may go by what they did, and put an event behind them. */
static inline bool batch_in_flight(const struct batch *b)
{
	return (get_acquire(&b->left) & ~BATCH_FULL) != b->entered;
}

/* Where in a batch launches like this one are counted. */
struct part *batch_part(struct batch *b, struct cost *cost);

/* Counts a launch that is about to reach the driver. */
static inline void batch_count(struct batch *b, struct pass *pass)
{
	struct part *p = b->part;
	if (unlikely(b->parts == 0 || p->cost != pass->cost || p->version != pass->cost->version))
		p = batch_part(b, pass->cost);
	pass->part = p;
	if (unlikely(pass->unknown)) {
		p->unknown++;
		b->unknown++;
	}
	p->launches++;
	p->est_ns += pass->est_ns;
	b->launches++;
	b->est_ns += pass->est_ns;
	b->ends_ns += pass->est_ns;
}

/* Takes one out again that never reached it. */
void batch_discount(struct batch *b, const struct pass *pass);

#define BATCH_LAUNCHES 128
#define UNGATED_BATCH_NS (4 * NS_PER_MS)

static inline bool batch_is_full(const struct meter *m, const struct batch *b)
{
	uint64_t most = (get(&m->ctl->gate) & ALQ_GATE_UNGATED) != 0 ? UNGATED_BATCH_NS : get(&m->ctl->run_ahead_ns) / 4;
	bool at_once = b->stream->at_once || get(&captures) != 0 || (b->stream->handle == NULL && get(&blocking_streams) != 0);
	return b->unknown != 0 || b->sample || b->parts == PARTS || b->launches >= BATCH_LAUNCHES || at_once || b->est_ns >= most;
}

/* Puts an event into a stream, whatever context is the calling thread's. */
CUresult event_put(CUevent event, const struct stream *s);
/* Puts the end event in and queues the batch. ask: its work may have ended already, which the driver is asked. Lets go of the lock
 * meanwhile. */
void batch_close(struct meter *m, struct batch *b, bool ask);
/* Closes whatever is open and not in flight. due: only what is due by then. Returns the time when the next will be due. */
uint64_t batches_flush(struct meter *m, uint64_t due);
/* Gives the place of a destroyed stream, or of a thread's own, back, once nothing of it is left; _remove: at once. */
void stream_free(struct stream *s);
void stream_remove(struct stream *s);
void streams_forget(void);
/* Waits until no event is on its way into a stream of a context; NULL: of all. */
void recording_wait(struct meter *m, const struct context *only);
/* Lets others work until something has ended, or for a moment. */
void done_wait(struct meter *m);
/* Everything outstanding in a context is booked as ended: it is gone, or about to go, and its events with it. */
void context_drop(struct meter *m, struct context *c);
void batch_free(struct batch *b);
void batch_unref(struct batch *b);
/* Books the end of a batch's launches. measured_ns: on the device; UINT64_MAX: not measured. */
void batch_done(struct meter *m, struct batch *b, uint64_t measured_ns);
void meter_completed(struct meter *m, uint32_t launches, uint64_t est_ns, uint32_t unknown);
void meter_rouse_watcher(struct meter *m);

/* Has the watcher look, if it sleeps until something is launched. */
static inline void meter_wake_watcher(struct meter *m)
{
	if (unlikely(m->watch_sleeps))
		meter_rouse_watcher(m);
}

void *watch_body(void *meter);
bool gate_is_open(const struct alq_ctl_grant *c, uint64_t now);

#endif
