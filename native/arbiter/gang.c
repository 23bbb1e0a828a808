/* SPDX-License-Identifier: Apache-2.0 */
/* gang.c: a task that uses several devices gathers them and holds them together. The rule stands in core.h. */
#include "core.h"

static void cancel_gather(struct core *core, int task)
{
	for (int i = 0; i < core->task[task].grants; i++) {
		struct core_device *d = core_device_of(core, core->task[task].grant[i]);
		if (d->reserved_for == task) {
			d->reserved_for = -1;
			d->next = core->now;
		}
	}
	core->task[task].gathering = false;
}

/* Sets the devices of a task aside until all are free together. */
void core_gather(struct core *core, int task)
{
	struct core_task *t = &core->task[task];
	bool waking = false;
	t->gathering = true;
	t->gather_at = core->now;
	for (int i = 0; i < t->grants; i++)
		waking |= core->grant[t->grant[i]].waking && core->grant[t->grant[i]].credit > 0;
	for (int i = 0; i < t->grants; i++) {
		if (!core_gated(core, t->grant[i]))
			continue;
		struct core_device *d = core_device_of(core, t->grant[i]);
		d->reserved_for = task;
		d->next = core->now;
		if (d->holder < 0)
			continue;
		if (waking && core_revokes(core, t->grant[i], d->holder)) {
			core->grant[d->holder].books.revoked++;
			core_end_lease(core, d->holder);
		} else if (core->grant[d->holder].gate.end_ns > t->gather_at) {
			t->gather_at = core->grant[d->holder].gate.end_ns;
		}
	}
}

/* Opens all gates of a task that gathers, if all its devices are free now. */
void core_finish_gather(struct core *core, struct core_device *asking)
{
	int task = asking->reserved_for;
	struct core_task *t = &core->task[task];
	uint64_t length = core->config.lease_ns;
	bool wanted = false;
	for (int i = 0; i < t->grants; i++) {
		struct core_grant *g = &core->grant[t->grant[i]];
		if (!core_gated(core, t->grant[i]))
			continue;
		wanted |= g->demand;
		uint64_t most = core_lease_length(core, g);
		length = most < length ? most : length;
		if (!core_may_run(core, t->grant[i]))
			wanted = false, length = 0;
	}
	if (!wanted || length == 0) {
		cancel_gather(core, task);
		return;
	}
	if (core->now < t->gather_at) {
		core_due(asking, t->gather_at);
		return;
	}
	bool wait = false;
	for (int i = 0; i < t->grants; i++) {
		if (!core_gated(core, t->grant[i]))
			continue;
		struct core_device *d = core_device_of(core, t->grant[i]);
		uint64_t again = CORE_NEVER;
		if (d->holder >= 0 || core_blocked(core, d, t->grant[i], &again)) {
			wait = true;
			/* Whoever holds up the task looks after itself and then asks here again. */
			core_due(d, again == CORE_NEVER ? core->now + CORE_RECHECK_NS : again);
			core_due(asking, again == CORE_NEVER ? core->now + CORE_RECHECK_NS : again);
		}
	}
	if (wait)
		return;
	/* Two that wake for each of their rounds would take the devices from each other before either has launched. */
	bool long_waited = core->now > core_since(core, task) + core->config.patience_ns;
	t->gathering = false;
	for (int i = 0; i < t->grants; i++) {
		if (!core_gated(core, t->grant[i]))
			continue;
		core_open(core, t->grant[i], length);
		core->grant[t->grant[i]].wake_lease |= long_waited;
	}
}
