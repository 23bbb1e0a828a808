/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c: random worlds, and every call of the core in them written down (record.h), so that the rule in Go (divide/lease) can be held to the
 * one in C.
 *
 *   trace [-n WORLDS] [-s SEED] [-c CALL]
 *
 * Writes WORLDS worlds from SEED on to standard output. With -c, what the core keeps after that call of the world SEED, as text.
 *
 * In a world are one to four devices with up to sixteen tasks that come and go: saturating, idle and waking, waiting after each launch, on
 * several devices together, with kernels that vary and tails that outlive their leases, some of which lie. Limits change, devices drain
 * and go down, arbiters die and are replaced.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge.h"
#include "record.h"

#define MOST_TASKS 16 /* at a time */
#define NOWHERE (CORE_TASKS - 1) /* where bells of tasks that are gone ring */

enum word { TRUTH, NOTHING, UNSAID, ANY_END, COMING, SEVERAL, WAITING, NEVER_DONE, TWICE, UNHEARD, LATE, WORDS };

static struct place {
	struct world *world;
	uint64_t seed;
	enum word word[MAX_LANES];
	struct core_policy policy[MAX_LANES];
	void (*observe)(void *context, int grant, uint64_t now, struct core_observation *out);
} place;

static uint64_t draw(uint64_t below)
{
	place.seed = place.seed * 6364136223846793005ull + 1442695040888963407ull;
	return below ? (place.seed >> 33) % below : 0;
}

static bool one_in(uint64_t n)
{
	return draw(n) == 0;
}

/* What a lane's processes say: the truth, or not, but always the same at the same time and within what core_observation allows. */
static void observe(void *context, int grant, uint64_t now, struct core_observation *out)
{
	const struct world *w = place.world;
	int i = 0;
	while (i < w->lanes && w->lane[i].grant != grant)
		i++;
	place.observe(context, grant, now, out);
	if (i == w->lanes)
		return;
	uint64_t noise = (w->now / (3 * MS) + 1) * 0x9e3779b97f4a7c15ull;
	noise ^= noise >> 31;
	switch (place.word[i]) {
	case NOTHING: out->measured_ns = 0; break;
	case UNSAID: out->busy_until_ns = 0; break;
	case ANY_END: out->busy_until_ns = out->outstanding ? w->now - 20 * MS + noise % (40 * MS) : 0; break;
	case COMING: out->coming = true; break;
	case SEVERAL: out->several = noise & 1; break;
	case WAITING: out->waiting = true, out->wait_since_ns = w->now / (50 * MS) * (50 * MS); break;
	case NEVER_DONE: out->outstanding = out->launched > 0, out->busy_until_ns = out->outstanding ? w->now + 5 * MS : 0; break;
	case TWICE: out->launched_ns *= 2, out->outstanding_ns *= 2, out->measured_ns *= 2; break;
	case UNHEARD: out->completed = 0, out->outstanding_ns = out->launched_ns; break;
	case LATE: out->busy_until_ns += out->outstanding ? 900 * SECOND : 0; break;
	default: break;
	}
}

static int live(int lane)
{
	return place.world->lane[lane].grant >= 0;
}

static int tasks(void)
{
	int n = 0;
	for (int i = 0; i < place.world->lanes; i++)
		n += live(i) && (i == 0 || place.world->lane[i].task != place.world->lane[i - 1].task);
	return n;
}

static uint32_t floors(int device)
{
	uint32_t sum = 0;
	for (int i = 0; i < place.world->lanes; i++)
		sum += live(i) && place.world->lane[i].device == device ? place.policy[i].floor : 0;
	return sum;
}

static struct core_policy draw_policy(uint32_t room)
{
	struct core_policy p = {.weight = (uint32_t)draw(11)};
	p.floor = one_in(4) ? 0 : one_in(30) ? (uint32_t)draw(1001) : (uint32_t)draw(room / 2 + 1);
	p.ceiling = one_in(4) ? p.floor : one_in(2) ? 1000 : p.floor + (uint32_t)draw(1001 - p.floor);
	p.ceiling = p.ceiling ? p.ceiling : 1;
	p.flags = one_in(5) ? ALQ_POLICY_LATENCY : 0;
	p.flags |= one_in(10) ? ALQ_POLICY_CLOCK : 0;
	p.flags |= one_in(40) ? ALQ_POLICY_STOPPED : 0;
	return p;
}

static void limit(int lane, struct core_policy policy)
{
	place.policy[lane] = policy;
	core_set_policy(place.world->core, place.world->lane[lane].grant, place.world->now, &policy);
	place.world->next_run = place.world->now;
}

/* How the lane's program behaves. */
static void behave(struct lane *l)
{
	static const uint64_t kernels[] = {50 * US, 200 * US, 500 * US, 1 * MS, 2 * MS, 5 * MS, 20 * MS, 70 * MS};
	l->kernel = kernels[draw(sizeof kernels / sizeof kernels[0])];
	if (!l->launched) { /* later it would take back what was said */
		l->estimate = one_in(4) ? l->kernel / 2 + draw(l->kernel) : l->kernel;
		l->several = one_in(12);
	}
	l->spread = one_in(2) ? draw(400) : 0;
	l->notice = one_in(2) ? draw(60 * US) : one_in(8) ? draw(8 * MS) : 0;
	l->tail_one_in = one_in(4) ? 1 + draw(30) : 0;
	l->tail = draw(40 * MS);
	l->meets = l->group && one_in(4);
	if (l->group)
		return;
	l->gap = l->period = 0;
	if (one_in(3)) {
		l->period = 2 * MS + draw(60 * MS);
		l->batch = 1 + draw(20);
		l->jitter = draw(l->period);
		l->next_arrival = place.world->now + draw(l->period);
	} else if (one_in(3)) {
		l->gap = 5 * US + draw(MS);
		l->backlog = 1;
	}
}

static void add(void)
{
	struct world *w = place.world;
	int n = w->devices > 1 && one_in(3) ? 2 + (int)draw((uint64_t)w->devices - 1) : 1;
	int first = (int)draw((uint64_t)(w->devices - n + 1)), at = w->lanes;
	if (w->lanes + n > MAX_LANES || tasks() >= MOST_TASKS)
		return;
	uint32_t taken = floors(first);
	struct core_policy policy = draw_policy(taken < 1000 ? 1000 - taken : 0);
	world_add_gang(w, first, n, policy.floor, policy.ceiling, MS);
	for (int i = at; i < w->lanes; i++) {
		place.word[i] = one_in(5) ? (enum word)draw(WORDS) : TRUTH;
		behave(&w->lane[i]);
		limit(i, policy);
	}
}

/* The lane's program is gone, at once. What it has on the device runs out. */
static void stop(struct lane *l)
{
	l->off = true;
	l->grant = -1;
	l->task = NOWHERE;
	l->period = l->gap = l->backlog = l->wait_since = l->pump_at = l->bell_at = 0;
}

static void remove_task(int task)
{
	struct world *w = place.world;
	core_task_del(w->core, task, w->now);
	for (int i = 0; i < w->lanes; i++)
		if (w->lane[i].task == task)
			stop(&w->lane[i]);
	w->next_run = w->now;
}

/* Takes the tasks of an arbiter that is gone in again, with their books, some of them bent. */
static void adopt(const struct core_books *books)
{
	struct world *w = place.world;
	for (int i = 0, n; i < w->lanes; i += n) {
		int devices[ALQ_MAX_GRANTS] = {0};
		struct core_policy policies[ALQ_MAX_GRANTS] = {0};
		n = 1;
		if (!live(i))
			continue;
		for (n = 0; i + n < w->lanes && w->lane[i + n].task == w->lane[i].task; n++) {
			devices[n] = w->device[w->lane[i + n].device];
			policies[n] = place.policy[i + n];
		}
		int task = core_task_add(w->core, w->now, n, devices, policies);
		for (int k = 0; k < n; k++) {
			w->lane[i + k].task = task;
			w->lane[i + k].grant = w->core->task[task].grant[k];
			core_restore(w->core, w->lane[i + k].grant, &books[i + k]);
		}
	}
}

/* The arbiter dies, and after a while another takes over. */
static void replace(void)
{
	static struct core_books books[MAX_LANES];
	static struct core_device devices[MAX_DEVICES];
	struct world *w = place.world;
	for (int d = 0; d < w->devices; d++) {
		core_settle(w->core, w->device[d], w->now);
		devices[d] = w->core->device[w->device[d]];
	}
	for (int i = 0; i < w->lanes; i++) {
		if (!live(i))
			continue;
		core_get_books(w->core, w->lane[i].grant, &books[i]);
		if (one_in(4))
			books[i].credit_ns += (int64_t)draw(8 * SECOND) - (int64_t)(4 * SECOND);
		if (one_in(4))
			books[i].bucket_ns += (int64_t)draw(8 * SECOND) - (int64_t)(4 * SECOND);
	}
	record_away(true);
	w->next_run = CORE_NEVER;
	world_run(w, w->now + draw(30 * MS));
	record_restart(w->core);
	for (int d = 0; d < w->devices; d++)
		w->device[d] = core_device_add(w->core, w->now, devices[d].state);
	adopt(books);
	for (int d = 0; d < w->devices; d++) {
		const struct core_device *was = &devices[d];
		struct alq_device page = {.unreserved_idle_ns = was->unreserved_idle_ns, .down_ns = was->down_ns, .switches = was->switches,
			.ended = was->ended};
		static bool busy[CORE_GRANTS];
		for (int i = 0; i < w->lanes; i++)
			if (live(i))
				busy[w->lane[i].grant] = !one_in(3);
		core_device_restore(w->core, w->device[d], was->since, was->settled_at, &page);
		core_away(w->core, w->device[d], w->now, busy);
	}
	w->next_run = w->now;
}

/* The arbiter does not run for a while, and notices when it does again. */
static void absent(void)
{
	static bool live_now[CORE_GRANTS];
	struct world *w = place.world;
	for (int d = 0; d < w->devices; d++)
		core_settle(w->core, w->device[d], w->now);
	record_away(true);
	w->next_run = CORE_NEVER;
	world_run(w, w->now + draw(300 * MS));
	record_away(false);
	for (int i = 0; i < w->lanes; i++)
		if (live(i))
			live_now[w->lane[i].grant] = one_in(2);
	for (int d = 0; d < w->devices; d++)
		core_away(w->core, w->device[d], w->now, live_now);
	w->next_run = w->now;
}

static void change(void)
{
	struct world *w = place.world;
	int lane = w->lanes ? (int)draw((uint64_t)w->lanes) : -1, device = (int)draw((uint64_t)w->devices);
	bool there = lane >= 0 && live(lane);
	switch (draw(12)) {
	case 0: case 1: add(); break;
	case 2: if (there) remove_task(w->lane[lane].task); break;
	case 3: case 4: if (there) limit(lane, draw_policy(500)); break;
	case 5:
		core_device_state(w->core, w->device[device], w->now, (enum alq_device_state)(one_in(2) ? 0 : draw(3)));
		w->next_run = w->now;
		break;
	case 6:
		if (one_in(2))
			replace();
		else if (one_in(3))
			absent();
		break;
	case 7: if (there) behave(&w->lane[lane]); break;
	case 8:
		if (!there)
			break;
		w->lane[lane].off = !w->lane[lane].off;
		w->lane[lane].pump_at = w->now;
		break;
	case 9: core_settle(w->core, w->device[device], w->now); break;
	default: break;
	}
}

static void draw_config(struct core_config *c)
{
	if (!one_in(4))
		return;
	c->lease_ns = MS + draw(12 * MS);
	c->idle_cap_ns = draw(20 * MS);
	c->burst_ns = MS + draw(50 * MS);
	c->idle_ns = 50 * US + draw(MS);
	c->overlap_ns = MS + draw(20 * MS);
	c->patience_ns = draw(100 * MS);
}

static void run(FILE *out, uint64_t seed)
{
	place.seed = seed * 0x9e3779b97f4a7c15ull + 1;
	record_world(out, seed);
	struct world *w = place.world = world_new(seed, one_in(2) ? 1 : 2 + (int)draw(3));
	w->slice = one_in(4) ? 0 : 2 * MS;
	w->switch_cost = one_in(2) ? 0 : draw(200 * US);
	place.observe = w->core->config.observe;
	w->core->config.observe = observe;
	draw_config(&w->core->config);
	record_config(w->core);
	for (int n = 1 + (int)draw(8); n > 0; n--)
		add();
	for (int step = 0; step < 80; step++) {
		world_run(w, w->now + (one_in(3) ? draw(2 * MS) : draw(30 * MS)));
		change();
	}
	char name[48];
	snprintf(name, sizeof name, "trace -s %llu", (unsigned long long)seed);
	check_rows(w, name);
	world_free(w);
}

int main(int argc, char **argv)
{
	uint64_t worlds = 200, seed = 1;
	FILE *out = stdout;
	for (int i = 1; i + 1 < argc; i += 2) {
		uint64_t value = strtoull(argv[i + 1], NULL, 10);
		if (!strcmp(argv[i], "-n")) {
			worlds = value;
		} else if (!strcmp(argv[i], "-s")) {
			seed = value;
		} else if (!strcmp(argv[i], "-c")) {
			out = fopen("/dev/null", "w");
			record_stop(stdout, value);
		}
	}
	if (!out)
		return 1;
	for (uint64_t i = 0; i < worlds; i++)
		run(out, seed + i);
	if (fflush(out) || check_failures())
		return 1;
	return 0;
}
