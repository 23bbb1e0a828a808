/* SPDX-License-Identifier: Apache-2.0 */
/* bell.c: the bells that processes ring when they wait or have drained. */
#include "arbiter.h"

#include <sys/epoll.h>

#define RING_NS 200000ull /* a bell is heard so often, */
#define RINGS 16          /* and so many times in advance; then it is muted for a while */
#define MUTE_NS 2000000ull

/* A bell is believed only so often: one that is rung without end costs its own task's promptness and nobody else's time. */
void process_rang(struct node *node, struct process *p)
{
	if (p->gone)
		return;
	uint64_t earliest = node->now > RINGS * RING_NS ? node->now - RINGS * RING_NS : 0;
	p->ring_tokens_at = (p->ring_tokens_at > earliest ? p->ring_tokens_at : earliest) + RING_NS;
	if (p->ring_tokens_at > node->now) {
		struct epoll_event none = {.events = 0, .data.ptr = &p->bell};
		epoll_ctl(node->epoll, EPOLL_CTL_MOD, p->bell.fd, &none);
		p->muted = true;
		if (node->now + MUTE_NS < node->unmute_at)
			node->unmute_at = node->now + MUTE_NS;
	}
	core_touch(&node->core, p->task->core, node->now);
}

void processes_unmute(struct node *node)
{
	node->unmute_at = CORE_NEVER;
	for (int i = 0; i < CORE_TASKS; i++)
		for (struct process *p = node->task[i] ? node->task[i]->processes : NULL; p; p = p->next) {
			if (!p->muted)
				continue;
			p->muted = false;
			/* Never read: the tenant shares its flags, and a read would block where it clears O_NONBLOCK. Heard again as it is. */
			struct epoll_event heard = {.events = EPOLLIN | EPOLLET, .data.ptr = &p->bell};
			epoll_ctl(node->epoll, EPOLL_CTL_MOD, p->bell.fd, &heard);
			core_touch(&node->core, p->task->core, node->now);
		}
}
