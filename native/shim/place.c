/* SPDX-License-Identifier: Apache-2.0 */
/* place.c: where launches go: the contexts and streams of the program, as they come, are used and go away. */
#include "meter.h"

#define STREAMS_AT_ONCE 64
#define LEAVE_NS (2 * NS_PER_S) /* how long a context's end waits for the watcher to come out of it */

struct meter *meters[ALQ_MAX_GRANTS];
uint32_t captures;
uint32_t blocking_streams;

static struct lock meters_lock;
static uint32_t generation = 1; /* of contexts: changes when one goes away */
static struct context *recent;  /* the last that was seen for the first time: as a rule the only one; release */

static __thread struct {
	CUcontext handle;
	struct context *context;
	uint32_t generation;
} current;

/* ------------------------------------------------------------------------------------------------------------ contexts */

static struct meter *meter_of(uint32_t grant)
{
	lock_take(&meters_lock);
	if (meters[grant] == NULL) {
		struct meter *m = pages_take(sizeof(*m));
		if (m != NULL) {
			m->grant = grant;
			m->ctl = &task.ctl->grant[grant];
			meters[grant] = m;
		}
	}
	lock_give(&meters_lock);
	return meters[grant];
}

/* The context's events, made once, with the context current. */
static bool context_prepare(struct context *c)
{
	for (int i = 0; i < BATCHES; i++) {
		struct batch *b = &c->batch[i];
		if (driver.cuEventCreate(&b->start, CU_EVENT_BLOCKING_SYNC) != CUDA_SUCCESS ||
		    driver.cuEventCreate(&b->end, CU_EVENT_BLOCKING_SYNC) != CUDA_SUCCESS)
			return false;
		b->next = c->free;
		c->free = b;
	}
	return true;
}

/* A context seen for the first time. */
static struct context *context_add(struct meter *m, CUcontext handle)
{
	struct context *c, *spare = NULL;
	lock_take(&m->lock);
	for (c = m->contexts; c != NULL; c = c->next) {
		if (c->handle == handle)
			break;
		if (c->over && m->watched != c)
			spare = c;
	}
	bool fresh = c == NULL;
	if (fresh) {
		c = spare != NULL ? spare : pages_take(sizeof(*c));
		if (c != NULL) {
			if (spare == NULL) {
				c->next = m->contexts;
				c->meter = m;
				m->contexts = c;
			}
			c->over = false;
			put_release(&c->handle, handle);
		}
	}
	bool watch = c != NULL && !m->watching;
	m->watching |= watch;
	lock_give(&m->lock);
	if (watch && thread_start(watch_body, m) != 0) {
		say("no thread could be started to watch the device, so launches are booked by estimate alone");
		return NULL;
	}
	if (c != NULL && fresh)
		put_release(&c->ready, context_prepare(c));
	return c;
}

int meter_current_grant(void)
{
	CUdevice device;
	return driver_ready() && driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? view_grant(device) : -1;
}

/* A context that is not the recent one. */
static __attribute__((noinline)) struct context *context_find(CUcontext handle)
{
	uint32_t now = get_acquire(&generation);
	if (likely(current.handle == handle && current.generation == now))
		return current.context;
	int grant = meter_current_grant();
	struct meter *m = grant < 0 ? NULL : meter_of((uint32_t)grant);
	struct context *c = m == NULL ? NULL : context_add(m, handle);
	if (c != NULL) {
		current.handle = handle;
		current.context = c;
		current.generation = now;
		put_release(&recent, c);
	}
	return c;
}

struct context *meter_context(void)
{
	CUcontext handle = NULL;
	if (!driver_ready() || driver.cuCtxGetCurrent(&handle) != CUDA_SUCCESS || handle == NULL)
		return NULL;
	/* A thread's own variables take longer to find in a shared library than all of this. */
	struct context *c = get_acquire(&recent);
	return likely(c != NULL && get_acquire(&c->handle) == handle) ? c : context_find(handle);
}

/* ------------------------------------------------------------------------------------------------------------- streams */

static uint32_t thread_id(void)
{
	static __thread uint32_t id;
	if (id == 0)
		id = (uint32_t)syscall(SYS_gettid);
	return id;
}

static struct stream *stream_new(struct context *c)
{
	if (c->spare == NULL) {
		struct stream *s = pages_take(STREAMS_AT_ONCE * sizeof(*s));
		for (int i = 0; s != NULL && i < STREAMS_AT_ONCE; i++) {
			s[i].next = c->spare;
			c->spare = &s[i];
		}
	}
	struct stream *s = c->spare;
	if (s != NULL)
		c->spare = s->next;
	return s;
}

struct stream *stream_seek(struct context *c, CUstream handle, bool per_thread)
{
	if (handle == NULL && per_thread)
		handle = CU_STREAM_PER_THREAD;
	if (handle == CU_STREAM_LEGACY)
		handle = NULL;
	uint32_t thread = handle == CU_STREAM_PER_THREAD ? thread_id() : 0;
	struct stream **bucket = stream_bucket(c, handle, thread);
	struct stream *s;
	for (s = *bucket; s != NULL; s = s->next) {
		if (s->handle == handle && s->thread == thread && !s->gone)
			return s;
	}
	s = stream_new(c);
	if (s != NULL) {
		*s = (struct stream){.next = *bucket, .context = c, .handle = handle, .thread = thread, .at_once = thread != 0};
		*bucket = s;
	}
	return s;
}

/* A stream that was destroyed and whose work has ended gives its place back. */
void stream_free(struct stream *s)
{
	struct stream **at = stream_bucket(s->context, s->handle, s->thread);
	if (!s->gone || s->open != NULL || s->head != NULL || s->recording != 0)
		return;
	while (*at != NULL && *at != s)
		at = &(*at)->next;
	if (*at == NULL)
		return;
	*at = s->next;
	s->next = s->context->spare;
	s->context->spare = s;
}

/* ------------------------------------------------------------------------------------------------- what the program ends */

/* Lets others work until something has ended, or for a moment. */
static void done_wait(struct meter *m)
{
	uint32_t done = m->done;
	lock_give(&m->lock);
	futex_wait_until(&m->done, done, clock_now() + NS_PER_MS, false);
	lock_take(&m->lock);
}

void meter_stream_gone(CUstream handle, bool per_thread)
{
	struct context *c = task_on() ? meter_context() : NULL;
	if (c == NULL)
		return;
	struct meter *m = c->meter;
	lock_take(&m->lock);
	struct stream *s = stream_of(c, handle, per_thread);
	if (s != NULL) {
		if (s->open != NULL && s->open->inflight == 0)
			batch_close(m, s->open, true);
		s->gone = true;
		while (s->recording != 0)
			done_wait(m);
		stream_free(s);
	}
	lock_give(&m->lock);
}

/* Everything outstanding in a context is booked as ended: it is being destroyed, and its events with it. */
static void context_drop(struct meter *m, struct context *c)
{
	for (int i = 0; i < STREAM_BUCKETS; i++) {
		while (c->bucket[i] != NULL) {
			struct stream *s = c->bucket[i];
			if (s->open != NULL)
				batch_done(m, s->open, UINT64_MAX);
			for (struct batch *b = s->head; b != NULL; b = b->next)
				batch_done(m, b, UINT64_MAX);
			c->bucket[i] = s->next;
			s->next = c->spare;
			c->spare = s;
		}
	}
	c->free = NULL;
	c->origin = NULL;
	c->ready = false;
	c->over = true;
}

void meter_context_gone(CUcontext handle)
{
	if (!task_on() || handle == NULL)
		return;
	__atomic_fetch_add(&generation, 1, __ATOMIC_RELEASE);
	for (uint32_t g = 0; g < task.grants; g++) {
		struct meter *m = meters[g];
		if (m == NULL)
			continue;
		lock_take(&m->lock);
		struct context *c = m->contexts;
		while (c != NULL && c->handle != handle)
			c = c->next;
		if (c != NULL) {
			uint64_t until = clock_now() + LEAVE_NS;
			put(&c->handle, NULL);
			while (m->watched == c && clock_now() < until)
				done_wait(m);
			context_drop(m, c);
		}
		lock_give(&m->lock);
	}
}

static bool context_recording(const struct context *c)
{
	for (int i = 0; i < STREAM_BUCKETS; i++) {
		for (const struct stream *s = c->bucket[i]; s != NULL; s = s->next) {
			if (s->recording != 0)
				return true;
		}
	}
	return false;
}

/* From here on every batch is closed right after its launch; what is open is closed now, before its stream may be drawn in. */
void meter_capture_begins(void)
{
	struct context *c = task_on() ? meter_context() : NULL;
	__atomic_fetch_add(&captures, 1, __ATOMIC_SEQ_CST);
	if (c == NULL)
		return;
	lock_take(&c->meter->lock);
	batches_flush(c->meter, c, UINT64_MAX);
	while (context_recording(c))
		done_wait(c->meter);
	put(&tel_of(c->meter->grant)->captures, get(&captures));
	lock_give(&c->meter->lock);
}

void meter_capture_ended(void)
{
	uint32_t open = get(&captures);
	while (open != 0 && !__atomic_compare_exchange_n(&captures, &open, open - 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	struct context *c = task_on() ? meter_context() : NULL;
	if (c != NULL)
		put(&tel_of(c->meter->grant)->captures, get(&captures));
}

void meter_blocking_stream(void)
{
	struct context *c = task_on() ? meter_context() : NULL;
	__atomic_fetch_add(&blocking_streams, 1, __ATOMIC_SEQ_CST);
	if (c == NULL)
		return;
	lock_take(&c->meter->lock);
	batches_flush(c->meter, c, UINT64_MAX);
	lock_give(&c->meter->lock);
}

/* After registering again the slot may be another, or zeroed: what is outstanding must still be seen. */
void meter_republish(void)
{
	for (uint32_t g = 0; g < task.grants; g++) {
		struct meter *m = meters[g];
		if (m == NULL)
			continue;
		lock_take(&m->lock);
		struct alq_tel_grant *t = tel_of(g);
		if (t->launched < t->completed + m->outstanding)
			put_release(&t->launched, t->completed + m->outstanding);
		put(&t->busy_until_ns, m->busy_until_ns);
		put(&m->done, m->done + 1); /* whoever waits asks the new arbiter */
		futex_wake(&m->done, INT_MAX, false);
		lock_give(&m->lock);
	}
}

void meter_forget(void)
{
	for (int g = 0; g < ALQ_MAX_GRANTS; g++)
		meters[g] = NULL; /* the child's copy of the parent's memory; whoever held its lock is not here */
	recent = NULL;
	meters_lock.word = 0;
	captures = 0;
	blocking_streams = 0;
	generation++;
}
