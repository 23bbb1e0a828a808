/* SPDX-License-Identifier: Apache-2.0 */
#include "simgpu/server/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LONGEST_NS 1000000000000000ull /* eleven days; what is said to take longer does not end */

/* ------------------------------------------------------------------------------------------------- operations come and end */

/* Reads what the client has published. Nothing read here is trusted further than to index within its own channel. */
static void channel_take(struct model *m, struct channel *c, uint64_t now)
{
	uint64_t head = atomic_load_explicit(&c->shared->head, memory_order_acquire);
	if (head - c->ended > SIM_RING)
		head = c->ended + SIM_RING;
	while (c->taken < head) {
		struct sim_op *in = &c->shared->ring[c->taken % SIM_RING];
		struct op *op = &c->ops[c->taken % SIM_RING];
		*op = (struct op){.seq = ++c->taken, .stamp_ns = in->stamp_ns, .left_ns = in->duration_ns, .dep_seq = in->dep_seq,
				  .kind = in->kind, .stream = in->stream % SIM_STREAMS, .flags = in->flags, .event = in->event % SIM_EVENTS,
				  .dep_channel = in->dep_channel, .launches = in->launches, .state = OP_COMING};
		if (op->stamp_ns < c->last_stamp_ns)
			op->stamp_ns = c->last_stamp_ns;
		if (op->stamp_ns < c->device->t_ns)
			op->stamp_ns = c->device->t_ns;
		if (op->stamp_ns > now)
			op->stamp_ns = now;
		c->last_stamp_ns = op->stamp_ns;
		if (op->left_ns > LONGEST_NS)
			op->left_ns = SIM_NEVER;
		if (op->kind == SIM_OP_KERNEL && op->left_ns < m->costs.kernel_min_ns)
			op->left_ns = m->costs.kernel_min_ns;
		else if (op->kind != SIM_OP_KERNEL && op->kind != SIM_OP_COPY)
			op->left_ns = 0;
		if (op->kind == SIM_OP_WAIT && op->dep_channel != c->id)
			m->cross_waits++;
	}
}

/* Reads which functions on the host have returned since, and when. */
static void channel_acknowledge(struct channel *c, uint64_t now)
{
	for (struct stream *s = c->busy; s; s = s->next_busy) {
		struct sim_stream *in = &c->shared->stream[s->slot];
		if (!s->first || s->first->state != OP_HOST_WAIT || atomic_load_explicit(&in->ack, memory_order_acquire) < s->first->seq)
			continue;
		uint64_t at = atomic_load_explicit(&in->ack_ns, memory_order_relaxed);
		s->first->stamp_ns = at < c->device->t_ns ? c->device->t_ns : min64(at, now);
		s->first->state = OP_HOST_DONE;
	}
}

static struct stream *channel_stream(struct channel *c, uint32_t slot)
{
	struct stream *s = c->stream[slot];
	if (!s) {
		s = calloc(1, sizeof *s);
		if (!s)
			abort();
		s->slot = slot;
		c->stream[slot] = s;
	}
	return s;
}

static void op_arrive(struct channel *c, struct op *op)
{
	struct stream *s = channel_stream(c, op->stream);
	op->state = OP_QUEUED;
	c->arrived = op->seq;
	if (!s->first) { /* attributes are set before a stream's first operation; a slot used again may differ */
		s->flags = c->shared->stream[op->stream].flags;
		s->priority = c->shared->stream[op->stream].priority;
		s->first = op;
	} else {
		s->last->next = op;
	}
	s->last = op;
	op->next = NULL;
	if (!s->listed) {
		s->listed = true;
		s->next_busy = c->busy;
		c->busy = s;
	}
}

static void action_due(struct channel *c, const struct op *op)
{
	c->shared->action[c->actions % SIM_RING] = op->seq;
	atomic_store_explicit(&c->shared->actions, ++c->actions, memory_order_release);
	c->notified = true;
}

static void op_end(struct model *m, struct channel *c, struct stream *s, uint64_t t)
{
	struct op *op = s->first;
	if (c->running == op)
		c->running = NULL;
	if ((op->flags & SIM_FLAG_ACTION) && op->kind != SIM_OP_HOST)
		action_due(c, op);
	if (op->kind == SIM_OP_KERNEL) {
		uint32_t n = op->launches ? op->launches : 1;
		c->device->record->launches += n;
		c->row->record->launches += n;
	} else if (op->kind == SIM_OP_COPY) {
		c->device->record->copies++;
		c->row->record->copies++;
	} else if (op->kind == SIM_OP_EVENT) {
		struct sim_event *e = &c->shared->event[op->event];
		if (atomic_load_explicit(&e->seq, memory_order_relaxed) < op->seq) {
			atomic_store_explicit(&e->time_ns, t, memory_order_relaxed);
			atomic_store_explicit(&e->seq, op->seq, memory_order_release);
		}
	} else if (op->kind == SIM_OP_WAIT && op->dep_channel != c->id) {
		m->cross_waits--;
	}
	op->state = OP_FREE;
	s->first = op->next;
	atomic_store_explicit(&c->shared->stream[s->slot].done, op->seq, memory_order_release);
	uint64_t before = c->ended;
	while (c->ended < c->arrived && c->ops[c->ended % SIM_RING].state == OP_FREE)
		c->ended++;
	if (c->ended != before)
		atomic_store_explicit(&c->shared->tail, c->ended, memory_order_release);
}

/* ------------------------------------------------------------------------------------------------------- what may run next */

static bool seq_ended(const struct channel *c, uint64_t seq)
{
	if (seq <= c->ended)
		return true;
	const struct op *op = &c->ops[(seq - 1) % SIM_RING];
	return seq <= c->arrived && (op->seq != seq || op->state == OP_FREE);
}

/* The legacy default stream and the blocking streams wait for each other, in the order of submission. */
static bool legacy_allows(const struct channel *c, const struct stream *s)
{
	if (s->slot == SIM_STREAM_SLOT_LEGACY) {
		for (const struct stream *o = c->busy; o; o = o->next_busy)
			if (o != s && o->first && !(o->flags & SIM_STREAM_NONBLOCKING) && o->first->seq < s->first->seq)
				return false;
		return true;
	}
	const struct stream *legacy = c->stream[SIM_STREAM_SLOT_LEGACY];
	return (s->flags & SIM_STREAM_NONBLOCKING) || !legacy || !legacy->first || legacy->first->seq > s->first->seq;
}

bool takes_time(const struct op *op)
{
	return op->left_ns > 0;
}

/* Ends, at time t, every operation that takes no time and may end. */
static void channel_settle(struct model *m, struct channel *c, uint64_t t)
{
	for (bool again = true; again;) {
		again = false;
		for (struct stream **at = &c->busy; *at;) {
			struct stream *s = *at;
			while (s->first && !takes_time(s->first) && legacy_allows(c, s)) {
				struct op *op = s->first;
				if (op->kind == SIM_OP_WAIT) {
					struct channel *dep = op->dep_channel == c->id ? c : client_channel(c->client, op->dep_channel);
					if (dep && !seq_ended(dep, op->dep_seq))
						break;
				} else if (op->kind == SIM_OP_HOST) {
					if (op->state == OP_QUEUED) {
						op->state = OP_HOST_WAIT;
						action_due(c, op);
					}
					if (op->state != OP_HOST_DONE || op->stamp_ns > t)
						break;
				}
				op_end(m, c, s, t);
				again = true;
			}
			if (!s->first) {
				*at = s->next_busy;
				s->listed = false;
			} else {
				at = &s->next_busy;
			}
		}
	}
}

/* The operation that the context runs now: the one begun, else the first submitted of the highest priority that may run. */
static struct op *channel_pick(struct channel *c)
{
	if (c->dead)
		return NULL;
	if (c->running)
		return c->running;
	struct stream *best = NULL;
	for (struct stream *s = c->busy; s; s = s->next_busy) {
		if (!s->first || !takes_time(s->first) || !legacy_allows(c, s))
			continue;
		if (!best || s->priority < best->priority || (s->priority == best->priority && s->first->seq < best->first->seq))
			best = s;
	}
	return best ? best->first : NULL;
}

/* ---------------------------------------------------------------------------------------------------------------- time */

static uint64_t device_next_arrival(const struct device *d)
{
	uint64_t next = SIM_NEVER;
	for (const struct channel *c = d->channels; c; c = c->next) {
		if (c->arrived < c->taken)
			next = min64(next, c->ops[c->arrived % SIM_RING].stamp_ns);
		for (const struct stream *s = c->busy; s; s = s->next_busy)
			if (s->first && s->first->state == OP_HOST_DONE && s->first->stamp_ns > d->t_ns)
				next = min64(next, s->first->stamp_ns);
	}
	return next;
}

/* Brings in what has arrived by d->t_ns and chooses whose turn it is. Returns whether the state moved. */
static void device_settle(struct model *m, struct device *d)
{
	for (struct channel *c = d->channels; c; c = c->next) {
		while (c->arrived < c->taken && c->ops[c->arrived % SIM_RING].stamp_ns <= d->t_ns)
			op_arrive(c, &c->ops[c->arrived % SIM_RING]);
		if (c->busy && !c->dead)
			channel_settle(m, c, d->t_ns);
	}
}

static void device_choose(struct model *m, struct device *d)
{
	struct channel *now = d->turn;
	bool over = !now || !channel_pick(now) || d->t_ns >= d->turn_end_ns;
	if (!over)
		return;
	struct channel *from = now ? now : d->resident, *c = from;
	for (unsigned pass = 0; pass < 2; pass++) { /* from the one after, around the ring, back to itself */
		c = c ? c->next : d->channels;
		for (; c; c = c->next) {
			if (channel_pick(c))
				goto found;
			if (c == from)
				break;
		}
		c = NULL;
	}
	d->turn = NULL;
	return;
found:
	d->turn = c;
	d->switch_left_ns = 0;
	if (d->resident && d->resident != c) {
		d->switch_left_ns = m->costs.switch_ns;
		d->record->switches++;
	}
	d->resident = c;
	d->turn_end_ns = d->t_ns + d->switch_left_ns + m->costs.slice_ns;
}

uint64_t device_next_end(const struct device *d)
{
	if (!d->turn)
		return SIM_NEVER;
	struct op *op = channel_pick(d->turn);
	uint64_t end = d->hung || op->left_ns == SIM_NEVER ? SIM_NEVER : d->t_ns + d->switch_left_ns + op->left_ns;
	return min64(end, d->turn_end_ns);
}

/* Runs the device from its time to `to`, during which nothing arrives, ends or changes turns. */
static void device_run(struct model *m, struct device *d, uint64_t to)
{
	if (d->turn) {
		struct channel *c = d->turn;
		struct op *op = channel_pick(c);
		uint64_t from = d->t_ns, gone = min64(d->switch_left_ns, to - from);
		d->switch_left_ns -= gone;
		d->record->switch_ns += gone;
		from += gone;
		if (to > from) {
			c->running = op;
			account(d, c, from, to, op->kind == SIM_OP_COPY);
			if (!d->hung && op->left_ns != SIM_NEVER)
				op->left_ns -= min64(op->left_ns, to - from);
			if (op->left_ns == 0)
				op_end(m, c, c->stream[op->stream], to);
		}
	}
	d->t_ns = to;
}

static void advance_some(struct model *m, struct device *d, uint32_t n, uint64_t now)
{
	for (;;) {
		uint64_t next = now;
		for (uint32_t i = 0; i < n; i++)
			device_settle(m, &d[i]);
		if (n > 1) /* what ended on one may free what waits on another before it in the list */
			for (uint32_t i = 0; i < n; i++)
				device_settle(m, &d[i]);
		for (uint32_t i = 0; i < n; i++) {
			device_choose(m, &d[i]);
			next = min64(next, min64(device_next_end(&d[i]), device_next_arrival(&d[i])));
		}
		bool moved = false;
		for (uint32_t i = 0; i < n; i++) {
			if (next > d[i].t_ns) {
				device_run(m, &d[i], next);
				moved = true;
			}
		}
		if (!moved && next >= now)
			break;
	}
}

static void channel_notify(struct channel *c)
{
	bool wake = c->notified;
	for (uint32_t i = 0; i < SIM_WAITS && !wake; i++) {
		uint32_t slot = atomic_load_explicit(&c->shared->wait[i].stream, memory_order_acquire);
		if (!slot || slot > SIM_STREAMS)
			continue;
		uint64_t seq = atomic_load_explicit(&c->shared->wait[i].seq, memory_order_relaxed);
		wake = atomic_load_explicit(&c->shared->stream[slot - 1].done, memory_order_relaxed) >= seq;
	}
	c->notified = false;
	if (wake) {
		atomic_fetch_add_explicit(&c->shared->notify, 1, memory_order_seq_cst);
		syscall(SYS_futex, &c->shared->notify, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	}
}

void model_advance(struct model *m, uint64_t now)
{
	record_begin(m->record);
	for (uint32_t i = 0; i < m->devices; i++)
		for (struct channel *c = m->device[i].channels; c; c = c->next) {
			channel_take(m, c, now);
			channel_acknowledge(c, now);
		}
	if (m->cross_waits > 0) {
		advance_some(m, m->device, m->devices, now);
	} else {
		for (uint32_t i = 0; i < m->devices; i++)
			advance_some(m, &m->device[i], 1, now);
	}
	record_end(m->record, now);
	for (uint32_t i = 0; i < m->devices; i++)
		for (struct channel *c = m->device[i].channels; c; c = c->next)
			channel_notify(c);
}

/* --------------------------------------------------------------------------------------------------------------- faults */

void model_fault(struct channel *c, uint32_t result)
{
	uint32_t none = 0; /* the first fault stays */
	atomic_compare_exchange_strong(&c->shared->fault, &none, result);
	c->dead = true;
	if (c->device->turn == c)
		c->device->turn = NULL;
	c->notified = true;
	channel_notify(c);
}
