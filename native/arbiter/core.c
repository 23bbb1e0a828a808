/* SPDX-License-Identifier: Apache-2.0 */
/* core.c: what the core holds, what comes in, and the books of a grant. The rule stands in core.h. */
#include "core.h"

#include <string.h>

/* Credit and debt beyond this are forgiven, so that one endless kernel does not decide over a device for minutes. */
#define CREDIT_LIMIT (2000000000ll * CORE_MILLI)
#define SILENT_MISSES 2 /* leases in a row that a program may let pass, where its machine is busy */

void core_defaults(struct core_config *config)
{
	*config = (struct core_config){
		.lease_ns = 4000000,
		.idle_cap_ns = 5000000,
		.latency_cap_ns = 100000000,
		.latency_reach_ns = 400000000,
		.burst_ns = 20000000,
		.ahead_ns = 300000,
		.early_ns = 200000,
		.idle_ns = 300000,
		.start_ns = 1000000,
		.overlap_ns = 10000000,
		.patience_ns = 50000000,
		.settle_ns = 100000000,
	};
}

void core_init(struct core *core, const struct core_config *config)
{
	memset(core, 0, sizeof *core);
	core->config = *config;
}

bool core_idle(const struct core_grant *g)
{
	return g->phase == CORE_UNGATED || (g->phase == CORE_IDLE && !g->demand);
}

static int64_t clamp(int64_t v, int64_t low, int64_t high)
{
	return v < low ? low : v > high ? high : v;
}

/* What an idle owner keeps of its credit, ns/1000. */
int64_t core_idle_cap(const struct core_config *c, const struct core_policy *policy)
{
	uint64_t cap = c->idle_cap_ns * CORE_MILLI, reach = policy->floor * c->latency_reach_ns;
	if (!(policy->flags & ALQ_POLICY_LATENCY) || reach <= cap)
		return (int64_t)cap;
	return (int64_t)(reach < c->latency_cap_ns * CORE_MILLI ? reach : c->latency_cap_ns * CORE_MILLI);
}

bool core_silent(const struct core *core, const struct core_grant *g, uint64_t now)
{
	if (g->misses > SILENT_MISSES)
		return true;
	if (!g->overlapped || g->demand)
		return false;
	const struct core_device *d = &core->device[g->device];
	uint64_t late = g->busy_until > g->ended_at ? g->busy_until : g->ended_at;
	for (int i = 0; i < d->grants; i++)
		if (core->grant[d->grant[i]].phase == CORE_DRAINING)
			late += core->config.patience_ns;
	return now > late;
}

/* Lets credit and bucket grow until now. */
void core_accrue(struct core *core, struct core_grant *g, uint64_t now)
{
	if (now <= g->accrued_at)
		return;
	int64_t dt = (int64_t)(now - g->accrued_at);
	g->accrued_at = now;
	if (core->device[g->device].state == ALQ_DEVICE_DOWN)
		return;
	if (dt > 1000000000)
		dt = 1000000000; /* the caps below are reached by then, and nothing can overflow */
	const struct core_config *c = &core->config;
	bool idle = core_idle(g);
	int64_t cap = idle || core_silent(core, g, now) ? core_idle_cap(c, &g->policy) : CREDIT_LIMIT;
	if (!idle && cap < g->credit)
		cap = g->credit; /* what it was owed before stays */
	g->credit = clamp(g->credit + g->policy.floor * dt, -CREDIT_LIMIT, cap);
	int64_t burst = (int64_t)c->burst_ns * CORE_MILLI;
	g->bucket = clamp(g->bucket + g->policy.ceiling * dt, -CREDIT_LIMIT, idle ? burst : burst * 5 / 2);
}

int core_device_add(struct core *core, uint64_t now, enum alq_device_state state)
{
	for (int i = 0; i < CORE_DEVICES; i++) {
		struct core_device *d = &core->device[i];
		if (d->used_slot)
			continue;
		*d = (struct core_device){.used_slot = true, .state = state, .holder = -1, .reserved_for = -1, .last_holder = -1,
			.charged_at = now, .settled_at = now, .since = now, .next = now};
		return i;
	}
	return -1;
}

static int free_grant(const struct core *core, int from)
{
	for (int i = from; i < CORE_GRANTS; i++)
		if (!core->grant[i].used_slot)
			return i;
	return -1;
}

int core_task_add(struct core *core, uint64_t now, int grants, const int *devices, const struct core_policy *policies)
{
	int t = 0, slot[ALQ_MAX_GRANTS];
	while (t < CORE_TASKS && core->task[t].used_slot)
		t++;
	if (t == CORE_TASKS || grants < 1 || grants > ALQ_MAX_GRANTS)
		return -1;
	for (int i = 0, from = 0; i < grants; i++, from++) {
		if (core->device[devices[i]].grants >= CORE_DEVICE_GRANTS)
			return -1;
		slot[i] = from = free_grant(core, from);
		if (from < 0)
			return -1;
	}
	core->now = now;
	core->task[t] = (struct core_task){.used_slot = true, .grants = grants};
	for (int i = 0; i < grants; i++) {
		struct core_device *d = &core->device[devices[i]];
		core_settle(core, devices[i], now);
		struct core_grant *g = &core->grant[slot[i]];
		*g = (struct core_grant){.used_slot = true, .task = t, .device = devices[i], .policy = policies[i], .quick = true,
			.dirty = g->dirty, .accrued_at = now, .bucket = (int64_t)core->config.burst_ns * CORE_MILLI, .vtime = d->vmin};
		if (g->policy.weight == 0)
			g->policy.weight = 1;
		core->task[t].grant[i] = slot[i];
		d->grant[d->grants++] = slot[i];
		d->next = now;
		core_publish(core, slot[i]); /* closed, until it is its turn */
	}
	return t;
}

void core_task_del(struct core *core, int task, uint64_t now)
{
	struct core_task *t = &core->task[task];
	core->now = now;
	for (int i = 0; i < t->grants; i++) {
		struct core_grant *g = &core->grant[t->grant[i]];
		struct core_device *d = &core->device[g->device];
		if (g->phase == CORE_OPEN)
			core_end_lease(core, t->grant[i]);
		core_settle(core, g->device, now);
		d->ended.own_ns += g->books.split.own_ns;
		d->ended.lent_ns += g->books.split.lent_ns;
		d->ended.reserved_idle_ns += g->books.split.reserved_idle_ns;
		d->ended.burst_free_ns += g->books.split.burst_free_ns;
		d->ended.burst_lent_ns += g->books.split.burst_lent_ns;
		d->free_account += g->floor_account;
		int at = 0;
		while (d->grant[at] != t->grant[i])
			at++;
		memmove(&d->grant[at], &d->grant[at + 1], (size_t)(d->grants - at - 1) * sizeof d->grant[0]);
		d->grants--;
		if (d->reserved_for == task)
			d->reserved_for = -1;
		if (d->last_holder == t->grant[i])
			d->last_holder = -1;
		d->next = now;
		g->used_slot = false;
	}
	t->used_slot = false;
}

void core_device_state(struct core *core, int device, uint64_t now, enum alq_device_state state)
{
	struct core_device *d = &core->device[device];
	if (d->state == state)
		return;
	core->now = now;
	core_settle(core, device, now);
	for (int i = 0; i < d->grants; i++) {
		struct core_grant *g = &core->grant[d->grant[i]];
		if (state != ALQ_DEVICE_DOWN)
			continue;
		if (g->phase == CORE_OPEN)
			core_end_lease(core, d->grant[i]);
		g->phase = CORE_IDLE;
		g->overlapped = g->gate.open = g->gate.ungated = false;
		core_publish(core, d->grant[i]);
	}
	d->state = state;
	d->next = now;
}

void core_set_policy(struct core *core, int grant, uint64_t now, const struct core_policy *policy)
{
	struct core_grant *g = &core->grant[grant];
	core->now = now;
	core_settle(core, g->device, now); /* what was is booked under what was promised then */
	g->policy = *policy;
	if (g->policy.weight == 0)
		g->policy.weight = 1;
	if (g->phase == CORE_OPEN)
		core_end_lease(core, grant); /* its length came from the old ceiling */
	core->device[g->device].next = now;
}

void core_restore(struct core *core, int grant, const struct core_books *books)
{
	struct core_grant *g = &core->grant[grant];
	const int64_t most = CREDIT_LIMIT / CORE_MILLI;
	g->books = *books;
	g->credit = clamp(books->credit_ns, -most, most) * CORE_MILLI; /* of these, one that turns out to be idle keeps what an idle one may */
	g->bucket = clamp(books->bucket_ns, -most, (int64_t)core->config.burst_ns * 5 / 2) * CORE_MILLI;
	g->vtime = books->vtime_ns;
	g->gate.lease_id = books->leases;
}

void core_device_restore(struct core *core, int device, uint64_t since, uint64_t updated, const struct alq_device *page)
{
	struct core_device *d = &core->device[device];
	d->since = since;
	d->settled_at = d->charged_at = updated;
	d->unreserved_idle_ns = page->unreserved_idle_ns;
	d->down_ns = page->down_ns;
	d->switches = page->switches;
	d->ended = page->ended;
}

void core_get_books(const struct core *core, int grant, struct core_books *out)
{
	const struct core_grant *g = &core->grant[grant];
	*out = g->books;
	out->credit_ns = g->credit / CORE_MILLI;
	out->bucket_ns = g->bucket / CORE_MILLI;
	out->vtime_ns = g->vtime;
}

int core_active(const struct core *core, int device)
{
	int n = 0;
	const struct core_device *d = &core->device[device];
	for (int i = 0; i < d->grants; i++) {
		const struct core_grant *g = &core->grant[d->grant[i]];
		n += g->phase == CORE_UNGATED ? g->outstanding : !core_idle(g);
	}
	return n;
}

void core_publish(struct core *core, int grant)
{
	struct core_grant *g = &core->grant[grant];
	if (g->dirty)
		return;
	g->dirty = true;
	core->dirty_list[(core->dirty_first + core->dirty_count++) % CORE_GRANTS] = grant;
}

int core_next_dirty(struct core *core)
{
	while (core->dirty_count > 0) {
		int grant = core->dirty_list[core->dirty_first];
		core->dirty_first = (core->dirty_first + 1) % CORE_GRANTS;
		core->dirty_count--;
		core->grant[grant].dirty = false;
		if (core->grant[grant].used_slot)
			return grant;
	}
	return -1;
}

void core_touch(struct core *core, int task, uint64_t now)
{
	struct core_task *t = &core->task[task];
	core->now = now;
	for (int i = 0; i < t->grants; i++) {
		core_charge(core, &core->device[core->grant[t->grant[i]].device], now);
		core_observe(core, t->grant[i]);
		core->device[core->grant[t->grant[i]].device].next = now;
	}
}

uint64_t core_run(struct core *core, uint64_t now)
{
	core->now = now;
	/* A step may make another device due (a task with several); each pass settles at least one, and two passes more than there
	 * are devices mean a disagreement that a little time resolves. */
	for (int pass = 0; pass < CORE_DEVICES + 2; pass++) {
		bool stepped = false;
		for (int i = 0; i < CORE_DEVICES; i++) {
			if (!core->device[i].used_slot || core->device[i].next > now)
				continue;
			core_step(core, i);
			stepped = true;
		}
		if (!stepped)
			break;
	}
	uint64_t next = CORE_NEVER;
	for (int i = 0; i < CORE_DEVICES; i++)
		if (core->device[i].used_slot && core->device[i].next < next)
			next = core->device[i].next;
	return next == CORE_NEVER || next > now ? next : now + 100000;
}
