/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.c: makes what a world consists of: nodes with their arbiters' cores, devices, tasks; and has a core die and another follow. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int failures;

void check(bool ok, const char *format, ...)
{
	if (ok)
		return;
	va_list args;
	va_start(args, format);
	fprintf(stderr, "FAIL: ");
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	failures++;
}

int check_failures(void)
{
	return failures;
}

uint64_t world_random(struct world *w, uint64_t below)
{
	w->seed = w->seed * 6364136223846793005ull + 1442695040888963407ull;
	return below ? (w->seed >> 33) % below : 0;
}

uint64_t lane_queued(const struct lane *l)
{
	return l->launched - l->heard;
}

static void observe(void *context, int grant, uint64_t now, struct core_observation *out)
{
	const struct world_node *node = context;
	const struct world *w = node->world;
	(void)now;
	for (int i = 0; i < w->lanes; i++) {
		const struct lane *l = &w->lane[i];
		if (l->core != node->core || l->grant != grant)
			continue;
		out->waiting = l->wait_since != 0;
		out->wait_since_ns = l->wait_since;
		out->outstanding = lane_queued(l) > 0;
		out->coming = l->coming && lane_queued(l) > 0;
		out->launched = l->launched;
		out->completed = l->heard;
		out->launched_ns = l->launched * l->estimate;
		out->outstanding_ns = lane_queued(l) * l->estimate;
		out->busy_until_ns = lane_queued(l) ? l->busy_until : 0;
		out->several = l->several;
		out->measured_ns = l->liar ? 0 : l->several ? 2 * l->measured : l->measured;
	}
}

void world_node(struct world *w, int devices)
{
	struct core_config config;
	struct world_node *node = &w->node[w->nodes];
	*node = (struct world_node){.world = w, .core = calloc(1, sizeof *node->core)};
	if (!node->core)
		abort();
	core_defaults(&config);
	config.context = node;
	config.observe = observe;
	core_init(node->core, &config);
	for (int i = 0; i < devices; i++) {
		w->device[w->devices] = core_device_add(node->core, w->now, ALQ_DEVICE_OK);
		w->node_of[w->devices] = w->nodes;
		w->running[w->devices++] = -1;
	}
	w->nodes++;
}

struct world *world_new(uint64_t seed, int devices)
{
	struct world *w = calloc(1, sizeof *w);
	if (!w)
		abort();
	w->seed = seed * 977 + 13;
	w->now = 5 * SECOND;
	w->slice = 2 * MS;
	w->latency = 50 * US;
	world_node(w, devices);
	w->core = w->node[0].core;
	w->next_run = w->now;
	return w;
}

void world_free(struct world *w)
{
	for (int i = 0; i < w->nodes; i++)
		free(w->node[i].core);
	free(w);
}

struct lane *world_add_gang(struct world *w, int first, int n, uint32_t floor, uint32_t ceiling, uint64_t kernel)
{
	int devices[ALQ_MAX_GRANTS] = {0};
	struct core_policy policies[ALQ_MAX_GRANTS] = {0};
	for (int i = 0; i < n; i++) {
		devices[i] = w->device[first + i];
		policies[i] = (struct core_policy){.floor = floor, .ceiling = ceiling, .weight = floor ? floor : 1};
	}
	struct core *core = w->node[w->node_of[first]].core;
	int task = core_task_add(core, w->now, n, devices, policies);
	if (task < 0)
		abort();
	struct lane *added = &w->lane[w->lanes];
	int group = n > 1 ? w->lanes + 1 : 0;
	for (int i = 0; i < n; i++)
		w->lane[w->lanes++] = (struct lane){.core = core, .grant = core->task[task].grant[i], .task = task, .device = first + i,
			.kernel = kernel, .estimate = kernel, .group = group, .pump_at = w->now, .backlog = n > 1};
	w->next_run = w->now;
	return added;
}

void world_join(struct world *w, struct lane *a, struct lane *b, int n)
{
	int group = (int)(a - w->lane) + 1;
	for (int i = 0; i < n; i++) {
		a[i].group = b[i].group = group;
		a[i].backlog = b[i].backlog = 1;
	}
}

struct lane *world_add(struct world *w, uint32_t floor, uint32_t ceiling, uint32_t weight, uint64_t kernel)
{
	struct lane *l = world_add_gang(w, 0, 1, floor, ceiling, kernel);
	struct core_policy policy = {.floor = floor, .ceiling = ceiling, .weight = weight};
	core_set_policy(l->core, l->grant, w->now, &policy);
	return l;
}

void world_adopt(struct world *w, const struct core_books *books)
{
	struct core *old = w->core, *new = calloc(1, sizeof *new);
	if (!new)
		abort();
	core_init(new, &old->config);
	w->core = w->node[0].core = new;
	for (int i = 0; i < w->devices; i++)
		if (w->node_of[i] == 0)
			w->device[i] = core_device_add(new, w->now, old->device[w->device[i]].state);
	for (int i = 0; i < w->lanes; i++) {
		struct lane *l = &w->lane[i];
		int device = w->device[l->device];
		if (l->core != old)
			continue;
		if (old->task[l->task].grants > 1)
			abort(); /* no test needs it */
		l->task = core_task_add(new, w->now, 1, &device, &old->grant[l->grant].policy);
		l->core = new;
		l->grant = new->task[l->task].grant[0];
		core_restore(new, l->grant, &books[i]);
	}
	for (int i = 0; i < w->lanes; i++)
		if (w->lane[i].core == new)
			core_touch(new, w->lane[i].task, w->now);
	free(old);
	w->next_run = w->now;
}
