/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: addresses that the driver knows, and plain allocations. Device memory has real bytes, sparse pages of this process, so that copies
 * move something; what it counts is kept by the server. Pieces below 1 MiB share chunks of 2 MiB, as in the real driver.
 */
#include "simgpu/cuda/internal.h"

#include <unistd.h>

#include <sys/mman.h>

/* --------------------------------------------------------------------------------------------------------------- ranges */

static struct {
	struct range **at; /* sorted by start */
	size_t count, room;
} ranges;

static size_t position(uintptr_t p) /* of the first range that starts after p */
{
	size_t lo = 0, hi = ranges.count;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (ranges.at[mid]->start <= p)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct range *range_find(uintptr_t p)
{
	size_t i = position(p);
	if (!i || p - ranges.at[i - 1]->start >= ranges.at[i - 1]->size)
		return NULL;
	return ranges.at[i - 1];
}

struct range *range_add(struct range r)
{
	if (ranges.count == ranges.room) {
		size_t room = ranges.room ? ranges.room * 2 : 64;
		struct range **at = realloc(ranges.at, room * sizeof(struct range *));
		if (!at)
			return NULL;
		ranges.at = at;
		ranges.room = room;
	}
	struct range *copy = malloc(sizeof *copy);
	if (!copy)
		return NULL;
	*copy = r;
	copy->id = ++api.ids;
	size_t i = position(r.start);
	memmove(&ranges.at[i + 1], &ranges.at[i], (ranges.count - i) * sizeof(struct range *));
	ranges.at[i] = copy;
	ranges.count++;
	return copy;
}

void range_remove(uintptr_t start)
{
	size_t i = position(start);
	if (!i || ranges.at[i - 1]->start != start)
		return;
	free(ranges.at[i - 1]);
	memmove(&ranges.at[i - 1], &ranges.at[i], (ranges.count - i) * sizeof(struct range *));
	ranges.count--;
}

bool range_overlaps(uintptr_t p, size_t bytes)
{
	size_t i = position(p + bytes - 1);
	return range_find(p) || (i && ranges.at[i - 1]->start >= p);
}

struct range *device_range(CUdeviceptr p, size_t bytes)
{
	struct range *r = range_find((uintptr_t)p);
	if (!r || (uintptr_t)p - r->start + bytes > r->size || bytes > r->size)
		return NULL;
	return r;
}

void ranges_forget(CUcontext c)
{
	for (size_t i = ranges.count; i-- > 0;) {
		struct range *r = ranges.at[i];
		if (r->context != c || r->kind == R_MAPPED)
			continue;
		if (r->kind == R_SHARED) {
			shared_unmap(r);
			continue;
		}
		if (r->kind == R_HOST)
			munmap((void *)r->start, r->size);
		range_remove(r->start);
	}
	graph_memory_forget(c);
	pools_forget(c);
	while (c->chunks)
		chunk_release(c->chunks);
}

/* --------------------------------------------------------------------------------------------------------------- chunks */

CUresult chunk_new(CUcontext c, size_t size, struct chunk **out)
{
	size = (size + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
	struct sim_request q = {.call = SIM_ALLOC, .arg = {c->channel->id, size}};
	struct sim_answer a;
	CUresult r = server_call(&q, &a, NULL);
	if (r != CUDA_SUCCESS)
		return r;
	/* One granule more, to begin at one: real device addresses do. */
	char *base = mmap(NULL, size + SIM_GRANULE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct chunk *k = calloc(1, sizeof *k);
	if (base == MAP_FAILED || !k) {
		if (base != MAP_FAILED)
			munmap(base, size + SIM_GRANULE);
		free(k);
		q = (struct sim_request){.call = SIM_FREE, .arg[0] = a.value[0]};
		server_call(&q, &a, NULL);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	char *aligned = (char *)(((uintptr_t)base + SIM_GRANULE - 1) & ~(uintptr_t)(SIM_GRANULE - 1));
	if (aligned > base)
		munmap(base, (size_t)(aligned - base));
	if (aligned - base < (ptrdiff_t)SIM_GRANULE)
		munmap(aligned + size, SIM_GRANULE - (size_t)(aligned - base));
	*k = (struct chunk){.base = aligned, .size = size, .id = a.value[0], .context = c, .device = c->device, .fd = -1};
	*out = k;
	return CUDA_SUCCESS;
}

void chunk_release(struct chunk *k)
{
	struct sim_request q = {.call = SIM_FREE, .arg[0] = k->id};
	struct sim_answer a;
	server_call(&q, &a, NULL);
	munmap(k->base, k->size);
	if (k->fd >= 0)
		close(k->fd);
	if (!k->pool)
		for (struct chunk **at = &k->context->chunks; *at; at = &(*at)->next)
			if (*at == k) {
				*at = k->next;
				break;
			}
	free(k->map);
	free(k);
}

/* Finds `grains` free ones in a row; returns the first, or -1. */
static long grains_find(const struct chunk *k, uint32_t grains)
{
	uint32_t total = (uint32_t)(k->size / GRAIN), run = 0;
	for (uint32_t i = 0; i < total; i++) {
		if (i % 64 == 0 && k->map[i / 64] == UINT64_MAX) {
			run = 0;
			i += 63;
			continue;
		}
		run = k->map[i / 64] >> i % 64 & 1 ? 0 : run + 1;
		if (run == grains)
			return (long)i - grains + 1;
	}
	return -1;
}

static void grains_mark(struct chunk *k, uint32_t first, uint32_t grains, bool used)
{
	for (uint32_t i = first; i < first + grains; i++) {
		if (used)
			k->map[i / 64] |= 1ull << i % 64;
		else
			k->map[i / 64] &= ~(1ull << i % 64);
	}
	k->in_use += used ? grains : -grains;
}

static CUresult small_alloc(CUcontext c, size_t bytes, char **at, struct chunk **out)
{
	uint32_t grains = (uint32_t)((bytes + GRAIN - 1) / GRAIN);
	struct chunk *k;
	long first = -1;
	for (k = c->chunks; k; k = k->next)
		if (k->shared && (first = grains_find(k, grains)) >= 0)
			break;
	if (!k) {
		CUresult r = chunk_new(c, SIM_GRANULE, &k);
		if (r != CUDA_SUCCESS)
			return r;
		k->shared = true;
		k->map = calloc(k->size / GRAIN / 64, sizeof *k->map);
		k->next = c->chunks;
		c->chunks = k;
		if (!k->map) {
			chunk_release(k);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		first = 0;
	}
	grains_mark(k, (uint32_t)first, grains, true);
	*at = k->base + (size_t)first * GRAIN;
	*out = k;
	return CUDA_SUCCESS;
}

static CUresult plain_alloc(CUcontext c, size_t bytes, enum range_kind kind, CUdeviceptr *out)
{
	struct chunk *k;
	char *at;
	CUresult r;
	if (bytes < SMALL) {
		r = small_alloc(c, bytes, &at, &k);
	} else {
		r = chunk_new(c, bytes, &k);
		if (r == CUDA_SUCCESS) {
			k->in_use = 1;
			k->next = c->chunks;
			c->chunks = k;
			at = k->base;
		}
	}
	if (r != CUDA_SUCCESS)
		return r;
	struct range range = {.start = (uintptr_t)at, .size = bytes, .kind = kind, .device = c->device, .context = c, .chunk = k};
	if (!range_add(range)) {
		if (!k->shared)
			chunk_release(k);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = (CUdeviceptr)(uintptr_t)at;
	return CUDA_SUCCESS;
}

CUresult pool_alloc(CUcontext c, CUmemoryPool pool, CUstream s, size_t bytes, CUdeviceptr *out);
CUresult pool_free(struct range *r, CUstream s);

CUresult memory_alloc(CUcontext c, CUmemoryPool pool, CUstream s, size_t bytes, enum range_kind kind, CUdeviceptr *out)
{
	if (!bytes || !out)
		return CUDA_ERROR_INVALID_VALUE;
	return pool ? pool_alloc(c, pool, s, bytes, out) : plain_alloc(c, bytes, kind, out);
}

CUresult memory_free(struct range *r, CUstream s)
{
	if (r->pool)
		return pool_free(r, s);
	struct chunk *k = r->chunk;
	if (k->shared)
		grains_mark(k, (uint32_t)((r->start - (uintptr_t)k->base) / GRAIN), (uint32_t)((r->size + GRAIN - 1) / GRAIN), false);
	range_remove(r->start);
	if (!k->shared || !k->in_use)
		chunk_release(k);
	return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------------------------------------------- plain allocations */

static CUresult alloc(CUdeviceptr *out, size_t bytes, enum range_kind kind)
{
	CUcontext c;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	r = capture_unsafe();
	return leave(r == CUDA_SUCCESS ? memory_alloc(c, NULL, NULL, bytes, kind, out) : r);
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	return alloc(out, bytes, R_DEVICE);
}

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	return alloc(out, bytes, R_MANAGED);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16))
		return CUDA_ERROR_INVALID_VALUE;
	*pitch = (width + GRAIN - 1) / GRAIN * GRAIN;
	return height > SIZE_MAX / *pitch ? CUDA_ERROR_OUT_OF_MEMORY : alloc(out, *pitch * height, R_DEVICE);
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
	CUcontext c;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!p)
		return leave(CUDA_SUCCESS);
	r = capture_unsafe();
	if (r != CUDA_SUCCESS)
		return leave(r);
	struct range *range = range_find((uintptr_t)p);
	bool whole = range && range->start == (uintptr_t)p && (range->kind == R_DEVICE || range->kind == R_MANAGED || range->kind == R_GRAPH);
	/* A buffer in external memory may begin inside of what is mapped for it. */
	/* So may what is imported from another process' pool. */
	if (!whole && !(range && range->kind == R_SHARED && (!range->shared_id || range->pool)))
		return leave(CUDA_ERROR_INVALID_VALUE);
	r = await_context(range->context ? range->context : c); /* as with the real driver: nothing may still use it */
	range = range_find((uintptr_t)p);
	if (r != CUDA_SUCCESS || !range)
		return leave(r);
	if (range->kind == R_SHARED)
		shared_unmap(range);
	else if (range->kind == R_GRAPH)
		graph_memory_give(range->owner);
	else
		r = memory_free(range, NULL);
	return leave(r);
}

static CUresult memory_of(uint32_t device, size_t *free_bytes, size_t *total)
{
	struct sim_request q = {.call = SIM_MEMORY, .device = device};
	struct sim_answer a;
	CUresult r = server_call(&q, &a, NULL);
	if (r != CUDA_SUCCESS)
		return r;
	*total = a.value[0];
	*free_bytes = a.value[1];
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUcontext c;
	if (!free_bytes || !total)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	return leave(memory_of(c->device, free_bytes, total));
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
	CUcontext c;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct range *range = range_find((uintptr_t)p);
	if (!range || range->kind == R_REGISTERED || range->kind == R_HOST)
		return leave(CUDA_ERROR_NOT_FOUND);
	if (base)
		*base = range->start;
	if (size)
		*size = range->size;
	return leave(CUDA_SUCCESS);
}
