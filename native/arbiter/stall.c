/* SPDX-License-Identifier: Apache-2.0 */
/* stall.c: whether work that does not end takes others' floors. What that means stands in stall.h. */
#include "stall.h"

void stalls_note(struct stalls *stalls, const struct core *core, int grant, int pid, struct stall *stall, bool outstanding, uint64_t completed,
	uint64_t until)
{
	struct stall_device *d = &stalls->device[core->grant[grant].device];
	if (!outstanding) {
		stall->since = 0;
		return;
	}
	if (!stall->since || completed != stall->completed) {
		stall->since = core->now;
		stall->completed = completed;
		return;
	}
	d->still |= d->since == stall->since && d->grant == grant && d->pid == pid;
	uint64_t end = stall->since, most = stall->since + STALL_WORD_NS;
	if (until > end)
		end = until < most ? until : most;
	if (core->now < end + STALL_LATE_NS || (d->late_since && d->late_since <= stall->since))
		return;
	d->late_since = stall->since;
	d->late_grant = grant;
	d->late_pid = pid;
}

/* What a grant says that it has used, by what its launches should take: their measured times count the neighbour's too. */
static uint64_t said(const struct core *core, int grant)
{
	struct core_observation seen = {0};
	core->config.observe(core->config.context, grant, core->now, &seen);
	return seen.launched_ns > seen.outstanding_ns ? seen.launched_ns - seen.outstanding_ns : 0;
}

/* Whether an owner is behind its floor since work beside it is late. */
static bool behind(const struct stalls *stalls, const struct core *core, int grant)
{
	const struct core_grant *g = &core->grant[grant];
	int64_t floor = g->policy.floor, least = floor * (int64_t)STALL_BEHIND_NS, caps = 2 * core_idle_cap(&core->config, &g->policy);
	if (floor == 0 || g->credit < (least > caps ? least : caps) || !core_may_run(core, grant))
		return false;
	uint64_t now_said = said(core, grant), from = stalls->owner[grant].said, since = stalls->owner[grant].since;
	return since && now_said >= from && floor * (int64_t)(core->now - since) - (int64_t)(now_said - from) * CORE_MILLI >= least;
}

bool stalls_judge(struct stalls *stalls, const struct core *core, int device)
{
	const struct core_device *d = &core->device[device];
	struct stall_device *s = &stalls->device[device];
	bool was = s->since != 0, is = was && s->still && d->state != ALQ_DEVICE_DOWN;
	for (int i = 0; i < d->grants && s->late_since && !is && d->state != ALQ_DEVICE_DOWN; i++) {
		if (core->grant[d->grant[i]].task == core->grant[s->late_grant].task || !behind(stalls, core, d->grant[i]))
			continue;
		is = true;
		s->since = s->late_since;
		s->grant = s->late_grant;
		s->pid = s->late_pid;
	}
	for (int i = 0; i < d->grants; i++) {
		int grant = d->grant[i];
		uint64_t now_said = said(core, grant);
		bool known = stalls->owner[grant].since && now_said >= stalls->owner[grant].said; /* else another's, who had its place */
		if (known && s->late_since && !core_idle(&core->grant[grant]))
			continue;
		stalls->owner[grant].since = core->now;
		stalls->owner[grant].said = now_said;
	}
	if (!is)
		s->since = 0;
	s->late_since = 0;
	s->still = false;
	return is != was;
}
