/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools and allocations in stream order. What a stream has freed, the same stream may have again at once, and others once the stream has come that
 * far. A pool keeps what it does not use up to its release threshold, and lets the rest go when the program next synchronises. One that is
 * destroyed is no handle any more, and keeps its memory until all that was allocated from it has been freed.
 * Small pieces are not packed together here: each takes 2 MiB, which the pool then reuses.
 */
#include "simgpu/cuda/pool.h"

static CUmemoryPool pools, defaults[SIM_MAX_DEVICES], current[SIM_MAX_DEVICES];

CUmemoryPool pool_new(uint32_t device)
{
	CUmemoryPool p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->device = device;
	p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
	p->next = pools;
	pools = p;
	handle_add(p, H_POOL);
	return p;
}

CUmemoryPool pool_default(uint32_t device)
{
	if (!defaults[device]) {
		defaults[device] = pool_new(device);
		if (defaults[device])
			defaults[device]->is_default = true;
	}
	return defaults[device];
}

static void pool_release(CUmemoryPool p, struct chunk **at)
{
	struct chunk *k = *at;
	*at = k->next;
	p->reserved -= k->size;
	chunk_release(k);
}

/* Whether the stream that freed the chunk has come that far. */
static bool settled(const struct chunk *k)
{
	return !handle_is(k->freed_in, H_CONTEXT) || atomic_load_explicit(&k->freed_in->channel->stream[k->freed_slot].done, memory_order_acquire) >= k->freed_seq;
}

/* One that the program has destroyed ends once it holds nothing. */
static void pool_end(CUmemoryPool p)
{
	if (!p->destroyed || p->chunks)
		return;
	for (CUmemoryPool *at = &pools; *at; at = &(*at)->next)
		if (*at == p) {
			*at = p->next;
			break;
		}
	free(p);
}

static void pool_trim(CUmemoryPool p, uint64_t keep)
{
	for (struct chunk **at = &p->chunks; *at && p->reserved > keep;) {
		if (!(*at)->in_use && settled(*at))
			pool_release(p, at);
		else
			at = &(*at)->next;
	}
}

void pools_trim(void)
{
	for (CUmemoryPool p = pools, next; p; p = next) {
		next = p->next;
		if (p->reserved > p->threshold)
			pool_trim(p, p->threshold);
		pool_end(p);
	}
}

void pools_forget(CUcontext c)
{
	for (CUmemoryPool p = pools, next; p; p = next) {
		next = p->next;
		for (struct chunk **at = &p->chunks; *at;) {
			if ((*at)->context != c) {
				at = &(*at)->next;
				continue;
			}
			if ((*at)->in_use)
				p->used -= (*at)->size;
			pool_release(p, at);
		}
		pool_end(p);
	}
}

CUresult pool_alloc(CUcontext c, CUmemoryPool p, CUstream s, size_t bytes, CUdeviceptr *out)
{
	size_t size = (bytes + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
	struct chunk *best = NULL;
	if (size < bytes || (p->max && p->used + size > p->max))
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (struct chunk *k = p->chunks; k; k = k->next) {
		bool mine = k->freed_in == s->context && k->freed_slot == s->slot;
		if (k->in_use || k->context != c || k->size < size || k->size > size + size / 4 || (!mine && !settled(k)))
			continue;
		if (!best || k->size < best->size)
			best = k;
	}
	if (!best) {
		CUresult r = chunk_new(c, size, &best);
		if (r == CUDA_ERROR_OUT_OF_MEMORY) { /* what is kept may be all that is in the way */
			pools_trim();
			pool_trim(p, 0);
			r = chunk_new(c, size, &best);
		}
		if (r != CUDA_SUCCESS)
			return r;
		best->pool = p;
		best->next = p->chunks;
		p->chunks = best;
		p->reserved += best->size;
		if (p->reserved > p->reserved_high)
			p->reserved_high = p->reserved;
	}
	struct range range = {.start = (uintptr_t)best->base, .size = bytes, .kind = R_DEVICE, .device = p->device, .context = c, .chunk = best, .pool = p};
	if (!range_add(range))
		return CUDA_ERROR_OUT_OF_MEMORY;
	best->in_use = 1;
	p->used += best->size;
	if (p->used > p->used_high)
		p->used_high = p->used;
	*out = (CUdeviceptr)(uintptr_t)best->base;
	return CUDA_SUCCESS;
}

CUresult pool_free(struct range *r, CUstream s)
{
	struct chunk *k = r->chunk;
	CUmemoryPool p = r->pool;
	if (s) { /* free from this point of the stream on */
		struct work w = {.kind = W_EMPTY};
		CUresult result = submit(s, &w);
		if (result != CUDA_SUCCESS)
			return result;
		k->freed_in = s->context;
		k->freed_slot = s->slot;
		k->freed_seq = s->last;
	} else {
		k->freed_in = NULL;
	}
	k->in_use = 0;
	p->used -= k->size;
	range_remove(r->start);
	if (p->destroyed) {
		pool_trim(p, 0);
		pool_end(p);
	}
	return CUDA_SUCCESS;
}

/* -------------------------------------------------------------------------------------------------------------- the calls */

static CUresult alloc_async(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream h)
{
	CUcontext c;
	CUstream s;
	if (!out || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_of(h, &s);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (!pool)
		pool = current[s->context->device] ? current[s->context->device] : pool_default(s->context->device);
	if (pool && handle_is(pool, H_POOL) && pool->imported)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!pool || !handle_is(pool, H_POOL))
		return leave(pool ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_OUT_OF_MEMORY);
	CUcontext owner = s->context->device == pool->device ? s->context : context_on(pool->device);
	if (!owner)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	if (s->capture) { /* becomes a node */
		CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							      .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)pool->device}},
						.bytesize = bytes};
		struct work w;
		r = graph_memory_make(&p, &w);
		if (r == CUDA_SUCCESS)
			r = issue(s, &w);
		*out = p.dptr;
		return leave(r);
	}
	return leave(memory_alloc(owner, pool, s, bytes, R_DEVICE, out));
}

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream s)
{
	return alloc_async(out, bytes, NULL, s);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream s)
{
	return pool ? alloc_async(out, bytes, pool, s) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr p, CUstream h)
{
	CUcontext c;
	CUstream s;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!p)
		return leave(CUDA_SUCCESS);
	r = stream_of(h, &s);
	if (r != CUDA_SUCCESS)
		return leave(r);
	struct range *range = range_find((uintptr_t)p);
	if (s->capture) { /* becomes a node, if the memory is a graph's */
		struct work w;
		r = graph_memory_free_work(p, &w);
		return leave(r == CUDA_SUCCESS ? issue(s, &w) : r);
	}
	if (range && range->kind == R_GRAPH && range->start == (uintptr_t)p) {
		graph_memory_give(range->owner);
		return leave(CUDA_SUCCESS);
	}
	bool imported = range && range->kind == R_SHARED && range->pool;
	if (!range || range->start != (uintptr_t)p || (range->kind != R_DEVICE && !imported))
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!range->pool || imported) { /* plain memory may be freed in stream order too; it goes when the stream has come that far */
		r = await_stream(s);
		range = range_find((uintptr_t)p);
		if (r != CUDA_SUCCESS || !range)
			return leave(r);
	}
	if (imported) {
		shared_unmap(range);
		return leave(CUDA_SUCCESS);
	}
	return leave(memory_free(range, s));
}

CUresult enter_pool(CUmemoryPool p)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && !handle_is(p, H_POOL))
		return leave(CUDA_ERROR_INVALID_VALUE);
	return r;
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	TRY(enter());
	if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return leave(CUDA_ERROR_NOT_SUPPORTED);
	if (props->location.id < 0 || (uint32_t)props->location.id >= api.devices)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	*out = pool_new((uint32_t)props->location.id);
	if (!*out)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	(*out)->max = props->maxSize;
	(*out)->shareable = props->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
	return leave(CUDA_SUCCESS);
}

CUresult cuMemPoolDestroy(CUmemoryPool p)
{
	TRY(enter_pool(p));
	if (p->is_default)
		return leave(CUDA_ERROR_INVALID_VALUE);
	handle_remove(p);
	for (uint32_t i = 0; i < SIM_MAX_DEVICES; i++)
		if (current[i] == p)
			current[i] = NULL;
	p->destroyed = true;
	p->threshold = 0;
	pool_trim(p, 0);
	pool_end(p);
	return leave(CUDA_SUCCESS);
}

CUresult cuMemPoolTrimTo(CUmemoryPool p, size_t keep)
{
	TRY(enter_pool(p));
	pool_trim(p, keep);
	return leave(CUDA_SUCCESS);
}

static CUresult enter_device(CUdevice d)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && (d < 0 || (uint32_t)d >= api.devices))
		return leave(CUDA_ERROR_INVALID_DEVICE);
	return r;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice d)
{
	TRY(enter_device(d));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = pool_default((uint32_t)d);
	return leave(*out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice d)
{
	TRY(enter_device(d));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = current[d] ? current[d] : pool_default((uint32_t)d);
	return leave(*out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuDeviceSetMemPool(CUdevice d, CUmemoryPool p)
{
	TRY(enter_device(d));
	if (!handle_is(p, H_POOL) || p->imported || p->device != (uint32_t)d)
		return leave(CUDA_ERROR_INVALID_VALUE);
	current[d] = p;
	return leave(CUDA_SUCCESS);
}
