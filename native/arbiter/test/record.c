/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <stdlib.h>
#include <string.h>

#include "state.h"

static struct {
	FILE *out;
	FILE *stop_out;
	uint64_t time, calls, stop_at;
	int depth; /* calls of the core that run */
	bool away;
	struct core_observation said[CORE_GRANTS];
} record;

/* ------------------------------------------------------------------------------------------------------------- numbers */

static void letter(char c)
{
	putc_unlocked(c, record.out);
}

static void n(uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		putc_unlocked((int)(value & 0x7f) | 0x80, record.out);
	putc_unlocked((int)value, record.out);
}

static void z(int64_t value)
{
	n(((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

static void at(uint64_t now)
{
	z((int64_t)(now - record.time));
	record.time = now;
}

static void policy(const struct core_policy *p)
{
	n(p->floor);
	n(p->ceiling);
	n(p->weight);
	n(p->flags);
}

static void rows(const struct alq_split *s)
{
	n(s->own_ns);
	n(s->lent_ns);
	n(s->reserved_idle_ns);
	n(s->burst_free_ns);
	n(s->burst_lent_ns);
}

static uint64_t digest;

static void fold(const char *of, int index, const char *name, uint64_t value)
{
	(void)of, (void)index, (void)name;
	digest = (digest ^ value) * 0x9e3779b97f4a7c15ull;
	digest ^= digest >> 32;
}

static void print(const char *of, int index, const char *name, uint64_t value)
{
	fprintf(record.stop_out, "%s %d %s %lld\n", of, index, name, (long long)value);
}

/* --------------------------------------------------------------------------------------------------------------- calls */

static uint64_t bits(const struct core_observation *o)
{
	return (uint64_t)o->waiting | (uint64_t)o->outstanding << 1 | (uint64_t)o->coming << 2 | (uint64_t)o->several << 3;
}

static void say(struct core *core, int grant)
{
	struct core_observation seen = {0}, *said = &record.said[grant];
	core->config.observe(core->config.context, grant, core->now, &seen);
	const uint64_t now[] = {seen.wait_since_ns, seen.launched, seen.completed, seen.launched_ns, seen.outstanding_ns, seen.busy_until_ns,
		seen.measured_ns};
	const uint64_t was[] = {said->wait_since_ns, said->launched, said->completed, said->launched_ns, said->outstanding_ns,
		said->busy_until_ns, said->measured_ns};
	unsigned which = 0;
	for (int i = 0; i < 7; i++)
		which |= now[i] != was[i] ? 1u << i : 0;
	if (which == 0 && bits(&seen) == bits(said))
		return;
	letter('O');
	n((uint64_t)grant);
	n(bits(&seen));
	n(which);
	for (int i = 0; i < 7; i++)
		if (now[i] != was[i])
			z((int64_t)(now[i] - was[i]));
	*said = seen;
}

/* Whether the call that begins is to be written down; if so, what has been said since the last one stands there. */
static bool begin(struct core *core)
{
	if (record.depth++ > 0)
		return false;
	for (int i = 0; i < CORE_DEVICES && core->device[i].used_slot; i++)
		for (int k = 0; k < core->device[i].grants; k++)
			say(core, core->device[i].grant[k]);
	return true;
}

static void end(struct core *core, bool recorded)
{
	record.depth--;
	if (!recorded)
		return;
	digest = 0;
	visit_core(core, fold);
	for (int i = 0; i < 8; i++)
		putc_unlocked((int)(digest >> (8 * i)) & 0xff, record.out);
	if (++record.calls != record.stop_at)
		return;
	visit_core(core, print);
	fflush(record.stop_out);
	exit(0);
}

void record_world(FILE *out, uint64_t seed)
{
	record.out = out;
	record.time = record.calls = 0;
	record.away = false;
	memset(record.said, 0, sizeof record.said);
	letter('W');
	n(seed);
}

void record_config(struct core *core)
{
	const struct core_config *c = &core->config;
	const uint64_t times[] = {c->lease_ns, c->idle_cap_ns, c->latency_cap_ns, c->latency_reach_ns, c->burst_ns, c->ahead_ns, c->early_ns,
		c->idle_ns, c->start_ns, c->overlap_ns, c->patience_ns, c->settle_ns};
	letter('C');
	for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
		n(times[i]);
}

void record_restart(struct core *core)
{
	const struct core_config config = core->config;
	core_init(core, &config);
	record.away = false;
	memset(record.said, 0, sizeof record.said);
	letter('Z');
}

void record_away(bool away)
{
	record.away = away;
}

uint64_t record_calls(void)
{
	return record.calls;
}

void record_stop(FILE *out, uint64_t call)
{
	record.stop_out = out;
	record.stop_at = call;
}

/* The linker calls these in place of the functions they are named for. */
#define WRAP(type, name, ...) \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

WRAP(int, core_device_add, struct core *core, uint64_t now, enum alq_device_state state)
{
	bool recorded = begin(core);
	int device = __real_core_device_add(core, now, state);
	if (recorded) {
		letter('D');
		at(now);
		n(state);
		n((uint64_t)device);
	}
	end(core, recorded);
	return device;
}

WRAP(int, core_task_add, struct core *core, uint64_t now, int grants, const int *devices, const struct core_policy *policies)
{
	bool recorded = begin(core);
	int task = __real_core_task_add(core, now, grants, devices, policies);
	if (recorded) {
		letter('T');
		at(now);
		n((uint64_t)grants);
		for (int i = 0; i < grants; i++) {
			n((uint64_t)devices[i]);
			policy(&policies[i]);
		}
		n((uint64_t)task);
		for (int i = 0; i < grants; i++) {
			int grant = core->task[task].grant[i];
			n((uint64_t)grant);
			memset(&record.said[grant], 0, sizeof record.said[grant]);
		}
	}
	end(core, recorded);
	return task;
}

WRAP(void, core_task_del, struct core *core, int task, uint64_t now)
{
	bool recorded = begin(core);
	if (recorded) {
		letter('X');
		at(now);
		n((uint64_t)task);
	}
	__real_core_task_del(core, task, now);
	end(core, recorded);
}

WRAP(void, core_device_state, struct core *core, int device, uint64_t now, enum alq_device_state state)
{
	bool recorded = begin(core);
	if (recorded) {
		letter('S');
		at(now);
		n((uint64_t)device);
		n(state);
	}
	__real_core_device_state(core, device, now, state);
	end(core, recorded);
}

WRAP(void, core_set_policy, struct core *core, int grant, uint64_t now, const struct core_policy *limits)
{
	bool recorded = begin(core);
	if (recorded) {
		letter('P');
		at(now);
		n((uint64_t)grant);
		policy(limits);
	}
	__real_core_set_policy(core, grant, now, limits);
	end(core, recorded);
}

WRAP(void, core_restore, struct core *core, int grant, const struct core_books *books)
{
	bool recorded = begin(core);
	if (recorded) {
		letter('R');
		n((uint64_t)grant);
		z(books->credit_ns);
		z(books->bucket_ns);
		n(books->vtime_ns);
		n(books->held_ns);
		n(books->leases);
		n(books->overlapped);
		n(books->revoked);
		n(books->wait_ns);
		n(books->wake_worst_ns);
		n(books->wakes);
		rows(&books->split);
	}
	__real_core_restore(core, grant, books);
	end(core, recorded);
}

WRAP(void, core_device_restore, struct core *core, int device, uint64_t since, uint64_t updated, const struct alq_device *page)
{
	bool recorded = begin(core);
	if (recorded) {
		letter('B');
		n((uint64_t)device);
		n(since);
		n(updated);
		n(page->unreserved_idle_ns);
		n(page->down_ns);
		n(page->switches);
		rows(&page->ended);
	}
	__real_core_device_restore(core, device, since, updated, page);
	end(core, recorded);
}

WRAP(void, core_away, struct core *core, int device, uint64_t now, const bool *live)
{
	bool recorded = begin(core);
	if (recorded) {
		letter('A');
		at(now);
		n((uint64_t)device);
		for (int i = 0; i < core->device[device].grants; i++)
			n(live[core->device[device].grant[i]]);
	}
	__real_core_away(core, device, now, live);
	end(core, recorded);
}

/* A bell of a task that is gone reaches nobody, as in the arbiter. */
WRAP(void, core_touch, struct core *core, int task, uint64_t now)
{
	if (record.away || !core->task[task].used_slot)
		return;
	bool recorded = begin(core);
	if (recorded) {
		letter('U');
		at(now);
		n((uint64_t)task);
	}
	__real_core_touch(core, task, now);
	end(core, recorded);
}

WRAP(void, core_settle, struct core *core, int device, uint64_t now)
{
	bool recorded = begin(core);
	if (recorded) {
		letter('L');
		at(now);
		n((uint64_t)device);
	}
	__real_core_settle(core, device, now);
	end(core, recorded);
}

static void gates(struct core *core)
{
	for (int i = 0; i < core->dirty_count; i++) {
		int grant = core->dirty_list[(core->dirty_first + i) % CORE_GRANTS];
		const struct core_gate *gate = &core->grant[grant].gate;
		if (!core->grant[grant].used_slot)
			continue;
		letter('G');
		n((uint64_t)grant);
		n((uint64_t)gate->open | (uint64_t)gate->ungated << 1 | (uint64_t)gate->extended << 2);
		n(gate->lease_id);
		z((int64_t)(gate->start_ns - record.time));
		z((int64_t)(gate->end_ns - record.time));
	}
}

/* The gates that the caller is about to publish are written down with the run that opened or closed them. */
WRAP(uint64_t, core_run, struct core *core, uint64_t now)
{
	if (record.away)
		return CORE_NEVER;
	bool recorded = begin(core);
	uint64_t next = __real_core_run(core, now);
	if (recorded) {
		letter('N');
		at(now);
		z(next == CORE_NEVER ? -1 : (int64_t)(next - now));
	}
	end(core, recorded);
	if (recorded)
		gates(core);
	return next;
}
