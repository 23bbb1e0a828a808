/* SPDX-License-Identifier: Apache-2.0 */
/* place.c: where launches go: the contexts of the program, as they come, are used and go away. Its streams are in route.c. */
#include "meter.h"

struct meter *meters[ALQ_MAX_GRANTS];

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
			put_release(&meters[grant], m);
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

/* A context that no other has been seen of, also one that is not the calling thread's own. */
static struct context *context_seek(CUcontext handle)
{
	CUcontext before = NULL;
	driver.cuCtxGetCurrent(&before);
	if (before != handle && driver.cuCtxSetCurrent(handle) != CUDA_SUCCESS)
		return NULL;
	int grant = meter_current_grant();
	struct meter *m = grant < 0 ? NULL : meter_of((uint32_t)grant);
	struct context *c = m == NULL ? NULL : context_add(m, handle);
	if (before != handle)
		driver.cuCtxSetCurrent(before);
	return c;
}

/* A context that is not the recent one. */
static __attribute__((noinline)) struct context *context_find(CUcontext handle)
{
	uint32_t now = get_acquire(&generation);
	if (likely(current.handle == handle && current.generation == now))
		return current.context;
	struct context *c = context_seek(handle);
	if (c != NULL) {
		current.handle = handle;
		current.context = c;
		current.generation = now;
		put_release(&recent, c);
	}
	return c;
}

static inline struct context *context_of(CUcontext handle)
{
	/* A thread's own variables take longer to find in a shared library than all of this. */
	struct context *c = get_acquire(&recent);
	return likely(c != NULL && get_acquire(&c->handle) == handle) ? c : context_find(handle);
}

struct context *meter_current(void)
{
	CUcontext handle = NULL;
	if (!driver_ready() || driver.cuCtxGetCurrent(&handle) != CUDA_SUCCESS || handle == NULL)
		return NULL;
	return context_of(handle);
}

struct context *meter_context(CUstream stream)
{
	CUcontext handle = NULL;
	if (stream_is_default(stream) || !driver_ready() || driver.cuStreamGetCtx == NULL || driver.cuStreamGetCtx(stream, &handle) != CUDA_SUCCESS)
		return meter_current();
	return handle == NULL ? NULL : context_of(handle);
}

/* ------------------------------------------------------------------------------------------------- what the program ends */

void done_wait(struct meter *m)
{
	uint32_t done = m->done;
	lock_give(&m->lock);
	futex_wait_until(&m->done, done, clock_now() + NS_PER_MS, false);
	lock_take(&m->lock);
}

void context_drop(struct meter *m, struct context *c)
{
	bool inflight = false;
	put(&c->handle, NULL);
	for (int i = 0; i < STREAM_BUCKETS; i++) {
		while (c->bucket[i] != NULL) {
			struct stream *s = c->bucket[i];
			if (s->open != NULL) {
				s->open->dropped = true;
				inflight |= batch_in_flight(s->open);
				batch_done(m, s->open, UINT64_MAX);
			}
			for (struct batch *b = s->head; b != NULL; b = b->next)
				batch_done(m, b, UINT64_MAX);
			stream_remove(s);
		}
	}
	c->free = NULL;
	c->origin = NULL;
	c->ready = false;
	c->over = !inflight; /* else who is in the driver has a batch of it still: it is not used again */
	__atomic_fetch_add(&generation, 1, __ATOMIC_RELEASE);
}

void meter_context_gone(CUcontext handle)
{
	if (!task_on() || handle == NULL)
		return;
	for (uint32_t g = 0; g < task.grants; g++) {
		struct meter *m = get_acquire(&meters[g]);
		if (m == NULL)
			continue;
		lock_take(&m->lock);
		struct context *c = m->contexts;
		while (c != NULL && c->handle != handle)
			c = c->next;
		if (c != NULL) {
			put(&c->handle, NULL);
			/* It may wait in there for work that the driver, too, will wait for before it ends the context. */
			while (m->watched == c)
				done_wait(m);
			recording_wait(m, c);
			context_drop(m, c);
		}
		lock_give(&m->lock);
	}
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
	generation++;
	streams_forget();
}
