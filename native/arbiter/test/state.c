/* SPDX-License-Identifier: Apache-2.0 */
#include "state.h"

static void visit_rows(visitor visit, const char *of, int index, const struct alq_split *s)
{
	visit(of, index, "own", s->own_ns);
	visit(of, index, "lent", s->lent_ns);
	visit(of, index, "reserved idle", s->reserved_idle_ns);
	visit(of, index, "burst free", s->burst_free_ns);
	visit(of, index, "burst lent", s->burst_lent_ns);
}

static void visit_device(visitor visit, const struct core_device *d, int index)
{
#define V(name, value) visit("device", index, name, (uint64_t)(value))
	V("state", d->state);
	V("holder", d->holder);
	V("set aside", d->reserved_for);
	V("last holder", d->last_holder);
	V("charged at", d->charged_at);
	V("settled at", d->settled_at);
	V("since", d->since);
	V("idle pending", d->idle_pending);
	V("down pending", d->down_pending);
	V("free account", d->free_account);
	V("vmin", d->vmin);
	V("handoff", d->handoff);
	V("asked at", d->asked_at);
	V("admitted", d->admitted_ns);
	V("lately held", d->lately_held_ns);
	V("lately said", d->lately_said_ns);
	V("spare", d->spare_ns);
	V("switching", d->switching_ns);
	V("switches asked", d->switches_asked);
	V("unreserved idle", d->unreserved_idle_ns);
	V("down", d->down_ns);
	V("switches", d->switches);
	V("next", d->next);
	V("grants", d->grants);
#undef V
	visit_rows(visit, "device", index, &d->ended);
}

static void visit_lease(visitor visit, const struct core_grant *g, int index)
{
#define V(name, value) visit("grant", index, name, (uint64_t)(value))
	V("phase", g->phase);
	V("gate open", g->gate.open);
	V("gate ungated", g->gate.ungated);
	V("gate extended", g->gate.extended);
	V("gate lease", g->gate.lease_id);
	V("gate start", g->gate.start_ns);
	V("gate end", g->gate.end_ns);
	V("used", g->used);
	V("owner", g->owner);
	V("wake lease", g->wake_lease);
	V("overlapped", g->overlapped);
	V("barred", g->barred);
	V("quick", g->quick);
	V("demand", g->demand);
	V("waking", g->waking);
	V("outstanding", g->outstanding);
	V("yielded", g->yielded);
	V("coming", g->coming);
	V("still since", g->still_since);
	V("demand since", g->demand_since);
	V("woke at", g->woke_at);
	V("busy until", g->busy_until);
	V("launched", g->launched);
	V("completed", g->completed);
	V("outstanding ns", g->outstanding_ns);
	V("open at", g->open_at);
	V("ended at", g->ended_at);
	V("idle since", g->idle_since);
	V("launched at open", g->launched_at_open);
	V("late", g->late);
	V("late completed", g->late_completed);
	V("pause", g->pause_ns);
	V("lost idle at", g->lost_idle_at);
	V("retry at", g->retry_at);
	V("retry since", g->retry_since);
	V("misses", g->misses);
#undef V
}

static void visit_charges(visitor visit, const struct core_grant *g, int index)
{
#define V(name, value) visit("grant", index, name, (uint64_t)(value))
	V("paid", g->paid_ns);
	V("measured", g->measured);
	V("unsettled", g->unsettled);
	V("unsettled wanted", g->unsettled_wanted);
	V("settled word at", g->settled_word_at);
	V("may hold", g->may_hold);
	V("unheard", g->unheard_ns);
	V("looked at", g->looked_at);
	V("asked", g->asked);
	V("told", g->told_ns);
	V("measured at told", g->measured_at_told);
	V("held at told", g->held_at_told);
	V("spared", g->spared_ns);
	V("claim", g->claim_ns);
	V("accrued at", g->accrued_at);
	V("credit", g->credit);
	V("bucket", g->bucket);
	V("floor account", g->floor_account);
	V("vtime", g->vtime);
	V("burst pending", g->burst_pending);
	V("held", g->books.held_ns);
	V("leases", g->books.leases);
	V("times overlapped", g->books.overlapped);
	V("revoked", g->books.revoked);
	V("wait", g->books.wait_ns);
	V("wake worst", g->books.wake_worst_ns);
	V("wakes", g->books.wakes);
#undef V
	visit_rows(visit, "grant", index, &g->books.split);
}

void visit_core(const struct core *core, visitor visit)
{
	for (int i = 0; i < CORE_DEVICES && core->device[i].used_slot; i++) {
		const struct core_device *d = &core->device[i];
		visit_device(visit, d, i);
		for (int k = 0; k < d->grants; k++) {
			const struct core_grant *g = &core->grant[d->grant[k]];
			visit("grant", d->grant[k], "task", (uint64_t)g->task);
			visit_lease(visit, g, d->grant[k]);
			visit_charges(visit, g, d->grant[k]);
		}
	}
}
