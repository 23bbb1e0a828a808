/* SPDX-License-Identifier: Apache-2.0 */
/* When the model must be looked at again: for those who wait, and for what must show on the host. */
#include "simgpu/server/model.h"

/*
 * The earliest time at which operation `seq` of the stream can end: its stream's operations up to it take at least their time, one after
 * another. A lower bound is enough: woken too early, the server looks again.
 */
static uint64_t stream_earliest(const struct device *d, const struct channel *c, const struct stream *s, uint64_t seq)
{
	uint64_t sum = d->t_ns;
	if (d->turn != c) /* not before its turn */
		sum = min64(device_next_end(d), d->turn_end_ns);
	else
		sum += d->switch_left_ns;
	if (sum == SIM_NEVER)
		return SIM_NEVER;
	for (const struct op *op = s->first; op && op->seq <= seq; op = op->next) {
		if (op->left_ns == SIM_NEVER || op->state == OP_HOST_WAIT || (d->hung && takes_time(op)))
			return SIM_NEVER;
		sum += op->left_ns;
	}
	return sum;
}

static uint64_t channel_deadline(const struct device *d, struct channel *c)
{
	uint64_t deadline = SIM_NEVER;
	if (c->dead)
		return deadline;
	for (uint32_t i = 0; i < SIM_WAITS; i++) {
		uint32_t slot = atomic_load_explicit(&c->shared->wait[i].stream, memory_order_acquire);
		if (!slot || slot > SIM_STREAMS || !c->stream[slot - 1] || !c->stream[slot - 1]->first)
			continue;
		uint64_t seq = atomic_load_explicit(&c->shared->wait[i].seq, memory_order_relaxed);
		if (atomic_load_explicit(&c->shared->stream[slot - 1].done, memory_order_relaxed) < seq)
			deadline = min64(deadline, stream_earliest(d, c, c->stream[slot - 1], seq));
	}
	for (struct stream *s = c->busy; s; s = s->next_busy) {
		for (const struct op *op = s->first; op; op = op->next)
			if ((op->flags & SIM_FLAG_SHOW) && op->state != OP_HOST_WAIT) {
				deadline = min64(deadline, stream_earliest(d, c, s, op->seq));
				break;
			}
	}
	return deadline;
}

/* Tells the client until when asking again is of no use, as long as it submits nothing. */
static void channel_quiet(const struct device *d, struct channel *c)
{
	uint64_t quiet = SIM_NEVER;
	for (const struct stream *s = c->busy; s; s = s->next_busy)
		if (s->first)
			quiet = min64(quiet, s->first->state == OP_HOST_WAIT ? 0 : stream_earliest(d, c, s, s->first->seq));
	atomic_store_explicit(&c->shared->quiet_head, SIM_NEVER, memory_order_relaxed);
	atomic_store_explicit(&c->shared->quiet_until, quiet, memory_order_release);
	atomic_store_explicit(&c->shared->quiet_head, c->taken, memory_order_release);
}

uint64_t model_deadline(struct model *m)
{
	uint64_t deadline = SIM_NEVER, any_end = SIM_NEVER;
	for (uint32_t i = 0; i < m->devices; i++)
		any_end = min64(any_end, device_next_end(&m->device[i]));
	for (uint32_t i = 0; i < m->devices; i++) {
		struct device *d = &m->device[i];
		for (struct channel *c = d->channels; c; c = c->next) {
			uint64_t at = channel_deadline(d, c);
			/* A bound that has passed means that something else is in the way (another stream, another context): look again when
			 * the device next changes. */
			if (at <= d->t_ns && !c->dead)
				at = m->cross_waits ? any_end : device_next_end(d);
			deadline = min64(deadline, at);
			channel_quiet(d, c);
		}
	}
	return deadline;
}
