/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c: who may hold how much. On each device Σ max(floor, granted) ≤ capacity, always. A task's processes may together hold
 * ctl.mem_granted; beyond it they ask. What is granted above the floor comes in chunks from what nobody reserved, and what of it is not
 * used is given back: at each heartbeat, and at once when another asks for more than is left.
 *
 * Giving back races with allocation, so both sides publish before they look (each with seq_cst): the arbiter lowers mem_granted and
 * then reads what is used; the shim adds to what is used and then reads mem_granted. At least one of them sees the other: the
 * arbiter raises it again, or the shim takes its reservation back and asks.
 */
#include "arbiter.h"

#define MOST (1ull << 50) /* no device has so much: a larger figure is a lie, and counts as this */

static uint64_t used(const struct task *task, int k)
{
	uint64_t sum = 0;
	if (task->spoiled)
		return __atomic_load_n(&task->ctl->grant[k].mem_granted, __ATOMIC_SEQ_CST);
	for (const struct process *p = task->processes; p; p = p->next) {
		if (p->slot < 0)
			continue;
		const struct alq_tel_grant *t = &task->tel->slot[p->slot].grant[k];
		uint64_t a = __atomic_load_n(&t->mem_used, __ATOMIC_SEQ_CST), b = __atomic_load_n(&t->mem_overhead, __ATOMIC_SEQ_CST);
		sum += (a < MOST ? a : MOST) + (b < MOST ? b : MOST);
	}
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

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Calls for each grant on a device. */
#define EACH_ON_DEVICE(node, device, t, k)                                                                             \
	for (int i_ = 0; i_ < (node)->core.device[device].grants; i_++)                                                \
		for (struct task *t = (node)->of_grant[(node)->core.device[device].grant[i_]].task; t; t = NULL)       \
			for (int k = (node)->of_grant[(node)->core.device[device].grant[i_]].grant; k >= 0; k = -1)

static uint64_t reserved(struct node *node, int device)
{
	uint64_t sum = 0;
	EACH_ON_DEVICE(node, device, t, k)
		sum += larger(t->grant[k].mem_floor, smaller(granted(t, k), MOST));
	return sum;
}

static uint64_t left(struct node *node, int device)
{
	uint64_t sum = reserved(node, device), capacity = node->device[device].mem_capacity;
	return sum < capacity ? capacity - sum : 0;
}

/* The most that a grant could have with `rest` left on the device. */
static uint64_t reach(const struct task *task, int k, uint64_t rest)
{
	return smaller(larger(task->grant[k].mem_floor, granted(task, k)) + rest, task->grant[k].mem_ceiling);
}

void memory_hints(struct node *node, int device)
{
	uint64_t rest = left(node, device);
	EACH_ON_DEVICE(node, device, t, k) {
		uint64_t most = reach(t, k, rest), now = granted(t, k);
		store(&t->ctl->grant[k].mem_free_hint, most > now ? most - now : 0);
	}
	store(&node->device[device].page->mem_reserved, reserved(node, device));
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
	if (granted(task, k) > g->mem_ceiling)
		take_back(task, k, 0);
	/*
	 * Its floor counts as reserved already, and a new task's page grants it from the start: what others have borrowed of it and do
	 * not use comes back first. If they use it, the sum stays over the capacity: the agent reads that in the device's page and takes
	 * the task or the change back.
	 */
	if (reserved(node, device) > node->device[device].mem_capacity)
		EACH_ON_DEVICE(node, device, t, j)
			take_back(t, j, 0);
	if (granted(task, k) < g->mem_floor) {
		uint64_t sum = reserved(node, device), capacity = node->device[device].mem_capacity;
		uint64_t missing = sum > capacity ? sum - capacity : 0;
		uint64_t to = g->mem_floor > missing ? g->mem_floor - missing : 0;
		if (to > granted(task, k))
			grant(task, k, to);
	}
	memory_hints(node, device);
}

enum alq_status memory_ask(struct node *node, struct task *task, uint32_t k, uint64_t want)
{
	if (k >= (uint32_t)task->grants || (task->grant[k].policy.flags & ALQ_POLICY_STOPPED))
		return ALQ_ERR_REFUSED;
	int device = task->grant[k].device, mine = (int)k;
	if (want <= granted(task, mine))
		return ALQ_OK;
	if (want > task->grant[k].mem_ceiling)
		return ALQ_ERR_NO_MEM;
	if (want > reach(task, mine, left(node, device)))
		EACH_ON_DEVICE(node, device, t, j)
			if (t != task)
				take_back(t, j, 0);
	uint64_t most = reach(task, mine, left(node, device));
	enum alq_status status = ALQ_ERR_NO_MEM;
	if (want <= most) {
		uint64_t chunked = (want + MEM_CHUNK - 1) / MEM_CHUNK * MEM_CHUNK;
		ALQ_POINT("arbiter.memory.before");
		grant(task, mine, smaller(chunked, most));
		ALQ_POINT("arbiter.memory.after");
		status = ALQ_OK;
	}
	memory_hints(node, device);
	return status;
}
