/* SPDX-License-Identifier: Apache-2.0 */
/* word.c: what a grant's processes say, and the conclusions from it that need no decision. */
#include "core.h"

#include <stddef.h>

#define PAUSE_NS 20000000 /* shorter than this nobody was away */

static void observe_holder(struct core *core, struct core_grant *g, const struct core_observation *seen)
{
	bool launched = seen->launched != g->launched;
	if (!seen->outstanding && !seen->coming && !launched) {
		if (!g->idle_since)
			g->idle_since = core->now;
		return;
	}
	if (g->idle_since && g->launched != g->launched_at_open) {
		g->quick = true;
		g->pause_ns = core->now - g->idle_since;
	}
	if (launched)
		g->retry_at = g->misses = 0;
	/* Launched and already drained: idle from now on. */
	g->idle_since = seen->outstanding || seen->coming ? 0 : core->now;
}

static void observe_wait(struct core *core, struct core_grant *g, const struct core_observation *seen)
{
	struct core_device *d = &core->device[g->device];
	g->demand_since = seen->wait_since_ns;
	if (g->retry_since != g->demand_since)
		g->retry_at = 0;
	if (g->lost_idle_at && g->demand_since < g->lost_idle_at + core->config.idle_ns) {
		g->quick = true;
		g->pause_ns = g->demand_since > g->lost_idle_at ? g->demand_since - g->lost_idle_at : 0;
	}
	g->lost_idle_at = 0;
	if (g->phase != CORE_IDLE && !g->yielded)
		return;
	/* One that paused between two batches keeps what it is behind by, up to two leases; one that was away starts level. */
	uint64_t lag = core->now < g->ended_at + PAUSE_NS ? 2 * core->config.lease_ns * CORE_MILLI / g->policy.weight : 0;
	if (g->vtime + lag < d->vmin)
		g->vtime = d->vmin - lag;
	if (g->policy.floor > 0 && g->credit > 0) {
		g->waking = true;
		g->woke_at = core->now;
	}
}

/* When the grant's work should end. Work that was let through while its predecessor's still ran was estimated from its launch; until its
 * first part has ended that is too early by what was left of the predecessor's. A lease that is over launches nothing, so its last
 * word stands and a later one is not believed. */
static void observe_end(struct core_grant *g, const struct core_observation *seen)
{
	uint64_t until = seen->busy_until_ns;
	if (until && g->late && seen->completed == g->late_completed)
		until += g->late;
	if (g->phase != CORE_DRAINING || !g->busy_until || until < g->busy_until)
		g->busy_until = until;
}

/* The device was handed to its holder just now. */
void core_handoff(struct core *core, struct core_device *d)
{
	d->handoff = false;
	struct core_grant *h = d->holder < 0 ? NULL : &core->grant[d->holder];
	if (!h || !h->outstanding || h->completed != h->late_completed)
		return;
	uint64_t end = core->now + h->outstanding_ns;
	if (!h->busy_until || h->busy_until >= end)
		return;
	h->late = end - h->busy_until;
	if (h->late > core->config.overlap_ns)
		h->late = core->config.overlap_ns;
	h->busy_until += h->late;
}

/* Charges a grant for what it held by its word, before that changes; all of it, or but what may turn out to have ended. */
void core_word(struct core *core, int grant, bool all)
{
	struct core_grant *g = &core->grant[grant];
	struct core_observation seen = {0};
	core->config.observe(core->config.context, grant, core->now, &seen);
	core_settle_word(core, &core->device[g->device], g, &seen, all);
}

/* Reads what the grant's processes say and draws the conclusions that need no decision. */
void core_observe(struct core *core, int grant)
{
	struct core_grant *g = &core->grant[grant];
	struct core_observation seen = {0};
	core_accrue(core, g, core->now);
	uint64_t since = core->now < core->config.patience_ns ? core->now : core->config.patience_ns;
	bool silent = core_silent(core, g, core->now), stopped = core_silent(core, g, core->now - since);
	core->config.observe(core->config.context, grant, core->now, &seen);
	if (seen.waiting || seen.launched != g->launched || seen.outstanding)
		g->used = true;
	if (!g->looked_at)
		g->measured = seen.measured_ns; /* before that another arbiter charged it */
	/* Launched without a lease, as one may that had passed the gate when that closed. */
	bool unleased = g->phase == CORE_IDLE || (g->phase == CORE_DRAINING && !g->outstanding);
	if (unleased && seen.launched != g->launched && g->looked_at)
		core_unheard(core, g, core->now - g->looked_at);
	g->looked_at = core->now;
	if (g->phase == CORE_OPEN || g->phase == CORE_DRAINING)
		core_settle_word(core, &core->device[g->device], g, &seen, false);
	if (g->phase == CORE_OPEN)
		observe_holder(core, g, &seen);
	if (seen.waiting && (!g->demand || seen.wait_since_ns != g->demand_since))
		observe_wait(core, g, &seen);
	if (!seen.waiting)
		g->waking = false;
	g->demand = seen.waiting;
	g->coming = seen.coming;
	if (seen.launched != g->launched)
		g->still_since = core->now;
	g->launched = seen.launched;
	g->outstanding = seen.outstanding;
	if (g->phase == CORE_DRAINING) {
		if (!seen.outstanding && g->ended_at < core->now) {
			g->phase = CORE_IDLE;
			g->overlapped = false;
			core->device[g->device].handoff = true;
		}
	} else if (g->phase == CORE_IDLE && seen.outstanding) {
		/* Work without a lease: it paced itself while no arbiter was there, or slipped through a revocation. */
		g->phase = CORE_DRAINING;
		g->owner = g->policy.floor > 0;
		g->ended_at = core->now;
		g->overlapped = false;
	}
	g->completed = seen.completed;
	g->outstanding_ns = seen.outstanding_ns;
	uint64_t ended = seen.launched_ns - seen.outstanding_ns;
	if (g->paid_ns < ended)
		g->paid_ns = ended;
	if (g->phase == CORE_IDLE) {
		/* What ran within its lease and was measured after it is charged in the next; no more than that, and what may have run unseen. */
		uint64_t most = core->config.lease_ns + g->unheard_ns;
		uint64_t least = seen.measured_ns > most ? seen.measured_ns - most : 0;
		g->measured = g->measured > seen.measured_ns ? seen.measured_ns : g->measured < least ? least : g->measured;
	}
	observe_end(g, &seen);
	if (!silent || core_silent(core, g, core->now))
		return;
	/* What it was charged meanwhile, and others admit, is not owed to it either; nor to anybody where it was stopped and not late alone. */
	if (stopped)
		core_revived(core, grant);
	else if (g->claim_ns < 0)
		g->claim_ns = 0;
}
