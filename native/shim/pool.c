/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c: memory in stream order. What counts is what a pool has taken from the device, also what it keeps after it was freed, because
 * nobody else can have that meanwhile: the charge follows the driver's own figure (CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), read after each
 * allocation and wherever a pool lets go of something: a synchronisation, a trim, its end.
 *
 * An allocation is reserved in full before the driver is asked, since nobody can tell whether the pool will grow by it; what was too
 * much is returned right after. Where that does not fit, what the pools keep is given back to the device first.
 */
#include "meter.h"

#define POOLS 64 /* of one process, that hold something; what further ones keep is not counted */

static struct lock pools_lock;
static struct pool {
	CUmemoryPool handle; /* NULL: free */
	uint32_t grant;
	uint64_t charged;
	uint64_t pending; /* of these, reserved by calls that the driver has not answered */
} pools[POOLS];
static uint32_t pools_held; /* a pool has been charged: synchronisations have to look */

static struct pool *pool_find(CUmemoryPool handle, int grant)
{
	struct pool *spare = NULL;
	for (int i = 0; i < POOLS; i++) {
		if (pools[i].handle == handle)
			return &pools[i];
		if (pools[i].handle == NULL && spare == NULL)
			spare = &pools[i];
	}
	if (spare != NULL && grant >= 0)
		*spare = (struct pool){.handle = handle, .grant = (uint32_t)grant};
	return grant < 0 ? NULL : spare;
}

/* What the pool has taken from the device; false: the driver does not say. */
static bool pool_reserved(CUmemoryPool handle, uint64_t *bytes)
{
	*bytes = 0;
	return driver.cuMemPoolGetAttribute != NULL &&
	       driver.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes) == CUDA_SUCCESS;
}

/* Makes the charge what the driver says; called with the lock. False: the pool took more than was reserved, and there is no room for it. */
static bool pool_settle(struct pool *p)
{
	uint64_t bytes;
	if (!pool_reserved(p->handle, &bytes))
		return true;
	uint64_t want = bytes + p->pending;
	if (want > p->charged && !memory_reserve(p->grant, want - p->charged))
		return false;
	if (want < p->charged)
		memory_return(p->grant, p->charged - want);
	p->charged = want;
	return true;
}

void pools_settle(void)
{
	physicals_settle();
	if (get_acquire(&pools_held) == 0 || !task_on())
		return;
	lock_take(&pools_lock);
	for (int i = 0; i < POOLS; i++) {
		if (pools[i].handle != NULL)
			pool_settle(&pools[i]);
	}
	lock_give(&pools_lock);
}

/* Has the pools of a device give back what they keep; with wait, also what becomes free once the device has come so far. */
static void pools_trim(uint32_t grant, bool wait)
{
	/* Never while a stream is captured: that would break it. */
	if (wait && get(&captures) == 0 && driver.cuCtxSynchronize != NULL)
		driver.cuCtxSynchronize();
	lock_take(&pools_lock);
	for (int i = 0; i < POOLS; i++) {
		struct pool *p = &pools[i];
		if (p->handle != NULL && p->grant == grant && p->charged > p->pending && driver.cuMemPoolTrimTo != NULL) {
			driver.cuMemPoolTrimTo(p->handle, 0);
			pool_settle(p);
		}
	}
	lock_give(&pools_lock);
}

bool pools_reserve(uint32_t grant, uint64_t bytes)
{
	if (memory_reserve(grant, bytes))
		return true;
	if (physicals_settle() && memory_reserve(grant, bytes))
		return true;
	if (pieces_trim(grant, true) && memory_reserve(grant, bytes))
		return true;
	for (int wait = 0; wait < 2 && get_acquire(&pools_held) != 0; wait++) {
		pools_trim(grant, wait != 0);
		if (memory_reserve(grant, bytes))
			return true;
	}
	return false;
}

/* One allocation between pool_enter and pool_leave. */
struct request {
	CUmemoryPool handle;
	int grant; /* -1: not counted here */
	uint64_t bytes;
};

static CUresult pool_enter(struct request *q, CUmemoryPool handle, size_t size, CUstream stream, bool per_thread)
{
	CUdevice device;
	q->grant = -1;
	if (!task_on())
		return get_acquire(&task.state) == SHIM_FAILED ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
	/* Inside a capture it becomes a node of the graph, and is charged with that. */
	if (size == 0 || gate_capturing(stream, per_thread) || driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	if (handle == NULL && (driver.cuDeviceGetMemPool == NULL || driver.cuDeviceGetMemPool(&handle, device) != CUDA_SUCCESS))
		return CUDA_SUCCESS;
	lock_take(&pools_lock);
	struct pool *p = pool_find(handle, view_grant(device));
	int grant = p == NULL ? -1 : (int)p->grant;
	lock_give(&pools_lock);
	if (grant < 0)
		return CUDA_SUCCESS;
	put_release(&pools_held, 1);
	*q = (struct request){.handle = handle, .grant = grant, .bytes = memory_round(size)};
	if (!pools_reserve((uint32_t)grant, q->bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	lock_take(&pools_lock);
	p = pool_find(handle, grant);
	if (p != NULL) {
		p->charged += q->bytes;
		p->pending += q->bytes;
	}
	lock_give(&pools_lock);
	if (p == NULL) {
		memory_return((uint32_t)grant, q->bytes);
		q->grant = -1;
	}
	return CUDA_SUCCESS;
}

static CUresult pool_leave(struct request *q, CUresult r, const CUdeviceptr *address, CUstream stream, bool per_thread)
{
	if (q->grant < 0)
		return r;
	lock_take(&pools_lock);
	struct pool *p = pool_find(q->handle, q->grant);
	bool fits = true;
	if (p != NULL) {
		p->pending -= q->bytes < p->pending ? q->bytes : p->pending;
		fits = pool_settle(p);
	}
	lock_give(&pools_lock);
	if (r == CUDA_SUCCESS && !fits) {
		/* The pool grew by more than was asked for, and past the limit: undone. */
		if (per_thread)
			REAL(cuMemFreeAsync_ptsz, *address, stream);
		else
			REAL(cuMemFreeAsync, *address, stream);
		pools_trim((uint32_t)q->grant, true);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return r;
}

#define ALLOCATE(name, pool, per_thread, ...)                                                                                      \
	do {                                                                                                                       \
		struct request q;                                                                                                  \
		CUresult r = pool_enter(&q, pool, size, stream, per_thread);                                                       \
		if (r != CUDA_SUCCESS)                                                                                             \
			return r;                                                                                                  \
		return pool_leave(&q, REAL(name, __VA_ARGS__), dptr, stream, per_thread);                                          \
	} while (0)

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t size, CUstream stream)
{
	ALLOCATE(cuMemAllocAsync, NULL, false, dptr, size, stream);
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t size, CUstream stream)
{
	ALLOCATE(cuMemAllocAsync_ptsz, NULL, true, dptr, size, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t size, CUmemoryPool pool, CUstream stream)
{
	ALLOCATE(cuMemAllocFromPoolAsync, pool, false, dptr, size, pool, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t size, CUmemoryPool pool, CUstream stream)
{
	ALLOCATE(cuMemAllocFromPoolAsync_ptsz, pool, true, dptr, size, pool, stream);
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	CUresult r = REAL(cuMemPoolCreate, pool, props);
	/* Its device is known here only; a pool in the host is nobody's. */
	if (r == CUDA_SUCCESS && task_on() && props != NULL && props->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
		lock_take(&pools_lock);
		pool_find(*pool, view_grant(props->location.id));
		lock_give(&pools_lock);
	}
	return r;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult r = REAL(cuMemPoolDestroy, pool);
	if (r == CUDA_SUCCESS && task_on()) {
		lock_take(&pools_lock);
		struct pool *p = pool == NULL ? NULL : pool_find(pool, -1);
		struct pool old = p == NULL ? (struct pool){0} : *p;
		if (p != NULL)
			*p = (struct pool){0};
		lock_give(&pools_lock);
		memory_return(old.grant, old.charged);
	}
	return r;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	CUresult r = REAL(cuMemPoolTrimTo, pool, keep);
	pools_settle();
	return r;
}

void pools_forget(void)
{
	pools_lock.word = 0;
	pools_held = 0;
	for (int i = 0; i < POOLS; i++)
		pools[i] = (struct pool){0};
}

/* ---------------------------------------------------------------------------------------------------- synchronisations */

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
	CUresult r = REAL(cuStreamSynchronize, stream);
	pools_settle();
	return r;
}

EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
	CUresult r = REAL(cuStreamSynchronize_ptsz, stream);
	pools_settle();
	return r;
}

EXPORT CUresult cuCtxSynchronize(void)
{
	CUresult r = REAL(cuCtxSynchronize);
	pools_settle();
	return r;
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
	CUresult r = REAL(cuCtxSynchronize_v2, context);
	pools_settle();
	return r;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
	CUresult r = REAL(cuEventSynchronize, event);
	pools_settle();
	return r;
}
