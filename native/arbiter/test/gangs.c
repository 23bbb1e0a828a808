/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gangs.c: programs on several devices whose kernels wait for each other on the device, as collectives do: two programs on the same two to
 * eight devices, launching from one thread or from a process a device, in the same order or crossed, on one node or on two whose arbiters
 * know nothing of each other, also beside a kernel that never ends. They all go on, for a million launches. `-n N` launches N instead.
 */
#include "judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum ranks { ONE_THREAD, ONE_THREAD_CROSSED, PROCESSES };

static const char *const rank_names[] = {"one thread", "one thread, crossed", "a process each"};

#define STUCK (SECOND / 2) /* nothing of a program ended for so long */

/* One thread launches for these lanes, in this order or from the last to the first. */
static void thread(struct world *w, int *lanes, int n, bool backwards)
{
	for (int i = 1; i < n; i++) {
		int to = lanes[backwards ? i - 1 : i], from = lanes[backwards ? i : i - 1];
		w->lane[to].after = from + 1;
	}
}

struct set {
	struct world *w;
	int devices, nodes; /* devices of each node */
	int lanes[2][2 * 8], n;
};

/* Two programs with this floor on all devices. */
static struct set make(int devices, int nodes, enum ranks ranks, uint32_t floor, uint64_t kernel)
{
	struct set s = {.w = world_new((uint64_t)devices * 3 + kernel + ranks, devices), .devices = devices, .nodes = nodes};
	if (nodes > 1)
		world_node(s.w, devices);
	s.n = devices * nodes;
	for (int p = 0; p < 2; p++) {
		struct lane *part[2];
		for (int node = 0; node < nodes; node++) {
			part[node] = world_add_gang(s.w, node * devices, devices, floor, 1000, kernel);
			for (int i = 0; i < devices; i++)
				s.lanes[p][node * devices + i] = (int)(part[node] - s.w->lane) + i;
		}
		if (nodes > 1)
			world_join(s.w, part[0], part[1], devices);
		for (int i = 0; i < s.n; i++) {
			s.w->lane[s.lanes[p][i]].meets = true;
			s.w->lane[s.lanes[p][i]].backlog = 1;
		}
		if (ranks != PROCESSES)
			for (int node = 0; node < nodes; node++) /* a thread is on one node */
				thread(s.w, &s.lanes[p][node * devices], devices, p == 1 && ranks == ONE_THREAD_CROSSED);
	}
	return s;
}

/* Runs until so many launches have ended, or a program stands still. */
static void play(struct set *s, const char *name, uint64_t launches)
{
	struct world *w = s->w;
	uint64_t ended = 0, heard[2] = {0}, moved[2] = {w->now, w->now}, start = w->now, began[2] = {0};
	bool stuck = false;
	for (int p = 0; p < 2; p++)
		began[p] = w->lane[s->lanes[p][0]].truth;
	while (ended < launches && !stuck) {
		world_run(w, w->now + 10 * MS);
		ended = 0;
		for (int p = 0; p < 2; p++) {
			uint64_t least = UINT64_MAX;
			for (int i = 0; i < s->n; i++) {
				const struct lane *l = &w->lane[s->lanes[p][i]];
				least = l->heard < least ? l->heard : least;
				ended += l->heard;
			}
			if (least > heard[p])
				moved[p] = w->now;
			heard[p] = least;
			stuck |= w->now - moved[p] > STUCK;
		}
	}
	double part[2];
	for (int p = 0; p < 2; p++)
		part[p] = (double)(w->lane[s->lanes[p][0]].truth - began[p]) / (double)(w->now - start);
	printf("%-58s %8llu launches in %6.2f s, %5.1f and %5.1f %% of a device\n", name, (unsigned long long)ended, (double)(w->now - start) / 1e9,
		part[0] * 100, part[1] * 100);
	check(!stuck, "%s: a program stands still after %llu launches", name, (unsigned long long)ended);
	check_rows(w, name);
}

static void collectives(int devices, int nodes, enum ranks ranks, uint64_t kernel, uint64_t launches)
{
	char name[96];
	snprintf(name, sizeof name, "2 x %d devices%s, %s, %llu us", devices * nodes, nodes > 1 ? " of 2 nodes" : "", rank_names[ranks],
		(unsigned long long)(kernel / US));
	struct set s = make(devices, nodes, ranks, 450, kernel);
	play(&s, name, launches);
	world_free(s.w);
}

/* Beside a kernel without end on one of the devices. */
static void beside_endless(int devices, int nodes, enum ranks ranks)
{
	char name[96];
	snprintf(name, sizeof name, "2 x %d devices%s, %s, beside an endless kernel", devices * nodes, nodes > 1 ? " of 2 nodes" : "",
		rank_names[ranks]);
	struct set s = make(devices, nodes, ranks, 300, 500 * US);
	struct lane *hog = world_add_gang(s.w, 0, 1, 200, 1000, 3600 * SECOND);
	hog->estimate = MS;
	play(&s, name, 20000);
	world_free(s.w);
}

/* Who shares one of a program's devices has its floor there, also where the program is alone on the others. */
static void beside_one(int devices, int shared, uint64_t kernel)
{
	char name[96];
	snprintf(name, sizeof name, "%d devices beside a program on device %d, %llu us", devices, shared, (unsigned long long)(kernel / US));
	struct world *w = world_new((uint64_t)devices + kernel, devices);
	struct lane *gang = world_add_gang(w, 0, devices, 400, 1000, kernel), *single = world_add_gang(w, shared, 1, 500, 1000, 500 * US);
	world_run(w, w->now + SECOND);
	uint64_t from = single->truth, before = gang[shared].truth, start = w->now;
	world_run(w, w->now + 10 * SECOND);
	double got = (double)(single->truth - from) / (double)(w->now - start), had = (double)(gang[shared].truth - before) / (double)(w->now - start);
	printf("%-58s has %5.2f %% of 50, they %5.2f of 40\n", name, got * 100, had * 100);
	check(got >= 0.49, "%s: has %.2f %% of its floor of 50", name, got * 100);
	check(had >= 0.30, "%s: they have %.2f %%", name, had * 100);
	check_rows(w, name);
	world_free(w);
}

int main(int argc, char **argv)
{
	uint64_t many = argc > 2 && !strcmp(argv[1], "-n") ? strtoull(argv[2], NULL, 10) : 1000000;
	static const uint64_t kernels[] = {50 * US, 500 * US, 5 * MS};
	for (int devices = 2; devices <= 8; devices++)
		for (enum ranks ranks = ONE_THREAD; ranks <= PROCESSES; ranks++)
			for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
				collectives(devices, 1, ranks, kernels[k], 4000);
	for (int devices = 1; devices <= 4; devices++)
		for (enum ranks ranks = ONE_THREAD; ranks <= PROCESSES; ranks++)
			for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
				collectives(devices, 2, ranks, kernels[k], 4000);
	for (enum ranks ranks = ONE_THREAD; ranks <= PROCESSES; ranks++) {
		beside_endless(2, 1, ranks);
		beside_endless(8, 1, ranks);
		beside_endless(4, 2, ranks);
		collectives(8, 1, ranks, 50 * US, many);
	}
	collectives(4, 2, PROCESSES, 50 * US, many);
	for (int shared = 0; shared < 3; shared++)
		for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
			beside_one(3, shared, kernels[k]);
	if (check_failures())
		fprintf(stderr, "%d checks failed\n", check_failures());
	return check_failures() ? 1 : 0;
}
