/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c: who may hold how much. A task's processes may together hold ctl.mem_granted; beyond it they ask. On each device two sums hold, always:
 *
 *   Σ granted ≤ capacity, so that nobody's allocation meets a full device;
 *   Σ firm ≤ capacity, where firm is what cannot be taken back: the floor, and what is granted above it unless the share may be stopped for it
 *   (ALQ_POLICY_LEND_MEM). So each floor can be had in full whatever is lent.
 *
 * What is granted above a floor comes in chunks, and what of it is not used is given back: at each heartbeat, and at once when another asks for
 * more than is left. It comes from what nobody reserved; for a share that may be stopped also from floors, as far as their owners do not use
 * them: their mem_granted is lowered, so that they ask when they want it. An ask within a floor is never refused for that: it waits (owed.c).
 *
 * Giving back races with allocation, so both sides publish before they look (each with seq_cst): the arbiter lowers mem_granted and
 * then reads what is used; the shim adds to what is used and then reads mem_granted. At least one of them sees the other: the
 * arbiter raises it again, or the shim takes its reservation back and asks.
 */
#include "arbiter.h"

#define MOST (1ull << 50) /* no device has so much: a larger figure is a lie, and counts as this */

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t memory_of(const struct alq_tel_grant *t)
{
	uint64_t used = __atomic_load_n(&t->mem_used, __ATOMIC_SEQ_CST), overhead = __atomic_load_n(&t->mem_overhead, __ATOMIC_SEQ_CST);
	return smaller(used, MOST) + smaller(overhead, MOST);
}

static uint64_t used(const struct task *task, int k)
{
	uint64_t sum = 0;
	if (task->spoiled)
		return __atomic_load_n(&task->ctl->grant[k].mem_granted, __ATOMIC_SEQ_CST);
	for (const struct process *p = task->processes; p; p = p->next)
		sum += p->slot < 0 ? p->leaving[k] : memory_of(&task->tel->slot[p->slot].grant[k]);
	return sum;
}

static uint64_t granted(const struct task *task, int k)
{
	return __atomic_load_n(&task->ctl->grant[k].mem_granted, __ATOMIC_SEQ_CST);
}

static void grant(struct task *task, int k, uint64_t bytes)
{
	__atomic_store_n(&task->ctl->grant[k].mem_granted, bytes, __ATOMIC_SEQ_CST);
}

/* Whether what a grant holds above its floor can be taken back. */
static bool revocable(const struct task *task, int k)
{
	return task->grant[k].policy.flags & ALQ_POLICY_LEND_MEM;
}

/* What is granted on a device, and what of the capacity that leaves. */
static uint64_t held(struct node *node, int device)
{
	uint64_t sum = 0;
	EACH_ON_DEVICE(node, device, t, k)
		sum += smaller(granted(t, k), MOST);
	return sum;
}

uint64_t memory_free(struct node *node, int device)
{
	uint64_t sum = held(node, device), capacity = node->device[device].mem_capacity;
	return sum < capacity ? capacity - sum : 0;
}

/* What on a device cannot be taken back, and what of the capacity that leaves. */
static uint64_t reserved(struct node *node, int device)
{
	uint64_t sum = 0;
	EACH_ON_DEVICE(node, device, t, k)
		sum += revocable(t, k) ? t->grant[k].mem_floor : larger(t->grant[k].mem_floor, smaller(granted(t, k), MOST));
	return sum;
}

static uint64_t left(struct node *node, int device)
{
	uint64_t sum = reserved(node, device), capacity = node->device[device].mem_capacity;
	return sum < capacity ? capacity - sum : 0;
}

/* The most that a grant could have if nobody else held more than firmly. */
static uint64_t entitled(struct node *node, const struct task *task, int k)
{
	const struct task_grant *g = &task->grant[k];
	uint64_t most = larger(g->mem_floor, granted(task, k)) + left(node, g->device);
	return revocable(task, k) ? g->mem_ceiling : smaller(most, g->mem_ceiling);
}

/* The most that it could have with nothing taken back from others. */
static uint64_t reach(struct node *node, const struct task *task, int k)
{
	return smaller(granted(task, k) + memory_free(node, task->grant[k].device), entitled(node, task, k));
}

/* Whether a device's memory is lent so that owners may find less of their floors than they are owed, with a little patience. */
static bool lending(struct node *node, int device)
{
	bool lends = false;
	EACH_ON_DEVICE(node, device, t, k) {
		lends |= revocable(t, k) && granted(t, k) > t->grant[k].mem_floor;
		for (const struct process *p = t->processes; p; p = p->next)
			lends |= p->leaving[k] != 0;
	}
	return lends;
}

/* Up to their floors grants get back what is free, unless somebody waits for it, or may hold it without our knowing yet. */
static void restore(struct node *node, int device)
{
	if (node->adopting || node->device[device].wanted.bytes)
		return;
	EACH_ON_DEVICE(node, device, t, k)
		if (granted(t, k) < t->grant[k].mem_floor)
			grant(t, k, smaller(t->grant[k].mem_floor, granted(t, k) + memory_free(node, device)));
}

/* The most that a grant could have by asking, where all that others do not use counts as free. */
static uint64_t hope(struct node *node, const struct task *task, int k, uint64_t all_used)
{
	const struct task_grant *g = &task->grant[k];
	uint64_t mine = used(task, k), others = all_used > mine ? all_used - mine : 0, capacity = node->device[g->device].mem_capacity;
	uint64_t most = smaller(entitled(node, task, k), others < capacity ? capacity - others : 0);
	if (node->device[g->device].wanted.bytes)
		most = granted(task, k);
	return larger(most, g->mem_floor); /* which it has after a wait at most */
}

void memory_hints(struct node *node, int device)
{
	bool lends = false;
	uint64_t all_used = 0;
	restore(node, device);
	EACH_ON_DEVICE(node, device, t, k)
		lends |= revocable(t, k);
	if (lends)
		EACH_ON_DEVICE(node, device, t, k)
			all_used += used(t, k);
	EACH_ON_DEVICE(node, device, t, k) {
		uint64_t most = lends ? hope(node, t, k, all_used) : reach(node, t, k), now = granted(t, k);
		store(&t->ctl->grant[k].mem_free_hint, most > now ? most - now : 0);
	}
	store(&node->device[device].page->mem_reserved, reserved(node, device));
}

/* What others use or free of lent memory within what they were granted shows in nobody's asks. */
void memory_look(struct node *node)
{
	for (int i = 0; i < CORE_DEVICES; i++) {
		bool lends = false;
		if (node->device[i].page)
			EACH_ON_DEVICE(node, i, t, k)
				lends |= revocable(t, k) || granted(t, k) < t->grant[k].mem_floor;
		if (lends)
			memory_hints(node, i);
	}
}

/* Takes back what a grant does not use beyond `keep` bytes more than it does, never below its floor. */
static void take_back(struct task *task, int k, uint64_t keep)
{
	const struct task_grant *g = &task->grant[k];
	uint64_t before = granted(task, k), want = larger(smaller(g->mem_floor, before), smaller(used(task, k) + keep, g->mem_ceiling));
	want = larger(want, used(task, k));
	if (want >= before)
		return;
	grant(task, k, want);
	ALQ_POINT("arbiter.memory.lowered");
	uint64_t now = used(task, k);
	if (now > want)
		grant(task, k, smaller(now, before));
}

/* Lends up to so many bytes of what a grant does not use, of its floor too. */
static void lend(struct task *task, int k, uint64_t most)
{
	uint64_t before = granted(task, k), use = used(task, k), idle = before > use ? before - use : 0;
	idle = smaller(idle, most);
	if (idle == 0)
		return;
	grant(task, k, before - idle);
	ALQ_POINT("arbiter.memory.lent");
	uint64_t now = used(task, k);
	if (now > before - idle)
		grant(task, k, smaller(now, before));
}

/* Has all others on the device but one lend of what they do not use until so much is free, if there is that much. */
static void make_room(struct node *node, int device, const struct task *but, uint64_t need)
{
	EACH_ON_DEVICE(node, device, t, k) {
		uint64_t room = memory_free(node, device);
		if (t != but && room < need)
			lend(t, k, need - room);
	}
}

void memory_give_back(struct node *node, struct task *task)
{
	for (int k = 0; k < task->grants; k++) {
		uint64_t before = granted(task, k);
		if (before > larger(task->grant[k].mem_floor, used(task, k) + 2 * MEM_CHUNK) || before > task->grant[k].mem_ceiling)
			take_back(task, k, MEM_CHUNK);
		if (granted(task, k) != before)
			memory_hints(node, task->grant[k].device);
	}
}

/* New limits, of a new task too: up to the floor at once as far as there is room, and above a lowered ceiling only what is used. */
void memory_policy(struct node *node, struct task *task, int k)
{
	int device = task->grant[k].device;
	const struct task_grant *g = &task->grant[k];
	uint64_t capacity = node->device[device].mem_capacity;
	if (granted(task, k) > g->mem_ceiling)
		take_back(task, k, 0);
	/*
	 * Its floor counts as reserved already, and a new task's page grants it from the start: what others have borrowed of it and do
	 * not use comes back first. If they use it and cannot be stopped for it, what is reserved stays over the capacity: the agent reads that in
	 * the device's page and takes the task or the change back. If they can, it has of its floor what is free, and asks for the rest.
	 */
	if (reserved(node, device) > capacity || held(node, device) > capacity)
		EACH_ON_DEVICE(node, device, t, j)
			take_back(t, j, 0);
	if (held(node, device) > capacity)
		lend(task, k, held(node, device) - capacity);
	EACH_ON_DEVICE(node, device, t, j)
		if (held(node, device) > capacity)
			lend(t, j, held(node, device) - capacity);
	memory_hints(node, device);
	owed_freed(node);
}

uint32_t memory_ask(struct node *node, struct task *task, uint32_t k, uint64_t want)
{
	if (k >= (uint32_t)task->grants || (task->grant[k].policy.flags & ALQ_POLICY_STOPPED))
		return ALQ_ERR_REFUSED;
	int device = task->grant[k].device, mine = (int)k;
	uint64_t floor = task->grant[k].mem_floor, now = granted(task, mine);
	if (want <= now)
		return ALQ_OK;
	bool owed = want <= floor;
	if (want > task->grant[k].mem_ceiling || (!owed && node->device[device].wanted.bytes)) /* nothing is lent while owners wait */
		return ALQ_ERR_NO_MEM;
	uint64_t most = larger((want + MEM_CHUNK - 1) / MEM_CHUNK * MEM_CHUNK, floor); /* that it is granted where there is room */
	if (want > reach(node, task, mine)) {
		EACH_ON_DEVICE(node, device, t, j)
			if (t != task)
				take_back(t, j, 0);
		uint64_t may = entitled(node, task, mine);
		if (want <= may)
			make_room(node, device, task, (owed ? want : smaller(most, may)) - now);
	}
	uint32_t status = owed && lending(node, device) ? MEM_WAITS : ALQ_ERR_NO_MEM;
	if (want <= reach(node, task, mine)) {
		ALQ_POINT("arbiter.memory.before");
		grant(task, mine, smaller(most, reach(node, task, mine)));
		ALQ_POINT("arbiter.memory.after");
		status = ALQ_OK;
	}
	memory_hints(node, device);
	return status;
}
