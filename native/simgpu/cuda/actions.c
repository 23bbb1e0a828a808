/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to bytes when their time has come, and functions on the host, which the context's worker calls. */
#include "simgpu/cuda/internal.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <linux/futex.h>
#include <sys/syscall.h>

void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000ull), .tv_nsec = (long)(ns % 1000000000ull)};
	syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0);
}

static void move_bytes(const struct region *r)
{
	for (size_t z = 0; z < r->depth; z++)
		for (size_t y = 0; y < r->height; y++)
			memmove(r->dst + z * r->dst_slice + y * r->dst_pitch, r->src + z * r->src_slice + y * r->src_pitch, r->width);
}

static void set_bytes(const struct fill *f)
{
	for (size_t y = 0; y < f->height; y++) {
		char *row = f->dst + y * f->pitch;
		if (f->element == 1) {
			memset(row, (int)f->value, f->width);
			continue;
		}
		for (size_t x = 0; x < f->width; x++)
			memcpy(row + x * f->element, &f->value, f->element);
	}
}

static void write_value(const struct value *v)
{
	if (v->wide)
		__atomic_store_n((uint64_t *)v->at, v->value, __ATOMIC_SEQ_CST);
	else
		__atomic_store_n((uint32_t *)v->at, (uint32_t)v->value, __ATOMIC_SEQ_CST);
}

static bool value_reached(const struct value *v)
{
	uint64_t is = v->wide ? __atomic_load_n((uint64_t *)v->at, __ATOMIC_SEQ_CST) : __atomic_load_n((uint32_t *)v->at, __ATOMIC_SEQ_CST);
	switch (v->flags & 3u) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return v->wide ? (int64_t)(is - v->value) >= 0 : (int32_t)((uint32_t)is - (uint32_t)v->value) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return v->wide ? is == v->value : (uint32_t)is == (uint32_t)v->value;
	case CU_STREAM_WAIT_VALUE_AND:
		return v->wide ? (is & v->value) != 0 : ((uint32_t)is & (uint32_t)v->value) != 0;
	default:
		return v->wide ? ~(is | v->value) != 0 : (uint32_t)~((uint32_t)is | (uint32_t)v->value) != 0;
	}
}

/* Does what has fallen due, in order; functions on the host and waits for values go to the worker. act_lock is held. */
static void drain_locked(CUcontext c)
{
	uint64_t due = atomic_load_explicit(&c->channel->actions, memory_order_acquire);
	while (c->drained < due) {
		uint64_t seq = c->channel->action[c->drained++ % SIM_RING];
		struct action *a = &c->act[(seq - 1) % SIM_RING];
		struct host_call *h;
		if (!a->pending || a->seq != seq)
			continue;
		switch (a->work.kind) {
		case W_COPY:
			move_bytes(&a->work.copy.region);
			break;
		case W_SET:
			set_bytes(&a->work.set.fill);
			break;
		case W_UNPACK:
			unpack_bytes(&a->work.unpack);
			break;
		case W_WRITE:
			write_value(&a->work.value);
			break;
		default:
			h = malloc(sizeof *h);
			if (!h)
				abort();
			*h = (struct host_call){.work = a->work, .slot = a->slot, .seq = seq};
			*c->calls_end = h;
			c->calls_end = &h->next;
			break;
		}
		atomic_store_explicit(&a->pending, false, memory_order_release);
	}
}

void actions_drain(CUcontext c)
{
	pthread_mutex_lock(&c->act_lock);
	drain_locked(c);
	pthread_mutex_unlock(&c->act_lock);
}

static void acknowledge(CUcontext c, const struct host_call *h)
{
	atomic_store_explicit(&c->channel->stream[h->slot].ack_ns, now_ns(), memory_order_relaxed);
	atomic_store_explicit(&c->channel->stream[h->slot].ack, h->seq, memory_order_release);
	kick_server();
}

static struct host_call *take_call(CUcontext c, bool *polling)
{
	*polling = false;
	for (struct host_call **at = &c->calls; *at; at = &(*at)->next) {
		struct host_call *h = *at;
		if (h->work.kind == W_AWAIT && !value_reached(&h->work.value)) {
			*polling = true;
			continue;
		}
		*at = h->next;
		if (!*at)
			c->calls_end = at;
		return h;
	}
	return NULL;
}

/* One a context, started with the first thing that needs it: what must show on the host at its time, and functions on the host. */
static void *work_loop(void *arg)
{
	CUcontext c = arg;
	for (;;) {
		uint32_t seen = atomic_load_explicit(&c->channel->notify, memory_order_seq_cst);
		pthread_mutex_lock(&c->act_lock);
		if (c->stop) {
			pthread_mutex_unlock(&c->act_lock);
			return NULL;
		}
		drain_locked(c);
		bool polling;
		struct host_call *h = take_call(c, &polling);
		pthread_mutex_unlock(&c->act_lock);
		if (h) {
			if (h->work.kind == W_HOST)
				h->work.host.fn(h->work.host.data);
			else if (h->work.kind == W_CALLBACK)
				h->work.host.callback(h->work.host.stream, (CUresult)atomic_load(&c->channel->fault), h->work.host.data);
			acknowledge(c, h);
			free(h);
			continue;
		}
		futex_wait(&c->channel->notify, seen, polling ? VALUE_POLL_NS : 60ull * WATCHDOG_NS);
	}
}

CUresult worker_start(CUcontext c)
{
	if (c->has_worker)
		return CUDA_SUCCESS;
	sigset_t all, before; /* the program's signals are for the program's threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&c->worker, NULL, work_loop, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	c->has_worker = !failed;
	return failed ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

void worker_stop(CUcontext c)
{
	if (!c->has_worker)
		return;
	pthread_mutex_lock(&c->act_lock);
	c->stop = true;
	pthread_mutex_unlock(&c->act_lock);
	atomic_fetch_add(&c->channel->notify, 1);
	syscall(SYS_futex, &c->channel->notify, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	pthread_mutex_unlock(&api.lock); /* a function on the host may be in a call */
	if (pthread_equal(pthread_self(), c->worker))
		pthread_detach(c->worker);
	else
		pthread_join(c->worker, NULL);
	pthread_mutex_lock(&api.lock);
	c->has_worker = false;
}
