/* SPDX-License-Identifier: Apache-2.0 */
/* What the record says, and the use of the last second: who had the device for how long; and processes coming to it and going. */
#include "simgpu/server/model.h"

#include <stdlib.h>
#include <string.h>

static void load_add(struct load *l, uint64_t from, uint64_t to)
{
	while (from < to) {
		uint64_t number = from / LOAD_BUCKET_NS, end = min64(to, (number + 1) * LOAD_BUCKET_NS);
		if (number - l->last >= LOAD_BUCKETS)
			memset(l->bucket, 0, sizeof l->bucket);
		else
			for (uint64_t i = l->last + 1; i <= number; i++)
				l->bucket[i % LOAD_BUCKETS] = 0;
		l->last = number;
		l->bucket[number % LOAD_BUCKETS] += end - from;
		from = end;
	}
}

uint32_t load_read(const struct load *l, uint64_t now)
{
	uint64_t number = now / LOAD_BUCKET_NS, busy = 0;
	uint64_t first = number >= LOAD_WINDOW ? number - LOAD_WINDOW : 0;
	for (uint64_t i = first; i < number; i++)
		if (i <= l->last && l->last - i < LOAD_BUCKETS)
			busy += l->bucket[i % LOAD_BUCKETS];
	return (uint32_t)(busy * 1000 / (LOAD_WINDOW * LOAD_BUCKET_NS));
}

void account(struct device *d, struct channel *c, uint64_t from, uint64_t to, bool copy)
{
	d->record->busy_ns += to - from;
	c->row->record->busy_ns += to - from;
	load_add(&d->load, from, to);
	load_add(&c->row->load, from, to);
	if (copy)
		load_add(&d->copy_load, from, to);
}

void record_begin(struct sim_record *r)
{
	__atomic_exchange_n(&r->seq, r->seq + 1, __ATOMIC_ACQ_REL); /* what is written from here on comes after it */
}

void record_end(struct sim_record *r, uint64_t now)
{
	r->updated_ns = now;
	__atomic_store_n(&r->seq, r->seq + 1, __ATOMIC_RELEASE);
}

static struct row *row_find(struct model *m, uint32_t device, pid_t pid, uint64_t start_time, uint64_t now)
{
	struct sim_record *r = m->record;
	uint32_t victim = SIM_RECORD_ROWS;
	for (uint32_t i = 0; i < r->rows; i++) {
		struct sim_record_row *row = &r->row[i];
		if (row->pid == pid && row->device == device && row->start_time == start_time)
			return &m->row[i];
		if (row->ended_ns && (victim == SIM_RECORD_ROWS || row->ended_ns < r->row[victim].ended_ns))
			victim = i;
	}
	if (r->rows < SIM_RECORD_ROWS)
		victim = r->rows;
	if (victim == SIM_RECORD_ROWS)
		return NULL;
	record_begin(r);
	struct sim_record_row *row = &r->row[victim];
	if (row->pid)
		r->device[row->device].folded_ns += row->busy_ns;
	*row = (struct sim_record_row){.pid = pid, .device = device, .start_time = start_time, .first_ns = now};
	if (victim == r->rows)
		r->rows++;
	record_end(r, r->updated_ns);
	memset(&m->row[victim], 0, sizeof m->row[victim]);
	m->row[victim].record = row;
	return &m->row[victim];
}

void model_attach(struct model *m, struct channel *c, pid_t pid, uint64_t start_time, uint64_t now)
{
	struct device *d = c->device;
	model_advance(m, now);
	c->row = row_find(m, d->index, pid, start_time, now);
	if (!c->row)
		return;
	c->row->contexts++;
	c->row->record->ended_ns = 0;
	struct channel **at = &d->channels;
	while (*at)
		at = &(*at)->next;
	*at = c;
}

void model_detach(struct model *m, struct channel *c, uint64_t now)
{
	struct device *d = c->device;
	model_advance(m, now);
	for (uint64_t seq = c->ended; seq < c->taken; seq++) {
		struct op *op = &c->ops[seq % SIM_RING];
		if (op->state != OP_FREE && op->kind == SIM_OP_WAIT && op->dep_channel != c->id)
			m->cross_waits--;
	}
	for (struct channel **at = &d->channels; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	if (d->turn == c)
		d->turn = NULL;
	if (d->resident == c)
		d->resident = NULL;
	if (--c->row->contexts == 0)
		c->row->record->ended_ns = now;
	for (uint32_t i = 0; i < SIM_STREAMS; i++)
		free(c->stream[i]);
}
