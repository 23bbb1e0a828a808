/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meter.c: batches of launches between two events. A batch is closed when it holds a quarter of the run-ahead, when a launch in it was never
 * measured, before anybody waits, or, by the watcher, when it should have ended. An event is only ever put into the stream that was
 * launched into; into the legacy default stream of a program with blocking streams, and into a thread's own default stream, only
 * right after the launch, because there a late one would change what others wait for, or cannot be placed at all.
 */
#include "meter.h"

#define SAMPLE 8

void batch_free(struct batch *b)
{
	struct context *c = b->stream->context;
	if (b->before != NULL)
		batch_unref(b->before);
	b->before = NULL;
	b->next = c->free;
	c->free = b;
}

void batch_unref(struct batch *b)
{
	if (--b->refs == 0)
		batch_free(b);
}

struct batch *batch_open(struct stream *s, uint64_t now, bool *start)
{
	struct context *c = s->context;
	if (s->open != NULL)
		return s->open;
	struct batch *b = c->free;
	if (b == NULL || !c->ready)
		return NULL;
	c->free = b->next;
	CUevent start_event = b->start, end_event = b->end;
	*b = (struct batch){.stream = s, .start = start_event, .end = end_event, .ends_ns = now, .end_at = INT64_MIN};
	uint64_t lease_id = get(&c->meter->ctl->lease_id);
	b->fresh = lease_id != c->meter->lease_id;
	c->meter->lease_id = lease_id;
	s->batches++;
	/* The stream is still at work for a while: the end of the batch before is the start of this one. */
	if (s->tail != NULL && s->tail->ends_ns > now + 50 * NS_PER_US) {
		b->before = s->tail;
		b->before->refs++;
		b->timed = true;
		b->ends_ns = b->before->ends_ns;
	} else {
		/* Programs that wait after each launch leave batches to end late; some of them are measured exactly. */
		b->sample = s->batches % SAMPLE == 0;
		*start = true;
	}
	s->open = b;
	return b;
}

struct part *batch_part(struct batch *b, struct cost *cost)
{
	uint32_t i = 0;
	while (i < b->parts && (b->part[i].cost != cost || b->part[i].version != cost->version) && i < PARTS - 1)
		i++;
	if (i == b->parts) {
		b->part[i] = (struct part){.cost = cost, .version = cost->version};
		b->parts++;
	}
	return &b->part[i];
}

void batch_discount(struct batch *b, const struct pass *pass)
{
	struct part *p = pass->part;
	p->unknown -= pass->unknown;
	b->unknown -= pass->unknown;
	p->launches--;
	p->est_ns -= pass->est_ns;
	b->launches--;
	b->est_ns -= pass->est_ns;
	b->ends_ns -= pass->est_ns;
}

CUresult event_put(CUevent event, const struct stream *s)
{
	CUresult r = driver.cuEventRecord(event, s->handle);
	if (likely(r != CUDA_ERROR_INVALID_CONTEXT) || stream_is_default(s->handle))
		return r;
	/* A thread without a context may launch into a stream all the same. */
	CUcontext before = NULL;
	driver.cuCtxGetCurrent(&before);
	if (driver.cuCtxSetCurrent(get(&s->context->handle)) != CUDA_SUCCESS)
		return r;
	r = driver.cuEventRecord(event, s->handle);
	driver.cuCtxSetCurrent(before);
	return r;
}

void batch_close(struct meter *m, struct batch *b, bool ask)
{
	struct stream *s = b->stream;
	s->open = NULL;
	s->recording++;
	lock_give(&m->lock);
	CUresult r = event_put(b->end, s);
	if (ask && get(&captures) == 0)
		b->late = driver.cuEventQuery(b->end) == CUDA_SUCCESS;
	lock_take(&m->lock);
	s->recording--;
	b->refs = 1;
	if (r != CUDA_SUCCESS) {
		batch_done(m, b, UINT64_MAX);
		batch_unref(b);
	} else {
		b->expect_ns = m->busy_until_ns;
		b->next = NULL;
		if (s->tail != NULL)
			s->tail->next = b;
		else
			s->head = b;
		s->tail = b;
	}
	if (s->gone || get(&captures) != 0) {
		put(&m->done, m->done + 1);
		futex_wake(&m->done, INT_MAX, false);
	}
	meter_wake_watcher(m);
}

/* When a batch left open should have ended, and a little more, so that programs that go on launching close it themselves. */
static uint64_t batch_due(const struct batch *b)
{
	return b->ends_ns + 50 * NS_PER_US;
}

/* Has a batch closed by who leaves it last. False: all have left it. */
static bool batch_fill(struct batch *b)
{
	return (__atomic_fetch_or(&b->left, BATCH_FULL, __ATOMIC_ACQ_REL) & ~BATCH_FULL) != b->entered;
}

/* One batch that is due, or NULL; *next is when one will be. */
static struct batch *batch_next_due(struct meter *m, uint64_t due, uint64_t *next)
{
	*next = UINT64_MAX;
	for (struct context *c = m->contexts; c != NULL; c = c->next) {
		if (c->handle == NULL)
			continue;
		for (int i = 0; i < STREAM_BUCKETS; i++) {
			for (struct stream *s = c->bucket[i]; s != NULL; s = s->next) {
				struct batch *b = s->open;
				if (b == NULL)
					continue;
				if (batch_in_flight(b) && (due != UINT64_MAX || batch_fill(b))) {
					continue;
				} else if (batch_due(b) <= due && s->thread == 0) {
					return b;
				} else if (batch_due(b) < *next) {
					*next = batch_due(b);
				}
			}
		}
	}
	return NULL;
}

uint64_t batches_flush(struct meter *m, uint64_t due)
{
	struct batch *b;
	uint64_t next;
	while ((b = batch_next_due(m, due, &next)) != NULL) {
		struct context *c = b->stream->context;
		CUcontext before = NULL;
		driver.cuCtxGetCurrent(&before);
		if (before != c->handle)
			driver.cuCtxSetCurrent(c->handle);
		batch_close(m, b, true);
		if (before != c->handle)
			driver.cuCtxSetCurrent(before);
	}
	return next;
}

void meter_completed(struct meter *m, uint32_t launches, uint64_t est_ns, uint32_t unknown)
{
	struct alq_tel_grant *t = tel_of(m->grant);
	uint64_t now = clock_now();
	m->outstanding -= launches;
	m->outstanding_ns -= est_ns;
	m->outstanding_unknown -= unknown;
	m->busy_until_ns = m->outstanding == 0 ? 0 : now + m->outstanding_ns;
	/* A turn that ended sooner, or is later than it should, moves the schedule, unless another has moved it on. */
	uint64_t turn_end_ns = m->turn_end_ns, end_ns = (m->outstanding == 0 ? now : m->busy_until_ns) & ~ALQ_SCHEDULE_FLOOR;
	if (turn_end_ns > now && (m->outstanding == 0 || end_ns > turn_end_ns) &&
	    __atomic_compare_exchange_n(&task.tel->schedule_ns[m->grant], &turn_end_ns, end_ns, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		m->turn_end_ns = end_ns;
	put(&t->completed_ns, t->completed_ns + est_ns);
	put_release(&t->completed, t->completed + launches);
	put_release(&t->busy_until_ns, m->busy_until_ns); /* last: what has not ended is never without an end */
	put(&m->done, m->done + 1);
	if (m->room_waiters != 0)
		futex_wake(&m->done, INT_MAX, false);
}

/* What was measured goes to the launches in the batch, in proportion to what was expected of them. */
static void batch_learn(struct batch *b, uint64_t measured_ns)
{
	for (uint32_t i = 0; i < b->parts; i++) {
		struct part *p = &b->part[i];
		double part = b->est_ns == 0 ? 1.0 / b->parts : (double)p->est_ns / (double)b->est_ns;
		if (p->launches != 0 && p->version == p->cost->version)
			cost_learn(p->cost, (uint64_t)((double)measured_ns * part / p->launches), (b->fresh || b->shared) && !b->paced);
	}
}

/* Whether others' work may have made it longer, and its launches are known from when none did. */
static bool batch_is_doubted(const struct batch *b)
{
	bool trusted = true;
	for (uint32_t i = 0; i < b->parts; i++)
		trusted &= b->part[i].launches == 0 || cost_trusts(b->part[i].cost);
	return (b->fresh || b->shared) && !trusted;
}

void batch_done(struct meter *m, struct batch *b, uint64_t measured_ns)
{
	struct alq_tel_grant *t = tel_of(m->grant);
	for (uint32_t i = 0; i < b->parts; i++) {
		struct cost *cost = b->part[i].cost;
		cost->pending -= b->part[i].unknown < cost->pending ? b->part[i].unknown : cost->pending;
	}
	if (measured_ns != UINT64_MAX) {
		measured_ns -= measured_ns < b->behind_ns ? measured_ns : b->behind_ns;
		/* An end that came late, or a start that had to wait, says at most how long it took; so does one beside others, while no lease keeps
		 * them apart: believed, it would slow the pace of all until none has its floor. */
		bool doubted = batch_is_doubted(b), most = b->late || (b->paced && b->unknown == 0);
		if (most && measured_ns > b->est_ns)
			measured_ns = b->est_ns;
		batch_learn(b, measured_ns);
		if (doubted && measured_ns > b->est_ns)
			measured_ns = b->est_ns;
		uint64_t each = b->launches == 0 ? 0 : measured_ns / b->launches;
		put(&t->device_ns, t->device_ns + measured_ns);
		put(&t->device_launches, t->device_launches + b->launches);
		put(&t->longest_ns, each > t->longest_ns ? each : t->longest_ns - t->longest_ns / 64);
	}
	meter_completed(m, b->launches, b->est_ns, b->unknown);
}

void meter_graph_changed(CUgraphExec exec, bool gone)
{
	for (uint32_t g = 0; g < ALQ_MAX_GRANTS; g++) {
		struct meter *m = get_acquire(&meters[g]);
		if (m == NULL)
			continue;
		lock_take(&m->lock);
		struct cost *c = cost_look(m->costs, cost_key(exec, 0));
		if (c != NULL)
			cost_changed(c, gone);
		lock_give(&m->lock);
	}
}

void meter_rouse_watcher(struct meter *m)
{
	m->watch_sleeps = false;
	put(&m->watch, m->watch + 1);
	futex_wake(&m->watch, 1, false);
}
