/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.c: the streams of the program, as they come, are used and go away; and its stream captures. A launch goes by the context of its stream, which
 * need not be the calling thread's: copies may be put into any device's stream, and a kernel of a library into one by a thread without a context.
 */
#include "meter.h"

#define STREAMS_AT_ONCE 64

struct stream *routes[ROUTES];
uint32_t captures;
uint32_t blocking_streams;

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
			s[i].context = c;
			s[i].next = c->spare;
			c->spare = &s[i];
		}
	}
	struct stream *s = c->spare;
	if (s != NULL)
		c->spare = s->next;
	return s;
}

/* Finds a stream in a context by what it is kept as; NULL: it is not there. */
static struct stream *stream_in(struct context *c, CUstream handle, uint32_t thread)
{
	struct stream *s = *stream_bucket(c, handle, thread);
	while (s != NULL && (s->handle != handle || s->thread != thread || s->gone))
		s = s->next;
	return s;
}

/* A stream has been used: the next launch into it finds it at once. */
static void route_add(struct stream *s)
{
	uint64_t home = route_home(s->handle);
	put_release(&routes[home ^ 1], get(&routes[home]));
	put_release(&routes[home], s);
}

static void route_remove(struct stream *s)
{
	uint64_t home = route_home(s->handle);
	for (uint64_t i = 0; i < 2; i++) {
		struct stream *seen = s;
		__atomic_compare_exchange_n(&routes[home ^ i], &seen, NULL, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	}
}

struct stream *stream_seek(struct context *c, CUstream handle, bool per_thread)
{
	if (c->handle == NULL)
		return NULL;
	if (handle == NULL && per_thread)
		handle = CU_STREAM_PER_THREAD;
	if (handle == CU_STREAM_LEGACY)
		handle = NULL;
	uint32_t thread = handle == CU_STREAM_PER_THREAD ? thread_id() : 0;
	struct stream *s = stream_in(c, handle, thread);
	if (s == NULL && (s = stream_new(c)) != NULL) {
		struct stream **bucket = stream_bucket(c, handle, thread);
		s->next = *bucket;
		put(&s->handle, handle);
		s->thread = thread;
		s->at_once = thread != 0;
		s->batches = 0;
		put(&s->gone, false);
		*bucket = s;
	}
	if (s != NULL && !stream_is_default(handle))
		route_add(s);
	return s;
}

void stream_remove(struct stream *s)
{
	struct stream **at = stream_bucket(s->context, s->handle, s->thread);
	while (*at != NULL && *at != s)
		at = &(*at)->next;
	if (*at == NULL)
		return;
	*at = s->next;
	route_remove(s);
	if (s->draws)
		__atomic_fetch_sub(&captures, 1, __ATOMIC_SEQ_CST);
	s->draws = false;
	s->recording = 0;
	s->open = s->head = s->tail = NULL;
	s->next = s->context->spare;
	s->context->spare = s;
}

/* A thread's own stream goes with its thread, which nobody tells: it is kept while something is in it. */
void stream_free(struct stream *s)
{
	if ((s->gone || s->thread != 0) && s->open == NULL && s->head == NULL && s->recording == 0 && !s->draws)
		stream_remove(s);
}

static void stream_leave(struct meter *m, struct stream *s)
{
	if (s->open != NULL && !batch_in_flight(s->open))
		batch_close(m, s->open, true);
	put(&s->gone, true);
	route_remove(s);
	if (s->draws)
		__atomic_fetch_sub(&captures, 1, __ATOMIC_SEQ_CST);
	s->draws = false;
	while (s->recording != 0)
		done_wait(m);
	stream_free(s);
}

void meter_stream_gone(CUstream handle)
{
	if (!task_on() || stream_is_default(handle))
		return;
	for (uint32_t g = 0; g < task.grants; g++) {
		struct meter *m = get_acquire(&meters[g]);
		struct stream *s = NULL;
		if (m == NULL)
			continue;
		lock_take(&m->lock);
		for (struct context *c = m->contexts; c != NULL && s == NULL; c = c->next)
			s = c->handle == NULL ? NULL : stream_in(c, handle, 0);
		if (s != NULL)
			stream_leave(m, s);
		lock_give(&m->lock);
	}
}

/* ------------------------------------------------------------------------------------------------------------ captures */

static bool is_recording(const struct meter *m, const struct context *only)
{
	for (const struct context *c = m->contexts; c != NULL; c = c->next) {
		for (int i = 0; (only == NULL || c == only) && i < STREAM_BUCKETS; i++) {
			for (const struct stream *s = c->bucket[i]; s != NULL; s = s->next) {
				if (s->recording != 0)
					return true;
			}
		}
	}
	return false;
}

void recording_wait(struct meter *m, const struct context *only)
{
	while (is_recording(m, only))
		done_wait(m);
}

/* Closes what is open on all devices; settle: and waits until no event is on its way into a stream. */
static void all_flush(bool settle)
{
	for (uint32_t g = 0; g < task.grants; g++) {
		struct meter *m = get_acquire(&meters[g]);
		if (m == NULL)
			continue;
		lock_take(&m->lock);
		batches_flush(m, UINT64_MAX);
		if (settle)
			recording_wait(m, NULL);
		put(&tel_of(g)->captures, get(&captures));
		lock_give(&m->lock);
	}
}

/* Streams of other contexts and devices may join a capture, so nothing is left open in any. */
struct stream *meter_capture_begins(CUstream handle, bool per_thread)
{
	struct context *c = task_on() ? meter_context(handle) : NULL;
	if (c == NULL)
		return NULL;
	__atomic_fetch_add(&captures, 1, __ATOMIC_SEQ_CST);
	all_flush(true);
	lock_take(&c->meter->lock);
	struct stream *s = stream_of(c, handle, per_thread);
	if (s != NULL)
		s->recording++; /* it stays until the driver has answered */
	else
		__atomic_fetch_sub(&captures, 1, __ATOMIC_SEQ_CST);
	lock_give(&c->meter->lock);
	return s;
}

static void captures_publish(void)
{
	for (uint32_t g = 0; g < task.grants; g++)
		put(&tel_of(g)->captures, get(&captures));
}

void meter_capture_began(struct stream *s, bool began)
{
	if (s == NULL)
		return;
	struct meter *m = s->context->meter;
	lock_take(&m->lock);
	bool draws = began && !s->draws && !s->gone && s->context->handle != NULL;
	if (draws)
		s->draws = true;
	else
		__atomic_fetch_sub(&captures, 1, __ATOMIC_SEQ_CST);
	s->recording -= s->recording != 0;
	put(&m->done, m->done + 1);
	futex_wake(&m->done, INT_MAX, false);
	lock_give(&m->lock);
	captures_publish();
}

void meter_capture_ended(CUstream handle, bool per_thread)
{
	struct context *c = task_on() ? meter_context(handle) : NULL;
	if (c == NULL)
		return;
	lock_take(&c->meter->lock);
	struct stream *s = stream_of(c, handle, per_thread);
	if (s != NULL && s->draws) {
		s->draws = false;
		__atomic_fetch_sub(&captures, 1, __ATOMIC_SEQ_CST);
	}
	lock_give(&c->meter->lock);
	captures_publish();
}

void meter_blocking_stream(void)
{
	__atomic_fetch_add(&blocking_streams, 1, __ATOMIC_SEQ_CST);
	if (task_on())
		all_flush(false);
}

void streams_forget(void)
{
	for (uint32_t i = 0; i < ROUTES; i++)
		routes[i] = NULL;
	captures = 0;
	blocking_streams = 0;
}
