/* SPDX-License-Identifier: Apache-2.0 */
/* lease.c: leases begin, are extended, end and drain. The rule stands in core.h. */
#include "core.h"

#include <stddef.h>

#define RECHECK_NS 500000     /* work that is late, without word from its processes */
#define REVOKE_CHECK_NS 50000 /* a launch that was let through while its lease was revoked shows by then */
#define RETRY_NS 50000000     /* one who waited and then launched nothing */
#define FILL_NS 1000000       /* the shortest lease worth giving while a device is being gathered */

static void due(struct core_device *d, uint64_t at)
{
	if (at < d->next)
		d->next = at;
}

static struct core_device *device_of(struct core *core, int grant)
{
	return &core->device[core->grant[grant].device];
}

static void observe_holder(struct core *core, struct core_grant *g, const struct core_observation *seen)
{
	bool launched = seen->launched != g->launched;
	if (!seen->outstanding && !launched) {
		if (!g->idle_since)
			g->idle_since = core->now;
		return;
	}
	if (g->idle_since && g->launched != g->launched_at_open)
		g->quick = true;
	if (launched)
		g->retry_at = 0;
	if (g->held_idle) { /* it came back: that was holding, not idleness */
		struct core_device *d = &core->device[g->device];
		uint64_t held = g->held_idle < d->idle_pending ? g->held_idle : d->idle_pending;
		d->idle_pending -= held;
		core_use(g, held);
		g->held_idle = 0;
	}
	/* Launched and already drained: idle from now on. */
	g->idle_since = seen->outstanding ? 0 : core->now;
}

static void observe_wait(struct core *core, struct core_grant *g, const struct core_observation *seen)
{
	struct core_device *d = &core->device[g->device];
	g->demand_since = seen->wait_since_ns;
	if (g->retry_since != g->demand_since)
		g->retry_at = 0;
	if (g->lost_idle_at && g->demand_since < g->lost_idle_at + core->config.idle_ns)
		g->quick = true;
	g->lost_idle_at = 0;
	if (g->phase != CORE_IDLE)
		return;
	if (g->vtime < d->vmin)
		g->vtime = d->vmin;
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
static void handoff(struct core *core, struct core_device *d)
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

/* Reads what the grant's processes say and draws the conclusions that need no decision. */
void core_observe(struct core *core, int grant)
{
	struct core_grant *g = &core->grant[grant];
	struct core_observation seen = {0};
	core_accrue(core, g, core->now);
	core->config.observe(core->config.context, grant, core->now, &seen);
	if (seen.waiting || seen.launched != g->launched || seen.outstanding)
		g->used = true;
	if (g->phase == CORE_OPEN)
		observe_holder(core, g, &seen);
	if (seen.waiting && (!g->demand || seen.wait_since_ns != g->demand_since))
		observe_wait(core, g, &seen);
	if (!seen.waiting)
		g->waking = false;
	g->demand = seen.waiting;
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
	if (g->phase != CORE_OPEN || !core->device[g->device].shared)
		g->paid_ns = seen.launched_ns - seen.outstanding_ns;
	observe_end(g, &seen);
}

static void end_one(struct core *core, int grant)
{
	struct core_grant *g = &core->grant[grant];
	struct core_device *d = device_of(core, grant);
	core_charge(core, d, core->now);
	core_accrue(core, g, core->now);
	bool early = core->now < g->gate.end_ns;
	g->gate.open = g->gate.ungated = g->gate.extended = false;
	g->gate.end_ns = core->now;
	core_publish(core, grant);
	g->ended_at = core->now;
	g->held_idle = 0;
	g->idle_since = 0;
	g->wake_lease = false;
	if (g->outstanding || early) {
		g->phase = CORE_DRAINING;
		if (!g->outstanding)
			g->busy_until = core->now;
	} else {
		g->phase = CORE_IDLE;
	}
	if (d->holder == grant)
		d->holder = -1;
}

/* Ends the lease that the grant's task holds, on all its devices. */
void core_end_lease(struct core *core, int grant)
{
	const struct core_task *t = &core->task[core->grant[grant].task];
	for (int i = 0; i < t->grants; i++) {
		if (core->grant[t->grant[i]].phase != CORE_OPEN)
			continue;
		end_one(core, t->grant[i]);
		device_of(core, t->grant[i])->next = core->now;
	}
}

static void open_one(struct core *core, int grant, uint64_t length)
{
	struct core_grant *g = &core->grant[grant];
	struct core_device *d = device_of(core, grant);
	core_charge(core, d, core->now);
	core_accrue(core, g, core->now);
	uint64_t free_at = core->now;
	for (int i = 0; i < d->grants; i++) {
		const struct core_grant *o = &core->grant[d->grant[i]];
		if (o != g && o->phase == CORE_DRAINING && !o->overlapped && o->busy_until > free_at)
			free_at = o->busy_until;
	}
	g->phase = CORE_OPEN;
	g->overlapped = false;
	g->owner = g->policy.floor > 0 && g->credit > 0;
	g->gate = (struct core_gate){.open = true, .lease_id = g->gate.lease_id + 1, .start_ns = core->now, .end_ns = free_at + length};
	g->open_at = core->now;
	g->launched_at_open = g->launched;
	g->late = 0;
	g->late_completed = g->completed;
	g->idle_since = 0;
	g->held_idle = 0;
	g->wake_lease = g->waking;
	g->books.leases++;
	if (g->demand) {
		uint64_t waited = core->now > g->demand_since ? core->now - g->demand_since : 0;
		g->books.wait_ns += waited;
		if (g->waking) {
			g->books.wakes++;
			if (waited > g->books.wake_worst_ns)
				g->books.wake_worst_ns = waited;
		}
	}
	g->waking = false;
	if (d->last_holder >= 0 && d->last_holder != grant)
		d->switches++;
	d->holder = d->last_holder = grant;
	d->reserved_for = -1;
	core_publish(core, grant);
}

/* Whether work of leases that are over keeps the device from whoever is next; then *again says when to look again. */
static bool blocked(struct core *core, const struct core_device *d, int next, uint64_t *again)
{
	bool blocked = false;
	for (int i = 0; i < d->grants; i++) {
		const struct core_grant *g = &core->grant[d->grant[i]];
		if (g->phase != CORE_DRAINING || g->overlapped || d->grant[i] == next)
			continue;
		uint64_t early = core->config.early_ns, at;
		if (g->busy_until > core->now + early)
			at = g->busy_until - early;
		else if (g->busy_until + early >= core->now)
			continue; /* about to be free */
		else
			at = core->now + RECHECK_NS;
		if (at > g->ended_at + core->config.overlap_ns)
			at = g->ended_at + core->config.overlap_ns;
		if (at < *again)
			*again = at;
		blocked = true;
	}
	return blocked;
}

static void cancel_gather(struct core *core, int task)
{
	for (int i = 0; i < core->task[task].grants; i++) {
		struct core_device *d = device_of(core, core->task[task].grant[i]);
		if (d->reserved_for == task) {
			d->reserved_for = -1;
			d->next = core->now;
		}
	}
	core->task[task].gathering = false;
}

/* Sets the devices of a task aside until all are free together. */
static void gather(struct core *core, int task)
{
	struct core_task *t = &core->task[task];
	bool waking = false;
	t->gathering = true;
	t->gather_at = core->now;
	for (int i = 0; i < t->grants; i++)
		waking |= core->grant[t->grant[i]].waking && core->grant[t->grant[i]].credit > 0;
	for (int i = 0; i < t->grants; i++) {
		if (!core_gated(core, t->grant[i]))
			continue;
		struct core_device *d = device_of(core, t->grant[i]);
		d->reserved_for = task;
		d->next = core->now;
		if (d->holder < 0)
			continue;
		if (waking && core_revokes(core, t->grant[i], d->holder)) {
			core->grant[d->holder].books.revoked++;
			core_end_lease(core, d->holder);
		} else if (core->grant[d->holder].gate.end_ns > t->gather_at) {
			t->gather_at = core->grant[d->holder].gate.end_ns;
		}
	}
}

/* Opens all gates of a task that gathers, if all its devices are free now. */
static void finish_gather(struct core *core, struct core_device *asking)
{
	int task = asking->reserved_for;
	struct core_task *t = &core->task[task];
	uint64_t length = core->config.lease_ns;
	bool wanted = false;
	for (int i = 0; i < t->grants; i++) {
		struct core_grant *g = &core->grant[t->grant[i]];
		if (!core_gated(core, t->grant[i]))
			continue;
		wanted |= g->demand;
		uint64_t most = core_lease_length(core, g);
		length = most < length ? most : length;
		if (!core_may_run(core, t->grant[i]))
			wanted = false, length = 0;
	}
	if (!wanted || length == 0) {
		cancel_gather(core, task);
		return;
	}
	if (core->now < t->gather_at) {
		due(asking, t->gather_at);
		return;
	}
	bool wait = false;
	for (int i = 0; i < t->grants; i++) {
		if (!core_gated(core, t->grant[i]))
			continue;
		struct core_device *d = device_of(core, t->grant[i]);
		uint64_t again = CORE_NEVER;
		if (d->holder >= 0 || blocked(core, d, t->grant[i], &again)) {
			wait = true;
			/* Whoever holds up the task looks after itself and then asks here again. */
			due(d, again == CORE_NEVER ? core->now + RECHECK_NS : again);
			due(asking, again == CORE_NEVER ? core->now + RECHECK_NS : again);
		}
	}
	if (wait)
		return;
	t->gathering = false;
	for (int i = 0; i < t->grants; i++)
		if (core_gated(core, t->grant[i]))
			open_one(core, t->grant[i], length);
}

/* The time at which an idle holder loses its lease. */
static uint64_t idle_deadline(const struct core *core, const struct core_grant *g, bool wanted)
{
	if (g->launched == g->launched_at_open)
		return g->open_at + core->config.start_ns;
	return g->quick || !wanted ? g->idle_since + core->config.idle_ns : g->idle_since;
}

/* All grants of the holder's task that share its lease are idle past their deadlines. *at: when that could be. */
static bool idled(const struct core *core, int holder, bool wanted, uint64_t *at)
{
	const struct core_task *t = &core->task[core->grant[holder].task];
	*at = 0;
	for (int i = 0; i < t->grants; i++) {
		const struct core_grant *g = &core->grant[t->grant[i]];
		if (g->phase != CORE_OPEN)
			continue;
		if (!g->idle_since) {
			*at = CORE_NEVER;
			return false;
		}
		uint64_t deadline = idle_deadline(core, g, wanted);
		*at = deadline > *at ? deadline : *at;
	}
	return *at <= core->now;
}

static void lose_idle(struct core *core, int holder)
{
	const struct core_task *t = &core->task[core->grant[holder].task];
	for (int i = 0; i < t->grants; i++) {
		struct core_grant *g = &core->grant[t->grant[i]];
		if (g->phase != CORE_OPEN)
			continue;
		if (g->launched == g->launched_at_open) {
			g->retry_at = core->now + RETRY_NS;
			g->retry_since = g->demand_since;
		} else {
			g->lost_idle_at = g->idle_since;
			if (core->now >= g->idle_since + core->config.idle_ns)
				g->quick = false;
		}
	}
	core_end_lease(core, holder);
}

static bool extend(struct core *core, int grant)
{
	const struct core_task *t = &core->task[core->grant[grant].task];
	uint64_t length = core->config.lease_ns;
	for (int i = 0; i < t->grants; i++) {
		struct core_grant *g = &core->grant[t->grant[i]];
		if (g->phase != CORE_OPEN)
			continue;
		core_accrue(core, g, core->now);
		uint64_t most = core_lease_length(core, g);
		length = most < length ? most : length;
	}
	if (length == 0)
		return false;
	for (int i = 0; i < t->grants; i++) {
		struct core_grant *g = &core->grant[t->grant[i]];
		if (g->phase != CORE_OPEN)
			continue;
		core_charge(core, &core->device[g->device], core->now);
		g->owner = g->policy.floor > 0 && g->credit > 0;
		g->wake_lease = false;
		g->gate.end_ns += length;
		g->gate.extended = true;
		core_publish(core, t->grant[i]);
	}
	return true;
}

static void step_holder(struct core *core, int device)
{
	struct core_device *d = &core->device[device];
	struct core_grant *h = &core->grant[d->holder];
	int best = core_choose(core, device);
	bool wanted = false;
	for (int i = 0; i < d->grants; i++)
		wanted |= d->grant[i] != d->holder && core->grant[d->grant[i]].demand && core_may_run(core, d->grant[i]);
	uint64_t idle_at;
	if (!core_may_run(core, d->holder) || idled(core, d->holder, wanted, &idle_at)) {
		lose_idle(core, d->holder);
		return;
	}
	if (best >= 0 && best != d->holder && d->reserved_for < 0 && core_revokes(core, best, d->holder)) {
		if (core_gang(core, core->grant[best].task)) {
			gather(core, core->grant[best].task);
			return;
		}
		h->books.revoked++;
		core_end_lease(core, d->holder);
		return;
	}
	due(d, idle_at);
	uint64_t end = h->gate.end_ns, decide = end > core->config.ahead_ns ? end - core->config.ahead_ns : 0;
	if (core->now < decide) {
		due(d, decide);
		return;
	}
	if (best == d->holder && d->reserved_for < 0 && extend(core, d->holder)) {
		due(d, h->gate.end_ns - core->config.ahead_ns);
		return;
	}
	/* What it has let through lasts until about the end: closed now, it says for good when the device will be free. */
	bool enough = best >= 0 && best != d->holder && h->outstanding && h->busy_until > core->now && d->reserved_for < 0;
	if (core->now >= end || enough)
		core_end_lease(core, d->holder);
	else
		due(d, end);
}

static void step_free(struct core *core, int device)
{
	struct core_device *d = &core->device[device];
	if (d->reserved_for >= 0) {
		int task = d->reserved_for;
		finish_gather(core, d);
		if (d->reserved_for < 0 || d->reserved_for != task || core->now + FILL_NS > core->task[task].gather_at)
			return;
	}
	int best = d->reserved_for >= 0 ? core_best(core, device, false) : core_choose(core, device);
	uint64_t again = CORE_NEVER;
	if (best < 0)
		return;
	if (core_gang(core, core->grant[best].task)) {
		gather(core, core->grant[best].task);
		return;
	}
	if (blocked(core, d, best, &again)) {
		due(d, again);
		return;
	}
	uint64_t length = core_lease_length(core, &core->grant[best]);
	if (length == 0) { /* its bucket has run out since it was last looked at */
		core->grant[best].barred = true;
		d->next = core->now;
		return;
	}
	int reserved_for = d->reserved_for;
	if (reserved_for >= 0 && core->now + length > core->task[reserved_for].gather_at)
		length = core->task[reserved_for].gather_at - core->now;
	open_one(core, best, length);
	d->reserved_for = reserved_for;
	d->next = core->now; /* sets its own next wake-up */
}

/* The device's only grant, with a whole ceiling, runs ungated. Returns true while it does. */
static bool step_ungated(struct core *core, struct core_device *d)
{
	struct core_grant *g = &core->grant[d->grant[0]];
	bool sole = d->grants == 1 && g->policy.ceiling >= ALQ_MILLI && core_may_run(core, d->grant[0]);
	for (int i = 0; i < d->grants; i++) {
		struct core_grant *u = &core->grant[d->grant[i]];
		if (u->phase != CORE_UNGATED || sole)
			continue;
		u->phase = CORE_OPEN;
		u->open_at = core->now;
		d->holder = d->grant[i];
		u->gate.end_ns = core->now + 1; /* no longer endless: it ends now */
		end_one(core, d->grant[i]);
	}
	if (!sole || g->phase == CORE_UNGATED)
		return sole;
	if (g->phase == CORE_OPEN)
		core_end_lease(core, d->grant[0]);
	struct core_observation seen = {0};
	core->config.observe(core->config.context, d->grant[0], core->now, &seen);
	g->measured = seen.measured_ns;
	g->phase = CORE_UNGATED;
	g->overlapped = g->waking = false;
	g->gate = (struct core_gate){.open = true, .ungated = true, .lease_id = g->gate.lease_id + 1,
		.start_ns = core->now, .end_ns = UINT64_MAX};
	core_publish(core, d->grant[0]);
	return true;
}

static void step_limits(struct core *core, struct core_device *d, struct core_grant *g)
{
	if (g->phase == CORE_DRAINING && !g->outstanding)
		due(d, core->now + REVOKE_CHECK_NS);
	if (g->phase == CORE_DRAINING && !g->overlapped) {
		if (core->now >= g->ended_at + core->config.overlap_ns) {
			g->overlapped = true;
			g->books.overlapped++;
		} else {
			due(d, g->ended_at + core->config.overlap_ns);
		}
	}
	if (g->policy.ceiling >= ALQ_MILLI) {
		g->barred = false;
		return;
	}
	/* Barred at the point where no lease is worth a switch, until there is enough for a whole one. */
	int64_t rate = (int64_t)(ALQ_MILLI - g->policy.ceiling), lease = (int64_t)core->config.lease_ns;
	if (g->bucket < rate * lease / 4 && g->phase != CORE_OPEN)
		g->barred = true;
	int64_t enough = rate * lease;
	if (g->bucket >= enough)
		g->barred = false;
	else if (g->barred && g->demand)
		due(d, core->now + (uint64_t)(enough - g->bucket) / g->policy.ceiling + 1);
}

static void renew_vmin(struct core *core, struct core_device *d)
{
	uint64_t least = CORE_NEVER;
	for (int i = 0; i < d->grants; i++) {
		const struct core_grant *g = &core->grant[d->grant[i]];
		if (!core_idle(g) && !g->barred && g->vtime < least)
			least = g->vtime;
	}
	if (least == CORE_NEVER || least <= d->vmin)
		return;
	d->vmin = least;
	/* One whom its ceiling holds back would gather arrears without end: it is kept within a lease of the others. */
	for (int i = 0; i < d->grants; i++) {
		struct core_grant *g = &core->grant[d->grant[i]];
		uint64_t lag = core->config.lease_ns * CORE_MILLI / g->policy.weight;
		if (!core_idle(g) && g->vtime + lag < least)
			g->vtime = least - lag;
	}
}

/* Does what is due on one device now and sets its next wake-up. */
void core_step(struct core *core, int device)
{
	struct core_device *d = &core->device[device];
	d->next = CORE_NEVER;
	core_charge(core, d, core->now);
	if (core->now >= d->settled_at + core->config.settle_ns)
		core_settle(core, device, core->now);
	if (d->grants == 0 || d->state == ALQ_DEVICE_DOWN)
		return;
	if (step_ungated(core, d)) {
		core_observe(core, d->grant[0]);
		return;
	}
	bool busy = false;
	for (int i = 0; i < d->grants; i++) {
		struct core_grant *g = &core->grant[d->grant[i]];
		if (!core_idle(g))
			core_observe(core, d->grant[i]);
		core_accrue(core, g, core->now);
		step_limits(core, d, g);
		if (g->demand && g->retry_at > core->now)
			due(d, g->retry_at);
		busy |= !core_idle(g);
	}
	if (d->handoff)
		handoff(core, d);
	renew_vmin(core, d);
	if (busy)
		due(d, d->settled_at + core->config.settle_ns);
	if (d->holder >= 0)
		step_holder(core, device);
	if (d->holder < 0)
		step_free(core, device);
}
