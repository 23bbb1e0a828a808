/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admit.c: the clock held against what tenants say they used.
 *
 * Where two tenants' work overlaps at a change of leases the clock alone cannot tell whose it was; each change errs a little, always the same
 * way, and that adds up. What a tenant says it has used (launches that have ended, at their learned durations) would tell, but may be a lie.
 * So only admissions count: one who says it used more than it was charged for is taken at its word, and pays in place of those
 * who say they used less than they were charged for, as far as both reach. A lie about having used more costs its author; a lie about having
 * used less gets nothing but what others admit. What is charged in all stays what the clock says, to the nanosecond.
 */
#include "core.h"

#define MOST_NS 50000000ll /* of claims, either way: what cannot be balanced is forgotten */
#define SURE_NS 500000ll   /* below this it may be what was queued when the figures were read */
#define FADE 16            /* a part of what is unclaimed by others is forgotten at each reading */

/* What a grant says it has used in all, and what it has measured. */
static uint64_t told(const struct core *core, int grant, uint64_t *measured, bool *several)
{
	struct core_observation seen = {0};
	core->config.observe(core->config.context, grant, core->now, &seen);
	*measured = seen.measured_ns;
	*several = seen.several;
	return seen.launched_ns > seen.outstanding_ns ? seen.launched_ns - seen.outstanding_ns : 0;
}

/* Compares what each grant of the device says with what it was charged since this was last asked. */
void core_admit(struct core *core, struct core_device *d)
{
	d->admitted_ns = 0;
	for (int i = 0; i < d->grants; i++) {
		struct core_grant *g = &core->grant[d->grant[i]];
		if (!g->used)
			continue;
		bool several;
		uint64_t measured, said = told(core, d->grant[i], &measured, &several), grown = said > g->told_ns ? said - g->told_ns : 0;
		uint64_t charged = g->books.held_ns - g->held_at_told;
		/* While its durations are still being learned, or hold each other's work, what it says by them is neither an admission nor
		 * a complaint. */
		bool learning = measured - g->measured_at_told > grown + grown / 4;
		g->measured_at_told = measured;
		g->told_ns = said;
		g->held_at_told = g->books.held_ns;
		if (g->phase == CORE_UNGATED || !g->asked || learning || several) {
			g->asked = true;
			g->claim_ns = 0;
			continue;
		}
		g->claim_ns += (int64_t)grown - (int64_t)charged;
		if (g->claim_ns < 0)
			g->claim_ns -= g->claim_ns / FADE;
		g->claim_ns = g->claim_ns > MOST_NS ? MOST_NS : g->claim_ns < -MOST_NS ? -MOST_NS : g->claim_ns;
		if (g->claim_ns > SURE_NS)
			d->admitted_ns += (uint64_t)(g->claim_ns - SURE_NS);
	}
}

/* Charges `use` to a grant, or to those who admit that it was theirs. */
void core_pay(struct core *core, struct core_device *d, struct core_grant *g, uint64_t use)
{
	for (int i = 0; i < d->grants && d->admitted_ns > 0 && g->claim_ns < -SURE_NS && use > 0; i++) {
		struct core_grant *o = &core->grant[d->grant[i]];
		if (o == g || o->claim_ns <= SURE_NS)
			continue;
		uint64_t part = (uint64_t)(o->claim_ns - SURE_NS), most = (uint64_t)(-SURE_NS - g->claim_ns);
		part = part < most ? part : most;
		part = part < use ? part : use;
		core_use(o, part);
		/* What is charged is compared with what was said the next time: here only so that nothing is moved twice. */
		o->claim_ns -= (int64_t)part;
		o->held_at_told += part;
		g->claim_ns += (int64_t)part;
		g->held_at_told -= part;
		d->admitted_ns -= part < d->admitted_ns ? part : d->admitted_ns;
		use -= part;
	}
	core_use(g, use);
}
