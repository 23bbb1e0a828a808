/* SPDX-License-Identifier: Apache-2.0 */
/* observe.c: what a task's processes say of themselves, read so that a lie can only harm its author. */
#include "arbiter.h"

#define PAST_NS 1000000000ull  /* nobody has waited for longer without our having seen it */
#define AHEAD_NS 1000000000ull /* nor is work believed to last longer */
#define LEAP_NS 10000000000ull /* more device time at once is not believed */
#define LEAP 1000000ull        /* launches between two readings */

/* How much a counter has grown: one that goes back has not, one that leaps has grown by no more than can be. */
static uint64_t grown(uint64_t *seen, uint64_t value, uint64_t most)
{
	uint64_t by = value > *seen ? value - *seen : 0;
	*seen = value > *seen ? value : *seen;
	return by < most ? by : most;
}

void observe(void *context, int index, uint64_t now, struct core_observation *out)
{
	struct node *node = context;
	struct task *task = node->of_grant[index].task;
	int k = node->of_grant[index].grant;
	struct task_grant *g = &task->grant[k];
	uint64_t pending = 0;
	unsigned users = 0;
	for (struct process *p = task->processes; p; p = p->next) {
		if (p->slot < 0)
			continue;
		const struct alq_tel_grant *t = &task->tel->slot[p->slot].grant[k];
		uint64_t until = load_acquire(&t->busy_until_ns); /* and again below: a launch sets it before it counts, an end after */
		uint64_t wait = __atomic_load_n(&t->wait_since_ns, __ATOMIC_SEQ_CST);
		uint64_t completed = __atomic_load_n(&t->completed, __ATOMIC_ACQUIRE);
		g->launched += grown(&p->seen[k].launched, load_acquire(&t->launched), LEAP);
		g->launched_ns += grown(&p->seen[k].launched_ns, load(&t->launched_ns), LEAP_NS);
		g->device_ns += grown(&p->seen[k].device_ns, load(&t->device_ns), LEAP_NS);
		grown(&p->seen[k].completed, completed, LEAP);
		grown(&p->seen[k].completed_ns, load(&t->completed_ns), LEAP_NS);
		if (wait) {
			wait = wait > now ? now : wait + PAST_NS < now ? now - PAST_NS : wait;
			if (!out->waiting || wait < out->wait_since_ns)
				out->wait_since_ns = wait;
			out->waiting = true;
		}
		users += load(&t->last_launch_ns) + USES_NS > now;
		out->coming |= load(&t->coming) != 0;
		if (p->seen[k].launched <= p->seen[k].completed)
			continue;
		out->outstanding = true;
		pending += p->seen[k].launched - p->seen[k].completed;
		uint64_t left = p->seen[k].launched_ns > p->seen[k].completed_ns ? p->seen[k].launched_ns - p->seen[k].completed_ns : 0;
		out->outstanding_ns += left < AHEAD_NS ? left : AHEAD_NS;
		uint64_t again = load(&t->busy_until_ns);
		until = until > again ? until : again;
		until = until > now + AHEAD_NS ? now + AHEAD_NS : until;
		if (until > out->busy_until_ns)
			out->busy_until_ns = until;
	}
	out->several = users > 1;
	out->launched = g->launched;
	out->completed = g->launched > pending ? g->launched - pending : 0;
	out->launched_ns = g->launched_ns;
	if (out->outstanding_ns > g->launched_ns)
		out->outstanding_ns = g->launched_ns;
	out->measured_ns = g->device_ns;
}
