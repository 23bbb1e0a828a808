/* SPDX-License-Identifier: Apache-2.0 */
#include "tel.h"

#include <stdlib.h>
#include <string.h>

#include "../arbiter.h"

#define RETRACTED (40 * MS)
#define PHASE (200 * MS) /* of RETRACT */

const char *const lie_names[LIES] = {"truth", "less", "nothing", "more", "huge", "backward", "wrap", "others'", "retract", "idle",
	"learning", "soon", "late", "restless", "waiting", "undone", "scribble", "done"};

struct speaker { /* a task and its one process */
	struct task task;
	struct process process;
	enum lie lie;
	uint64_t launched[ALQ_MAX_GRANTS], launched_ns[ALQ_MAX_GRANTS]; /* as told so far by the shim, which is honest */
	uint64_t readings;
};

struct tel {
	struct world *world;
	struct node *node;
	uint64_t began;
	struct speaker *of_lane[MAX_LANES];
	int lane_of_grant[CORE_GRANTS];
};

/* What the shim writes. */
static struct alq_tel_grant shim(struct tel *tel, int lane)
{
	const struct lane *l = &tel->world->lane[lane];
	const struct core_gate *gate = &tel->world->core->grant[l->grant].gate;
	struct speaker *s = tel->of_lane[lane];
	int k = tel->node->of_grant[l->grant].grant;
	uint64_t left = lane_queued(l) * l->estimate;
	bool more = !l->off && (l->backlog > 0 || (!l->period && !l->group && !l->gap));
	s->launched_ns[k] += (l->launched - s->launched[k]) * l->estimate;
	s->launched[k] = l->launched;
	return (struct alq_tel_grant){
		.wait_since_ns = l->wait_since,
		.launched = l->launched,
		.completed = l->heard,
		.launched_ns = s->launched_ns[k],
		.completed_ns = s->launched_ns[k] > left ? s->launched_ns[k] - left : 0,
		.device_ns = l->measured,
		.device_launches = l->heard,
		.busy_until_ns = lane_queued(l) ? l->busy_until : 0,
		.coming = more && lane_queued(l) && gate->open && tel->world->now < gate->end_ns,
	};
}

/* Sets all counters of time at once, keeping what is queued. */
static void times(struct alq_tel_grant *t, uint64_t used, uint64_t queued)
{
	t->completed_ns = t->device_ns = used;
	t->launched_ns = used + queued;
}

static int neighbour(const struct tel *tel, int lane)
{
	const struct world *w = tel->world;
	for (int k = 1; k < w->lanes; k++)
		if (w->lane[(lane + k) % w->lanes].device == w->lane[lane].device)
			return (lane + k) % w->lanes;
	return lane;
}

/* Lies about the time that was used: what admissions are about. Returns whether this is one. */
static bool lie_about_time(struct tel *tel, int lane, struct alq_tel_grant *t)
{
	struct speaker *s = tel->of_lane[lane];
	uint64_t used = t->completed_ns, queued = t->launched_ns - t->completed_ns, since = tel->world->now - tel->began;
	switch (s->lie) {
	case LESS: times(t, used / 2, queued / 2); return true;
	case NOTHING: times(t, 0, 0); return true;
	case MORE: times(t, used * 2, queued * 2); return true;
	case HUGE_TIME: times(t, UINT64_MAX - queued, queued); return true;
	case BACKWARD:
		if (s->readings % 2) {
			times(t, used / 2, queued / 2);
			t->launched /= 2;
			t->completed /= 2;
		}
		return true;
	case WRAP: times(t, used + UINT64_MAX - SECOND, queued); return true;
	case OTHERS: {
		struct alq_tel_grant other = shim(tel, neighbour(tel, lane));
		times(t, other.completed_ns, other.launched_ns - other.completed_ns);
		return true;
	}
	case RETRACT: {
		bool admits = since / PHASE % 2 == 0;
		times(t, admits ? used + RETRACTED : used > RETRACTED ? used - RETRACTED : 0, queued);
		return true;
	}
	case IDLE: times(t, since, queued); return true;
	case LEARNING: t->device_ns *= 2; return true;
	default: return false;
	}
}

/* Lies about what it does now. */
static void lie_about_now(struct tel *tel, int lane, struct alq_tel_grant *t)
{
	uint64_t now = tel->world->now;
	switch (tel->of_lane[lane]->lie) {
	case SOON: t->busy_until_ns = t->busy_until_ns ? 1 : 0; break;
	case LATE: t->busy_until_ns = t->busy_until_ns ? now + 1000 * SECOND : 0; break;
	case RESTLESS: t->coming = 1; break;
	case WAITING: t->wait_since_ns = 1; break;
	case UNDONE: t->completed = t->completed_ns = 0; break;
	case DONE:
		t->completed = t->launched;
		t->completed_ns = t->launched_ns;
		break;
	case SCRIBBLE:
		for (size_t i = 0; i < sizeof *t; i++)
			((unsigned char *)t)[i] = (unsigned char)world_random(tel->world, 256);
		break;
	default: break;
	}
}

static void listen_to(void *context, int grant, uint64_t now, struct core_observation *out)
{
	struct tel *tel = context;
	int lane = tel->lane_of_grant[grant];
	struct speaker *s = tel->of_lane[lane];
	struct alq_tel_grant *page = &s->task.tel->slot[0].grant[tel->node->of_grant[grant].grant];
	s->readings++;
	*page = shim(tel, lane);
	if (!lie_about_time(tel, lane, page))
		lie_about_now(tel, lane, page);
	observe(tel->node, grant, now, out);
}

struct tel *tel_new(struct world *w)
{
	struct tel *tel = calloc(1, sizeof *tel);
	if (!tel || !(tel->node = calloc(1, sizeof *tel->node)))
		abort();
	tel->world = w;
	tel->began = w->now;
	w->core->config.context = tel;
	w->core->config.observe = listen_to;
	return tel;
}

void tel_free(struct tel *tel)
{
	for (int i = 0; i < tel->world->lanes; i++) {
		struct speaker *s = tel->of_lane[i];
		if (!s || (i + 1 < tel->world->lanes && tel->of_lane[i + 1] == s))
			continue;
		free(s->task.tel);
		free(s);
	}
	free(tel->node);
	free(tel);
}

void tel_join(struct tel *tel, struct lane *first, int lanes, enum lie lie)
{
	struct speaker *s = calloc(1, sizeof *s);
	if (!s || !(s->task.tel = calloc(1, sizeof *s->task.tel)))
		abort();
	s->lie = lie;
	s->task.processes = &s->process;
	for (int k = 0; k < lanes; k++) {
		int grant = first[k].grant, lane = (int)(&first[k] - tel->world->lane);
		tel->of_lane[lane] = s;
		tel->lane_of_grant[grant] = lane;
		tel->node->of_grant[grant].task = &s->task;
		tel->node->of_grant[grant].grant = k;
	}
}
