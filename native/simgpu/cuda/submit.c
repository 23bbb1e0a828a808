/* SPDX-License-Identifier: Apache-2.0 */
/* From work to operations on the channel, and waiting. */
#include "simgpu/cuda/internal.h"

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* --------------------------------------------------------------------------------------------------------------- waiting */

static bool done(CUcontext c, uint32_t slot, uint64_t seq)
{
	if (atomic_load_explicit(&c->channel->stream[slot].done, memory_order_acquire) < seq)
		return false;
	/* What functions on the host did before they were acknowledged is seen by whoever sees them ended. */
	(void)atomic_load_explicit(&c->channel->stream[slot].ack, memory_order_acquire);
	return true;
}

static bool server_lives(void)
{
	char byte;
	ssize_t n = recv(api.socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

static struct sim_wait *claim(CUcontext c, uint32_t slot, uint64_t seq)
{
	for (int i = 0; i < SIM_WAITS; i++) {
		struct sim_wait *w = &c->channel->wait[i];
		uint32_t none = 0;
		if (atomic_load_explicit(&w->stream, memory_order_relaxed) == 0 && atomic_compare_exchange_strong(&w->stream, &none, slot + 1)) {
			atomic_store_explicit(&w->seq, seq, memory_order_seq_cst);
			return w;
		}
	}
	return NULL;
}

/* Without the lock. */
static CUresult wait_done(CUcontext c, uint32_t slot, uint64_t seq)
{
	struct sim_wait *w = NULL;
	CUresult r = CUDA_SUCCESS;
	for (;;) {
		uint32_t seen = atomic_load_explicit(&c->channel->notify, memory_order_seq_cst);
		if (done(c, slot, seq))
			break;
		r = (CUresult)atomic_load_explicit(&c->channel->fault, memory_order_relaxed);
		if (r != CUDA_SUCCESS)
			break;
		if (!w) {
			w = claim(c, slot, seq);
			if (w) {
				kick_server();
				continue;
			}
			kick_server(); /* more threads wait than there are slots: this one looks again now and then */
		}
		futex_wait(&c->channel->notify, seen, w ? WATCHDOG_NS : VALUE_POLL_NS);
		if (!done(c, slot, seq) && atomic_load(&c->channel->notify) == seen && !server_lives()) {
			r = CUDA_ERROR_UNKNOWN;
			break;
		}
	}
	if (w)
		atomic_store_explicit(&w->stream, 0, memory_order_release);
	if (r == CUDA_SUCCESS)
		actions_drain(c);
	return r;
}

CUresult await(CUcontext c, uint32_t slot, uint64_t seq)
{
	if (!seq)
		return CUDA_SUCCESS;
	c->users++;
	pthread_mutex_unlock(&api.lock);
	CUresult r = wait_done(c, slot, seq);
	pthread_mutex_lock(&api.lock);
	context_unuse(c);
	return r;
}

CUresult await_stream(CUstream s)
{
	return await(s->context, s->slot, s->last);
}

/* Waits for up to 64 streams at a time, until all have ended what they had when this began. */
CUresult await_context(CUcontext c)
{
	uint64_t upto = c->head;
	CUresult r = CUDA_SUCCESS;
	c->users++;
	for (int n = 64; n == 64 && r == CUDA_SUCCESS && !c->dead;) {
		uint32_t slots[64];
		uint64_t seqs[64];
		n = 0;
		for (CUstream s = c->streams; s && n < 64; s = s->next) {
			uint64_t seq = s->last < upto ? s->last : upto;
			if (done(c, s->slot, seq))
				continue;
			slots[n] = s->slot;
			seqs[n++] = seq;
		}
		for (int i = 0; i < n && r == CUDA_SUCCESS; i++)
			r = await(c, slots[i], seqs[i]);
	}
	if (r == CUDA_SUCCESS && c->dead)
		r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (r == CUDA_SUCCESS) {
		actions_drain(c);
		pools_trim();
	}
	context_unuse(c);
	return r;
}

bool ended(CUcontext c, uint32_t slot, uint64_t seq)
{
	if (!seq)
		return true;
	if (!done(c, slot, seq)) {
		struct sim_channel *ch = c->channel;
		uint64_t head = atomic_load_explicit(&ch->quiet_head, memory_order_acquire);
		uint64_t until = atomic_load_explicit(&ch->quiet_until, memory_order_acquire);
		bool quiet = head == c->head && atomic_load_explicit(&ch->quiet_head, memory_order_acquire) == head && now_ns() < until;
		if (quiet)
			return false;
		struct sim_request r = {.call = SIM_SYNC};
		struct sim_answer a;
		server_call(&r, &a, NULL);
		if (!done(c, slot, seq))
			return false;
	}
	actions_drain(c);
	return true;
}

/* ---------------------------------------------------------------------------------------------------------------- submit */

/* Puts one operation into the ring; `work`, if not NULL, is what to do to bytes. */
static CUresult push(CUstream s, struct sim_op *op, const struct work *work)
{
	CUcontext c = s->context;
	struct sim_channel *ch = c->channel;
	CUresult r = (CUresult)atomic_load_explicit(&ch->fault, memory_order_relaxed);
	while (r == CUDA_SUCCESS && c->head - atomic_load_explicit(&ch->tail, memory_order_acquire) >= SIM_RING) {
		uint64_t oldest = c->head - SIM_RING + 1;
		r = await(c, ch->ring[(oldest - 1) % SIM_RING].stream, oldest);
		if (r == CUDA_SUCCESS)
			r = context_check(c);
	}
	if (r != CUDA_SUCCESS)
		return r;
	struct action *a = &c->act[c->head % SIM_RING];
	if (atomic_load_explicit(&a->pending, memory_order_acquire))
		actions_drain(c);
	uint64_t seq = c->head + 1;
	if (work) {
		r = (op->flags & SIM_FLAG_SHOW) ? worker_start(c) : CUDA_SUCCESS;
		if (r != CUDA_SUCCESS)
			return r;
		pthread_mutex_lock(&c->act_lock);
		a->work = *work;
		a->slot = s->slot;
		a->seq = seq;
		atomic_store_explicit(&a->pending, true, memory_order_release);
		pthread_mutex_unlock(&c->act_lock);
	}
	op->stream = s->slot;
	op->stamp_ns = now_ns();
	ch->ring[c->head % SIM_RING] = *op;
	atomic_store_explicit(&ch->head, seq, memory_order_release);
	c->head = seq;
	s->last = seq;
	if (op->flags & SIM_FLAG_SHOW)
		kick_server();
	return CUDA_SUCCESS;
}

CUresult submit_run(CUstream s, uint64_t ns, uint32_t launches)
{
	struct sim_op op = {.kind = SIM_OP_KERNEL, .duration_ns = ns, .launches = launches};
	return push(s, &op, NULL);
}

CUresult submit_wait(CUstream s, CUcontext of, uint64_t seq)
{
	struct sim_op op = {.kind = SIM_OP_WAIT, .dep_channel = of->channel->id, .dep_seq = seq};
	return push(s, &op, NULL);
}

static CUresult submit_batch(CUstream s, struct work *w)
{
	CUresult r = CUDA_SUCCESS;
	for (unsigned i = 0; i < w->batch.count && r == CUDA_SUCCESS; i++) {
		const CUstreamBatchMemOpParams *p = &w->batch.ops[i];
		bool wide = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
		bool waits = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
		bool writes = p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
		if (!waits && !writes)
			continue; /* barriers and flushes: the order is kept anyway */
		struct work one = {.kind = waits ? W_AWAIT : W_WRITE,
				   .value = {.at = (void *)(uintptr_t)p->writeValue.address,
					     .value = wide ? p->writeValue.value64 : p->writeValue.value,
					     .flags = p->writeValue.flags,
					     .wide = wide}};
		r = submit(s, &one);
	}
	work_free(w);
	return r;
}

static CUresult submit_event(CUstream s, CUevent e)
{
	struct sim_op op = {.kind = SIM_OP_EVENT, .event = e->slot};
	CUresult r = push(s, &op, NULL);
	if (r == CUDA_SUCCESS) {
		e->seq = s->last;
		e->stream_slot = s->slot;
	}
	return r;
}

CUresult submit(CUstream s, struct work *w)
{
	uint32_t device = s->context->device;
	struct sim_op op = {0};
	switch (w->kind) {
	case W_KERNEL:
		op.kind = SIM_OP_KERNEL;
		op.duration_ns = w->kernel.ns;
		op.launches = 1;
		work_free(w);
		return push(s, &op, NULL);
	case W_COPY:
		op.kind = SIM_OP_COPY;
		op.duration_ns = copy_ns(device, &w->copy.region);
		op.flags = SIM_FLAG_ACTION | (w->copy.region.dst_host ? SIM_FLAG_SHOW : 0);
		return push(s, &op, w);
	case W_SET:
		op.kind = SIM_OP_COPY;
		op.duration_ns = fill_ns(device, &w->set.fill);
		op.flags = SIM_FLAG_ACTION;
		return push(s, &op, w);
	case W_UNPACK:
		op.kind = SIM_OP_COPY;
		op.duration_ns = unpack_ns(device, &w->unpack);
		op.flags = SIM_FLAG_ACTION;
		return push(s, &op, w);
	case W_WRITE:
		op.kind = SIM_OP_WRITE;
		op.flags = SIM_FLAG_ACTION | SIM_FLAG_SHOW;
		return push(s, &op, w);
	case W_HOST:
	case W_CALLBACK:
	case W_AWAIT:
		op.kind = SIM_OP_HOST;
		op.flags = SIM_FLAG_ACTION | SIM_FLAG_SHOW;
		return push(s, &op, w);
	case W_RECORD:
		return submit_event(s, w->event);
	case W_WAIT:
		return w->event->seq ? submit_wait(s, w->event->context, w->event->seq) : CUDA_SUCCESS;
	case W_BATCH:
		return submit_batch(s, w);
	case W_ALLOC:
	case W_FREE:
		work_free(w);
		break;
	case W_EMPTY:
	case W_GRAPH:
		break;
	}
	op.kind = SIM_OP_EMPTY;
	return push(s, &op, NULL);
}

CUresult issue(CUstream s, struct work *w)
{
	CUresult r = s->capture ? CUDA_SUCCESS : context_check(s->context);
	if (r == CUDA_SUCCESS && s->slot == SIM_STREAM_SLOT_LEGACY)
		r = capture_legacy(s->context);
	if (r != CUDA_SUCCESS) {
		work_free(w);
		return r;
	}
	return s->capture ? capture_add(s, w) : submit(s, w);
}

CUresult work_copy(struct work *to, const struct work *from)
{
	*to = *from;
	if (from->kind == W_KERNEL && from->kernel.params) {
		size_t n = from->kernel.param_bytes;
		to->kernel.params = malloc(n ? n : 1);
		if (!to->kernel.params)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(to->kernel.params, from->kernel.params, n);
	} else if (from->kind == W_BATCH) {
		size_t n = from->batch.count * sizeof *from->batch.ops;
		to->batch.ops = malloc(n ? n : 1);
		if (!to->batch.ops)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(to->batch.ops, from->batch.ops, n);
	} else if (from->kind == W_ALLOC || from->kind == W_FREE) {
		graph_memory_ref(from->memory);
	}
	return CUDA_SUCCESS;
}

void work_free(struct work *w)
{
	if (w->kind == W_KERNEL) {
		free(w->kernel.params);
		w->kernel.params = NULL;
	} else if (w->kind == W_BATCH) {
		free(w->batch.ops);
		w->batch.ops = NULL;
	} else if (w->kind == W_ALLOC || w->kind == W_FREE) {
		graph_memory_unref(w->memory);
	}
}
