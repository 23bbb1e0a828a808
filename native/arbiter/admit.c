/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admit.c: the clock held against what tenants say they used.
 *
 * Where two tenants' work overlaps at a change of leases the clock alone cannot tell whose it was; each change errs a little, always the same
 * way, and that adds up. What a tenant says it has used (launches that have ended, at their learned durations) would tell, but may be a lie.
 * So only admissions count: one who says it used more than it was charged for is taken at its word, and pays in place of those
 * who say they used less than they were charged for, as far as both reach. A lie about having used more costs its author; a lie about having
 * used less gets nothing but what others admit. What is charged in all stays what the clock says, to the nanosecond.
 *
 * But for what the device takes to switch between tenants, which is nobody's: by that much less than the clock says have all together
 * used. It is taken off everyone's charges in the same proportion, one part in SPARE_MOST and SWITCH_MOST_NS a change of leases at most,
 * so that one who says less than it used wins no more than that, and all others as much.
 *
 * What is charged to one that is stopped, whose work seems to go on, others admit; once it goes on itself they would pay the next one that complains
 * for time that it did not want. So that is forgiven then, on both sides.
 */
#include "core.h"

#define MOST_NS 50000000ll /* of claims, either way: what cannot be balanced is forgotten */
#define SURE_NS 500000ll   /* below this it may be what was queued when the figures were read */
#define FADE 16            /* a part of what is unclaimed by others is forgotten at each reading */
#define SPARE_MOST 16      /* one part in so many of the time that is held is switching at most */
#define SPARE_FADE 32      /* one part in so many of what that is reckoned from is forgotten at each reading */
#define SWITCH_MOST_NS 200000ull /* of a change of leases: two switches, where the old work ends beside the new */

/* What a grant says it has used in all, and what it has measured. */
static uint64_t told(const struct core *core, int grant, uint64_t *measured, bool *several)
{
	struct core_observation seen = {0};
	core->config.observe(core->config.context, grant, core->now, &seen);
	*measured = seen.measured_ns;
	*several = seen.several;
	return seen.launched_ns > seen.outstanding_ns ? seen.launched_ns - seen.outstanding_ns : 0;
}

/* What the grant says it has used since it was last asked; *charged: what it was charged. False: its word is not taken this time. */
static bool answer(const struct core *core, int grant, struct core_grant *g, uint64_t *said, uint64_t *charged)
{
	bool several;
	uint64_t measured, all = told(core, grant, &measured, &several);
	*said = all > g->told_ns ? all - g->told_ns : 0;
	*charged = g->books.held_ns - g->held_at_told;
	/* While its durations are still being learned, or hold each other's work, what it says by them is neither an admission nor a
	 * complaint. */
	bool learning = measured - g->measured_at_told > *said + *said / 4;
	g->measured_at_told = measured;
	g->told_ns = all;
	g->held_at_told = g->books.held_ns;
	if (g->phase != CORE_UNGATED && g->asked && !learning && !several)
		return true;
	g->asked = true;
	g->claim_ns = 0;
	return false;
}

uint64_t core_spare(const struct core_device *d, const struct core_grant *g, uint64_t use)
{
	return d->spare_ns == 0 || (g->policy.flags & ALQ_POLICY_CLOCK) ? 0 : (uint64_t)((unsigned __int128)use * d->spare_ns / d->lately_held_ns);
}

/* What of the time that is held goes to switching: what was held of late and is not said to have been used, as far as switches can account
 * for it. */
static void learn_spare(struct core_device *d, uint64_t held, uint64_t said)
{
	d->lately_held_ns += held - d->lately_held_ns / SPARE_FADE;
	d->lately_said_ns += said - d->lately_said_ns / SPARE_FADE;
	if (held == 0 && d->lately_said_ns < d->lately_held_ns) /* nobody's word was taken: what was learned is doubted until somebody's is */
		d->lately_said_ns += (d->lately_held_ns - d->lately_said_ns) / SPARE_FADE + 1;
	d->switching_ns += (d->switches - d->switches_asked) * SWITCH_MOST_NS - d->switching_ns / SPARE_FADE;
	d->switches_asked = d->switches;
	uint64_t spare = d->lately_held_ns > d->lately_said_ns ? d->lately_held_ns - d->lately_said_ns : 0;
	spare = spare < d->switching_ns ? spare : d->switching_ns;
	d->spare_ns = spare < d->lately_held_ns / SPARE_MOST ? spare : d->lately_held_ns / SPARE_MOST;
}

/* Of what others admit, what a grant was charged that gave no sign of life is owed to nobody: it did not want that time. */
static void forgive(struct core *core, struct core_device *d, struct core_grant *g)
{
	uint64_t sum = 0, left = g->claim_ns < 0 ? (uint64_t)-g->claim_ns : 0;
	for (int i = 0; i < d->grants; i++) {
		const struct core_grant *o = &core->grant[d->grant[i]];
		sum += o->claim_ns > 0 ? (uint64_t)o->claim_ns : 0;
	}
	left = left < sum ? left : sum;
	for (int i = 0; i < d->grants && left > 0; i++) {
		struct core_grant *o = &core->grant[d->grant[i]];
		if (o->claim_ns > 0)
			o->claim_ns -= (int64_t)((unsigned __int128)(uint64_t)o->claim_ns * left / sum);
	}
	if (g->claim_ns < 0)
		g->claim_ns = 0;
}

static void count_admitted(const struct core *core, struct core_device *d)
{
	d->admitted_ns = 0;
	for (int i = 0; i < d->grants; i++) {
		const struct core_grant *g = &core->grant[d->grant[i]];
		d->admitted_ns += g->claim_ns > SURE_NS ? (uint64_t)(g->claim_ns - SURE_NS) : 0;
	}
}

/* Compares what each grant of the device says with what it was charged since this was last asked. */
void core_admit(struct core *core, struct core_device *d)
{
	uint64_t all_held = 0, all_said = 0;
	d->asked_at = core->now;
	for (int i = 0; i < d->grants; i++) {
		struct core_grant *g = &core->grant[d->grant[i]];
		if (!g->used)
			continue;
		uint64_t said, charged, spared = g->spared_ns;
		g->spared_ns = 0;
		if (!answer(core, d->grant[i], g, &said, &charged))
			continue;
		if (!(g->policy.flags & ALQ_POLICY_CLOCK)) {
			all_held += charged + spared;
			all_said += said;
		}
		g->claim_ns += (int64_t)said - (int64_t)charged;
		if (g->claim_ns < 0)
			g->claim_ns -= g->claim_ns / FADE;
		g->claim_ns = g->claim_ns > MOST_NS ? MOST_NS : g->claim_ns < -MOST_NS ? -MOST_NS : g->claim_ns;
	}
	count_admitted(core, d);
	learn_spare(d, all_held, all_said);
}

void core_revived(struct core *core, int grant)
{
	struct core_device *d = core_device_of(core, grant);
	core_admit(core, d);
	forgive(core, d, &core->grant[grant]);
	count_admitted(core, d);
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
	g->measured += use;
	core_use(g, use);
}
