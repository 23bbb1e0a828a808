/* SPDX-License-Identifier: Apache-2.0 */
/*
 * luck.c: bad luck under virtual time: programs that are stopped, kernels that never end, devices that are gone, arbiters that die again and
 * again. Judged by what the devices ran: the others have their floors again within 100 ms, and what was owed is not forgotten.
 * Collectives, whose kernels wait for each other, are in gangs.c.
 */
#include "../stall.h"
#include "judge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WITHIN (100 * MS) /* so soon the others have their floors again */
#define WATCHED (3 * SECOND)
#define STEP (10 * MS)
#define HEARTBEAT (80 * MS) /* so often the books are written, and stalls looked for at least */

/* What the arbiter keeps from look to look. */
static struct {
	struct stalls stalls;
	struct stall lane[MAX_LANES];
} looks;

/* A look for stalls, as the arbiter has it at a heartbeat or between two (main.c). Returns whether to look before the next heartbeat. */
static bool look(struct world *w, bool heartbeat)
{
	for (int i = 0; heartbeat && i < w->lanes; i++)
		core_touch(w->core, w->lane[i].task, w->now);
	for (int i = 0; i < w->lanes; i++) {
		const struct lane *l = &w->lane[i];
		stalls_note(&looks.stalls, w->core, l->grant, i, &looks.lane[i], lane_queued(l) > 0, l->heard, l->busy_until);
	}
	for (int i = 0; i < w->devices; i++)
		stalls_judge(&looks.stalls, w->core, w->device[i]);
	w->next_run = w->now;
	return stalls_watch(&looks.stalls, w->core);
}

/* Time goes by, with looks. Returns how far one of these lanes, of n, falls behind its floor at most, as time of its floor, until a
 * device is sick or it is `until`. */
static uint64_t watch(struct world *w, uint64_t until, int device, int n, const int *lanes, const uint32_t *floors)
{
	uint64_t from[MAX_LANES], start = w->now, worst = 0, beat = w->now + HEARTBEAT, next = beat;
	for (int i = 0; i < n; i++)
		from[i] = w->lane[lanes[i]].truth;
	while (w->now < until && !looks.stalls.device[device].sick.since) {
		world_run(w, w->now + STEP);
		for (int i = 0; i < n; i++) {
			uint64_t due = (w->now - start) * floors[i] / 1000, got = w->lane[lanes[i]].truth - from[i];
			uint64_t behind = got < due ? (due - got) * 1000 / floors[i] : 0;
			worst = behind > worst ? behind : worst;
		}
		if (w->now < next)
			continue;
		bool heartbeat = w->now >= beat;
		beat = heartbeat ? w->now + HEARTBEAT : beat;
		next = look(w, heartbeat) ? w->now + STALL_LOOK_NS : beat;
		next = next < beat ? next : beat;
	}
	return worst;
}

/* From now on each of these lanes, of n, has its floor, but for what it misses in the first 100 ms, and nobody says that their device is sick. */
static void others_have_floors(struct world *w, const char *name, int n, const int *lanes, const uint32_t *floors)
{
	int device = w->lane[lanes[0]].device;
	memset(&looks, 0, sizeof looks);
	uint64_t worst = watch(w, w->now + WATCHED, device, n, lanes, floors);
	printf("%-44s others behind their floors by %6.2f ms at most\n", name, (double)worst / 1e6);
	check(worst <= WITHIN, "%s: one is behind its floor by %.2f ms", name, (double)worst / 1e6);
	check(!looks.stalls.device[device].sick.since, "%s: their device is said to be sick", name);
}

/* ------------------------------------------------------------------------------------------------------------- stopped programs */

enum moment { RUNNING, LEASED, WAITING };

static bool is_at(const struct lane *l, enum moment moment)
{
	const struct core_grant *g = &l->core->grant[l->grant];
	switch (moment) {
	case RUNNING: return g->phase == CORE_OPEN && l->outstanding > 0;
	case LEASED: return g->phase == CORE_OPEN && l->launched == g->launched_at_open;
	default: return g->phase == CORE_IDLE && l->wait_since != 0;
	}
}

/* A program that is stopped (SIGSTOP) while it has the device, or waits for it, keeps nobody from it; once it goes on it has its floor, and the
 * others keep theirs: what it did not want meanwhile is not owed to it. */
static void stopped(enum moment moment, uint64_t kernel)
{
	static const char *const names[] = {"stopped with work on the device", "stopped with a lease", "stopped at the gate"};
	static const int others[] = {1, 2};
	static const uint32_t floors[] = {350, 350};
	char name[96];
	snprintf(name, sizeof name, "%s, %llu us", names[moment], (unsigned long long)(kernel / US));
	struct world *w = world_new(31 + kernel, 1);
	for (int i = 0; i < 3; i++)
		world_add(w, i ? floors[i - 1] : 300, 1000, 1, kernel);
	struct lane *l = &w->lane[0];
	world_run(w, w->now + SECOND);
	for (uint64_t most = w->now + SECOND; !is_at(l, moment) && w->now < most;)
		world_run(w, w->now + 10 * US);
	check(is_at(l, moment), "%s: it never came to that", name);
	l->stopped = true;
	others_have_floors(w, name, 2, others, floors);
	l->stopped = false;
	l->pump_at = w->now;
	uint64_t from = l->truth, start = w->now;
	others_have_floors(w, "  as it goes on", 2, others, floors);
	world_run(w, start + 10 * SECOND);
	double got = (double)(l->truth - from) / (double)(w->now - start);
	printf("%-44s has %5.2f %% of 30 once it goes on\n", "", got * 100);
	check(got >= 0.29, "%s: once it goes on it has %.2f %% of 30", name, got * 100);
	check_rows(w, name);
	world_free(w);
}

/* One that is stopped again and again, as by a debugger: nobody pays for that. */
static void stopped_again(uint64_t kernel)
{
	static const int others[] = {1, 2};
	static const uint32_t floors[] = {350, 350};
	struct world *w = world_new(37 + kernel, 1);
	for (int i = 0; i < 3; i++)
		world_add(w, i ? floors[i - 1] : 300, 1000, 1, kernel);
	struct lane *l = &w->lane[0];
	uint64_t worst = 0;
	world_run(w, w->now + SECOND);
	memset(&looks, 0, sizeof looks);
	for (int i = 0; i < 12; i++) {
		while (!is_at(l, RUNNING))
			world_run(w, w->now + 10 * US);
		l->stopped = true;
		uint64_t behind = watch(w, w->now + 200 * MS, 0, 2, others, floors);
		worst = behind > worst ? behind : worst;
		l->stopped = false;
		l->pump_at = w->now;
		behind = watch(w, w->now + 150 * MS, 0, 2, others, floors);
		worst = behind > worst ? behind : worst;
	}
	printf("stopped 12 times, %5llu us                   others behind their floors by %6.2f ms at most\n", (unsigned long long)(kernel / US),
		(double)worst / 1e6);
	check(worst <= WITHIN, "stopped 12 times: one is behind its floor by %.2f ms", (double)worst / 1e6);
	check(!looks.stalls.device[0].sick.since, "stopped 12 times: their device is said to be sick");
	world_free(w);
}

/* ---------------------------------------------------------------------------------------------------------------- sick devices */

/* A kernel that never ends, of a share whose programs said that it would take a millisecond. The driver runs it by turns with whoever has the lease:
 * half of the device is left, and holds floors that fit in it. */
static void endless(int n, const uint32_t *floors, uint32_t floor, uint64_t kernel)
{
	static const int others[] = {1, 2, 3};
	char name[96];
	snprintf(name, sizeof name, "endless beside %d, %llu us", n, (unsigned long long)(kernel / US));
	struct world *w = world_new(3 + kernel, 1);
	struct lane *hog = world_add(w, floor, 1000, 1, MS);
	for (int i = 0; i < n; i++)
		world_add(w, floors[i], 1000, 1, kernel);
	world_run(w, w->now + SECOND);
	hog->kernel = 3600 * SECOND; /* from the next one on */
	uint64_t completed = hog->completed;
	while (hog->completed <= completed + 12 && !(hog->outstanding && hog->remaining > SECOND))
		world_run(w, w->now + 10 * US);
	others_have_floors(w, name, n, others, floors);
	check(w->core->grant[hog->grant].books.overlapped > 0, "%s: never overlapped", name);
	check_rows(w, name);
	world_free(w);
}

/* The same where the others' floors do not fit: nothing gives them theirs, so the device is said to be sick, with whose work it is, until
 * that ends. */
static void unmet(int n, const uint32_t *floors, uint32_t floor, uint64_t kernel, uint64_t says)
{
	static const int others[] = {1, 2, 3};
	char name[96];
	snprintf(name, sizeof name, "endless beside %d too many, %llu us", n, (unsigned long long)(kernel / US));
	struct world *w = world_new(5 + kernel, 1);
	struct lane *hog = world_add(w, floor, 1000, 1, MS);
	for (int i = 0; i < n; i++)
		world_add(w, floors[i], 1000, 1, kernel);
	memset(&looks, 0, sizeof looks);
	watch(w, w->now + WATCHED, 0, 0, NULL, NULL);
	check(!looks.stalls.device[0].sick.since, "%s: sick before anything has happened", name);
	hog->kernel = 3600 * SECOND;
	hog->estimate = says;
	for (uint64_t most = w->now + SECOND; !(hog->outstanding && hog->remaining > SECOND) && w->now < most;)
		world_run(w, w->now + 10 * US);
	check(hog->remaining > SECOND, "%s: it never came to that", name);
	uint64_t began = w->now;
	uint64_t worst = watch(w, w->now + 2 * WATCHED, 0, n, others, floors);
	const struct stall_work *sick = &looks.stalls.device[0].sick;
	printf("%-44s sick after %6.2f s, others behind their floors by %6.2f ms by then\n", name, (double)(w->now - began) / 1e9, (double)worst / 1e6);
	check(sick->since && sick->pid == 0 && sick->grant == hog->grant, "%s: nobody says that the device is sick of it", name);
	uint64_t waited = (says > MS ? STALL_WORD_NS : 0) + 2 * STALL_LOOK_NS + kernel; /* an end that was announced, two looks, a kernel that cannot be split */
	check(worst <= waited + WITHIN, "%s: said only when one was %.2f ms behind its floor", name, (double)worst / 1e6);
	for (int i = 0; i < 25; i++) { /* it stays so while that lasts */
		world_run(w, w->now + HEARTBEAT);
		look(w, true);
		check(sick->since, "%s: well while it lasts", name);
	}
	hog->off = true; /* its program is stopped */
	hog->remaining = hog->outstanding = 0;
	hog->completed = hog->heard = hog->launched;
	w->running[0] = -1;
	world_run(w, w->now + HEARTBEAT);
	look(w, true);
	check(!sick->since, "%s: sick after it has ended", name);
	others_have_floors(w, name, n, others, floors);
	world_free(w);
}

/* Long kernels that end as they said, but for the time that others take beside them, make nobody sick, though an owner is behind its floor
 * while one runs. */
static void announced(uint64_t kernel)
{
	static const int others[] = {1};
	static const uint32_t floors[] = {900};
	struct world *w = world_new(9 + kernel, 1);
	memset(&looks, 0, sizeof looks);
	world_add(w, 100, 1000, 1, 400 * MS);
	world_add(w, 900, 1000, 1, kernel);
	uint64_t worst = watch(w, w->now + 10 * SECOND, w->device[0], 1, others, floors);
	check(w->lane[0].completed > 0 && worst > WITHIN, "announced: nobody was behind");
	check(!looks.stalls.device[w->device[0]].sick.since, "announced: sick of a kernel that ends when it said, %llu us", (unsigned long long)(kernel / US));
	world_free(w);
}

/* A device falls off the bus under a program on two devices; who shares the other one with it has its floor. */
static void gone(bool declared, uint64_t kernel)
{
	static const int others[] = {2};
	static const uint32_t floors[] = {450};
	char name[96];
	snprintf(name, sizeof name, "a device of two gone, %s, %llu us", declared ? "declared" : "not declared", (unsigned long long)(kernel / US));
	struct world *w = world_new(17 + kernel, 2);
	world_add_gang(w, 0, 2, 450, 1000, kernel);
	world_add_gang(w, 0, 1, 450, 1000, 500 * US);
	world_add_gang(w, 1, 1, 450, 1000, 500 * US);
	w->lane[0].meets = w->lane[1].meets = true;
	world_run(w, w->now + SECOND + 3 * MS);
	w->gone[1] = true;
	if (declared)
		core_device_state(w->core, w->device[1], w->now, ALQ_DEVICE_DOWN);
	w->next_run = w->now;
	others_have_floors(w, name, 1, others, floors);
	check_rows(w, name);
	world_free(w);
}

/* ------------------------------------------------------------------------------------------------------------- arbiters that die */

static void write_books(const struct world *w, struct core_books *books)
{
	for (int d = 0; d < w->devices; d++)
		core_settle(w->core, w->device[d], w->now);
	for (int i = 0; i < w->lanes; i++)
		core_get_books(w->core, w->lane[i].grant, &books[i]);
}

/* An arbiter dies and another follows, hundreds of times in a minute: shares come out as if there had been one. In order: it hands over, with
 * its books as they are; else what it did since it last wrote them is forgotten. */
static void replaced(int tenants, uint64_t kernel, bool in_order)
{
	static const struct limits sets[3][8] = {
		{{250, 800, 250, 1}, {500, 1000, 500, 1}},
		{{250, 1000, 1, 1}, {100, 300, 1, 1}, {400, 400, 400, 1}, {0, 1000, 3, 1}},
		{{125, 125, 1, 1}, {125, 1000, 1, 1}, {50, 1000, 2, 1}, {300, 350, 1, 1}, {100, 1000, 1, 1}, {100, 200, 5, 1},
			{0, 1000, 1, 1}, {200, 200, 1, 1}},
	};
	const struct limits *limits = sets[tenants == 2 ? 0 : tenants == 4 ? 1 : 2];
	struct core_books books[MAX_LANES];
	uint64_t from[MAX_LANES], start, next = 0, deaths = 0;
	double want[MAX_LANES], worst = 0;
	struct world *w = world_new((uint64_t)tenants * 7 + kernel, 1);
	for (int i = 0; i < tenants; i++)
		world_add(w, limits[i].floor, limits[i].ceiling, limits[i].weight, kernel);
	world_run(w, w->now + SECOND);
	write_books(w, books);
	start = w->now;
	for (int i = 0; i < tenants; i++)
		from[i] = w->lane[i].truth;
	while (w->now < start + 60 * SECOND) {
		uint64_t beat = w->now + HEARTBEAT;
		next = w->now + 20 * MS + world_random(w, 300 * MS);
		for (; beat < next; beat += HEARTBEAT) {
			world_run(w, beat);
			write_books(w, books);
		}
		world_run(w, next);
		if (in_order)
			write_books(w, books);
		world_adopt(w, books);
		deaths++;
	}
	char name[96];
	snprintf(name, sizeof name, "%d x %llu us, %s", tenants, (unsigned long long)(kernel / US), in_order ? "replaced" : "killed and replaced");
	oracle(tenants, limits, want);
	for (int i = 0; i < tenants; i++) {
		double got = (double)(w->lane[i].truth - from[i]) / (double)(w->now - start);
		worst = fmax(worst, fabs(got - want[i]));
		check(got >= limits[i].floor / 1000.0 - 0.01, "%s: lane %d got %.2f %% with a floor of %.1f", name, i, got * 100, limits[i].floor / 10.0);
	}
	printf("%-44s error %5.2f points over a minute, %llu arbiters\n", name, worst * 100, (unsigned long long)deaths + 1);
	check(worst <= 0.01, "%s: error %.2f points", name, worst * 100);
	world_free(w);
}

/* What a floor is owed outlives the arbiter that owed it, as debt does; one that waits for nothing keeps no more than an idle owner may. */
static void owed(void)
{
	struct world *w = world_new(41, 1);
	struct core_books books[3] = {{.credit_ns = 60000000}, {.credit_ns = -60000000}, {.credit_ns = 60000000}};
	for (int i = 0; i < 3; i++)
		world_add(w, 300, 1000, 1, 500 * US);
	w->lane[2].off = true;
	world_run(w, w->now + SECOND);
	world_adopt(w, books);
	world_run(w, w->now + 100 * US);
	const int64_t ms = 1000000000ll; /* of thousandths of a ns */
	int64_t waits = w->core->grant[w->lane[0].grant].credit, owes = w->core->grant[w->lane[1].grant].credit;
	check(waits > 55 * ms && owes < -55 * ms, "owed: %lld and %lld of 60 and -60 ms are left", (long long)(waits / ms), (long long)(owes / ms));
	world_run(w, w->now + 20 * MS);
	int64_t idle = w->core->grant[w->lane[2].grant].credit;
	check(idle <= 5 * ms, "owed: an idle owner keeps %lld ms", (long long)(idle / ms));
	world_free(w);
}

int main(void)
{
	static const uint64_t kernels[] = {200 * US, 500 * US, 5 * MS, 20 * MS};
	static const uint32_t two[] = {200, 200}, one[] = {450}, three[] = {100, 150, 150}, nearly[] = {900}, much[] = {350, 350}, most[] = {400, 300, 200};
	for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++) {
		for (enum moment m = RUNNING; m <= WAITING; m++)
			stopped(m, kernels[k]);
		stopped_again(kernels[k]);
		endless(1, one, 500, kernels[k]);
		endless(2, two, 600, kernels[k]);
		endless(3, three, 600, kernels[k]);
		unmet(1, nearly, 100, kernels[k], MS);
		unmet(2, much, 300, kernels[k], MS);
		unmet(3, most, 100, kernels[k], MS);
		unmet(2, much, 300, kernels[k], 3600 * SECOND);
		announced(kernels[k]);
		gone(true, kernels[k]);
		gone(false, kernels[k]);
		for (int tenants = 2; tenants <= 8; tenants *= 2) {
			replaced(tenants, kernels[k], true);
			replaced(tenants, kernels[k], false);
		}
	}
	owed();
	if (check_failures())
		fprintf(stderr, "%d checks failed\n", check_failures());
	return check_failures() ? 1 : 0;
}
