/* SPDX-License-Identifier: Apache-2.0 */
/* lease.c: leases begin, are extended, end and drain. The rule stands in core.h. */
#include "core.h"

#define REVOKE_CHECK_NS 50000 /* a launch that was let through while its lease was revoked shows by then */
#define BAR_CHECK_NS 20000    /* a bucket that empties about as fast as it fills, as work drains, is looked at no more often */
#define FILL_NS 1000000       /* the shortest lease worth giving while a device is being gathered */

void core_due(struct core_device *d, uint64_t at)
{
	if (at < d->next)
		d->next = at;
}

struct core_device *core_device_of(struct core *core, int grant)
{
	return &core->device[core->grant[grant].device];
}

static void end_one(struct core *core, int grant)
{
	struct core_grant *g = &core->grant[grant];
	struct core_device *d = core_device_of(core, grant);
	core_charge(core, d, core->now);
	core_word(core, grant, false);
	core_accrue(core, g, core->now);
	bool early = core->now < g->gate.end_ns;
	g->gate.open = g->gate.ungated = g->gate.extended = false;
	g->gate.end_ns = core->now;
	core_publish(core, grant);
	g->ended_at = core->now;
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
		core_device_of(core, t->grant[i])->next = core->now;
	}
}

void core_open(struct core *core, int grant, uint64_t length)
{
	struct core_grant *g = &core->grant[grant];
	struct core_device *d = core_device_of(core, grant);
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
	g->waking = g->yielded = false;
	if (d->last_holder >= 0 && d->last_holder != grant)
		d->switches++;
	d->holder = d->last_holder = grant;
	d->reserved_for = -1;
	core_publish(core, grant);
}

/*
 * When undrained work of a lease that is over is overlapped: `overlap` after the lease's end, or after the end that the work itself announced,
 * within `patience`, unless an owner who has just woken waits. A long kernel that is known is let finish: beside another it would only
 * take twice as long, and nobody could say who used what.
 */
static uint64_t overlap_at(const struct core *core, const struct core_device *d, const struct core_grant *g)
{
	uint64_t from = g->ended_at, most = g->ended_at + core->config.patience_ns;
	if (g->busy_until > from)
		from = g->busy_until < most ? g->busy_until : most;
	for (int i = 0; i < d->grants; i++)
		if (core->grant[d->grant[i]].waking)
			from = g->ended_at;
	return from + core->config.overlap_ns;
}

/* Whether work of leases that are over keeps the device from whoever is next; then *again says when to look again. */
bool core_blocked(struct core *core, const struct core_device *d, int next, uint64_t *again)
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
			at = core->now + CORE_RECHECK_NS;
		uint64_t late = overlap_at(core, d, g);
		if (at > late)
			at = late;
		if (at < *again)
			*again = at;
		blocked = true;
	}
	return blocked;
}

/* Extends the lease of a task on all devices that it holds, if it is first on each of them, or nobody else wants that. */
static bool extend(struct core *core, int grant)
{
	const struct core_task *t = &core->task[core->grant[grant].task];
	uint64_t length = core->config.lease_ns;
	for (int i = 0; i < t->grants; i++) {
		struct core_grant *g = &core->grant[t->grant[i]];
		if (g->phase != CORE_OPEN)
			continue;
		int first = t->grant[i] == grant ? grant : core_choose(core, g->device);
		if (first >= 0 && first != t->grant[i])
			return false;
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
		wanted |= d->grant[i] != d->holder && core_waits(core, d->grant[i]) && core_may_run(core, d->grant[i]);
	uint64_t idle_at;
	if (!core_may_run(core, d->holder) || core_idled(core, d->holder, wanted, &idle_at)) {
		core_lose_idle(core, d->holder);
		return;
	}
	if (best >= 0 && best != d->holder && d->reserved_for < 0 && core_revokes(core, best, d->holder)) {
		if (core_gang(core, core->grant[best].task)) {
			core_gather(core, core->grant[best].task);
			return;
		}
		h->books.revoked++;
		core_end_lease(core, d->holder);
		return;
	}
	core_due(d, idle_at);
	uint64_t empty_at = CORE_NEVER;
	if (d->reserved_for < 0 && core_about_to_idle(core, h, wanted, &empty_at)) {
		h->lost_idle_at = h->busy_until;
		h->yielded = true;
		core_end_lease(core, d->holder);
		return;
	}
	core_due(d, empty_at);
	uint64_t end = h->gate.end_ns, decide = end > core->config.ahead_ns ? end - core->config.ahead_ns : 0;
	if (core->now < decide) {
		core_due(d, decide);
		return;
	}
	if (best == d->holder && d->reserved_for < 0 && extend(core, d->holder)) {
		core_due(d, h->gate.end_ns - core->config.ahead_ns);
		return;
	}
	/* What it has let through lasts until about the end: closed now, it says for good when the device will be free. */
	bool enough = best >= 0 && best != d->holder && h->outstanding && h->busy_until > core->now && d->reserved_for < 0;
	if (core->now >= end || enough)
		core_end_lease(core, d->holder);
	else
		core_due(d, end);
}

static void step_free(struct core *core, int device)
{
	struct core_device *d = &core->device[device];
	if (d->reserved_for >= 0) {
		int task = d->reserved_for;
		core_finish_gather(core, d);
		if (d->reserved_for < 0 || d->reserved_for != task || core->now + FILL_NS > core->task[task].gather_at)
			return;
	}
	int best = d->reserved_for >= 0 ? core_best(core, device, false) : core_choose(core, device);
	uint64_t again = CORE_NEVER;
	if (best < 0)
		return;
	if (core_gang(core, core->grant[best].task)) {
		core_gather(core, core->grant[best].task);
		return;
	}
	if (core_blocked(core, d, best, &again)) {
		core_due(d, again);
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
	core_open(core, best, length);
	d->reserved_for = reserved_for;
	d->next = core->now; /* sets its own next wake-up */
}

/* The device's only grant, with a whole ceiling, runs ungated. Returns true while it does. */
static bool step_ungated(struct core *core, struct core_device *d)
{
	struct core_grant *g = &core->grant[d->grant[0]];
	bool sole = d->grants == 1 && g->policy.ceiling >= ALQ_MILLI && !(g->policy.flags & ALQ_POLICY_CLOCK) && core_may_run(core, d->grant[0]);
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
	g->unheard_ns = 0;
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
		core_due(d, core->now + REVOKE_CHECK_NS);
	if (g->phase == CORE_DRAINING && !g->overlapped) {
		uint64_t late = overlap_at(core, d, g);
		if (core->now >= late) {
			g->overlapped = true;
			g->books.overlapped++;
		} else {
			core_due(d, late);
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
	if (g->bucket >= enough || !g->barred || !g->demand)
		return;
	uint64_t wait = (uint64_t)(enough - g->bucket) / g->policy.ceiling + 1;
	core_due(d, core->now + (wait > BAR_CHECK_NS ? wait : BAR_CHECK_NS));
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
	if (core->now >= d->asked_at + core->config.settle_ns)
		core_admit(core, d);
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
			core_due(d, g->retry_at);
		busy |= !core_idle(g);
	}
	if (d->handoff)
		core_handoff(core, d);
	renew_vmin(core, d);
	if (busy)
		core_due(d, d->settled_at + core->config.settle_ns);
	if (d->holder >= 0)
		step_holder(core, device);
	if (d->holder < 0)
		step_free(core, device);
}
