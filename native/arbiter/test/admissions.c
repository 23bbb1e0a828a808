/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admissions.c: tenants whose work overlaps at the changes of leases, and tenants that lie, judged under virtual time by what the device ran.
 *
 *   admissions [-n SEEDS] [-s SEED] [-v] [-f]
 *
 * A failure names its seed; `-s SEED` runs that one alone, `-v` shows each tenant, `-f` stops after the first place that fails.
 *
 * Overlap comes from shims that hear late that work has ended, kernels that last other than estimated, and rare ones that outlive their
 * leases by so much that they are overlapped. Each place is run with all tenants honest, with nobody admitting (all say LEARNING, which
 * voids admissions and nothing else), and with one liar for each lie. A liar may get no more than an honest one in its place gets in
 * the better of the first two runs, since not to admit is always open to it, and may make no neighbour miss its floor.
 */
#include "judge.h"
#include "payments.h"
#include "tel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TENANTS 8 /* on a device */
#define LIARS_EACH 4  /* one place in so many is also run with liars */
#define SETTLING SECOND
#define WINDOW (20 * SECOND)

#define FAIR 0.01         /* of a device: what honest tenants may be off by, and what a lie may bring or cost */
#define FAIR_TAILS 0.025  /* where one tenant's rare kernels outlive their leases: what it complains of fades before others have paid it */
#define BELIEVED 0.05     /* brought by claims of less until the agent doubts them: what others would have borrowed, and what passes for switching */
#define ADMITTED 0.02     /* after that: what others admit to have used beyond their charges */
#define PRESENT 0.20      /* brought by saying that work has ended which has not: nothing else tells the arbiter */
#define PRESENT_COSTS 0.05
#define CLAIM_NS 50000000 /* the most that a claim is carried on */
#define SWITCHING 16 /* of the time that is held, one part in so many is taken for switching at most */
#define DEBT_NS 200000000ll /* the most that a grant owes, */
#define DEBT_PRESENT_NS 2000000000ll /* and the most that the core carries: of one whose words are random */

struct tenant {
	int first, devices;
	struct limits limits;
	uint64_t kernel, estimate, spread, notice, tail, tail_one_in;
	bool rests; /* but for a kernel each half second */
};

struct place { /* what a seed stands for */
	uint64_t seed;
	int devices, tenants, liar;
	bool gang;
	bool doubted; /* the agent has told the arbiter not to believe the liar */
	struct tenant tenant[MAX_LANES];
};

struct run {
	struct world *world;
	struct tel *tel;
	struct lane *lane[MAX_LANES]; /* the first of each tenant */
	double got[MAX_LANES];        /* of a device, by the device's own record */
	uint64_t overlapped;
	int64_t debt;                 /* the most that anyone owed, ns */
};

static bool verbose, first;
static struct {
	double virtual_ns, honest, silent, gain[LIES], doubted[LIES], cost[LIES];
	uint64_t runs, overlapped, gain_seed[LIES];
	int64_t debt[LIES];
} sums;

static const uint64_t kernels[] = {50 * US, 200 * US, 500 * US, 1 * MS, 2 * MS, 5 * MS, 20 * MS};

static uint64_t draw(uint64_t *seed, uint64_t below)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return below ? (*seed >> 33) % below : 0;
}

static struct tenant draw_tenant(uint64_t *seed, int device, uint32_t *room)
{
	struct tenant t = {.first = device, .devices = 1, .kernel = kernels[draw(seed, sizeof kernels / sizeof kernels[0])]};
	uint32_t floor = (uint32_t)draw(seed, *room / 2 + 1);
	*room -= floor;
	uint32_t ceiling = floor + (uint32_t)draw(seed, 1001 - floor);
	t.limits = (struct limits){floor, draw(seed, 2) ? 1000 : ceiling > 50 ? ceiling : 50, 1 + (uint32_t)draw(seed, 10), 1};
	t.spread = draw(seed, 2) ? draw(seed, 300) : 0;
	t.notice = draw(seed, 50 * US);
	if (draw(seed, 4) == 0) {
		t.tail = 1 * MS + draw(seed, 14 * MS);
		t.tail_one_in = 1 + 20 * t.tail / t.kernel;
	}
	t.estimate = t.kernel + (t.tail_one_in ? t.tail / t.tail_one_in : 0);
	return t;
}

static struct place draw_place(uint64_t number)
{
	struct place p = {.seed = number};
	uint64_t seed = number * 0x9e3779b97f4a7c15ull + 1;
	p.devices = 1 + (int)draw(&seed, 4);
	for (int d = 0; d < p.devices; d++) {
		int n = 2 + (int)draw(&seed, p.devices == 1 ? MAX_TENANTS - 1 : 3);
		uint32_t room = d < 2 ? 900 : 1000;
		for (int i = 0; i < n; i++)
			p.tenant[p.tenants++] = draw_tenant(&seed, d, &room);
	}
	p.liar = (int)draw(&seed, (uint64_t)p.tenants);
	p.gang = p.devices > 1 && draw(&seed, 3) == 0;
	if (p.gang) {
		uint32_t room = 200;
		p.tenant[p.tenants] = draw_tenant(&seed, 0, &room);
		p.tenant[p.tenants++].devices = 2;
	}
	return p;
}

/* The place with its liar saying `lie` and all others saying `rest`. */
static struct run build(const struct place *p, enum lie lie, enum lie rest)
{
	struct run r = {.world = world_new(p->seed, p->devices)};
	r.tel = tel_new(r.world);
	for (int i = 0; i < p->tenants; i++) {
		const struct tenant *t = &p->tenant[i];
		struct lane *l = r.lane[i] = world_add_gang(r.world, t->first, t->devices, t->limits.floor, t->limits.ceiling, t->kernel);
		for (int k = 0; k < t->devices; k++) {
			struct core_policy policy = {.floor = t->limits.floor, .ceiling = t->limits.ceiling, .weight = t->limits.weight,
				.flags = i == p->liar && p->doubted ? ALQ_POLICY_CLOCK : 0};
			core_set_policy(r.world->core, l[k].grant, r.world->now, &policy);
			l[k].estimate = t->estimate;
			l[k].spread = t->spread;
			l[k].notice = t->notice;
			l[k].tail = t->tail;
			l[k].tail_one_in = t->tail_one_in;
			l[k].period = t->rests ? SECOND / 2 : 0;
			l[k].batch = 1;
			l[k].next_arrival = r.world->now;
		}
		tel_join(r.tel, l, t->devices, i == p->liar ? lie : rest);
	}
	return r;
}

/* What anyone owes or claims is bounded, at any time. */
static void check_bounds(struct run *r, const char *name, int64_t most)
{
	const struct world *w = r->world;
	for (int i = 0; i < w->lanes; i++) {
		const struct core_grant *g = &w->core->grant[w->lane[i].grant];
		int64_t owed = -g->credit / CORE_MILLI;
		r->debt = owed > r->debt ? owed : r->debt;
		check(g->claim_ns <= CLAIM_NS && g->claim_ns >= -CLAIM_NS, "%s: lane %d carries a claim of %.1f ms", name, i,
			(double)g->claim_ns / 1e6);
		check(owed <= most, "%s: lane %d owes %.1f ms", name, i, (double)owed / 1e6);
	}
	for (int i = 0; i < CORE_DEVICES; i++) {
		const struct core_device *d = &w->core->device[i];
		check(d->spare_ns <= d->switching_ns, "%s: on device %d %llu ns count as switching, and %llu can have been", name, i,
			(unsigned long long)d->spare_ns, (unsigned long long)d->switching_ns);
		check(d->spare_ns <= d->lately_held_ns / SWITCHING, "%s: on device %d %llu of %llu ns count as switching", name, i,
			(unsigned long long)d->spare_ns, (unsigned long long)d->lately_held_ns);
	}
}

/* Runs the place for a window after a second of settling in, looking at it each second. */
static void judge(struct run *r, const struct place *p, const char *name, enum lie lie)
{
	/* Where nobody admits, nothing is mended. */
	bool loose = lie == SCRIBBLE || lie == DONE || lie == LEARNING;
	int64_t debt = lie == SCRIBBLE ? DEBT_PRESENT_NS : DEBT_NS;
	double over = loose ? PRESENT : FAIR_TAILS;
	uint64_t before[MAX_LANES];
	struct world *w = r->world;
	world_run(w, w->now + SETTLING);
	for (int i = 0; i < p->tenants; i++)
		before[i] = r->lane[i]->truth;
	for (uint64_t t = 0; t < WINDOW; t += SECOND) {
		world_run(w, w->now + SECOND);
		check_bounds(r, name, debt);
	}
	check_rows(w, name);
	for (int i = 0; i < p->tenants; i++) {
		r->got[i] = (double)(r->lane[i]->truth - before[i]) / (double)WINDOW;
		bool believed = i == p->liar && !p->doubted;
		check(believed || r->got[i] <= p->tenant[i].limits.ceiling / 1000.0 + over, "%s: tenant %d got %.2f %% with a ceiling of %.1f", name, i,
			r->got[i] * 100, p->tenant[i].limits.ceiling / 10.0);
	}
	for (int i = 0; i < w->lanes; i++)
		r->overlapped += w->core->grant[w->lane[i].grant].books.overlapped;
	for (int i = 0; lie == BACKWARD && i < p->tenant[p->liar].devices; i++) {
		struct core_observation heard = {0};
		w->core->config.observe(w->core->config.context, r->lane[p->liar][i].grant, w->now, &heard);
		check(heard.launched_ns <= 2 * (SETTLING + WINDOW), "%s: counters that went back were heard as %.1f s of work", name,
			(double)heard.launched_ns / 1e9);
	}
	sums.virtual_ns += (double)(SETTLING + WINDOW);
	sums.runs++;
	sums.overlapped += r->overlapped;
	tel_free(r->tel);
	world_free(w);
	r->world = NULL;
}

static struct run run(const struct place *p, enum lie lie, enum lie rest)
{
	char name[96];
	snprintf(name, sizeof name, "admissions -s %llu, %s", (unsigned long long)p->seed, lie_names[lie]);
	struct run r = build(p, lie, rest);
	judge(&r, p, name, lie);
	sums.debt[lie] = r.debt > sums.debt[lie] ? r.debt : sums.debt[lie];
	return r;
}

/* The tenants of one device against `divide`, where no task holds several and the device is wanted in full. Returns the worst error. */
static double compare(const struct place *p, int device, const struct run *r, double *allowed)
{
	struct limits limits[MAX_LANES] = {0};
	double want[MAX_LANES] = {0}, sum = 0, worst = 0;
	int n = 0, tenant[MAX_LANES];
	*allowed = FAIR;
	for (int i = 0; i < p->tenants; i++) {
		if (p->tenant[i].first != device)
			continue;
		tenant[n] = i;
		limits[n++] = p->tenant[i].limits;
		if (p->tenant[i].tail)
			*allowed = FAIR_TAILS;
	}
	oracle(n, limits, want);
	for (int i = 0; i < n; i++)
		sum += want[i];
	for (int i = 0; i < n; i++) {
		const struct tenant *t = &p->tenant[tenant[i]];
		if (verbose)
			printf("  device %d tenant %2d: %4u..%4u weight %2u, kernels of %5llu us, tail %5llu us, heard %2llu us late: want %5.2f %%, got %5.2f\n",
				device, tenant[i], t->limits.floor, t->limits.ceiling, t->limits.weight, (unsigned long long)(t->kernel / US),
				(unsigned long long)(t->tail / US), (unsigned long long)(t->notice / US), want[i] * 100, r->got[tenant[i]] * 100);
		worst = fmax(worst, fabs(r->got[tenant[i]] - want[i]));
	}
	return sum < 0.999 ? 0 : worst;
}

/* Honest tenants get what `divide` says, also where their work overlaps. */
static void honest(const struct place *p, const struct run *truth, const struct run *silent)
{
	for (int d = 0; d < p->devices && !p->gang; d++) {
		double allowed, error = compare(p, d, truth, &allowed), without = compare(p, d, silent, &allowed);
		sums.honest = fmax(sums.honest, error);
		sums.silent = fmax(sums.silent, without);
		check(error <= allowed, "admissions -s %llu, truth: device %d: worst error %.2f points, %.2f allowed", (unsigned long long)p->seed, d,
			error * 100, allowed * 100);
	}
}

static double may_bring(enum lie lie, bool doubted)
{
	switch (lie) {
	case SCRIBBLE: case DONE: return PRESENT;
	case LESS: case NOTHING: case HUGE_TIME: case WRAP: case OTHERS: case BACKWARD: case LATE: return doubted ? ADMITTED : BELIEVED;
	default: return FAIR;
	}
}

/* What the others have less of than they had. */
static double lost(const struct place *p, const struct run *r, const struct run *truth, const struct run *silent)
{
	double sum = 0;
	for (int i = 0; i < p->tenants; i++)
		if (i != p->liar)
			sum += fmax(fmin(truth->got[i], silent->got[i]) - r->got[i], 0);
	return sum;
}

/* Before the agent doubts it a lie may bring what nobody wanted, past the liar's ceiling; after, nothing. */
static void liar(struct place *p, enum lie lie, bool doubted, const struct run *truth, const struct run *silent)
{
	p->doubted = doubted;
	struct run r = run(p, lie, TRUTH);
	p->doubted = false;
	double best = fmax(truth->got[p->liar], silent->got[p->liar]), gain = r.got[p->liar] - best;
	if (!doubted)
		gain = fmin(gain, lost(p, &r, truth, silent));
	sums.doubted[lie] = doubted ? fmax(sums.doubted[lie], gain) : sums.doubted[lie];
	if (!doubted && gain > sums.gain[lie]) {
		sums.gain[lie] = gain;
		sums.gain_seed[lie] = p->seed;
	}
	double most = may_bring(lie, doubted);
	check(gain <= most, "admissions -s %llu, %s%s: brought its author %.2f points, %.2f allowed", (unsigned long long)p->seed,
		lie_names[lie], doubted ? ", doubted" : "", gain * 100, most * 100);
	for (int i = 0; i < p->tenants; i++) {
		if (i == p->liar)
			continue;
		double floor = fmin(p->tenant[i].limits.floor / 1000.0, fmin(truth->got[i], silent->got[i])), missed = floor - r.got[i];
		sums.cost[lie] = fmax(sums.cost[lie], missed);
		check(missed <= (most == PRESENT ? PRESENT_COSTS : FAIR), "admissions -s %llu, %s: cost tenant %d %.2f points of its floor",
			(unsigned long long)p->seed, lie_names[lie], i, missed * 100);
	}
}

static void place(uint64_t seed, bool lies)
{
	struct place p = draw_place(seed);
	if (verbose)
		printf("seed %llu: %d devices, %d tenants, the liar is %d\n", (unsigned long long)seed, p.devices, p.tenants, p.liar);
	struct run truth = run(&p, TRUTH, TRUTH), silent = run(&p, LEARNING, LEARNING);
	honest(&p, &truth, &silent);
	for (int lie = TRUTH + 1; lie < LIES && lies; lie++) {
		liar(&p, (enum lie)lie, false, &truth, &silent);
		liar(&p, (enum lie)lie, true, &truth, &silent);
	}
}

/* Two tenants that overlap in one way, each with half of the device, beside one that hardly holds anything and, where it lies, says that it
 * uses all time that goes by. */
static void two(const char *name, uint64_t number, struct tenant a, struct tenant b, double allowed, uint64_t least, uint64_t most)
{
	struct place p = {.seed = number, .devices = 1, .tenants = 3, .liar = 2, .tenant = {a, b, {.kernel = 50 * US, .estimate = 50 * US, .rests = true}}};
	for (int i = 0; i < p.tenants; i++) {
		p.tenant[i].devices = 1;
		p.tenant[i].limits = (struct limits){p.tenant[i].rests ? 100 : 450, 1000, 1, p.tenant[i].rests ? 0.0001 : 1};
	}
	double any, error, lied;
	struct run truth = run(&p, TRUTH, TRUTH), silent = run(&p, LEARNING, LEARNING), liar = run(&p, IDLE, TRUTH);
	error = compare(&p, 0, &truth, &any);
	lied = compare(&p, 0, &liar, &any);
	printf("%-28s worst error %5.2f points, %5.2f where nobody admits, %5.2f beside one that rests and admits all; %llu overlapped\n",
		name, error * 100, compare(&p, 0, &silent, &any) * 100, lied * 100, (unsigned long long)truth.overlapped);
	check(error <= allowed, "%s: worst error %.2f points, %.2f allowed", name, error * 100, allowed * 100);
	check(lied <= allowed + FAIR, "%s: worst error %.2f points beside one that admits all, %.2f allowed", name, lied * 100,
		(allowed + FAIR) * 100);
	check(truth.overlapped >= least && truth.overlapped <= most, "%s: %llu leases overlapped, %llu to %llu expected", name,
		(unsigned long long)truth.overlapped, (unsigned long long)least, (unsigned long long)most);
}

static void scenarios(void)
{
	struct tenant quick = {.kernel = 200 * US, .estimate = 200 * US};
	two("drains are heard late", 1, quick, (struct tenant){.kernel = 500 * US, .estimate = 500 * US, .notice = 45 * US}, 0.005, 0, 0);
	two("kernels vary", 2, quick, (struct tenant){.kernel = 5 * MS, .estimate = 5 * MS, .spread = 300, .notice = 20 * US}, 0.007, 0, 0);
	/* Overlapped only where the one that rests wakes. */
	two("long kernels, announced", 3, quick, (struct tenant){.kernel = 20 * MS, .estimate = 20 * MS}, 0.002, 0,
		2 * (SETTLING + WINDOW) / SECOND);
	two("long kernels vary", 4, quick, (struct tenant){.kernel = 20 * MS, .estimate = 20 * MS, .spread = 300, .notice = 20 * US}, 0.006, 50, 1000);
	two("tails of 12 ms", 5, quick,
		(struct tenant){.kernel = MS, .estimate = MS + 12 * MS / 20, .tail = 12 * MS, .tail_one_in = 20, .notice = 20 * US}, 0.012, 50, 1000);
	two("tails of 40 ms", 6, quick,
		(struct tenant){.kernel = MS, .estimate = MS + 40 * MS / 50, .tail = 40 * MS, .tail_one_in = 50, .notice = 20 * US}, 0.014, 50, 1000);
}

static void report(void)
{
	for (int lie = TRUTH + 1; lie < LIES; lie++)
		if (sums.runs > 1)
			printf("lie %-9s brought at most %5.2f points (seed %llu), doubted %5.2f, cost a neighbour %5.2f of its floor, debt up to %4.0f ms\n",
				lie_names[lie], sums.gain[lie] * 100, (unsigned long long)sums.gain_seed[lie], sums.doubted[lie] * 100, sums.cost[lie] * 100,
				(double)sums.debt[lie] / 1e6);
	printf("admissions: %llu runs, %.2f hours of virtual time, %llu leases overlapped; honest tenants within %.2f points, %.2f where nobody "
	       "admits, who owe up to %.0f ms\n", (unsigned long long)sums.runs, sums.virtual_ns / 3600e9,
		(unsigned long long)sums.overlapped, sums.honest * 100, sums.silent * 100, (double)sums.debt[TRUTH] / 1e6);
}

int main(int argc, char **argv)
{
	uint64_t seeds = 40, only = 0;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-v"))
			verbose = true;
		else if (!strcmp(argv[i], "-f"))
			first = true;
		else if (!strcmp(argv[i], "-n") && i + 1 < argc)
			seeds = strtoull(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "-s") && i + 1 < argc)
			only = strtoull(argv[++i], NULL, 10);
	}
	if (only)
		place(only, true);
	if (!only) {
		payments();
		scenarios();
	}
	for (uint64_t seed = 1; !only && seed <= seeds && !(first && check_failures()); seed++)
		place(seed, seed % LIARS_EACH == 0);
	if (!only) {
		check(sums.overlapped > 0, "admissions: no lease was ever overlapped: these places test nothing");
		check(sums.silent > 3 * FAIR, "admissions: at most %.2f points off where nobody admits: these places test nothing", sums.silent * 100);
	}
	report();
	if (check_failures())
		fprintf(stderr, "%d checks failed\n", check_failures());
	return check_failures() ? 1 : 0;
}
