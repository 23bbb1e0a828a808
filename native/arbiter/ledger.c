/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.c: which row each nanosecond of a device goes to. The accounts are described in core.h. */
#include "core.h"

enum source {
	IDLE_FLOORS,  /* what a floor has gathered beyond the credit its owner may still use */
	WHOLE_FLOORS, /* that too: only when nothing else is left to take from */
};

/* What can be taken from a grant's floor, in ns. */
static uint64_t available(const struct core_grant *g, enum source from)
{
	int64_t keep = from == IDLE_FLOORS && g->credit > 0 ? g->credit : 0;
	return g->floor_account > keep ? (uint64_t)(g->floor_account - keep) / CORE_MILLI : 0;
}

/* Takes up to `amount` from the idle floors of all but `except` in proportion to what each has, and books it as lent or as reserved
 * and idle. Returns what it took. */
static uint64_t take_floors(struct core *core, struct core_device *d, int except, enum source from, uint64_t amount, bool lent)
{
	uint64_t have[CORE_DEVICE_GRANTS], sum = 0;
	for (int i = 0; i < d->grants; i++) {
		have[i] = d->grant[i] == except ? 0 : available(&core->grant[d->grant[i]], from);
		sum += have[i];
	}
	if (amount > sum)
		amount = sum;
	if (amount == 0)
		return 0;
	/* Cumulative shares, so that the parts add up to the amount exactly and none is more than its grant has. */
	uint64_t before = 0, given = 0;
	for (int i = 0; i < d->grants; i++) {
		before += have[i];
		uint64_t until = (uint64_t)((unsigned __int128)amount * before / sum);
		struct core_grant *g = &core->grant[d->grant[i]];
		g->floor_account -= (int64_t)(until - given) * CORE_MILLI;
		if (lent)
			g->books.split.lent_ns += until - given;
		else
			g->books.split.reserved_idle_ns += until - given;
		given = until;
	}
	return amount;
}

static uint64_t take_unreserved(struct core_device *d, uint64_t amount)
{
	uint64_t have = d->free_account > 0 ? (uint64_t)d->free_account / CORE_MILLI : 0;
	if (amount > have)
		amount = have;
	d->free_account -= (int64_t)amount * CORE_MILLI;
	return amount;
}

static void settle_burst(struct core *core, struct core_device *d, int grant)
{
	struct core_grant *g = &core->grant[grant];
	uint64_t left = g->burst_pending;
	g->burst_pending = 0;
	uint64_t own = available(g, IDLE_FLOORS);
	/* A ceiling at the floor leaves no burst: what its bucket let it have ahead of its floor is its own, which the floor then owes. */
	own = own < left && g->policy.ceiling > g->policy.floor ? own : left;
	g->floor_account -= (int64_t)own * CORE_MILLI;
	g->books.split.own_ns += own;
	left -= own;

	uint64_t unreserved = take_unreserved(d, left);
	left -= unreserved;
	uint64_t lent = take_floors(core, d, grant, IDLE_FLOORS, left, true);
	left -= lent;
	uint64_t more = take_floors(core, d, grant, WHOLE_FLOORS, left, true);
	left -= more;
	d->free_account -= (int64_t)left * CORE_MILLI; /* owed by those in debt; comes back as they repay */
	g->books.split.burst_free_ns += unreserved + left;
	g->books.split.burst_lent_ns += lent + more;
}

static void settle_idle(struct core *core, struct core_device *d)
{
	uint64_t left = d->idle_pending;
	d->idle_pending = 0;
	uint64_t unreserved = take_unreserved(d, left);
	left -= unreserved;
	left -= take_floors(core, d, -1, IDLE_FLOORS, left, false);
	left -= take_floors(core, d, -1, WHOLE_FLOORS, left, false);
	d->free_account -= (int64_t)left * CORE_MILLI;
	d->unreserved_idle_ns += unreserved + left;
}

/* Lets the accounts of the device grow by `dt`. Floors never add up to more than the device; if a page says so they count in the
 * order of the grants until it is full. */
static void fill_accounts(struct core *core, struct core_device *d, uint64_t dt)
{
	uint32_t room = ALQ_MILLI;
	for (int i = 0; i < d->grants; i++) {
		struct core_grant *g = &core->grant[d->grant[i]];
		uint32_t floor = g->policy.floor < room ? g->policy.floor : room;
		g->floor_account += (int64_t)(dt * floor);
		room -= floor;
	}
	d->free_account += (int64_t)(dt * room);
}

/* What a grant has measured since of time that it was not charged for is charged now, if the device has idled for so long since. */
static void settle_unheard(struct core *core, struct core_device *d, int grant)
{
	struct core_grant *g = &core->grant[grant];
	struct core_observation seen = {0};
	core->config.observe(core->config.context, grant, core->now, &seen);
	uint64_t left = seen.measured_ns > g->measured ? seen.measured_ns - g->measured : 0;
	uint64_t part = left < g->unheard_ns ? left : g->unheard_ns;
	part = part < d->idle_pending ? part : d->idle_pending;
	d->idle_pending -= part;
	g->measured += part;
	core_use(g, part);
	bool more = seen.outstanding || part < left; /* that may be heard of at the next settling, if ever */
	g->unheard_ns = more ? (g->unheard_ns - part) / 2 : 0;
}

void core_settle(struct core *core, int device, uint64_t now)
{
	struct core_device *d = &core->device[device];
	core->now = now; /* words are weighed by it */
	core_charge(core, d, now);
	for (int i = 0; i < d->grants; i++)
		if (core->grant[d->grant[i]].unsettled > 0)
			core_word(core, d->grant[i], true); /* what is settled as idle is not charged later */
	uint64_t dt = now > d->settled_at ? now - d->settled_at : 0;
	if (dt == 0)
		return;
	for (int i = 0; i < d->grants; i++)
		if (core->grant[d->grant[i]].unheard_ns > 0)
			settle_unheard(core, d, d->grant[i]);
	d->settled_at = now;
	for (int i = 0; i < d->grants; i++)
		core_accrue(core, &core->grant[d->grant[i]], now);
	d->down_ns += d->down_pending;
	fill_accounts(core, d, dt - d->down_pending);
	d->down_pending = 0;
	for (int i = 0; i < d->grants; i++)
		settle_burst(core, d, d->grant[i]);
	settle_idle(core, d);
}

void core_away(struct core *core, int device, uint64_t now, const bool *live)
{
	struct core_device *d = &core->device[device];
	uint64_t dt = now > d->settled_at ? now - d->settled_at : 0, rest = dt;
	d->settled_at = d->charged_at = now;
	if (d->state == ALQ_DEVICE_DOWN) {
		d->down_ns += dt;
		return;
	}
	for (int i = 0; i < d->grants; i++) {
		struct core_grant *g = &core->grant[d->grant[i]];
		g->accrued_at = g->looked_at = now;
		uint64_t part = (uint64_t)((unsigned __int128)dt * g->policy.floor / ALQ_MILLI);
		part = part < rest ? part : rest;
		rest -= part;
		if (live[d->grant[i]]) {
			g->books.split.own_ns += part;
			g->books.held_ns += part;
		} else {
			g->books.split.reserved_idle_ns += part;
			core_unheard(core, g, dt);
		}
	}
	d->unreserved_idle_ns += rest;
}
