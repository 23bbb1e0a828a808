/* SPDX-License-Identifier: Apache-2.0 */
#include "judge.h"

#include <math.h>

void oracle(int n, const struct limits *limits, double *out)
{
	double low = 0, high = 1e6;
	for (int round = 0; round < 200; round++) {
		double level = (low + high) / 2, sum = 0;
		for (int i = 0; i < n; i++) {
			const struct limits *l = &limits[i];
			out[i] = fmin(fmin(l->demand, l->ceiling / 1000.0), fmin(l->demand, l->floor / 1000.0) + level * l->weight);
			sum += out[i];
		}
		*(sum > 1 ? &high : &low) = level;
	}
}

void check_rows(struct world *w, const char *name)
{
	for (int d = 0; d < w->devices; d++) {
		struct core *core = w->node[w->node_of[d]].core;
		core_settle(core, w->device[d], w->now);
		const struct core_device *device = &core->device[w->device[d]];
		uint64_t rows = device->unreserved_idle_ns + device->down_ns, lent = device->ended.lent_ns, borrowed = device->ended.burst_lent_ns;
		rows += device->ended.own_ns + device->ended.lent_ns + device->ended.reserved_idle_ns + device->ended.burst_free_ns;
		for (int i = 0; i < device->grants; i++) {
			const struct alq_split *s = &core->grant[device->grant[i]].books.split;
			rows += s->own_ns + s->lent_ns + s->reserved_idle_ns + s->burst_free_ns;
			lent += s->lent_ns;
			borrowed += s->burst_lent_ns;
		}
		check(rows == w->now - device->since, "%s: rows of device %d add up to %llu of %llu ns", name, d,
			(unsigned long long)rows, (unsigned long long)(w->now - device->since));
		check(lent == borrowed, "%s: device %d: %llu ns lent, %llu borrowed", name, d, (unsigned long long)lent,
			(unsigned long long)borrowed);
	}
}
