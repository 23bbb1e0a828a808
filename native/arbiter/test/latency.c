/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latency.c: how long requests take under virtual time, beside trainers and alone. Requests come at random (Poisson) and ask for 40 % of a
 * share's floor; each is 40 kernels of 0.5 ms one behind the other. Trainers always have more kernels of 0.2 ms. With -n SECONDS it is shorter
 * than a percentile needs, which is not judged then: for sanitizers.
 */
#include "judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL (500 * US)
#define KERNELS 40
#define LONG 1500
#define TRAINERS 2
#define ROOM 100000

static uint64_t seconds = LONG;

struct figures {
	uint64_t requests;
	double p50, p99, most;   /* ms */
	double trainers, served, switching; /* parts of the device */
};

static int by_length(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static struct lane *add_latency(struct world *w, uint32_t floor, uint32_t ceiling, uint64_t kernel)
{
	struct lane *l = world_add(w, floor, ceiling, floor, kernel);
	struct core_policy policy = {.flags = ALQ_POLICY_LATENCY, .floor = floor, .ceiling = ceiling, .weight = floor};
	core_set_policy(w->core, l->grant, w->now, &policy);
	return l;
}

static struct figures serve(uint32_t floor, uint32_t ceiling, int trainers, uint64_t switch_cost)
{
	static uint64_t took[ROOM];
	struct world *w = world_new(17, 1);
	w->switch_cost = switch_cost;
	struct lane *l = add_latency(w, floor, ceiling, KERNEL);
	l->batch = KERNELS;
	l->period = KERNELS * KERNEL * 1000 / (floor * 4 / 10);
	l->poisson = true;
	l->next_arrival = w->now;
	l->took = took;
	l->room = ROOM;
	for (int i = 0; i < trainers; i++)
		world_add(w, (1000 - floor) / (uint32_t)trainers, 1000, (1000 - floor) / (uint32_t)trainers, 200 * US);
	uint64_t start = w->now;
	world_run(w, start + seconds * SECOND);
	struct figures f = {.requests = l->done < ROOM ? l->done : ROOM};
	if (f.requests == 0)
		abort();
	qsort(took, f.requests, sizeof *took, by_length);
	f.p50 = (double)took[f.requests / 2] / 1e6;
	f.p99 = (double)took[f.requests * 99 / 100] / 1e6;
	f.most = (double)took[f.requests - 1] / 1e6;
	f.served = (double)l->truth / (double)(seconds * SECOND);
	f.switching = (double)w->switching[0] / (double)(seconds * SECOND);
	for (int i = 1; i <= trainers; i++)
		f.trainers += (double)w->lane[i].truth / (double)(seconds * SECOND);
	check_rows(w, "latency");
	world_free(w);
	return f;
}

static void beside(uint32_t floor, uint32_t ceiling, uint64_t switch_cost)
{
	struct figures alone = serve(floor, ceiling, 0, switch_cost), f = serve(floor, ceiling, TRAINERS, switch_cost);
	double rest = 1 - f.served - f.switching;
	char name[64];
	snprintf(name, sizeof name, "%.2f..%.2f beside %d, switch %llu us", floor / 1e3, ceiling / 1e3, TRAINERS,
		(unsigned long long)(switch_cost / US));
	printf("%-36s %5llu requests, p50 %6.2f ms (alone %6.2f), p99 %6.2f (%6.2f, x %.3f), most %6.2f (%6.2f); trainers %5.1f %% of the rest\n",
		name, (unsigned long long)f.requests, f.p50, alone.p50, f.p99, alone.p99, f.p99 / alone.p99, f.most, alone.most, 100 * f.trainers / rest);
	/* Where a ceiling bars it within a request, it waits for what neighbours have on the device each time that it comes back. */
	double most = ceiling < 1000 && ceiling > floor ? 1.08 : 1.05;
	check(seconds < LONG || f.p99 <= most * alone.p99, "%s: p99 %.2f ms, alone %.2f", name, f.p99, alone.p99);
	check(f.trainers >= 0.98 * rest, "%s: the trainers got %.3f of %.3f", name, f.trainers, rest);
}

/* Owners of the latency class that come back after a pause, with more than they can have, are ahead of their floors for a while: a neighbour
 * is behind its own by so much and no more. */
static void bursts(int owners)
{
	const uint32_t floor = 500 / (uint32_t)owners;
	struct world *w = world_new(23, 1);
	struct lane *neighbour = world_add(w, 500, 500, 500, 500 * US);
	for (int i = 0; i < owners; i++) {
		struct lane *l = add_latency(w, floor, 1000, 500 * US);
		l->period = 20 * SECOND;
		l->batch = 20000; /* 10 s */
		l->next_arrival = w->now + 5 * SECOND;
	}
	world_run(w, w->now + 5 * SECOND);
	uint64_t start = w->now, had = neighbour->truth;
	double behind = 0;
	while (w->now < start + 10 * SECOND) {
		world_run(w, w->now + 50 * MS);
		double due = 0.5 * (double)(w->now - start), got = (double)(neighbour->truth - had);
		behind = due - got > behind ? due - got : behind;
	}
	double reach = (double)w->core->config.latency_reach_ns * 0.5, cap = (double)w->core->config.latency_cap_ns * owners;
	double most = (reach < cap ? reach : cap) + 30e6; /* and what bursts of neighbours with a ceiling may wait for */
	printf("%d of the latency class come back: the neighbour is %.0f ms behind its floor at worst\n", owners, behind / 1e6);
	check(behind <= most, "bursts of %d: the neighbour is %.0f ms behind its floor, %.0f allowed", owners, behind / 1e6, most / 1e6);
	check_rows(w, "bursts");
	world_free(w);
}

/* An owner that asks for a short kernel now and then, at random, beside two who always have more: often so soon after the last one ended that its
 * lease is just over. It is served within a kernel of theirs all the same, and not when the next lease is over. */
static void comes_back(uint64_t switch_cost)
{
	static uint64_t took[ROOM];
	const uint64_t mean = 5 * MS, others = 500 * US;
	struct world *w = world_new(29, 1);
	w->switch_cost = switch_cost;
	w->latency = 50 * US;
	struct lane *l = world_add(w, 500, 1000, 500, 200 * US);
	l->batch = 1;
	l->period = mean;
	l->poisson = true;
	l->next_arrival = w->now;
	l->took = took;
	l->room = ROOM;
	for (int i = 0; i < 2; i++)
		world_add(w, 200, 1000, 200, others);
	world_run(w, w->now + (seconds < 100 ? seconds : 100) * SECOND);
	uint64_t n = l->done < ROOM ? l->done : ROOM;
	qsort(took, n, sizeof *took, by_length);
	double p999 = (double)took[n * 999 / 1000] / 1e6, most = 2 + (double)(2 * others + 2 * switch_cost) / 1e6;
	printf("comes back, switch %3llu us: %llu times, p50 %.2f ms, p99.9 %.2f, most %.2f\n", (unsigned long long)(switch_cost / US), (unsigned long long)n,
		(double)took[n / 2] / 1e6, p999, (double)took[n - 1] / 1e6);
	check(p999 <= most, "comes back, switch %llu us: one in a thousand took %.2f ms, %.2f allowed", (unsigned long long)(switch_cost / US), p999, most);
	check_rows(w, "comes back");
	world_free(w);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "-n"))
		seconds = strtoull(argv[2], NULL, 10);
	static const uint32_t shares[][2] = {{250, 1000}, {500, 1000}, {750, 1000}, {250, 500}, {500, 800}, {250, 250}, {500, 500}};
	for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
		for (uint64_t switch_cost = 0; switch_cost <= 100 * US; switch_cost += 100 * US)
			beside(shares[i][0], shares[i][1], switch_cost);
	for (int owners = 1; owners <= 5; owners++)
		bursts(owners);
	comes_back(0);
	comes_back(150 * US);
	if (check_failures())
		fprintf(stderr, "%d checks failed\n", check_failures());
	return check_failures() ? 1 : 0;
}
