/* SPDX-License-Identifier: Apache-2.0 */
/* charge.c: whose each nanosecond of a device was. The rule stands in core.h. */
#include "core.h"

#include <stddef.h>

#define MEASURED_LATE_NS 50000000 /* a program measures its launches within so long, and hears of their ends */

/* Takes use off what the lease it was under is paid from. */
void core_use(struct core_grant *g, uint64_t use)
{
	g->books.held_ns += use;
	g->bucket -= (int64_t)use * CORE_MILLI;
	if (g->owner) {
		g->credit -= (int64_t)use * CORE_MILLI;
		g->floor_account -= (int64_t)use * CORE_MILLI;
		g->books.split.own_ns += use;
		return;
	}
	g->burst_pending += use;
	g->vtime += use * CORE_MILLI / g->policy.weight;
}

static uint64_t measured_use(struct core *core, struct core_grant *g, uint64_t dt)
{
	struct core_observation seen = {0};
	core->config.observe(core->config.context, (int)(g - core->grant), core->now, &seen);
	if (seen.measured_ns <= g->measured)
		return 0;
	uint64_t grown = seen.measured_ns - g->measured;
	uint64_t use = grown < dt ? grown : dt;
	g->measured += use;
	if (seen.measured_ns - g->measured > 1000000000)
		g->measured = seen.measured_ns - 1000000000; /* what it claims beyond the clock is not carried for ever */
	return use;
}

/* Who is charged from `from` on: every overlapped one that still runs, and of the others the one whose lease ended first and has not
 * drained, or else the holder; both once the former is later than it said. *until is when that may change, if before it was. Returns how
 * many. */
static int charged(struct core *core, struct core_device *d, uint64_t from, uint64_t *until, struct core_grant **who)
{
	int n = 0;
	struct core_grant *first = NULL, *holder = d->holder < 0 ? NULL : &core->grant[d->holder];
	for (int i = 0; i < d->grants; i++) {
		struct core_grant *g = &core->grant[d->grant[i]];
		if (g->phase != CORE_DRAINING || !g->outstanding)
			continue;
		if (g->overlapped)
			who[n++] = g;
		else if (!first || g->ended_at < first->ended_at)
			first = g;
	}
	if (first)
		who[n++] = first;
	/* Holding costs only where it keeps another from running: not while others' work runs anyway. */
	if (!holder || (holder->idle_since && n > 0))
		return n;
	if (!first || from >= first->busy_until)
		who[n++] = holder;
	else if (first->busy_until < *until)
		*until = first->busy_until;
	return n;
}

/* The holder's part of time that it shares with work that has outlived its lease: no more than it says it launched, the rest falls to
 * those at fault. */
static uint64_t holder_part(struct core *core, struct core_grant *h, uint64_t part)
{
	struct core_observation seen = {0};
	core->config.observe(core->config.context, (int)(h - core->grant), core->now, &seen);
	if (seen.outstanding || (h->policy.flags & ALQ_POLICY_CLOCK))
		return part;
	uint64_t unpaid = seen.launched_ns > h->paid_ns ? seen.launched_ns - h->paid_ns : 0;
	part = part < unpaid ? part : unpaid;
	h->paid_ns += part;
	return part;
}

enum rival { NOBODY, BORROWER, OWNER };

/* Who waits for what one grant has. */
static enum rival rival_of(const struct core *core, const struct core_device *d, const struct core_grant *has)
{
	enum rival most = NOBODY;
	for (int i = 0; i < d->grants; i++) {
		const struct core_grant *g = &core->grant[d->grant[i]];
		if (g == has || !g->demand || g->barred)
			continue;
		if (g->policy.floor > 0 && g->credit > 0)
			return OWNER;
		most = BORROWER;
	}
	return most;
}

/* Takes what a grant held at borrowers' cost off what it gets above its floor, so that they lose nothing as long as it gets that: its turn
 * among them comes later, by two leases at most, and its ceiling allows less, unless its floor has fallen behind. */
static void charge_pause(const struct core *core, const struct core_device *d, struct core_grant *g, uint64_t pause)
{
	if (g->vtime < d->vmin + 2 * core->config.lease_ns * CORE_MILLI / g->policy.weight)
		g->vtime += pause * CORE_MILLI / g->policy.weight;
	if (g->policy.ceiling > g->policy.floor && g->credit < (int64_t)core->config.idle_cap_ns * CORE_MILLI * 4 / 5)
		g->bucket -= (int64_t)pause * CORE_MILLI;
}

void core_unheard(const struct core *core, struct core_grant *g, uint64_t time)
{
	if (g->policy.flags & ALQ_POLICY_CLOCK)
		return;
	g->unheard_ns += time;
	if (g->unheard_ns > core->config.settle_ns)
		g->unheard_ns = core->config.settle_ns;
}

/* Charges a grant for what it held at nobody's cost, or at that of borrowers, by its word. Work that is late may have ended unheard, where
 * its program has no CPU: for a while that time is kept for later, unless all is to be settled now. */
void core_settle_word(struct core *core, struct core_device *d, struct core_grant *g, const struct core_observation *seen, bool all)
{
	uint64_t held = g->unsettled, wanted = g->unsettled_wanted;
	g->unsettled = g->unsettled_wanted = 0;
	if (held == 0)
		return;
	/* What should have run by now of all that was launched. */
	uint64_t left = seen->busy_until_ns > core->now ? seen->busy_until_ns - core->now : 0;
	uint64_t ran = seen->launched_ns - (left < seen->outstanding_ns ? left : seen->outstanding_ns);
	uint64_t unpaid = ran > g->paid_ns ? ran - g->paid_ns : 0;
	/* And what it has measured, where its durations are not yet what its launches take. */
	uint64_t measured = seen->measured_ns > g->measured ? seen->measured_ns - g->measured : 0;
	uint64_t said = unpaid > measured ? unpaid : measured;
	/* Work that has not ended when it should have goes on; work of which nothing is known has run all the time. */
	bool late = seen->outstanding && seen->busy_until_ns <= core->now;
	uint64_t since = g->settled_word_at;
	g->settled_word_at = core->now;
	if (late && seen->busy_until_ns == 0) {
		said = held;
	} else if (late) {
		since = since > seen->busy_until_ns ? since : seen->busy_until_ns;
		uint64_t over = core->now - since;
		if (!all && wanted == 0 && core->now < seen->busy_until_ns + MEASURED_LATE_NS) {
			g->unsettled = over < held ? over : held;
			g->settled_word_at = core->now - g->unsettled;
			held -= g->unsettled;
		} else {
			said = said > unpaid + over ? said : unpaid + over;
		}
	}
	uint64_t part = held < said ? held : said, rest = held - part;
	g->paid_ns += late || part < unpaid ? part : unpaid; /* what is heard of late was paid for already */
	if (g->paid_ns > seen->launched_ns + MEASURED_LATE_NS)
		g->paid_ns = seen->launched_ns + MEASURED_LATE_NS;
	g->measured += part;
	if (!late && g->measured > seen->measured_ns + MEASURED_LATE_NS)
		g->measured = seen->measured_ns + MEASURED_LATE_NS;
	g->may_hold += part / 2;
	if (g->may_hold > core->config.lease_ns)
		g->may_hold = core->config.lease_ns;
	wanted = wanted < rest ? wanted : rest;
	if (seen->outstanding)
		core_unheard(core, g, rest - wanted);
	uint64_t free = wanted < g->may_hold ? wanted : g->may_hold;
	g->may_hold -= free;
	charge_pause(core, d, g, free);
	part += wanted - free;
	part = part < d->idle_pending ? part : d->idle_pending;
	d->idle_pending -= part;
	core_use(g, part);
}

static void charge_span(struct core *core, struct core_device *d, uint64_t from, uint64_t until)
{
	struct core_grant *who[CORE_DEVICE_GRANTS];
	while (from < until) {
		uint64_t to = until;
		int n = charged(core, d, from, &to, who);
		if (to <= from)
			to = until; /* never backwards, whatever a tenant announced */
		uint64_t dt = to - from;
		from = to;
		d->shared = n > 1;
		if (n == 0)
			d->idle_pending += dt;
		bool holds = n == 1 && d->holder >= 0 && who[0] == &core->grant[d->holder];
		if (holds || (n == 1 && d->holder < 0 && who[0]->phase == CORE_DRAINING)) {
			enum rival rival = rival_of(core, d, who[0]);
			bool believed = !(who[0]->policy.flags & ALQ_POLICY_CLOCK);
			if (believed && (rival == NOBODY || (holds && rival == BORROWER && who[0]->owner))) {
				d->idle_pending += dt;
				who[0]->unsettled += dt;
				who[0]->unsettled_wanted += rival == BORROWER ? dt : 0;
				continue;
			}
		}
		if (n > 1 && d->holder >= 0 && who[n - 1] == &core->grant[d->holder]) {
			uint64_t part = holder_part(core, who[n - 1], dt / (uint64_t)n);
			core_pay(core, d, who[--n], part);
			dt -= part;
		}
		for (int i = 0; i < n; i++) {
			uint64_t use = dt / (uint64_t)n + ((uint64_t)i < dt % (uint64_t)n);
			uint64_t spared = core_spare(d, who[i], use);
			who[i]->spared_ns += spared;
			d->idle_pending += spared;
			core_pay(core, d, who[i], use - spared);
		}
	}
}

void core_charge(struct core *core, struct core_device *d, uint64_t now)
{
	if (now <= d->charged_at)
		return;
	uint64_t dt = now - d->charged_at;
	d->charged_at = now;
	if (d->state == ALQ_DEVICE_DOWN) {
		d->down_pending += dt;
		return;
	}
	if (d->grants == 1 && core->grant[d->grant[0]].phase == CORE_UNGATED) {
		struct core_grant *g = &core->grant[d->grant[0]];
		uint64_t use = measured_use(core, g, dt);
		g->owner = false;
		core_use(g, use);
		d->idle_pending += dt - use;
		return;
	}
	charge_span(core, d, now - dt, now);
}
