/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owed.c: what owners wait for. An ask within a floor that is lent is kept until the memory has come back, or too long has passed. What is
 * missing on a device and who has waited longest for it stands in its page; there the agent reads it and has those stopped that borrowed it.
 * Meanwhile nothing is lent there. Asks are looked at again when memory has come free, and every 2 ms.
 */
#include "arbiter.h"

#include <string.h>

#define OLD_SHIM_WAITS_NS 1500000000ull /* then it takes its line for broken */
#define LOOK_NS 2000000ull              /* what others free of what they borrowed they do without a word */
#define REST 20                         /* times as long as a look took there is none */

void owed_keep(struct node *node, struct process *p, uint32_t grant, uint64_t want)
{
	uint64_t patience = p->shim_version >= ALQ_SHIM_WAITS ? ALQ_FLOOR_WAIT_NS : OLD_SHIM_WAITS_NS;
	p->wait.on = true;
	p->wait.grant = grant;
	p->wait.want = want;
	p->wait.since_ns = node->now;
	p->wait.until_ns = node->now + patience;
	node->waiting++;
	node->freed = true; /* so that it is published before we sleep */
}

void owed_forget(struct node *node, struct process *p)
{
	if (!p->wait.on)
		return;
	p->wait.on = false;
	node->waiting--;
	node->freed = true;
}

void owed_freed(struct node *node)
{
	node->freed |= node->waiting > 0;
}

/* Answers an ask that is kept, if it can be now. */
static void answer(struct node *node, struct process *p)
{
	uint32_t status = memory_ask(node, p->task, p->wait.grant, p->wait.want);
	if (status == MEM_WAITS && node->now < p->wait.until_ns)
		return;
	p->wait.on = false;
	node->waiting--;
	process_answer(node, p, p->wait.grant, status == MEM_WAITS ? ALQ_ERR_NO_MEM : status);
}

/* Publishes what is missing on a device. Of a task's processes the one that wants most counts: each says what all together want to hold. */
static void tally(struct node *node, int device)
{
	struct device *d = &node->device[device];
	uint64_t bytes = 0, since = 0, room = memory_free(node, device);
	const struct task *first = NULL;
	EACH_ON_DEVICE(node, device, t, k) {
		uint64_t now = load(&t->ctl->grant[k].mem_granted), most = now;
		for (const struct process *p = t->processes; p; p = p->next) {
			if (!p->wait.on || p->wait.grant != (uint32_t)k)
				continue;
			most = p->wait.want > most ? p->wait.want : most;
			if (!first || p->wait.since_ns < since) {
				first = t;
				since = p->wait.since_ns;
			}
		}
		bytes += most - now;
	}
	bytes = bytes > room ? bytes - room : first != NULL;
	if (bytes == d->wanted.bytes && since == d->wanted.since_ns)
		return;
	d->wanted.bytes = bytes;
	d->wanted.since_ns = since;
	memset(d->wanted.uid, 0, sizeof d->wanted.uid);
	if (first)
		strcpy(d->wanted.uid, first->uid);
	memory_hints(node, device);
	publish_device(node, device);
	ALQ_POINT("arbiter.floor.wanted");
}

uint64_t owed_due(const struct node *node)
{
	uint64_t at = node->freed ? node->now : node->owed_at;
	return at > node->owed_rest ? at : node->owed_rest;
}

void owed_look(struct node *node)
{
	uint64_t begun = clock_now();
	node->freed = false;
	node->owed_at = node->waiting ? node->now + LOOK_NS : CORE_NEVER;
	for (int i = 0; i < CORE_TASKS; i++)
		for (struct process *p = node->task[i] ? node->task[i]->processes : NULL, *next; p; p = next) {
			next = p->next; /* one that does not take its answer is ended */
			if (p->wait.on)
				answer(node, p);
		}
	for (int i = 0; i < CORE_DEVICES; i++)
		if (node->device[i].page)
			tally(node, i);
	node->owed_rest = node->now + REST * (clock_now() - begun);
}
