/* SPDX-License-Identifier: Apache-2.0 */
/* pauses.c: what the pauses of one program cost the others, under virtual time: the device goes to them before it idles, and where it is kept
 * for a program that waits after each launch, that program pays. */
#include "judge.h"

#include <stdio.h>

#define WINDOW (10 * SECOND)

/* Part of the device that each lane got, and how busy that was, over a window after the first second. */
static double watch(struct world *w, double *got)
{
	uint64_t from[MAX_LANES];
	world_run(w, w->now + SECOND);
	uint64_t start = w->now, busy = w->busy[0];
	for (int i = 0; i < w->lanes; i++)
		from[i] = w->lane[i].truth;
	world_run(w, w->now + WINDOW);
	for (int i = 0; i < w->lanes; i++)
		got[i] = (double)(w->lane[i].truth - from[i]) / (double)(w->now - start) * 100;
	return (double)(w->busy[0] - busy) / (double)(w->now - start) * 100;
}

/* An owner that wants half of its floor, some milliseconds of work at a time, on a machine that wakes nobody sooner than in 150 µs: what it
 * leaves is used, and it gets what it wants. */
static void lent(uint64_t kernel, uint64_t batch, double least)
{
	struct world *w = world_new(31, 1);
	w->latency = 150 * US;
	w->slice = 2 * MS;
	struct lane *l = world_add(w, 400, 1000, 400, kernel);
	l->batch = batch;
	l->period = batch * kernel * 5;
	l->next_arrival = w->now;
	world_add(w, 100, 1000, 100, 500 * US);
	world_add(w, 100, 1000, 100, 500 * US);
	double got[3], busy = watch(w, got);
	printf("half wanted, %2llu of %4llu us: %6.2f %% of 20.0, busy %6.2f %%\n", (unsigned long long)batch, (unsigned long long)(kernel / US),
		got[0], busy);
	check(got[0] >= 19.8 && got[0] <= 20.2, "half wanted: it got %.2f %% of 20 that it wanted", got[0]);
	check(busy >= least, "half wanted, kernels of %llu us: the device was busy for %.2f %%", (unsigned long long)(kernel / US), busy);
	check_rows(w, "half wanted");
	world_free(w);
}

/* One that waits after each launch and may have a little more than its floor: that is where its pauses come from, and its neighbour has all of its own. */
static void pays(uint32_t ceiling)
{
	struct world *w = world_new(37, 1);
	struct lane *l = world_add(w, 250, ceiling, 250, 500 * US);
	l->gap = 50 * US;
	l->backlog = 1;
	world_add(w, 500, 1000, 500, 500 * US);
	double got[2], busy = watch(w, got), due = 100 - ceiling / 10.0;
	printf("waits 50us of 500us with 25..%.0f: %6.2f %%, its neighbour %6.2f %% of %.1f, busy %6.2f %%\n", ceiling / 10.0, got[0], got[1], due, busy);
	check(got[0] >= 24.5, "waits, 25..%.0f: it got %.2f %% with a floor of 25", ceiling / 10.0, got[0]);
	check(got[1] >= due - 0.7, "waits, 25..%.0f: its neighbour got %.2f %% of %.1f", ceiling / 10.0, got[1], due);
	check_rows(w, "pays");
	world_free(w);
}

int main(void)
{
	lent(500 * US, 5, 99.9);
	lent(5 * MS, 2, 99.9);
	lent(50 * US, 40, 98.9);
	pays(300);
	pays(350);
	pays(500);
	if (check_failures())
		fprintf(stderr, "%d checks failed\n", check_failures());
	return check_failures() ? 1 : 0;
}
