/* SPDX-License-Identifier: Apache-2.0 */
/* What clients hold: memory of the devices, and contexts with their channels. */
#define _GNU_SOURCE
#include "simgpu/server/state.h"

#include <stdlib.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/syscall.h>

#include "cuda.h"
#include "simgpu/costs.h"

struct channel *client_channel(struct client *client, uint32_t id)
{
	for (struct link *l = server.links; l; l = l->next)
		if (l->channel.id == id && l->channel.client == client)
			return &l->channel;
	return NULL;
}

static void row_add(const struct client *c, uint32_t device, int64_t bytes)
{
	record_begin(server.m->record);
	for (uint32_t i = 0; i < server.m->record->rows; i++) {
		struct sim_record_row *r = &server.m->record->row[i];
		if (r->pid == c->pid && r->device == device && r->start_time == c->start_time)
			r->bytes += (uint64_t)bytes;
	}
	record_end(server.m->record, server.m->record->updated_ns);
}

/* Who else holds memory of that number on a device; *of is whose it is. NULL: nobody. */
static struct alloc *shared_find(uint64_t number, uint32_t device, struct client **of)
{
	for (struct client *c = server.clients; c && number; c = c->next)
		for (struct alloc *a = c->allocs; a; a = a->next)
			if (a->number == number && a->device == device) {
				*of = c;
				return a;
			}
	return NULL;
}

void free_alloc(struct client *c, struct alloc **at)
{
	struct alloc *a = *at;
	struct client *heir;
	*at = a->next;
	struct alloc *other = shared_find(a->number, a->device, &heir);
	row_add(c, a->device, -(int64_t)a->bytes);
	if (other) {
		other->bytes += a->bytes;
		row_add(heir, a->device, (int64_t)a->bytes);
	} else {
		server.m->device[a->device].used -= a->bytes;
	}
	free(a);
}

uint32_t share_memory(struct client *c, uint64_t id, uint64_t number)
{
	for (struct alloc *a = c->allocs; a; a = a->next)
		if (a->id == id) {
			a->number = number;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

uint32_t take_memory(struct client *c, struct channel *ch, uint64_t bytes, uint64_t *id)
{
	struct device *d = ch->device;
	uint64_t capacity = d->info.memory - d->info.reserved;
	if (d->no_memory || bytes > capacity || d->used > capacity - bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct alloc *a = malloc(sizeof *a);
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*a = (struct alloc){.id = ++server.next_alloc, .bytes = bytes, .device = d->index, .channel = ch->id, .next = c->allocs};
	c->allocs = a;
	d->used += bytes;
	record_begin(server.m->record);
	ch->row->record->bytes += bytes;
	if (d->used > d->record->peak_bytes)
		d->record->peak_bytes = d->used;
	record_end(server.m->record, server.m->record->updated_ns);
	*id = a->id;
	return CUDA_SUCCESS;
}

uint32_t import_memory(struct client *c, struct channel *ch, uint64_t number, uint64_t bytes, uint64_t *id)
{
	struct client *of;
	if (!ch || !number || bytes % SIM_GRANULE)
		return CUDA_ERROR_INVALID_VALUE;
	bool held = shared_find(number, ch->device->index, &of);
	if (!held && !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	uint32_t status = take_memory(c, ch, held ? 0 : bytes, id);
	if (status == CUDA_SUCCESS)
		c->allocs->number = number;
	return status;
}

/* ------------------------------------------------------------------------------------------------------------- contexts */

void close_channel(struct client *c, struct link **at)
{
	struct link *l = *at;
	for (struct alloc **a = &c->allocs; *a;) {
		if ((*a)->channel == l->channel.id)
			free_alloc(c, a);
		else
			a = &(*a)->next;
	}
	model_detach(server.m, &l->channel, now_ns());
	munmap(l->channel.shared, sizeof *l->channel.shared);
	*at = l->next;
	free(l);
}

uint32_t open_channel(struct client *c, struct device *d, int *fd, uint32_t *id)
{
	if (d->gone)
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	if (d->fault)
		return d->fault;
	*fd = (int)syscall(SYS_memfd_create, "simgpu-channel", 1u /* MFD_CLOEXEC */);
	if (*fd < 0 || ftruncate(*fd, sizeof(struct sim_channel)) < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	struct sim_channel *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	struct link *l = calloc(1, sizeof *l);
	if (shared == MAP_FAILED || !l) {
		if (shared != MAP_FAILED)
			munmap(shared, sizeof *shared);
		free(l);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	shared->magic = SIM_MAGIC;
	shared->version = SIM_VERSION;
	shared->id = *id = ++server.next_channel;
	shared->device = d->index;
	atomic_store(&shared->quiet_head, SIM_NEVER);
	l->channel = (struct channel){.id = *id, .client = c, .device = d, .shared = shared};
	model_attach(server.m, &l->channel, c->pid, c->start_time, now_ns());
	uint64_t alloc;
	uint32_t status = l->channel.row ? take_memory(c, &l->channel, server.m->costs.context_bytes, &alloc) : CUDA_ERROR_OUT_OF_MEMORY;
	l->next = server.links;
	server.links = l;
	if (status != CUDA_SUCCESS && l->channel.row) {
		close_channel(c, &server.links);
	} else if (status != CUDA_SUCCESS) {
		server.links = l->next;
		munmap(shared, sizeof *shared);
		free(l);
	}
	return status;
}
