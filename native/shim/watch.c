/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c: the thread that notices what has ended on the device, also while the program's own threads are blocked. It waits in the
 * driver for the next batch that should end; with work in several streams, or work that is late, it asks from time to time
 * instead. It tells the arbiter when the work of a lease that is over has drained, and when the process has had nothing to do for a
 * little while.
 */
#include "meter.h"

#define IDLE_NS (100 * NS_PER_US)   /* drained for so long: the lease may go to another */
#define LATE_NS (2 * NS_PER_MS)     /* behind what was expected, the driver is asked now and then */
#define ASK_LEAST_NS (100 * NS_PER_US)
#define ASK_MOST_NS (5 * NS_PER_MS)
#define BOOKS_LEAST_NS (20 * NS_PER_MS) /* the driver's books are read so long after something was launched that never was before, */
#define BOOKS_MOST_NS (2 * NS_PER_S)    /* and ever more seldom as long as they show nothing */
#define ORIGIN_NS (4 * (int64_t)NS_PER_S) /* events tell floats: after so long a nearer origin is taken */

struct look {
	struct batch *first; /* queued batch that should end first */
	uint32_t streams;    /* with something queued */
	bool open;           /* something is not queued yet */
};

static void look_at(const struct meter *m, struct look *out)
{
	*out = (struct look){0};
	for (struct context *c = m->contexts; c != NULL; c = c->next) {
		for (int i = 0; c->handle != NULL && i < STREAM_BUCKETS; i++) {
			for (struct stream *s = c->bucket[i]; s != NULL; s = s->next) {
				out->open |= s->open != NULL || s->recording != 0;
				if (s->head == NULL)
					continue;
				out->streams++;
				if (out->first == NULL || s->head->expect_ns < out->first->expect_ns)
					out->first = s->head;
			}
		}
	}
}

/* Where an event lies on the context's time line. False: not recorded, or not over. */
static bool event_at(const struct context *c, CUevent event, int64_t *at)
{
	float ms;
	if (c->origin == NULL || driver.cuEventElapsedTime(&ms, c->origin_event, event) != CUDA_SUCCESS)
		return false;
	*at = c->origin_at + (int64_t)((double)ms * 1e6);
	return true;
}

/* Device time of a finished batch that nothing else was already charged for; UINT64_MAX: not known. In the driver, without the lock;
 * only the watcher touches the time line. */
static uint64_t batch_measure(struct context *c, struct batch *b)
{
	int64_t start = 0;
	if (c->origin == NULL && get(&b->timed) && b->before == NULL) {
		c->origin = b; /* referenced by the caller */
		c->origin_event = b->start;
		c->origin_at = 0;
		c->covered_at = 0;
	}
	bool known = false;
	if (b->before != NULL)
		known = (start = b->before->end_at) != INT64_MIN;
	else if (get(&b->timed))
		known = event_at(c, b->start, &start);
	if (!event_at(c, b->end, &b->end_at)) {
		b->end_at = INT64_MIN;
		return UINT64_MAX;
	}
	if (!known)
		return UINT64_MAX;
	if (start < c->covered_at)
		start = c->covered_at;
	if (b->end_at > c->covered_at)
		c->covered_at = b->end_at;
	return b->end_at > start ? (uint64_t)(b->end_at - start) : 0;
}

/* A nearer origin, once the old one is so far away that differences lose digits. */
static void origin_move(struct context *c, struct batch *b, struct batch *had)
{
	if (c->origin != had) {
		c->origin->refs++; /* became the origin just now */
	} else if (had != NULL && b->end_at != INT64_MIN && b->end_at - c->origin_at > ORIGIN_NS) {
		c->origin = b;
		c->origin_event = b->end;
		c->origin_at = b->end_at;
		b->refs++;
		batch_unref(had);
	}
}

/* Takes a finished batch out of its stream's queue and books it. Lets go of the lock meanwhile. */
static void batch_finish(struct meter *m, struct context *c, struct batch *b)
{
	struct batch *had = c->origin;
	const struct alq_ctl_grant *ctl = m->ctl;
	lock_give(&m->lock);
	uint64_t measured = batch_measure(c, b);
	lock_take(&m->lock);
	if (c->handle == NULL)
		return; /* destroyed meanwhile, and booked there */
	b->shared = (get(&ctl->gate) & ALQ_GATE_UNGATED) == 0 && clock_now() >= b->lease_end_ns;
	origin_move(c, b, had);
	struct stream *s = b->stream;
	s->head = b->next;
	if (s->head == NULL)
		s->tail = NULL;
	batch_done(m, b, measured);
	if (b->before != NULL) {
		batch_unref(b->before);
		b->before = NULL;
	}
	batch_unref(b);
}

/* Makes a context the thread's own while it works in it. */
static bool enter(struct meter *m, struct context *c)
{
	CUcontext handle = c->handle;
	m->watched = c;
	lock_give(&m->lock);
	bool entered = driver.cuCtxSetCurrent(handle) == CUDA_SUCCESS;
	lock_take(&m->lock);
	return entered && c->handle == handle;
}

static void leave(struct meter *m)
{
	m->watched = NULL;
	put(&m->done, m->done + 1);
	futex_wake(&m->done, INT_MAX, false);
}

/* Books everything of a context that is over by now. block: waits for the first batch, in the driver. */
static void context_sweep(struct meter *m, struct context *c, struct batch *first)
{
	CUcontext handle = c->handle;
	if (!enter(m, c)) {
		/* Ended where nobody saw it: what was left of it has ended too. */
		if (c->handle == handle) {
			recording_wait(m, c);
			if (c->handle == handle) /* else the program ends it, too, and drops it */
				context_drop(m, c);
		}
		leave(m);
		return;
	}
	if (first != NULL) {
		CUevent end = first->end;
		lock_give(&m->lock);
		driver.cuEventSynchronize(end);
		lock_take(&m->lock);
	}
	for (int i = 0; c->handle != NULL && i < STREAM_BUCKETS; i++) {
		struct stream *s = c->bucket[i];
		while (c->handle != NULL && s != NULL) {
			struct batch *b = s->head;
			struct stream *next = s->next;
			if (b == NULL) {
				stream_free(s);
				s = next;
				continue;
			}
			lock_give(&m->lock);
			CUresult r = driver.cuEventQuery(b->end);
			lock_take(&m->lock);
			/* Any answer but "not ready" is the end: an error ends the context's work too. */
			if (r == CUDA_ERROR_NOT_READY || c->handle == NULL)
				s = s->next;
			else
				batch_finish(m, c, b);
		}
	}
	leave(m);
}

/* Sleeps until then, or until something is launched, if that is to wake it. */
static void watch_wait(struct meter *m, uint64_t until, bool wakes)
{
	uint32_t seen = m->watch;
	m->watch_sleeps = wakes;
	lock_give(&m->lock);
	futex_wait_until(&m->watch, seen, until == UINT64_MAX ? clock_now() + 3600 * NS_PER_S : until, false);
	lock_take(&m->lock);
	m->watch_sleeps = false;
}

static void watch_sleep(struct meter *m, uint64_t until)
{
	watch_wait(m, until, until == UINT64_MAX);
}

/* What was launched for the first time may have had the driver load code that it had put off. Returns when to look; lets go of the lock. */
static uint64_t look_at_books(struct meter *m, uint64_t now)
{
	CUcontext fresh = m->fresh;
	if (fresh == NULL)
		return UINT64_MAX;
	if (m->books_gap == 0) {
		m->books_gap = BOOKS_LEAST_NS;
		m->books_at = now + BOOKS_LEAST_NS;
	}
	if (now < m->books_at)
		return m->books_at;
	m->fresh = NULL;
	lock_give(&m->lock);
	enum settled settled = modules_settle(m->grant, fresh);
	lock_take(&m->lock);
	if (settled == SETTLED_LATER && m->fresh == NULL)
		m->fresh = fresh;
	m->books_gap = settled == SETTLED_CHARGED ? BOOKS_LEAST_NS : m->books_gap < BOOKS_MOST_NS / 2 ? 2 * m->books_gap : BOOKS_MOST_NS;
	m->books_at = clock_now() + m->books_gap;
	return m->fresh != NULL ? m->books_at : UINT64_MAX;
}

/* Nothing is outstanding: says so, at once when the lease is over or the program last paused after this, else after a little while
 * without a launch. */
static void drained(struct meter *m)
{
	const struct alq_ctl_grant *c = m->ctl;
	const struct alq_tel_grant *t = tel_of(m->grant);
	uint64_t launched = t->launched, now = clock_now();
	if ((get(&c->gate) & ALQ_GATE_UNGATED) == 0) {
		bool over = !gate_is_open(c, now);
		if (m->drained_ns == 0)
			m->drained_ns = now;
		if (!over && (m->returns || m->room_waiters != 0)) {
			watch_sleep(m, now + IDLE_NS);
			if (m->outstanding != 0 || m->room_waiters != 0 || tel_of(m->grant)->launched != launched)
				return;
		}
		lock_give(&m->lock);
		task_ring();
		lock_take(&m->lock);
	}
	uint64_t look_at = look_at_books(m, clock_now());
	if (m->outstanding == 0 && tel_of(m->grant)->launched == launched)
		watch_wait(m, look_at, true);
}

static void watch_once(struct meter *m)
{
	struct look l;
	uint64_t now = clock_now();
	look_at_books(m, now);
	uint64_t due = batches_flush(m, now);
	look_at(m, &l);
	if (l.first == NULL) {
		if (l.open || m->outstanding != 0)
			watch_sleep(m, due != UINT64_MAX ? due : now + ASK_LEAST_NS);
		else
			drained(m);
		return;
	}
	uint64_t expect = l.first->expect_ns;
	if (l.streams == 1 && now < expect + LATE_NS) {
		context_sweep(m, l.first->stream->context, l.first);
		return;
	}
	for (struct context *c = m->contexts; c != NULL; c = c->next) {
		if (c->handle != NULL)
			context_sweep(m, c, NULL);
	}
	look_at(m, &l);
	if (l.first == NULL)
		return;
	now = clock_now();
	uint64_t step = now > l.first->expect_ns ? (now - l.first->expect_ns) / 8 : l.first->expect_ns - now;
	step = step < ASK_LEAST_NS ? ASK_LEAST_NS : step > ASK_MOST_NS ? ASK_MOST_NS : step;
	watch_sleep(m, due < now + step ? due : now + step);
}

void *watch_body(void *arg)
{
	struct meter *m = arg;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	/* Captures of other threads must not be spoilt by what this one asks the driver. */
	if (driver.cuThreadExchangeStreamCaptureMode != NULL)
		driver.cuThreadExchangeStreamCaptureMode(&mode);
	lock_take(&m->lock);
	for (;;)
		watch_once(m);
	return NULL;
}
