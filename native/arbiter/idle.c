/* SPDX-License-Identifier: Apache-2.0 */
/* idle.c: holders that make no use of their lease, and those who soon will not. The rule stands in core.h. */
#include "core.h"

#define RETRY_NS 500000       /* one who waited and then launched nothing: twice as long each time, */
#define RETRY_STEPS 7         /* up to 64 ms */
#define SHORT_PAUSE_NS 150000 /* a pause that costs no more than giving the device away and back */
#define STILL_NS 200000       /* who has launched nothing for so long may have launched its last for now */

/*
 * Whether it is worth waiting for a holder who has drained while others want the device: it came back soon the last time, and either so
 * soon that two changes of leases would cost as much, or its floor has fallen behind.
 */
static bool worth_holding(const struct core *core, const struct core_grant *g)
{
	return g->quick && (g->pause_ns <= SHORT_PAUSE_NS || g->credit >= (int64_t)core->config.idle_cap_ns * CORE_MILLI / 2);
}

/* The time at which an idle holder loses its lease. */
static uint64_t idle_deadline(const struct core *core, const struct core_grant *g, bool wanted)
{
	if (g->launched == g->launched_at_open)
		return g->open_at + core->config.start_ns;
	return !wanted || worth_holding(core, g) ? g->idle_since + core->config.idle_ns : g->idle_since;
}

/* All grants of the holder's task that share its lease are idle past their deadlines. *at: when that could be. */
bool core_idled(const struct core *core, int holder, bool wanted, uint64_t *at)
{
	const struct core_task *t = &core->task[core->grant[holder].task];
	*at = 0;
	for (int i = 0; i < t->grants; i++) {
		const struct core_grant *g = &core->grant[t->grant[i]];
		if (g->phase != CORE_OPEN)
			continue;
		if (!g->idle_since) {
			*at = CORE_NEVER;
			return false;
		}
		uint64_t deadline = idle_deadline(core, g, wanted);
		*at = deadline > *at ? deadline : *at;
	}
	return *at <= core->now;
}

/*
 * Whether the holder's work should end within `early`, nothing comes behind it and it will not come back soon then: the device goes to whoever
 * waits before it idles. Not from the latency class, whose next request may come any moment. *at: when to look again; while launches come, what
 * is queued lasts until about then.
 */
bool core_about_to_idle(const struct core *core, const struct core_grant *h, bool wanted, uint64_t *at)
{
	*at = CORE_NEVER;
	if (!wanted || !h->outstanding || h->busy_until < core->now || (h->policy.flags & ALQ_POLICY_LATENCY))
		return false;
	if (h->demand || h->launched == h->launched_at_open)
		return false;
	if (core_gang(core, h->task) || worth_holding(core, h))
		return false;
	uint64_t early = core->config.early_ns, still = (h->coming ? core->now : h->still_since) + STILL_NS;
	*at = h->busy_until > still + early ? h->busy_until - early : still;
	return *at <= core->now;
}

void core_lose_idle(struct core *core, int holder)
{
	const struct core_task *t = &core->task[core->grant[holder].task];
	for (int i = 0; i < t->grants; i++) {
		struct core_grant *g = &core->grant[t->grant[i]];
		if (g->phase != CORE_OPEN)
			continue;
		if (g->launched == g->launched_at_open) {
			/* Once is a busy machine; again and again is a process that is stopped, and others should not wait for it. */
			uint64_t pause = g->misses ? RETRY_NS << (g->misses < RETRY_STEPS ? g->misses : RETRY_STEPS) : 0;
			g->misses++;
			g->retry_at = core->now + pause;
			g->retry_since = g->demand_since;
		} else {
			g->lost_idle_at = g->idle_since;
			if (core->now >= g->idle_since + core->config.idle_ns)
				g->quick = false;
			g->yielded = !g->quick; /* it wakes though its end is not noticed yet; one that waits after each launch only goes on */
		}
	}
	core_end_lease(core, holder);
}
