/* SPDX-License-Identifier: Apache-2.0 */
/* virtual.c: the rule of core.h under virtual time: programs that wait, wake, never end, come and go. How shares are divided is
 * judged in shares.c, what they are charged in charged.c. */
#include "judge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW (10 * SECOND)

static bool verbose;

static const uint64_t kernels[] = {50 * US, 200 * US, 500 * US, 1 * MS, 2 * MS, 5 * MS, 20 * MS};

/* A program that waits for each kernel gets its floor, and its pauses cost its neighbours next to nothing. */
static void waits_for_each(uint32_t floor, uint32_t ceiling, uint64_t kernel, uint64_t gap, uint64_t spread, int neighbours, uint64_t beside)
{
	struct limits limits[3] = {{floor, ceiling, floor, 1}};
	struct world *w = world_new(11 + kernel + gap, 1);
	struct lane *l = world_add(w, floor, ceiling, floor, kernel);
	l->gap = gap;
	l->spread = spread;
	l->backlog = 1;
	for (int i = 1; i <= neighbours; i++) {
		limits[i] = (struct limits){(900 - floor) / 2, 1000, (900 - floor) / 2, 1};
		world_add(w, limits[i].floor, 1000, limits[i].floor, beside);
	}
	char name[96];
	snprintf(name, sizeof name, "waits %lluus of %lluus%s, %d beside", (unsigned long long)(gap / US), (unsigned long long)(kernel / US),
		spread ? " more or less" : "", neighbours);
	world_run(w, w->now + SECOND);
	uint64_t from[3], start = w->now;
	for (int i = 0; i <= neighbours; i++)
		from[i] = w->lane[i].truth;
	world_run(w, w->now + WINDOW);
	double got[3], natural = (double)kernel / (double)(kernel + gap + w->latency);
	printf("%-34s", name);
	for (int i = 0; i <= neighbours; i++) {
		got[i] = (double)(w->lane[i].truth - from[i]) / (double)(w->now - start);
		printf(" %6.2f %% of %.1f..%.1f", got[i] * 100, limits[i].floor / 10.0, limits[i].ceiling / 10.0);
	}
	printf("\n");
	double most = fmin(ceiling / 1000.0, natural);
	if (neighbours == 0)
		check(got[0] >= most - (spread ? 0.012 : 0.005), "%s: alone it got %.2f %% of %.2f", name, got[0] * 100, most * 100);
	else if (gap * 10 <= kernel)
		check(got[0] >= floor / 1000.0 * 0.95, "%s: got %.2f %% with a floor of %.1f", name, got[0] * 100, floor / 10.0);
	check(got[0] <= ceiling / 1000.0 + 0.005, "%s: got %.2f %% with a ceiling of %.1f", name, got[0] * 100, ceiling / 10.0);
	for (int i = 1; i <= neighbours; i++)
		check(got[i] >= limits[i].floor / 1000.0 - 0.005, "%s: neighbour %d got %.2f %% with a floor of %.1f", name, i, got[i] * 100,
			limits[i].floor / 10.0);
	check_rows(w, name);
	world_free(w);
}

static void waits(void)
{
	static const uint64_t each[] = {50 * US, 200 * US, MS, 5 * MS}, gaps[] = {20 * US, 100 * US, 250 * US};
	for (size_t k = 0; k < sizeof each / sizeof each[0]; k++)
		for (size_t g = 0; g < sizeof gaps / sizeof gaps[0]; g++) {
			waits_for_each(250, 250, each[k], gaps[g], 0, 0, 0);
			waits_for_each(250, 250, each[k], gaps[g], 300, 0, 0);
			waits_for_each(250, 250, each[k], gaps[g], 0, 1, 500 * US);
			waits_for_each(400, 1000, each[k], gaps[g], 0, 2, 500 * US);
			waits_for_each(400, 400, each[k], gaps[g], 0, 2, 5 * MS);
		}
}

/* The gate of an idle owner opens soon after it wakes, beside borrowers that never stop. */
static void give_back(void)
{
	struct world *w = world_new(5, 1);
	struct lane *owner = world_add(w, 500, 1000, 1, 300 * US);
	owner->period = 17 * MS;
	owner->jitter = 9 * MS;
	owner->batch = 3;
	owner->next_arrival = w->now;
	for (int i = 0; i < 3; i++)
		world_add(w, 100, 1000, 1, 500 * US);
	world_run(w, w->now + 60 * SECOND);
	const struct core_books *b = &w->core->grant[owner->grant].books;
	printf("%-28s %llu wakes, worst %.2f ms\n", "give-back", (unsigned long long)b->wakes, (double)b->wake_worst_ns / 1e6);
	check(b->wakes > 2000, "give-back: only %llu wakes", (unsigned long long)b->wakes);
	check(b->wake_worst_ns <= 2 * MS + 500 * US, "give-back: %.2f ms beside kernels of 0.5 ms", (double)b->wake_worst_ns / 1e6);
	check_rows(w, "give-back");
	world_free(w);
}

/* An endless kernel does not keep others out, and is owed nothing after. */
static void endless(void)
{
	struct world *w = world_new(3, 1);
	struct lane *hog = world_add(w, 500, 1000, 1, 3600 * SECOND), *other = world_add(w, 500, 1000, 1, 500 * US);
	hog->estimate = 1 * MS;
	world_run(w, w->now + 10 * SECOND);
	check(other->truth > 4 * SECOND, "endless: the other ran %.2f of 10 s", (double)other->truth / 1e9);
	check(w->core->grant[hog->grant].books.overlapped > 0, "endless: never overlapped");
	check_rows(w, "endless");
	world_free(w);
}

/* A share of several processes, which measure each other's work and so say too much, does not pay for a neighbour that says too little. */
static void several(void)
{
	struct world *w = world_new(5, 1);
	struct lane *share = world_add(w, 400, 500, 1, 500 * US), *neighbour = world_add(w, 300, 1000, 1, 500 * US);
	share->several = true;
	share->estimate = 2 * share->kernel;
	neighbour->estimate = neighbour->kernel - neighbour->kernel / 5;
	world_run(w, w->now + 20 * SECOND);
	check(share->truth > 9900 * MS, "several: the share ran %.2f of 20 s, due are 10", (double)share->truth / 1e9);
	check_rows(w, "several");
	world_free(w);
}

/* A sole grant with a whole ceiling is ungated; a second one gates it, and its leaving ungates it again. */
static void ungated(void)
{
	struct world *w = world_new(9, 1);
	struct lane *sole = world_add(w, 300, 1000, 1, 500 * US);
	world_run(w, w->now + SECOND);
	check(w->core->grant[sole->grant].phase == CORE_UNGATED, "ungated: the sole grant is gated");
	check(sole->truth > 995 * MS, "ungated: busy %.3f s of 1", (double)sole->truth / 1e9);
	uint64_t runs = w->runs;
	world_run(w, w->now + SECOND);
	check(w->runs - runs < 20, "ungated: %llu runs in a second", (unsigned long long)(w->runs - runs));
	struct lane *second = world_add(w, 300, 1000, 1, 500 * US);
	world_run(w, w->now + 200 * MS);
	check(w->core->grant[sole->grant].phase != CORE_UNGATED, "ungated: still, beside another");
	uint64_t before = sole->truth, other = second->truth;
	world_run(w, w->now + 2 * SECOND);
	check(llabs((long long)(sole->truth - before) - (long long)(second->truth - other)) < 40 * (long long)MS,
		"ungated: uneven after: %.3f and %.3f s", (double)(sole->truth - before) / 1e9, (double)(second->truth - other) / 1e9);
	core_task_del(w->core, second->task, w->now);
	second->off = true;
	second->grant = -1;
	w->next_run = w->now;
	world_run(w, w->now + 100 * MS);
	check(w->core->grant[sole->grant].phase == CORE_UNGATED, "ungated: not again after the other left");
	check_rows(w, "ungated");
	world_free(w);
}

/* Nothing to do: the core asks for no wake-up. */
static void idle(void)
{
	struct world *w = world_new(1, 1);
	for (int i = 0; i < 4; i++) {
		struct lane *l = world_add(w, 200, 900, 1, MS);
		l->off = true;
	}
	world_run(w, w->now + SECOND);
	uint64_t runs = w->runs;
	world_run(w, w->now + 100 * SECOND);
	check(w->runs == runs, "idle: %llu runs", (unsigned long long)(w->runs - runs));
	check_rows(w, "idle");
	world_free(w);
}

/* Tasks over several devices beside tasks on one: all go on, floors hold, and rings of them do not lock. */
static void gangs(void)
{
	struct world *w = world_new(21, 3);
	struct lane *a = world_add_gang(w, 0, 2, 300, 1000, 700 * US), *b = world_add_gang(w, 1, 2, 300, 1000, 300 * US);
	struct lane *single = world_add_gang(w, 1, 1, 300, 1000, 500 * US);
	world_run(w, w->now + SECOND);
	uint64_t ta = a->truth, tb = b->truth, ts = single->truth;
	world_run(w, w->now + WINDOW);
	printf("%-28s two devices %.1f %%, two devices %.1f %%, one %.1f %%\n", "gangs", (double)(a->truth - ta) / 1e8,
		(double)(b->truth - tb) / 1e8, (double)(single->truth - ts) / 1e8);
	check(single->truth - ts > WINDOW * 29 / 100, "gangs: the single task got %.1f %%", (double)(single->truth - ts) / 1e8);
	check(a->truth - ta > WINDOW * 20 / 100, "gangs: a got %.1f %%", (double)(a->truth - ta) / 1e8);
	check(b->truth - tb > WINDOW * 15 / 100, "gangs: b got %.1f %%", (double)(b->truth - tb) / 1e8);
	check_rows(w, "gangs");
	world_free(w);
}

/* Random tenants that come, go, stop and change their limits: nobody starves, no ceiling is passed, the rows add up. */
static void random_tenants(uint64_t seed)
{
	struct world *w = world_new(seed, 1);
	uint32_t room = 1000;
	char name[32];
	snprintf(name, sizeof name, "random %llu", (unsigned long long)seed);
	int n = 2 + (int)world_random(w, 7);
	w->slice = world_random(w, 4) ? 2 * MS : 0;
	size_t choice = sizeof kernels / sizeof kernels[0] - (w->slice ? 0 : 1);
	uint32_t floors[MAX_LANES], ceilings[MAX_LANES];
	for (int i = 0; i < n; i++) {
		floors[i] = (uint32_t)world_random(w, room / 2 + 1);
		room -= floors[i];
		ceilings[i] = floors[i] + (uint32_t)world_random(w, 1001 - floors[i]);
		ceilings[i] = ceilings[i] ? ceilings[i] : 1;
		struct lane *l = world_add(w, floors[i], ceilings[i], 1 + (uint32_t)world_random(w, 10),
			kernels[world_random(w, choice)]);
		if (world_random(w, 3) == 0) {
			l->period = 5 * MS + world_random(w, 100 * MS);
			l->batch = 1 + world_random(w, 20);
			l->jitter = l->period;
			l->next_arrival = w->now;
		} else if (world_random(w, 4) == 0) {
			l->gap = 10 * US + world_random(w, MS);
			l->backlog = 1;
		}
	}
	for (int i = 0; verbose && i < n; i++)
		fprintf(stderr, "  %s slice %llu lane %d: %u..%u, kernel %llu us, gap %llu us, %llu each %llu us\n", name,
			(unsigned long long)w->slice, i, floors[i], ceilings[i], (unsigned long long)(w->lane[i].kernel / US),
			(unsigned long long)(w->lane[i].gap / US), (unsigned long long)w->lane[i].batch,
			(unsigned long long)(w->lane[i].period / US));
	for (int k = 0; k < 4; k++) {
		uint64_t before[MAX_LANES];
		for (int i = 0; i < n; i++)
			before[i] = w->lane[i].truth;
		world_run(w, w->now + WINDOW);
		for (int i = 0; i < n; i++) {
			struct lane *l = &w->lane[i];
			double got = (double)(l->truth - before[i]) / (double)WINDOW;
			/* Kernels that outlive their leases by far, beside owners that wake all the time, are apportioned by estimate. */
			double allowed = l->kernel > 10 * MS ? 0.03 : 0.01;
			check(got <= ceilings[i] / 1000.0 + allowed, "%s: lane %d got %.2f %% with a ceiling of %.2f", name, i, got * 100,
				ceilings[i] / 10.0);
			if (!l->period && !l->gap)
				check(got >= floors[i] / 1000.0 - 0.02,
					"%s: lane %d got %.2f %% with a floor of %.2f", name, i, got * 100, floors[i] / 10.0);
		}
		check_rows(w, name);
	}
	world_free(w);
}

/* Shares whose ceiling is their floor, alone and beside a borrower: what they run before their floors have filled is theirs, never burst. */
static void no_burst(bool beside)
{
	struct world *w = world_new(3, 1);
	struct lane *fixed[] = {world_add(w, 100, 100, 100, 500 * US), world_add(w, 300, 300, 300, 5 * MS)};
	struct lane *borrower = beside ? world_add(w, 200, 1000, 200, MS) : NULL;
	for (int step = 0; step < 40; step++) { /* the first are those that count */
		world_run(w, w->now + (step < 20 ? 5 * MS : 100 * MS));
		check_rows(w, "no burst");
		for (int i = 0; i < 2; i++) {
			const struct core_books *b = &w->core->grant[fixed[i]->grant].books;
			check(b->split.burst_free_ns + b->split.burst_lent_ns == 0 && b->split.own_ns == b->held_ns,
				"no burst: share %d held %llu ns: %llu are its own, %llu burst", i, (unsigned long long)b->held_ns,
				(unsigned long long)b->split.own_ns, (unsigned long long)(b->split.burst_free_ns + b->split.burst_lent_ns));
		}
	}
	if (beside)
		check(w->core->grant[borrower->grant].books.split.burst_free_ns > 0, "no burst: the borrower has none either");
	world_free(w);
}

int main(int argc, char **argv)
{
	verbose = argc > 1 && !strcmp(argv[1], "-v");
	waits();
	give_back();
	endless();
	several();
	ungated();
	idle();
	no_burst(false);
	no_burst(true);
	gangs();
	for (uint64_t seed = 1; seed <= 40; seed++)
		random_tenants(seed);
	if (check_failures())
		fprintf(stderr, "%d checks failed\n", check_failures());
	return check_failures() ? 1 : 0;
}
