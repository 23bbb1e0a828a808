/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's one promise: what ran when does not depend on when it is asked. Random work of several contexts is played once with a single
 * look at the end, and again with looks at random times; records, event times and order must be the same to the nanosecond.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/costs.h"
#include "simgpu/server/model.h"

enum { CHANNELS = 4, OPS = 300, END = 400000000 };

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % below;
}

struct channel *client_channel(struct client *client, uint32_t id)
{
	return id <= CHANNELS ? &((struct channel *)client)[id - 1] : NULL;
}

struct play {
	struct model model;
	struct sim_record record;
	struct channel channel[CHANNELS];
	struct sim_channel shared[CHANNELS];
};

static struct sim_op script[CHANNELS][OPS];

static void write_script(void)
{
	for (int c = 0; c < CHANNELS; c++) {
		uint64_t stamp = draw(1000000);
		for (int i = 0; i < OPS; i++) {
			stamp += draw(4) ? draw(2000) : draw(3000000);
			struct sim_op op = {.stamp_ns = stamp, .stream = (uint32_t)draw(4)};
			switch (draw(6)) {
			case 0:
				op.kind = SIM_OP_EVENT;
				op.event = (uint32_t)i;
				break;
			case 1: /* for something earlier, here or in another context */
				op.kind = SIM_OP_WAIT;
				op.dep_channel = (uint32_t)(draw(3) ? (uint64_t)c : draw((uint64_t)c + 1)) + 1;
				op.dep_seq = op.dep_channel == (uint32_t)c + 1 ? draw((uint64_t)i + 1) : draw(OPS) + 1;
				break;
			case 2:
				op.kind = SIM_OP_COPY;
				op.duration_ns = draw(100000);
				break;
			default:
				op.kind = SIM_OP_KERNEL;
				op.duration_ns = draw(8) ? draw(100000) : draw(6000000);
				op.launches = 1;
			}
			script[c][i] = op;
		}
	}
}

static struct play *play_new(void)
{
	struct play *p = calloc(1, sizeof *p);
	if (!p)
		abort();
	p->model.costs = (struct costs){.slice_ns = 2000000, .switch_ns = 50000, .kernel_min_ns = 2000};
	p->model.record = &p->record;
	p->model.devices = 2;
	for (uint32_t i = 0; i < 2; i++) {
		p->model.device[i].index = i;
		p->model.device[i].record = &p->record.device[i];
	}
	for (uint32_t c = 0; c < CHANNELS; c++) {
		p->channel[c] = (struct channel){.id = c + 1, .client = (struct client *)p->channel, .device = &p->model.device[c % 2], .shared = &p->shared[c]};
		p->shared[c].stream[2].flags = SIM_STREAM_NONBLOCKING;
		p->shared[c].stream[3].priority = -1;
		model_attach(&p->model, &p->channel[c], (pid_t)(100 + c), 1, 0);
	}
	return p;
}

static void play_free(struct play *p)
{
	for (int c = 0; c < CHANNELS; c++)
		model_detach(&p->model, &p->channel[c], END);
	free(p);
}

/* Submits what was submitted by `now`, as a client would have. */
static void submit_until(struct play *p, uint64_t now)
{
	for (int c = 0; c < CHANNELS; c++) {
		uint64_t head = atomic_load(&p->shared[c].head);
		while (head < OPS && script[c][head].stamp_ns <= now) {
			p->shared[c].ring[head % SIM_RING] = script[c][head];
			head++;
		}
		atomic_store(&p->shared[c].head, head);
	}
}

static int compare(const struct play *a, const struct play *b, uint64_t seed)
{
	for (int i = 0; i < 2; i++)
		if (memcmp(&a->record.device[i], &b->record.device[i], sizeof a->record.device[i]) != 0) {
			fprintf(stderr, "seed %llu: device %d busy %llu or %llu, by how often it was asked\n", (unsigned long long)seed, i,
				(unsigned long long)a->record.device[i].busy_ns, (unsigned long long)b->record.device[i].busy_ns);
			return 1;
		}
	for (int c = 0; c < CHANNELS; c++) {
		if (a->record.row[c].busy_ns != b->record.row[c].busy_ns || a->record.row[c].launches != b->record.row[c].launches) {
			fprintf(stderr, "seed %llu: row %d differs\n", (unsigned long long)seed, c);
			return 1;
		}
		for (int e = 0; e < OPS; e++)
			if (atomic_load(&a->shared[c].event[e].time_ns) != atomic_load(&b->shared[c].event[e].time_ns)) {
				fprintf(stderr, "seed %llu: event %d of context %d is at %llu or %llu, by how often it was asked\n",
					(unsigned long long)seed, e, c, (unsigned long long)atomic_load(&a->shared[c].event[e].time_ns),
					(unsigned long long)atomic_load(&b->shared[c].event[e].time_ns));
				return 1;
			}
	}
	return 0;
}

/* Busy and switching time of a device never exceed elapsed time, and the rows add up to the device. */
static int adds_up(const struct play *p, uint64_t seed)
{
	uint64_t rows[2] = {0};
	for (int c = 0; c < CHANNELS; c++)
		rows[c % 2] += p->record.row[c].busy_ns;
	for (int i = 0; i < 2; i++)
		if (rows[i] != p->record.device[i].busy_ns || rows[i] + p->record.device[i].switch_ns > END || !rows[i]) {
			fprintf(stderr, "seed %llu: device %d does not add up\n", (unsigned long long)seed, i);
			return 1;
		}
	return 0;
}

/* What a waiter would be woken for comes no later than it ends: waking only at deadlines misses nothing. */
static int deadlines_hold(uint64_t seed)
{
	struct play *p = play_new();
	submit_until(p, END);
	for (int c = 0; c < CHANNELS; c++) /* the last operation of each context's first stream that has one */
		for (int i = OPS; i-- > 0;)
			if (script[c][i].stream == 1) {
				atomic_store(&p->shared[c].wait[0].seq, (uint64_t)i + 1);
				atomic_store(&p->shared[c].wait[0].stream, 2);
				break;
			}
	uint64_t now = 10000000; /* everything is submitted by then or soon; then only as told */
	int wakes = 0, bad = 0;
	for (;; wakes++) {
		model_advance(&p->model, now);
		uint64_t next = model_deadline(&p->model);
		if (next == SIM_NEVER)
			break;
		if (next <= now && wakes > 1000000) {
			bad = 1;
			break;
		}
		now = next > now ? next : now + 1;
	}
	for (int c = 0; c < CHANNELS; c++)
		if (atomic_load(&p->shared[c].stream[1].done) < atomic_load(&p->shared[c].wait[0].seq))
			bad = bad || p->channel[c].ended == OPS;
	if (bad)
		fprintf(stderr, "seed %llu: after %d wakes a waiter is not served\n", (unsigned long long)seed, wakes);
	play_free(p);
	return bad;
}

int main(void)
{
	int failed = 0, runs = 200;
	for (uint64_t seed = 1; seed <= (uint64_t)runs && !failed; seed++) {
		random_state = seed * 0x9e3779b97f4a7c15ull;
		write_script();
		struct play *once = play_new(), *often = play_new();
		submit_until(once, END);
		model_advance(&once->model, END);
		for (uint64_t now = 0; now < END; now += 1 + draw(draw(3) ? 50000 : 20000000)) {
			submit_until(often, now);
			model_advance(&often->model, now);
		}
		submit_until(often, END);
		model_advance(&often->model, END);
		failed = compare(once, often, seed) || adds_up(once, seed) || deadlines_hold(seed);
		play_free(once);
		play_free(often);
	}
	printf("model: %d passed, %d failed\n", failed ? 0 : runs, failed);
	return failed;
}
