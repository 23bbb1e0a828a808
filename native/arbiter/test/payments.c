/* SPDX-License-Identifier: Apache-2.0 */
#include "payments.h"

#include <stdio.h>
#include <stdlib.h>

#include "world.h"

#define GRANTS 6
#define SURE (500 * US) /* of each claim, what does not count: see admit.c */
#define MOST (50 * MS)  /* of a claim */

struct desk { /* a core whose tenants say what the test puts here */
	struct core *core;
	struct core_device *device;
	struct core_grant *grant[GRANTS];
	uint64_t said[GRANTS], measured[GRANTS];
	uint64_t seed;
};

static void observe(void *context, int grant, uint64_t now, struct core_observation *out)
{
	const struct desk *desk = context;
	(void)now;
	for (int i = 0; i < GRANTS; i++) {
		if (desk->grant[i] != &desk->core->grant[grant])
			continue;
		out->launched_ns = desk->said[i];
		out->measured_ns = desk->measured[i];
	}
}

static struct desk desk_open(uint64_t seed)
{
	struct desk desk = {.core = calloc(1, sizeof(struct core)), .seed = seed * 2654435761u + 1};
	struct core_config config;
	if (!desk.core)
		abort();
	core_defaults(&config);
	config.observe = observe;
	core_init(desk.core, &config);
	int device = core_device_add(desk.core, SECOND, ALQ_DEVICE_OK);
	desk.device = &desk.core->device[device];
	for (int i = 0; i < GRANTS; i++) {
		struct core_policy policy = {.floor = 100, .ceiling = 1000, .weight = 1};
		int task = core_task_add(desk.core, SECOND, 1, &device, &policy);
		desk.grant[i] = &desk.core->grant[desk.core->task[task].grant[0]];
		desk.grant[i]->used = true;
	}
	return desk;
}

/* The tenants are asked what they used. */
static void ask(struct desk *desk)
{
	desk->core->config.context = desk;
	core_admit(desk->core, desk->device);
}

static void say(struct desk *desk, int i, uint64_t used)
{
	desk->said[i] += used;
	desk->measured[i] += used;
}

static uint64_t draw(struct desk *desk, uint64_t below)
{
	desk->seed = desk->seed * 6364136223846793005ull + 1442695040888963407ull;
	return (desk->seed >> 33) % below;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Of a claim, what counts: positive for admissions, of the other sign for complaints. */
static uint64_t counts(int64_t claim)
{
	return claim > (int64_t)SURE ? (uint64_t)claim - SURE : 0;
}

/* Charges a grant and holds the books against what must come out: of `use`, what it complains of and others admit, and not more of any of
 * these than it admitted; all together `use` to the nanosecond. */
static void pay(struct desk *desk, int who, uint64_t use, uint64_t seed)
{
	uint64_t held[GRANTS], admitted[GRANTS], sum = 0, paid = 0;
	for (int i = 0; i < GRANTS; i++) {
		held[i] = desk->grant[i]->books.held_ns;
		admitted[i] = i == who ? 0 : counts(desk->grant[i]->claim_ns);
		sum += admitted[i];
	}
	uint64_t relief = least(use, least(counts(-desk->grant[who]->claim_ns), sum));
	core_pay(desk->core, desk->device, desk->grant[who], use);
	for (int i = 0; i < GRANTS; i++) {
		held[i] = desk->grant[i]->books.held_ns - held[i];
		paid += held[i];
		check(i == who || held[i] <= admitted[i], "payments %llu: grant %d paid %llu ns for another and had admitted %llu", (unsigned long long)seed,
			i, (unsigned long long)held[i], (unsigned long long)admitted[i]);
	}
	check(paid == use, "payments %llu: %llu ns charged for %llu", (unsigned long long)seed, (unsigned long long)paid, (unsigned long long)use);
	check(held[who] == use - relief, "payments %llu: grant %d paid %llu ns of %llu, others owe %llu of them", (unsigned long long)seed, who,
		(unsigned long long)held[who], (unsigned long long)use, (unsigned long long)relief);
}

/* Tenants that say anything, asked again and again. Returns how much moved. */
static uint64_t at_random(uint64_t seed)
{
	struct desk desk = desk_open(seed);
	uint64_t used = 0, own = 0;
	desk.core->config.context = &desk;
	for (int reading = 0; reading < 200; reading++) {
		ask(&desk);
		for (int i = 0; i < GRANTS; i++) {
			int64_t claim = desk.grant[i]->claim_ns;
			check(claim <= (int64_t)MOST && claim >= -(int64_t)MOST, "payments %llu: grant %d claims %lld ns", (unsigned long long)seed, i,
				(long long)claim);
		}
		for (int round = 0; round < 12; round++) {
			int who = (int)draw(&desk, GRANTS);
			uint64_t use = draw(&desk, 8 * MS), before = desk.grant[who]->books.held_ns;
			pay(&desk, who, use, seed);
			used += use;
			own += desk.grant[who]->books.held_ns - before;
			say(&desk, (int)draw(&desk, GRANTS), draw(&desk, 3) ? use : draw(&desk, 20 * MS));
		}
	}
	free(desk.core);
	return used - own;
}

/* One admits 10 ms, its neighbour complains of 4: 3.5 move, once. Then the one who admitted takes it back: that gets it nothing. */
static void retracted(void)
{
	struct desk desk = desk_open(1);
	ask(&desk);
	say(&desk, 0, 10 * MS);
	core_use(desk.grant[1], 8 * MS);
	say(&desk, 1, 4 * MS);
	ask(&desk);
	int64_t complaint = -desk.grant[1]->claim_ns;
	check(complaint <= (int64_t)(4 * MS) && complaint >= (int64_t)(3 * MS), "retracted: complains of %lld ns", (long long)complaint);
	pay(&desk, 1, 6 * MS, 1);
	uint64_t paid = desk.grant[0]->books.held_ns;
	check(paid == (uint64_t)complaint - SURE, "retracted: paid %llu ns", (unsigned long long)paid);
	pay(&desk, 1, 6 * MS, 1);
	check(desk.grant[0]->books.held_ns == paid, "retracted: it moved twice");
	desk.said[0] -= 10 * MS;
	say(&desk, 1, 12 * MS - paid); /* what it was charged: content */
	ask(&desk);
	uint64_t other = desk.grant[1]->books.held_ns, own = desk.grant[0]->books.held_ns;
	pay(&desk, 0, 6 * MS, 1);
	check(desk.grant[1]->books.held_ns == other, "retracted: its neighbour paid for it");
	check(desk.grant[0]->books.held_ns == own + 6 * MS, "retracted: it paid %llu ns of 6 ms", (unsigned long long)(desk.grant[0]->books.held_ns - own));
	free(desk.core);
}

/* Admissions of one that holds nothing cost nobody anything while all others are content, and are void of one that is still learning
 * or ungated. */
static void idle(void)
{
	for (int kind = 0; kind < 3; kind++) {
		struct desk desk = desk_open(2);
		ask(&desk);
		if (kind == 2)
			desk.grant[0]->phase = CORE_UNGATED;
		for (int reading = 0; reading < 20; reading++) {
			say(&desk, 0, 10 * MS);
			desk.measured[0] += kind == 1 ? 10 * MS : 0;
			uint64_t before = desk.grant[1]->books.held_ns;
			pay(&desk, 1, 5 * MS, 2);
			say(&desk, 1, kind ? 1 * MS : desk.grant[1]->books.held_ns - before); /* complains only where the admission is void */
			ask(&desk);
		}
		check(desk.grant[0]->books.held_ns == 0, "idle %d: it paid %llu ns", kind, (unsigned long long)desk.grant[0]->books.held_ns);
		check(kind == 0 || desk.grant[0]->claim_ns == 0, "idle %d: it claims %lld ns", kind, (long long)desk.grant[0]->claim_ns);
		free(desk.core);
	}
}

void payments(void)
{
	uint64_t moved = 0;
	for (uint64_t seed = 1; seed <= 40; seed++)
		moved += at_random(seed);
	check(moved > SECOND, "payments: only %llu ns moved: this tests nothing", (unsigned long long)moved);
	retracted();
	idle();
	printf("payments: %.1f s moved to who admitted them\n", (double)moved / 1e9);
}
