/* SPDX-License-Identifier: Apache-2.0 */
/* What clients ask for, and the faults that tests make. */
#define _GNU_SOURCE
#include "simgpu/server/state.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include "cuda.h"
#include "simgpu/costs.h"

/* --------------------------------------------------------------------------------------------------------------- faults */

static void notify_listeners(uint32_t device, uint64_t type, uint64_t data)
{
	struct sim_notice notice = {.call = SIM_LISTEN, .device = device, .type = type, .data = data};
	for (struct client *c = server.clients; c; c = c->next)
		if ((c->listens & (1u << device)) && (c->listen_types & type))
			(void)!send(c->fd, &notice, sizeof notice, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* What the contexts on a device get to see after an XID; the public catalogue of XIDs says what each means. */
static uint32_t xid_result(uint64_t xid)
{
	switch (xid) {
	case 13:
	case 43:
	case 45:
		return CUDA_ERROR_LAUNCH_FAILED;
	case 31:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	case 48:
	case 94:
	case 95:
		return CUDA_ERROR_ECC_UNCORRECTABLE;
	case 63:
	case 92:
		return CUDA_SUCCESS; /* noted by the driver; no context is harmed */
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

static void fault_contexts(struct device *d, pid_t pid, uint32_t result)
{
	for (struct channel *ch = d->channels; ch; ch = ch->next)
		if (!pid || ch->client->pid == pid)
			model_fault(ch, result);
}

static uint32_t inject(struct device *d, const struct sim_request *r)
{
	const uint64_t xid_event = 8; /* nvmlEventTypeXidCriticalError */
	model_advance(server.m, now_ns());
	switch (r->arg[0]) {
	case SIM_FAULT_XID:
		if (xid_result(r->arg[1]) != CUDA_SUCCESS)
			fault_contexts(d, (pid_t)r->arg[2], xid_result(r->arg[1]));
		if (r->arg[1] == 79)
			d->gone = true;
		notify_listeners(d->index, xid_event, r->arg[1]);
		return CUDA_SUCCESS;
	case SIM_FAULT_GONE:
		d->gone = true;
		fault_contexts(d, 0, CUDA_ERROR_UNKNOWN);
		return CUDA_SUCCESS;
	case SIM_FAULT_HANG:
		d->hung = true;
		return CUDA_SUCCESS;
	case SIM_FAULT_OOM:
		d->no_memory = true;
		return CUDA_SUCCESS;
	case SIM_FAULT_BACK:
		d->gone = d->hung = d->no_memory = false;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---------------------------------------------------------------------------------------------------------------- calls */

static void list_processes(struct device *d, struct sim_answer *a, uint64_t first)
{
	uint64_t now = now_ns(), n = 0;
	model_advance(server.m, now);
	for (uint32_t i = 0; i < server.m->record->rows; i++) {
		struct row *row = &server.m->row[i];
		if (row->record->device != d->index || !row->contexts)
			continue;
		if (n >= first && n - first < SIM_PROC_MAX)
			a->proc[n - first] =
				(struct sim_proc){.pid = row->record->pid, .load = load_read(&row->load, now), .bytes = row->record->bytes};
		n++;
	}
	a->value[0] = n;
}

static void status_of(struct device *d, struct sim_answer *a)
{
	model_advance(server.m, now_ns());
	a->value[0] = d->record->busy_ns;
	a->value[1] = d->record->switch_ns;
	a->value[2] = d->record->launches;
	for (struct channel *ch = d->channels; ch; ch = ch->next)
		a->value[3]++;
	a->value[4] = d->used;
	a->value[5] = d->gone;
	a->value[6] = d->hung;
	a->info = d->info;
}

static void hello(struct client *c, const struct sim_request *r, struct sim_answer *a, int *fd)
{
	const struct costs *k = &server.m->costs;
	a->value[0] = server.m->devices;
	a->costs[0] = k->kernel_min_ns;
	a->costs[1] = k->kernel_default_ns;
	a->costs[2] = k->copy_start_ns;
	a->costs[3] = k->context_bytes;
	if (r->arg[0] != SIM_VERSION) {
		a->status = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
		return;
	}
	if (c->kick < 0) {
		c->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (c->kick < 0 || server_watch(&c->src[1], c->kick) < 0)
			a->status = CUDA_ERROR_OPERATING_SYSTEM;
	}
	*fd = c->kick;
}

void answer(struct client *c, const struct sim_request *r, struct sim_answer *a, int *fd, bool *give)
{
	struct device *d = r->device < server.m->devices ? &server.m->device[r->device] : NULL;
	struct channel *ch;
	bool wants_device = r->call != SIM_HELLO && r->call != SIM_DESTROY && r->call != SIM_ALLOC && r->call != SIM_FREE && r->call != SIM_SYNC && r->call != SIM_SHARE && r->call != SIM_IMPORT;
	if (wants_device && !d) {
		a->status = CUDA_ERROR_INVALID_DEVICE;
		return;
	}
	switch (r->call) {
	case SIM_HELLO:
		hello(c, r, a, fd);
		return;
	case SIM_DEVICE:
		a->info = d->info;
		a->value[0] = d->gone;
		a->value[1] = server.m->linked > 1 ? 1 + d->index / server.m->linked : 0;
		a->value[2] = server.m->local ? 1 + d->index / server.m->local : 0;
		return;
	case SIM_CONTEXT: {
		uint32_t id = 0;
		a->status = open_channel(c, d, fd, &id);
		a->value[0] = id;
		*give = true;
		return;
	}
	case SIM_DESTROY:
		for (struct link **at = &server.links; *at; at = &(*at)->next)
			if ((*at)->channel.id == r->arg[0] && (*at)->channel.client == c) {
				close_channel(c, at);
				return;
			}
		a->status = CUDA_ERROR_INVALID_CONTEXT;
		return;
	case SIM_ALLOC:
		ch = client_channel(c, (uint32_t)r->arg[0]);
		if (!ch || !r->arg[1] || r->arg[1] % SIM_GRANULE)
			a->status = CUDA_ERROR_INVALID_VALUE;
		else
			a->status = take_memory(c, ch, r->arg[1], &a->value[0]);
		return;
	case SIM_FREE:
		for (struct alloc **at = &c->allocs; *at; at = &(*at)->next)
			if ((*at)->id == r->arg[0]) {
				free_alloc(c, at);
				return;
			}
		a->status = CUDA_ERROR_INVALID_VALUE;
		return;
	case SIM_SHARE:
		a->status = share_memory(c, r->arg[0], r->arg[1]);
		return;
	case SIM_IMPORT:
		a->status = import_memory(c, client_channel(c, (uint32_t)r->arg[0]), r->arg[1], r->arg[2], &a->value[0]);
		return;
	case SIM_MEMORY:
		a->value[0] = d->info.memory - d->info.reserved;
		a->value[1] = d->no_memory ? 0 : a->value[0] - d->used;
		a->value[2] = d->info.reserved;
		a->value[3] = d->gone;
		return;
	case SIM_SYNC:
		model_advance(server.m, now_ns());
		return;
	case SIM_PROCESSES:
		list_processes(d, a, r->arg[0]);
		return;
	case SIM_LOAD: {
		uint64_t now = now_ns();
		model_advance(server.m, now);
		a->value[0] = load_read(&d->load, now);
		a->value[1] = load_read(&d->copy_load, now);
		a->value[2] = d->gone;
		return;
	}
	case SIM_LISTEN:
		c->listens |= 1u << d->index;
		c->listen_types |= r->arg[0];
		return;
	case SIM_INJECT:
		a->status = c->may_inject ? inject(d, r) : CUDA_ERROR_NOT_PERMITTED;
		return;
	case SIM_STATUS:
		status_of(d, a);
		return;
	default:
		a->status = CUDA_ERROR_INVALID_VALUE;
	}
}
