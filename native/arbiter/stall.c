/* SPDX-License-Identifier: Apache-2.0 */
/* stall.c: whether work that does not end takes others' floors. What that means stands in stall.h. */
#include "stall.h"

void stalls_note(struct stalls *stalls, const struct core *core, int grant, int pid, struct stall *stall, bool outstanding, uint64_t completed,
	uint64_t until)
{
	struct stall_device *d = &stalls->device[core->grant[grant].device];
	struct stall_work *late = &d->late;
	if (!outstanding) {
		stall->since = 0;
		return;
	}
	if (!stall->since || completed != stall->completed) {
		stall->since = core->now;
		stall->completed = completed;
	}
	if (!d->oldest || stall->since < d->oldest)
		d->oldest = stall->since;
	uint64_t most = stall->since + STALL_WORD_NS, end = stall->since;
	if (until >= most)
		end = most;
	else if (until > end) /* beside others it takes twice as long */
		end = end + 2 * (until - end) < most ? end + 2 * (until - end) : most;
	if (core->now < end + STALL_LATE_NS)
		return;
	if (!late->since) {
		*late = (struct stall_work){.since = stall->since, .grant = grant, .pid = pid};
		return;
	}
	late->since = stall->since < late->since ? stall->since : late->since;
	late->grant = late->grant == grant ? grant : -1;
	late->pid = 0;
}

/* Whether an owner wants the device: one that was given it and launched nothing (frozen at the gate, or it lies) does not. */
static bool wants(const struct core *core, const struct core_grant *g)
{
	if (g->phase == CORE_OPEN && g->outstanding)
		return true;
	return g->demand && g->retry_at <= core->now && g->misses <= 1;
}

/* Reckons until now what an owner is behind by. What the clock says is mended by what others admit, switching is nobody's (admit.c). */
static void reckon(struct stall_mark *mark, const struct core *core, const struct core_grant *g)
{
	if (mark->at) {
		uint64_t due = (core->now - mark->at) * g->policy.floor / CORE_MILLI, had = g->books.held_ns - mark->held_ns;
		due -= core_spare(&core->device[g->device], g, due);
		mark->owed += ((int64_t)due - (int64_t)had) * CORE_MILLI;
	}
	if (!mark->at || core_idle(g)) /* an idle one is owed nothing */
		mark->owed = 0;
	mark->at = core->now;
	mark->held_ns = g->books.held_ns;
}

static bool behind(const struct stall_mark *mark, const struct core *core, int grant)
{
	const struct core_grant *g = &core->grant[grant];
	int64_t least = (int64_t)g->policy.floor * (int64_t)STALL_BEHIND_NS, caps = 2 * core_idle_cap(&core->config, &g->policy);
	return g->policy.floor > 0 && mark->owed >= least && g->credit >= (least > caps ? least : caps) && core_may_run(core, grant) && wants(core, g);
}

/* Whether the look under way finds an owner behind, for which somebody else's work is at fault. */
static void look_at_owners(struct stalls *stalls, const struct core *core, const struct core_device *d, struct stall_device *s)
{
	bool anew = s->oldest != s->from;
	s->from = s->oldest;
	s->oldest = 0;
	if (anew)
		s->behind_at = 0;
	for (int i = 0; i < d->grants; i++) {
		struct stall_mark *mark = &stalls->mark[d->grant[i]];
		if (anew)
			mark->at = 0;
		reckon(mark, core, &core->grant[d->grant[i]]);
		bool another = s->late.grant < 0 || core->grant[d->grant[i]].task != core->grant[s->late.grant].task;
		if (s->late.since && another && behind(mark, core, d->grant[i]))
			s->behind_at = core->now;
	}
}

bool stalls_judge(struct stalls *stalls, const struct core *core, int device)
{
	const struct core_device *d = &core->device[device];
	struct stall_device *s = &stalls->device[device];
	struct stall_work was = s->sick;
	if (d->state == ALQ_DEVICE_DOWN)
		s->late.since = 0;
	look_at_owners(stalls, core, d, s);
	bool sick = s->late.since && s->behind_at && core->now <= s->behind_at + STALL_LATELY_NS;
	s->sick = sick ? s->late : (struct stall_work){.since = 0};
	s->late = (struct stall_work){.since = 0};
	return s->sick.since != was.since || s->sick.grant != was.grant || s->sick.pid != was.pid;
}

bool stalls_watch(const struct stalls *stalls, const struct core *core)
{
	for (int i = 0; i < CORE_DEVICES; i++)
		if (stalls->device[i].from && core->device[i].grants > 1)
			return true;
	return false;
}

void stalls_forget(struct stalls *stalls, const struct core *core, int grant)
{
	struct stall_device *s = &stalls->device[core->grant[grant].device];
	stalls->mark[grant] = (struct stall_mark){.at = 0};
	if (s->sick.since && s->sick.grant == grant)
		*s = (struct stall_device){.from = 0};
}
