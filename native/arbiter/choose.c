/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c: who is next on a device. The rule stands in core.h. */
#include "core.h"

/* A grant takes part in its task's leases once it has been used, unless it is ungated. */
bool core_gated(const struct core *core, int grant)
{
	const struct core_grant *g = &core->grant[grant];
	return g->used && g->phase != CORE_UNGATED;
}

/* A task that must hold several devices together. */
bool core_gang(const struct core *core, int task)
{
	int n = 0;
	for (int i = 0; i < core->task[task].grants; i++)
		n += core_gated(core, core->task[task].grant[i]);
	return n > 1;
}

/* Waits, and is not one who let its last leases pass. */
bool core_waits(const struct core *core, int grant)
{
	const struct core_grant *g = &core->grant[grant];
	return g->demand && g->retry_at <= core->now;
}

/* A task with several devices waits where any of its processes waits. */
static bool wants(const struct core *core, int grant)
{
	const struct core_grant *g = &core->grant[grant];
	if (g->phase == CORE_OPEN)
		return !g->idle_since;
	if (!core_gang(core, g->task))
		return core_waits(core, grant);
	const struct core_task *t = &core->task[g->task];
	for (int i = 0; i < t->grants; i++)
		if (core_waits(core, t->grant[i]))
			return core_gated(core, grant);
	return false;
}

/* How long a lease may be: 0 when the bucket does not allow one that is worth a switch. */
uint64_t core_lease_length(const struct core *core, const struct core_grant *g)
{
	uint64_t lease = core->config.lease_ns;
	if (g->policy.ceiling >= ALQ_MILLI)
		return lease;
	if (g->bucket <= 0)
		return 0;
	uint64_t length = (uint64_t)g->bucket / (ALQ_MILLI - g->policy.ceiling);
	return length >= lease ? lease : length >= lease / 4 ? length : 0;
}

/* Whether limits and health let it run, apart from who is first. */
bool core_may_run(const struct core *core, int grant)
{
	const struct core_grant *g = &core->grant[grant];
	return core->device[g->device].state != ALQ_DEVICE_DOWN && !(g->policy.flags & ALQ_POLICY_STOPPED) && !g->barred;
}

static bool credit(const struct core_grant *g)
{
	return g->policy.floor > 0 && g->credit > 0;
}

static bool woken(const struct core *core, const struct core_grant *g)
{
	if (!credit(g))
		return false;
	const struct core_task *t = &core->task[g->task];
	for (int i = 0; i < t->grants; i++)
		if (core->grant[t->grant[i]].waking)
			return true;
	return false;
}

/* Whether a goes before b. */
static bool before(const struct core *core, const struct core_grant *a, const struct core_grant *b)
{
	int class_a = woken(core, a) ? 0 : credit(a) ? 1 : 2;
	int class_b = woken(core, b) ? 0 : credit(b) ? 1 : 2;
	if (class_a != class_b)
		return class_a < class_b;
	bool latency_a = a->policy.flags & ALQ_POLICY_LATENCY, latency_b = b->policy.flags & ALQ_POLICY_LATENCY;
	if (class_a < 2 && latency_a != latency_b)
		return latency_a;
	if (class_a == 0 && a->woke_at != b->woke_at)
		return a->woke_at < b->woke_at;
	if (class_a == 1 && a->credit != b->credit)
		return a->credit > b->credit;
	if (class_a == 2 && a->vtime != b->vtime)
		return a->vtime < b->vtime;
	return a->demand_since != b->demand_since ? a->demand_since < b->demand_since : a < b;
}

/* The first of those that want the device, its holder included; tasks with several devices only if `gangs`. −1: none. */
int core_best(const struct core *core, int device, bool gangs)
{
	const struct core_device *d = &core->device[device];
	int best = -1;
	for (int i = 0; i < d->grants; i++) {
		int g = d->grant[i];
		if (core->grant[g].phase == CORE_UNGATED || !core_may_run(core, g) || !wants(core, g))
			continue;
		if (!gangs && core_gang(core, core->grant[g].task))
			continue;
		if (best < 0 || before(core, &core->grant[g], &core->grant[best]))
			best = g;
	}
	return best;
}

/* Whether a task that holds several devices together could get them all: nothing bars it, and no other gathers one of them. */
static bool could_gather(const struct core *core, int task)
{
	const struct core_task *t = &core->task[task];
	for (int i = 0; i < t->grants; i++) {
		int g = t->grant[i];
		if (!core_gated(core, g))
			continue;
		int reserved = core->device[core->grant[g].device].reserved_for;
		if (!core_may_run(core, g) || (reserved >= 0 && reserved != task))
			return false;
	}
	return true;
}

static bool first_everywhere(const struct core *core, int task)
{
	const struct core_task *t = &core->task[task];
	for (int i = 0; i < t->grants; i++) {
		int g = t->grant[i];
		if (core_gated(core, g) && core_best(core, core->grant[g].device, true) != g)
			return false;
	}
	return true;
}

uint64_t core_since(const struct core *core, int task)
{
	const struct core_task *t = &core->task[task];
	uint64_t since = core->now;
	for (int i = 0; i < t->grants; i++) {
		const struct core_grant *g = &core->grant[t->grant[i]];
		if (g->demand && g->demand_since < since)
			since = g->demand_since;
	}
	return since;
}

/* Who is to hold the device next; its holder, if that is to go on. −1: nobody. */
int core_choose(const struct core *core, int device)
{
	int best = core_best(core, device, true);
	if (best < 0 || !core_gang(core, core->grant[best].task))
		return best;
	if (could_gather(core, core->grant[best].task) && first_everywhere(core, core->grant[best].task))
		return best;
	int single = core_best(core, device, false);
	if (single >= 0)
		return single;
	/* Only tasks with several devices want it and none is first everywhere: they could wait for each other in a ring, so the
	 * one that has waited longest goes. */
	const struct core_device *d = &core->device[device];
	int longest = -1;
	for (int i = 0; i < d->grants; i++) {
		int g = d->grant[i];
		if (core->grant[g].phase == CORE_UNGATED || !wants(core, g) || !could_gather(core, core->grant[g].task))
			continue;
		if (longest < 0 || core_since(core, core->grant[g].task) < core_since(core, core->grant[longest].task))
			longest = g;
	}
	return longest;
}

/* Whether an owner who has just woken ends the holder's lease at once. */
bool core_revokes(const struct core *core, int waking, int holder)
{
	const struct core_grant *w = &core->grant[waking], *h = &core->grant[holder];
	if (!woken(core, w) || w->task == h->task)
		return false;
	if (!h->wake_lease)
		return true;
	return (w->policy.flags & ALQ_POLICY_LATENCY) && !(h->policy.flags & ALQ_POLICY_LATENCY);
}
