/* SPDX-License-Identifier: Apache-2.0 */
/* charged.c: what a share is charged under virtual time against what the device ran for it, where the clock alone cannot tell: programs that are
 * alone, hear late of the ends of their work, have not measured it before, or launched it unseen. */
#include "judge.h"

#include <stdio.h>

#define WINDOW (10 * SECOND)
#define HEARTBEAT (80 * MS) /* so often the arbiter asks all, and writes the books */

/* Who is alone is charged by its own word, its measure where its durations are wrong. Both may be lies: then the agent says not to believe it. */
static void word(bool liar, bool clock)
{
	struct world *w = world_new(13, 1);
	struct lane *l = world_add(w, 250, 250, 1, MS);
	struct core_policy policy = {.flags = clock ? ALQ_POLICY_CLOCK : 0, .floor = 250, .ceiling = 250, .weight = 1};
	core_set_policy(w->core, l->grant, w->now, &policy);
	l->estimate = 100 * US;
	l->liar = liar;
	world_run(w, w->now + WINDOW);
	double got = (double)l->truth / (double)WINDOW;
	printf("%-34s %6.2f %% with a ceiling of 25\n", !liar ? "wrong durations" : clock ? "lies, charged by the clock" : "lies", got * 100);
	check((liar && !clock) || got <= 0.255, "word: charged by the clock it got %.2f %% with a ceiling of 25", got * 100);
	check(got >= 0.24, "word: it got %.2f %% of its floor of 25", got * 100);
	check_rows(w, "word");
	world_free(w);

	/* Whole ceilings as well: the only grant of a device is not ungated then. */
	w = world_new(14, 1);
	l = world_add(w, 250, 1000, 1, MS);
	policy.ceiling = 1000;
	core_set_policy(w->core, l->grant, w->now, &policy);
	world_run(w, w->now + SECOND);
	check((w->core->grant[l->grant].phase == CORE_UNGATED) == !clock, "word: a sole grant is gated when doubted, else not");
	world_free(w);
}

/* A program whose shim hears late that its work has ended, as where the machine's CPUs are all taken, is charged for what it ran where nobody
 * else wants the device. */
static void heard_late(uint64_t notice, uint64_t period, uint64_t kernel)
{
	struct world *w = world_new(29, 1);
	struct lane *l = world_add(w, 300, 300, 1, kernel);
	l->notice = notice;
	l->period = period;
	l->batch = 1;
	l->next_arrival = w->now;
	world_run(w, w->now + SECOND);
	uint64_t ran = l->truth, held = w->core->grant[l->grant].books.held_ns;
	world_run(w, w->now + WINDOW);
	ran = l->truth - ran;
	held = w->core->grant[l->grant].books.held_ns - held;
	printf("heard %4llu us late, %5llu us each %5llu us   %6.2f %% of 30, charged %6.2f\n", (unsigned long long)(notice / US),
		(unsigned long long)(kernel / US), (unsigned long long)(period / US), (double)ran * 100 / WINDOW, (double)held * 100 / WINDOW);
	check(held <= ran + ran / 20 + WINDOW / 500, "heard %llu us late: ran %.2f %%, charged %.2f", (unsigned long long)(notice / US),
		(double)ran * 100 / WINDOW, (double)held * 100 / WINDOW);
	check_rows(w, "heard late");
	world_free(w);
}

/* Books are asked for at any time between two runs of the core; that must not change what a share alone under its ceiling is charged. */
static void asked(uint64_t kernel)
{
	struct world *w = world_new(31, 1);
	struct lane *l = world_add(w, 332, 783, 1, kernel);
	uint64_t start = w->now;
	while (w->now < start + WINDOW) {
		world_run(w, w->now + 100 * MS);
		core_settle(w->core, w->device[0], w->now);
	}
	double got = (double)l->truth / (double)WINDOW;
	printf("asked for its books each 100 ms, kernels of %2llu ms %6.2f %% with a ceiling of 78.3\n", (unsigned long long)(kernel / MS), got * 100);
	check(got <= 0.788 && got >= 0.778, "asked: kernels of %llu ms got %.2f %% with a ceiling of 78.3", (unsigned long long)(kernel / MS), got * 100);
	check_rows(w, "asked");
	world_free(w);
}

/* What one lane ran and was charged from a time on. */
struct account {
	uint64_t ran, held;
};

static struct account account_of(const struct lane *l)
{
	return (struct account){l->truth, l->core->grant[l->grant].books.held_ns};
}

/* Time goes by with an arbiter that asks and settles at its heartbeats. */
static void beat(struct world *w, uint64_t until)
{
	while (w->now < until) {
		world_run(w, w->now + HEARTBEAT < until ? w->now + HEARTBEAT : until);
		for (int i = 0; i < w->lanes; i++)
			core_touch(w->core, w->lane[i].task, w->now);
		core_settle(w->core, w->device[0], w->now);
		w->next_run = w->now;
	}
}

/* Charged is what ran, but for `late`: what may be taken for work that goes on until its end is heard. */
static void charged_right(struct world *w, const char *name, struct account from, uint64_t late)
{
	struct account to = account_of(&w->lane[0]);
	double ran = (double)(to.ran - from.ran), held = (double)(to.held - from.held);
	printf("%-46s ran %7.3f s, charged %7.3f\n", name, ran / 1e9, held / 1e9);
	check(ran > 0 && held >= ran * 0.97 && held <= ran * 1.03 + (double)late, "%s: ran %.3f s, charged %.3f", name, ran / 1e9, held / 1e9);
	check_rows(w, name);
}

/* A program that makes a new graph for each launch: none was measured before, each counts for little until it is, and the end of one may be heard
 * only when the next has been launched. */
static void unmeasured(uint64_t kernel, uint64_t period, uint64_t notice)
{
	char name[96];
	snprintf(name, sizeof name, "unmeasured %llu ms each %llu ms, heard %llu ms late", (unsigned long long)(kernel / MS), (unsigned long long)(period / MS),
		(unsigned long long)(notice / MS));
	struct world *w = world_new(43 + kernel, 1);
	struct lane *l = world_add(w, 100, 999, 1, kernel);
	l->estimate = 100 * US;
	l->notice = notice;
	l->period = period;
	l->batch = 1;
	l->next_arrival = w->now;
	beat(w, w->now + SECOND);
	struct account from = account_of(l);
	beat(w, w->now + WINDOW);
	charged_right(w, name, from, WINDOW / period * notice);
	world_free(w);
}

/* Launches that slip through as their gate closes, of one that had looked at it before: the work ends before the arbiter hears of it. */
static void slipped(uint64_t kernel)
{
	char name[96];
	snprintf(name, sizeof name, "slipped through, %llu ms", (unsigned long long)(kernel / MS));
	struct world *w = world_new(47 + kernel, 1);
	struct lane *l = world_add(w, 300, 900, 1, kernel);
	l->slips = true;
	l->period = 3 * kernel;
	l->batch = 1;
	l->next_arrival = w->now;
	beat(w, w->now + SECOND);
	struct account from = account_of(l);
	beat(w, w->now + WINDOW);
	charged_right(w, name, from, 0);
	world_free(w);
}

/* Work that runs and ends while the arbiter does not run, as native/arbiter/main.c notices it. */
static void absent(void)
{
	static const bool live[CORE_GRANTS];
	struct world *w = world_new(53, 1);
	struct lane *l = world_add(w, 300, 900, 1, 40 * MS);
	l->batch = 1;
	beat(w, w->now + SECOND);
	struct account from = account_of(l);
	for (int i = 0; i < 20; i++) {
		l->period = SECOND; /* one, from now on */
		l->next_arrival = w->now;
		while (!l->outstanding)
			world_run(w, w->now + 10 * US);
		l->period = 10 * WINDOW;
		core_settle(w->core, w->device[0], w->now);
		w->next_run = CORE_NEVER;
		w->absent = true;
		world_run(w, w->now + 150 * MS);
		w->absent = false;
		core_away(w->core, w->device[0], w->now, live);
		w->next_run = w->now;
		beat(w, w->now + 500 * MS);
	}
	charged_right(w, "while no arbiter ran", from, 0);
	world_free(w);
}

int main(void)
{
	for (uint64_t notice = MS; notice <= 8 * MS; notice *= 2) {
		heard_late(notice, 0, 500 * US);
		heard_late(notice, 10 * MS, 500 * US);
		heard_late(notice, 3 * MS, 500 * US);
		heard_late(notice, 0, 5 * MS);
	}
	asked(1 * MS);
	asked(10 * MS);
	asked(20 * MS);
	word(false, false);
	word(true, false);
	word(true, true);
	for (uint64_t notice = 0; notice <= 40 * MS; notice += 10 * MS) {
		unmeasured(40 * MS, 41 * MS, notice);
		unmeasured(40 * MS, 60 * MS, notice);
		unmeasured(10 * MS, 70 * MS, notice);
	}
	slipped(10 * MS);
	slipped(40 * MS);
	absent();
	if (check_failures())
		fprintf(stderr, "%d checks failed\n", check_failures());
	return check_failures() ? 1 : 0;
}
