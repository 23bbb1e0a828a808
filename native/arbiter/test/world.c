/* SPDX-License-Identifier: Apache-2.0 */
/* world.c: how time goes by: what programs, their shims and devices do. */
#include "world.h"

#include <math.h>
#include <stdlib.h>

#define RUN_AHEAD (1 * MS)

/* How long the lane's kernel of this number lasts: the same in every world in which the lane is the same. */
static uint64_t lasts(const struct world *w, const struct lane *l, uint64_t number)
{
	uint64_t draw = (number + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)(l - w->lane) * 0xd1342543de82ef95ull;
	draw ^= draw >> 29;
	draw *= 0xbf58476d1ce4e5b9ull;
	draw ^= draw >> 32;
	uint64_t ns = l->kernel;
	if (l->spread)
		ns = ns * (1000 - l->spread + draw % (2 * l->spread + 1)) / 1000;
	return l->tail_one_in && (draw >> 32) % l->tail_one_in == 0 ? ns + l->tail : ns;
}

static bool saturating(const struct lane *l)
{
	return !l->period && !l->group && !l->gap;
}

static void ring(struct world *w, struct lane *l)
{
	uint64_t at = w->now + w->latency;
	if (!l->bell_at || at < l->bell_at)
		l->bell_at = at;
}

/* Whether what is queued leaves room for one more, as in the shim: nothing goes behind work that fills the lease, and long kernels go one
 * behind the other, the next when the one that runs should end soon. */
static bool room(const struct world *w, struct lane *l, uint64_t end)
{
	uint64_t queued = lane_queued(l);
	if (queued == 0)
		return true;
	if (queued >= QUEUE || l->busy_until >= end)
		return false;
	if ((queued + 1) * l->estimate <= RUN_AHEAD)
		return true;
	if (queued > 1)
		return false;
	if (l->busy_until > w->now + RUN_AHEAD / 2)
		l->pump_at = l->busy_until - RUN_AHEAD / 2;
	return l->busy_until <= w->now + RUN_AHEAD / 2;
}

/* What the shim does when its program wants to launch. */
static void pump(struct world *w, struct lane *l)
{
	l->pump_at = 0;
	l->coming = false;
	while (!l->off && (l->backlog > 0 || saturating(l))) {
		const struct core_gate *g = &l->core->grant[l->grant].gate;
		if (l->after && w->lane[l->after - 1].launched <= l->launched)
			return; /* its thread has not come so far */
		if (!l->slips && (!g->open || w->now >= g->end_ns)) {
			if (!l->wait_since) {
				l->wait_since = w->now;
				ring(w, l);
			}
			return;
		}
		l->wait_since = 0;
		if (!room(w, l, g->end_ns)) {
			l->coming = true;
			return;
		}
		if (lane_queued(l) == 0)
			l->busy_until = w->now;
		if (l->outstanding++ == 0)
			l->remaining = lasts(w, l, l->completed);
		l->arrived[l->launched++ % QUEUE] = w->now;
		l->busy_until = (l->busy_until > w->now ? l->busy_until : w->now) + l->estimate;
		if (!saturating(l))
			l->backlog--;
		for (int i = 0; i < w->lanes; i++)
			if (w->lane[i].after == l - w->lane + 1)
				w->lane[i].pump_at = w->now;
	}
	if (l->off || l->backlog == 0)
		l->wait_since = 0;
}

/* The lane's shim hears that a kernel has ended. */
static void hear(struct world *w, struct lane *l)
{
	l->measured += lasts(w, l, l->heard++);
	l->busy_until = w->now + lane_queued(l) * l->estimate;
	if (l->took && l->heard == (l->done + 1) * l->batch) {
		if (l->done < l->room)
			l->took[l->done] = w->now - l->asked[l->done % QUEUE];
		l->done++;
	}
	if (l->gap) {
		l->backlog++;
		l->pump_at = w->now + l->gap;
	} else if (l->group) {
		bool all = true;
		for (int i = 0; i < w->lanes; i++)
			all &= w->lane[i].group != l->group || w->lane[i].heard >= l->heard;
		for (int i = 0; all && i < w->lanes; i++) {
			if (w->lane[i].group != l->group)
				continue;
			w->lane[i].backlog++;
			w->lane[i].pump_at = w->now + 20 * US;
		}
	} else {
		pump(w, l);
	}
	if (lane_queued(l) == 0)
		ring(w, l); /* drained */
}

static void completed(struct world *w, struct lane *l)
{
	l->outstanding--;
	l->heard_at[l->completed++ % QUEUE] = w->now + l->notice;
	l->remaining = l->outstanding ? lasts(w, l, l->completed) : 0;
	if (!l->notice && !l->stopped)
		hear(w, l);
}

static uint64_t first_arrived(const struct lane *l)
{
	return l->arrived[l->completed % QUEUE];
}

/* Whether its kernel on the device waits for one that others of its group have not launched yet. */
static bool alone(const struct world *w, const struct lane *l)
{
	for (int i = 0; l->meets && i < w->lanes; i++)
		if (w->lane[i].group == l->group && w->lane[i].launched <= l->completed)
			return true;
	return false;
}

/* Whose turn it is on the device. */
static int pick(struct world *w, int device)
{
	int from = w->running[device], best = -1;
	for (int k = 1; k <= w->lanes; k++) {
		int i = ((from < 0 ? 0 : from) + k) % w->lanes;
		const struct lane *l = &w->lane[i];
		if (l->device != device || !l->outstanding)
			continue;
		if (w->slice)
			return i;
		if (best < 0 || first_arrived(l) < first_arrived(&w->lane[best]))
			best = i;
	}
	return best;
}

static uint64_t device_event(const struct world *w, int device)
{
	if (w->running[device] < 0 || w->gone[device])
		return CORE_NEVER;
	const struct lane *l = &w->lane[w->running[device]];
	uint64_t end = alone(w, l) ? CORE_NEVER : w->now + w->switch_left[device] + l->remaining;
	return w->slice && w->slice_end[device] < end ? w->slice_end[device] : end;
}

static void advance_device(struct world *w, int device, uint64_t to)
{
	int r = w->running[device];
	if (r < 0 || to == w->now || w->gone[device])
		return;
	uint64_t dt = to - w->now, lost = w->switch_left[device] < dt ? w->switch_left[device] : dt;
	w->switch_left[device] -= lost;
	w->lane[r].remaining -= alone(w, &w->lane[r]) ? 0 : dt - lost;
	w->lane[r].truth += dt - lost;
	w->busy[device] += dt - lost;
	w->switching[device] += lost;
}

static void schedule_device(struct world *w, int device)
{
	int r = w->running[device];
	bool done = false;
	if (w->gone[device])
		return;
	if (r >= 0 && w->lane[r].outstanding && w->lane[r].remaining == 0 && !alone(w, &w->lane[r])) {
		completed(w, &w->lane[r]);
		done = true;
	}
	if (r >= 0 && w->lane[r].outstanding && (w->slice ? w->now < w->slice_end[device] : !done))
		return;
	int next = pick(w, device);
	if (next >= 0) {
		w->slice_end[device] = w->now + w->slice;
		w->switch_left[device] = next != r && r >= 0 ? w->switch_cost : 0;
	}
	w->running[device] = next;
}

static void publish(struct world *w)
{
	int grant;
	for (int node = 0; node < w->nodes; node++) {
		struct core *core = w->node[node].core;
		while ((grant = core_next_dirty(core)) >= 0)
			for (int i = 0; i < w->lanes; i++) {
				struct lane *l = &w->lane[i];
				if (l->core == core && l->grant == grant && l->wait_since && core->grant[grant].gate.open && !l->pump_at)
					l->pump_at = w->now + w->latency;
			}
	}
}

static uint64_t lane_event(const struct world *w, const struct lane *l)
{
	uint64_t at = CORE_NEVER;
	if (l->bell_at && l->bell_at < at && !w->absent)
		at = l->bell_at;
	if (l->stopped)
		return at;
	if (l->pump_at && l->pump_at < at)
		at = l->pump_at;
	if (l->period && l->next_arrival < at)
		at = l->next_arrival;
	if (l->heard < l->completed && l->heard_at[l->heard % QUEUE] < at)
		at = l->heard_at[l->heard % QUEUE];
	return at;
}

static void step_lane(struct world *w, struct lane *l)
{
	if (!l->stopped && l->period && l->next_arrival <= w->now) {
		l->backlog += l->off ? 0 : l->batch;
		if (l->took && l->batches - l->done >= QUEUE)
			abort();
		l->asked[l->batches++ % QUEUE] = w->now;
		l->next_arrival = w->now + l->period + world_random(w, l->jitter);
		if (l->poisson)
			l->next_arrival = w->now + 1 + (uint64_t)(-log(((double)world_random(w, 1u << 30) + 0.5) / (1u << 30)) * (double)l->period);
		if (!l->pump_at)
			pump(w, l);
	}
	while (!l->stopped && l->heard < l->completed && l->heard_at[l->heard % QUEUE] <= w->now)
		hear(w, l);
	if (!l->stopped && l->pump_at && l->pump_at <= w->now)
		pump(w, l);
	if (l->bell_at && l->bell_at <= w->now && !w->absent) {
		l->bell_at = 0;
		core_touch(l->core, l->task, w->now);
		w->next_run = w->now;
	}
}

void world_run(struct world *w, uint64_t until)
{
	for (;;) {
		uint64_t at = w->next_run;
		for (int i = 0; i < w->devices; i++)
			at = device_event(w, i) < at ? device_event(w, i) : at;
		for (int i = 0; i < w->lanes; i++)
			at = lane_event(w, &w->lane[i]) < at ? lane_event(w, &w->lane[i]) : at;
		if (at < w->now)
			at = w->now; /* what one that was stopped has missed */
		if (at > until)
			at = until;
		for (int i = 0; i < w->devices; i++)
			advance_device(w, i, at);
		w->now = at;
		if (at >= until)
			return;
		for (int i = 0; i < w->lanes; i++)
			step_lane(w, &w->lane[i]);
		for (int i = 0; i < w->devices; i++)
			schedule_device(w, i);
		if (w->next_run <= w->now) {
			w->next_run = CORE_NEVER;
			for (int i = 0; i < w->nodes; i++) {
				uint64_t next = core_run(w->node[i].core, w->now);
				w->next_run = next < w->next_run ? next : w->next_run;
			}
			w->runs++;
			publish(w);
		}
	}
}
