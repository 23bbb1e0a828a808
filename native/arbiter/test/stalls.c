/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stalls.c: what a device is sick of and what not, look by look (stall.h), under virtual time where that matters. That work without end is seen, and how
 * soon, is judged in luck.c.
 */
#include "../stall.h"
#include "judge.h"

#include <stdio.h>
#include <string.h>

#define HEARTBEAT (80 * MS)

static struct stalls stalls;
static struct stall work[MAX_LANES];
static int claims; /* the lane whose process says at each look that it has work which does not end; −1: none */

/* A world, and what an arbiter of it has seen so far: nothing. */
static struct world *begin(uint64_t seed)
{
	memset(&stalls, 0, sizeof stalls);
	memset(work, 0, sizeof work);
	claims = -1;
	return world_new(seed, 1);
}

/* Time goes by with a look each heartbeat, and between them. Says at how many of them the device was sick. */
static int looks(struct world *w, uint64_t length)
{
	int sick = 0;
	uint64_t beat = w->now + HEARTBEAT;
	for (uint64_t end = w->now + length; w->now < end;) {
		uint64_t next = w->now + STALL_LOOK_NS;
		world_run(w, stalls_watch(&stalls, w->core) && next < beat ? next : beat);
		for (int i = 0; w->now >= beat && i < w->lanes; i++)
			core_touch(w->core, w->lane[i].task, w->now);
		for (int i = 0; i < w->lanes; i++)
			stalls_note(&stalls, w->core, w->lane[i].grant, 100 + i, &work[i], i == claims || lane_queued(&w->lane[i]) > 0, w->lane[i].heard,
				w->lane[i].busy_until);
		stalls_judge(&stalls, w->core, w->device[0]);
		beat = w->now >= beat ? w->now + HEARTBEAT : beat;
		sick += stalls.device[0].sick.since != 0;
		w->next_run = w->now;
	}
	return sick;
}

/* The next kernel of the lane has no end. */
static void hang(struct world *w, struct lane *l)
{
	l->kernel = 3600 * SECOND;
	for (uint64_t most = w->now + SECOND; !(l->outstanding && l->remaining > SECOND) && w->now < most;)
		world_run(w, w->now + 10 * US);
	check(l->remaining > SECOND, "it never came to that");
}

/* The lane's program is stopped when it next has work on the device. */
static void stop_with_work(struct world *w, struct lane *l)
{
	for (uint64_t most = w->now + SECOND; !l->outstanding && w->now < most;)
		world_run(w, w->now + 10 * US);
	check(l->outstanding, "it never had work");
	l->stopped = true;
}

/* Once whoever was behind beside it wants nothing any more, the device is well, though the work goes on. */
static void over(void)
{
	struct world *w = begin(1);
	struct lane *hog = world_add(w, 100, 1000, 1, MS), *owner = world_add(w, 900, 1000, 1, MS);
	looks(w, SECOND);
	hang(w, hog);
	looks(w, SECOND);
	check(stalls.device[0].sick.since && stalls.device[0].sick.grant == hog->grant && stalls.device[0].sick.pid == 100, "over: never sick of it");
	owner->off = true;
	looks(w, 2 * STALL_LATELY_NS);
	check(!stalls.device[0].sick.since, "over: sick though nobody is behind");
	owner->off = false;
	owner->pump_at = w->now;
	looks(w, SECOND);
	check(stalls.device[0].sick.since != 0, "over: well though one is behind again");
	world_free(w);
}

/* Floors that add up to a device that takes time to switch: their credit drifts to its cap. A program that is stopped and does not say that its
 * work has ended makes nobody sick there. */
static void drift(void)
{
	struct world *w = begin(2);
	w->switch_cost = 100 * US;
	struct lane *stopped = world_add(w, 300, 1000, 1, 500 * US), *owner = world_add(w, 350, 1000, 1, 500 * US);
	world_add(w, 350, 1000, 1, 500 * US);
	looks(w, 60 * SECOND);
	int64_t credit = w->core->grant[owner->grant].credit / (350 * (int64_t)MS);
	check(credit > 200, "drift: credit has come to %lld ms of its floor only", (long long)credit);
	stop_with_work(w, stopped);
	int sick = looks(w, 60 * SECOND);
	check(sick == 0, "drift: sick at %d looks of a program that is stopped", sick);
	check(w->core->grant[stopped->grant].outstanding, "drift: it was not stopped with work");
	world_free(w);
}

/* What switching takes of floors that add up to a device makes nobody sick, whoever says that its work does not end: the owners are charged so
 * much less than their floors bring, for as long as that goes on. */
static void switching(void)
{
	struct world *w = begin(6);
	w->switch_cost = 100 * US;
	struct lane *owner = world_add(w, 500, 1000, 1, 500 * US);
	world_add(w, 500, 1000, 1, 500 * US);
	world_add(w, 0, 1000, 1, MS)->off = true;
	looks(w, 60 * SECOND);
	claims = 2; /* the device has none of it */
	uint64_t began = w->now, held = w->core->grant[owner->grant].books.held_ns;
	int sick = looks(w, 60 * SECOND);
	int64_t less = (int64_t)(w->now - began) / 2 - (int64_t)(w->core->grant[owner->grant].books.held_ns - held);
	check(work[claims].since && work[claims].since <= began + HEARTBEAT, "switching: its work is not late");
	check(less > (int64_t)STALL_BEHIND_NS / 2, "switching: takes %lld us of a floor of 500 only", (long long)(less / 1000));
	check(sick == 0, "switching: sick at %d looks of what switching takes", sick);
	world_free(w);
}

/* One that waits at the gate and launches nothing (its program is frozen there, or it lies) is no sign that others' work takes floors. */
static void frozen(void)
{
	struct world *w = begin(3);
	struct lane *hog = world_add(w, 400, 1000, 1, MS), *waits = world_add(w, 300, 1000, 1, MS);
	world_add(w, 200, 1000, 1, MS);
	looks(w, SECOND);
	for (uint64_t most = w->now + SECOND; !waits->wait_since && w->now < most;)
		world_run(w, w->now + 10 * US);
	waits->stopped = true;
	looks(w, 2 * SECOND);
	check(w->core->grant[waits->grant].demand, "frozen: it does not wait");
	hang(w, hog);
	int sick = looks(w, 10 * SECOND);
	check(sick == 0, "frozen: sick at %d looks though nobody who launches is behind", sick);
	world_free(w);
}

/* Where work of several is late, nobody is named alone. */
static void several(void)
{
	struct world *w = begin(4);
	struct lane *stopped = world_add(w, 100, 1000, 1, MS), *hog = world_add(w, 100, 1000, 1, MS);
	world_add(w, 700, 1000, 1, MS);
	looks(w, SECOND);
	stop_with_work(w, stopped);
	looks(w, SECOND);
	hang(w, hog);
	looks(w, 2 * SECOND);
	const struct stall_work *sick = &stalls.device[0].sick;
	check(sick->since && sick->grant == -1 && sick->pid == 0, "several: grant %d, process %d is said to be at fault", sick->grant, sick->pid);
	world_free(w);
}

/* A grant's place is given to another: what was said of the first is not said of that. */
static void reused(void)
{
	struct world *w = begin(5);
	struct lane *hog = world_add(w, 100, 1000, 1, MS);
	world_add(w, 900, 1000, 1, MS);
	looks(w, SECOND);
	hang(w, hog);
	looks(w, SECOND);
	check(stalls.device[0].sick.since != 0, "reused: never sick");
	stalls_forget(&stalls, w->core, hog->grant);
	check(!stalls.device[0].sick.since, "reused: sick of a task that is no more");
	world_free(w);
}

int main(void)
{
	over();
	drift();
	switching();
	frozen();
	several();
	reused();
	if (check_failures())
		fprintf(stderr, "%d checks failed\n", check_failures());
	else
		printf("stalls: over, drift, switching, frozen, several, reused\n");
	return check_failures() ? 1 : 0;
}
