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
	uint64_t most = stall->since + STALL_WORD_NS, end = stall->since;
	if (until >= most)
		end = most;
	else if (until > end) /* beside others it takes twice as long */
		end = end + 2 * (until - end) < most ? end + 2 * (until - end) : most;
	if (core->now < end + STALL_LATE_NS || (d->late_since && d->late_since <= stall->since))
		return;
	d->late_since = stall->since;
	d->late_grant = grant;
	d->late_pid = pid;
}

/* Whether an owner is behind its floor: what the clock says, mended by what others admit (admit.c). */
static bool behind(const struct core *core, int grant)
{
	const struct core_grant *g = &core->grant[grant];
	int64_t least = (int64_t)g->policy.floor * (int64_t)STALL_BEHIND_NS, caps = 2 * core_idle_cap(&core->config, &g->policy);
	return g->policy.floor > 0 && g->credit >= (least > caps ? least : caps) && core_may_run(core, grant);
}

bool stalls_judge(struct stalls *stalls, const struct core *core, int device)
{
	const struct core_device *d = &core->device[device];
	struct stall_device *s = &stalls->device[device];
	bool was = s->since != 0, is = was && s->still && d->state != ALQ_DEVICE_DOWN;
	for (int i = 0; i < d->grants && s->late_since && !is && d->state != ALQ_DEVICE_DOWN; i++) {
		if (core->grant[d->grant[i]].task == core->grant[s->late_grant].task || !behind(core, d->grant[i]))
			continue;
		is = true;
		s->since = s->late_since;
		s->grant = s->late_grant;
		s->pid = s->late_pid;
	}
	if (!is)
		s->since = 0;
	s->late_since = 0;
	s->still = false;
	return is != was;
}
