/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares.c: how the rule of core.h divides a device, judged under virtual time by what the device ran, against water-filling computed in
 * another way. Every sliding 10 s of a minute counts, after a second of settling in. Time that the device spends switching between contexts
 * is nobody's: what is left of a window is what is divided, and it is shown apart.
 */
#include "judge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEP (SECOND / 4) /* from one window to the next */
#define WINDOW 40         /* steps: 10 s */
#define STEPS 240         /* a minute */

static bool verbose;

struct worst {
	double error, over, busy, switching;
	double missed, lost; /* of a floor, by whom it is wanted; of what is due, by those that do not wait */
};

/* One window that ends with step `to`; one lane waits after each launch, or none: -1. */
static void judge(const struct limits *limits, int n, int waits, uint64_t ran[][STEPS + 1], const uint64_t *lost, int to, struct worst *worst)
{
	struct limits scaled[MAX_LANES];
	double want[MAX_LANES], sum = 0, got = 0, length = (double)WINDOW * STEP, wasted = (double)(lost[to] - lost[to - WINDOW]) / length;
	memcpy(scaled, limits, (size_t)n * sizeof *scaled);
	/* One more, whom nobody can deny what switching takes. */
	scaled[n] = (struct limits){1000, 1000, 1, wasted};
	for (int i = 0; i < n; i++) {
		/* Floors that no longer fit beside it give way in proportion. */
		double floors = 0;
		for (int k = 0; k < n; k++)
			floors += fmin(limits[k].floor / 1000.0, limits[k].demand);
		if (floors > 1 - wasted)
			scaled[i].floor = (uint32_t)(limits[i].floor * (1 - wasted) / floors + 0.5);
	}
	oracle(n + 1, scaled, want);
	for (int i = 0; i < n; i++) {
		double part = (double)(ran[i][to] - ran[i][to - WINDOW]) / length;
		if (verbose && fabs(part - want[i]) > worst->error)
			fprintf(stderr, "  lane %d, %.2f s: got %.2f %%, want %.2f\n", i, (double)to * STEP / 1e9, part * 100, want[i] * 100);
		worst->error = fmax(worst->error, fabs(part - want[i]));
		worst->over = fmax(worst->over, part - limits[i].ceiling / 1000.0);
		worst->missed = fmax(worst->missed, fmin(fmin(scaled[i].floor / 1000.0, limits[i].demand), want[i]) - part);
		if (i != waits)
			worst->lost = fmax(worst->lost, want[i] - part);
		sum += want[i];
		got += part;
	}
	worst->busy = fmin(worst->busy, got / sum);
	worst->switching = fmax(worst->switching, wasted);
}

static struct worst watch(struct world *w, int n, int waits, const struct limits *limits)
{
	static uint64_t ran[MAX_LANES][STEPS + 1], lost[STEPS + 1];
	struct worst worst = {.busy = 1};
	world_run(w, w->now + SECOND);
	for (int step = 0; step <= STEPS; step++) {
		if (step)
			world_run(w, w->now + STEP);
		for (int i = 0; i < n; i++)
			ran[i][step] = w->lane[i].truth;
		lost[step] = w->switching[0];
		if (step >= WINDOW)
			judge(limits, n, waits, ran, lost, step, &worst);
	}
	return worst;
}

static void compare(struct world *w, const char *name, int n, const struct limits *limits, double allowed)
{
	struct worst worst = watch(w, n, -1, limits);
	printf("%-40s error %5.2f points, over ceilings %5.2f, busy %6.2f %%, switching %5.2f %%\n", name, worst.error * 100, worst.over * 100,
		worst.busy * 100, worst.switching * 100);
	check(worst.error <= allowed, "%s: error %.2f points, %.2f allowed", name, worst.error * 100, allowed * 100);
	check(worst.over <= 0.005, "%s: %.2f points over a ceiling", name, worst.over * 100);
	check(worst.busy >= 0.98, "%s: busy %.2f %% of what is wanted", name, worst.busy * 100);
	check_rows(w, name);
}

static const uint64_t kernels[] = {50 * US, 500 * US, 5 * MS, 10 * MS, 20 * MS}; /* 10 ms: as a graph has */

static void saturating(int tenants, uint64_t kernel, uint64_t slice, uint64_t switch_cost)
{
	static const struct limits sets[3][8] = {
		{{250, 800, 250, 1}, {500, 1000, 500, 1}},
		{{250, 1000, 1, 1}, {100, 300, 1, 1}, {400, 400, 400, 1}, {0, 1000, 3, 1}},
		{{125, 125, 1, 1}, {125, 1000, 1, 1}, {50, 1000, 2, 1}, {300, 350, 1, 1}, {100, 1000, 1, 1}, {100, 200, 5, 1},
			{0, 1000, 1, 1}, {200, 200, 1, 1}},
	};
	const struct limits *limits = sets[tenants == 2 ? 0 : tenants == 4 ? 1 : 2];
	struct world *w = world_new((uint64_t)tenants + kernel, 1);
	w->slice = slice;
	w->switch_cost = switch_cost;
	for (int i = 0; i < tenants; i++)
		world_add(w, limits[i].floor, limits[i].ceiling, limits[i].weight,
			kernel ? kernel : kernels[world_random(w, sizeof kernels / sizeof kernels[0])]);
	char name[96], length[32] = "mixed kernels";
	if (kernel)
		snprintf(length, sizeof length, "%llu us", (unsigned long long)(kernel / US));
	snprintf(name, sizeof name, "%d x %s%s, switch %llu us", tenants, length, slice ? "" : ", fifo", (unsigned long long)(switch_cost / US));
	compare(w, name, tenants, limits, switch_cost ? 0.01 : 0.005);
	world_free(w);
}

/* An owner that uses a part of its floor; the rest goes to the others. */
static void partial(void)
{
	const struct limits limits[] = {{500, 1000, 1, 0.2}, {250, 1000, 1, 1}, {250, 1000, 1, 1}};
	struct world *w = world_new(7, 1);
	struct lane *owner = world_add(w, 500, 1000, 1, 500 * US);
	owner->period = 20 * MS;
	owner->batch = 8;
	owner->next_arrival = w->now;
	world_add(w, 250, 1000, 1, 500 * US);
	world_add(w, 250, 1000, 1, 2 * MS);
	compare(w, "partial demand", 3, limits, 0.015);
	const struct core_books *b = &w->core->grant[owner->grant].books;
	double lent = (double)b->split.lent_ns / (double)(w->now - 5 * SECOND);
	check(fabs(lent - 0.3) < 0.01, "partial demand: %.3f of the device lent, 0.300 of it is an idle floor", lent);
	world_free(w);
}

/* What was learned of switching while the tenants' word was taken is forgotten once nobody's is: as shares of several processes whose first
 * ones began alone. */
static void several(void)
{
	const struct limits limits[] = {{250, 300, 250, 1}, {500, 1000, 500, 1}};
	struct world *w = world_new(11, 1);
	w->slice = 2 * MS;
	w->switch_cost = 100 * US;
	for (int i = 0; i < 2; i++)
		world_add(w, limits[i].floor, limits[i].ceiling, limits[i].weight, 500 * US);
	world_run(w, w->now + 3 * SECOND);
	w->switch_cost = 0;
	for (int i = 0; i < 2; i++)
		w->lane[i].several = true;
	world_run(w, w->now + 20 * SECOND);
	compare(w, "several processes, where one began", 2, limits, 0.001);
	world_free(w);
}

/* The sets of tenants that `make bench-share` measures on simulated devices, by the clock of a machine. */
static const struct limits measured[3][8] = {
	{{250, 300, 250, 1}, {500, 1000, 500, 1}},
	{{400, 1000, 400, 1}, {200, 250, 200, 1}, {100, 1000, 100, 1}, {50, 800, 50, 1}},
	{{200, 1000, 200, 1}, {150, 180, 150, 1}, {100, 1000, 100, 1}, {100, 500, 100, 1}, {50, 60, 50, 1}, {50, 1000, 50, 1}, {20, 1000, 20, 1},
		{30, 1000, 30, 1}},
};
static const uint32_t weights[8] = {10, 50, 300, 20, 70, 200, 10, 400};
static const uint64_t mixed[4] = {50 * US, 20 * MS, 500 * US, 5 * MS};

enum { SATURATING, WEIGHTED, HALF_WANTED, ONE_WAITS };
static const char *const kinds[] = {"", ", weights", ", half wanted", ", one waits"};

/* kernel 0: of very different length. */
static void as_measured(int set, int kind, uint64_t kernel, uint64_t switch_cost)
{
	int n = 2 << set;
	struct limits limits[MAX_LANES];
	memcpy(limits, measured[set], sizeof measured[set]);
	struct world *w = world_new(41 + (uint64_t)n + kernel, 1);
	w->slice = 2 * MS;
	w->switch_cost = switch_cost;
	for (int i = 0; i < n; i++) {
		if (kind == WEIGHTED)
			limits[i].weight = weights[i];
		uint64_t each = kernel ? kernel : mixed[i % 4];
		struct lane *l = world_add(w, limits[i].floor, limits[i].ceiling, limits[i].weight, each);
		if (kind == HALF_WANTED && i % 2 == 0) {
			limits[i].demand = limits[i].floor / 2000.0;
			l->batch = 1 + 2 * MS / each;
			l->period = (uint64_t)((double)(l->batch * each) / limits[i].demand);
			l->next_arrival = w->now;
		}
	}
	if (kind == ONE_WAITS) {
		w->lane[0].gap = 20 * US; /* what a thread takes to see that it is done, and to launch again */
		w->lane[0].backlog = 1;
		limits[0].demand = (double)kernel / (double)(kernel + w->lane[0].gap);
	}
	struct worst worst = watch(w, n, kind == ONE_WAITS ? 0 : -1, limits);
	char name[96], length[32] = "mixed";
	if (kernel)
		snprintf(length, sizeof length, "%llu us", (unsigned long long)(kernel / US));
	snprintf(name, sizeof name, "%d x %s%s, switch %llu us", n, length, kinds[kind], (unsigned long long)(switch_cost / US));
	printf("measured: %-38s error %5.2f points, missed %5.2f, lost %5.2f, over ceilings %5.2f, busy %6.2f %%, switching %5.2f %%\n", name,
		worst.error * 100, worst.missed * 100, worst.lost * 100, worst.over * 100, worst.busy * 100, worst.switching * 100);
	/*
	 * One that waits after each launch: no pause of its own is seen, so that where the device takes time to switch a part of them is taken for that,
	 * and where they last for a tenth of its kernels and more (50 us here) it cannot have its floor and its neighbours all of theirs. The goal is half
	 * a point for both; docs/measurements.md has the figures.
	 */
	bool brief = kind == ONE_WAITS && kernel < 500 * US;
	if (kind == ONE_WAITS) {
		check(worst.missed <= (brief ? 0.035 : 0.005), "%s: %.2f points of a floor are missed", name, worst.missed * 100);
		check(worst.lost <= (switch_cost || brief ? 0.014 : 0.005), "%s: a neighbour lost %.2f points", name, worst.lost * 100);
	} else {
		double allowed = kind == HALF_WANTED ? 0.015 : kind == WEIGHTED && switch_cost ? 0.0105 : 0.01;
		check(worst.error <= allowed, "%s: error %.2f points, %.2f allowed", name, worst.error * 100, allowed * 100);
		check(worst.busy >= 0.98, "%s: busy %.2f %% of what is wanted", name, worst.busy * 100);
	}
	check(worst.over <= 0.005, "%s: %.2f points over a ceiling", name, worst.over * 100);
	check_rows(w, name);
	world_free(w);
}

static void all_measured(void)
{
	static const uint64_t lengths[] = {50 * US, 500 * US, 5 * MS, 10 * MS, 20 * MS, 0}, switches[] = {0, 100 * US};
	for (int set = 0; set < 3; set++)
		for (size_t s = 0; s < 2; s++) {
			for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++)
				as_measured(set, SATURATING, lengths[k], switches[s]);
			for (size_t k = 0; k < 3; k++) {
				as_measured(set, WEIGHTED, lengths[k], switches[s]);
				as_measured(set, HALF_WANTED, lengths[k], switches[s]);
				as_measured(set, ONE_WAITS, lengths[k], switches[s]);
			}
		}
}

int main(int argc, char **argv)
{
	verbose = argc > 1 && !strcmp(argv[1], "-v");
	static const int counts[] = {2, 4, 8};
	static const uint64_t switches[] = {0, 100 * US};
	for (size_t c = 0; c < 3; c++)
		for (size_t s = 0; s < 2; s++) {
			for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
				saturating(counts[c], kernels[k], 2 * MS, switches[s]);
			saturating(counts[c], 0, 2 * MS, switches[s]);
			/* Where kernels are not sliced, one that outlives its lease by 10 ms cannot be apportioned: shorter ones only. */
			saturating(counts[c], 500 * US, 0, switches[s]);
			saturating(counts[c], 5 * MS, 0, switches[s]);
		}
	all_measured();
	partial();
	several();
	if (check_failures())
		fprintf(stderr, "%d checks failed\n", check_failures());
	return check_failures() ? 1 : 0;
}
