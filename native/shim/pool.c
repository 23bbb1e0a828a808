/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c: memory in stream order. What counts is what a pool has taken from the device, also what it keeps after it was freed, because
 * nobody else can have that meanwhile: the charge follows the driver's own figure (CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), read after each
 * allocation and wherever a pool lets go of something: a synchronisation, a trim, its end.
 *
 * An allocation is reserved in full before the driver is asked, since nobody can tell whether the pool will grow by it; what was too
 * much is returned right after. Where that does not fit, what the pools keep is given back to the device first. What a pool has grown by is
 * charged in any case: where it does not fit the share is over its limit, has nothing more, and the allocation is undone.
 *
 * The driver keeps the memory of a pool that is destroyed until all that was allocated from it has been freed, and says nothing of it any more.
 * So such a pool is condemned here: for the program it is gone, and the driver is told once it holds nothing.
 */
#include "meter.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST 64
#define NOBODY (-1)

struct pool {
	CUmemoryPool handle;
	int grant;      /* NOBODY: memory of the host */
	bool made;      /* by the program */
	bool condemned; /* by the program too */
	uint64_t charged;
	uint64_t pending; /* of these, reserved by calls that the driver has not answered */
};

static struct lock pools_lock;
static struct {
	struct pool *at;
	uint64_t size, used;
} pools;
static uint32_t pools_held; /* a pool has been charged: synchronisations have to look */

static struct pool *pool_find(CUmemoryPool handle)
{
	for (uint64_t i = 0; i < pools.used; i++) {
		if (pools.at[i].handle == handle)
			return &pools.at[i];
	}
	return NULL;
}

/* In place of one that had the handle before. NULL: there is no memory for it. */
static struct pool *pool_add(CUmemoryPool handle, int grant, bool made)
{
	struct pool *p = pool_find(handle);
	if (p == NULL && pools.used == pools.size) {
		uint64_t size = pools.size == 0 ? FIRST : 2 * pools.size;
		struct pool *at = pages_take(size * sizeof(*at));
		if (at == NULL)
			return NULL;
		if (pools.at != NULL) {
			memcpy(at, pools.at, pools.used * sizeof(*at));
			munmap(pools.at, pools.size * sizeof(*at));
		}
		pools.at = at;
		pools.size = size;
	}
	p = p != NULL ? p : &pools.at[pools.used++];
	*p = (struct pool){.handle = handle, .grant = grant, .made = made};
	return p;
}

/* What the pool has taken from the device; false: the driver does not say. */
static bool pool_reserved(CUmemoryPool handle, uint64_t *bytes)
{
	*bytes = 0;
	return driver.cuMemPoolGetAttribute != NULL &&
	       driver.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes) == CUDA_SUCCESS;
}

/*
 * Makes the charge what the driver says; called with the lock. A call that is under way may have grown the pool already, or may yet, so the charge
 * is between both. False: the pool has taken more than the share may have.
 */
static bool pool_settle(struct pool *p)
{
	uint64_t bytes;
	if (p->grant == NOBODY || !pool_reserved(p->handle, &bytes))
		return true;
	uint32_t grant = (uint32_t)p->grant;
	uint64_t most = bytes + p->pending;
	if (p->charged > most) {
		memory_return(grant, p->charged - most);
		p->charged = most;
	} else if (p->charged < most && memory_reserve(grant, most - p->charged)) {
		p->charged = most;
	}
	if (p->charged >= bytes)
		return true;
	bool fits = memory_reserve(grant, bytes - p->charged);
	if (!fits)
		memory_charge(grant, bytes - p->charged);
	p->charged = bytes;
	return fits;
}

/* Has a pool give back what it keeps. Never while a stream is captured: that might break it. */
static void pool_trim(struct pool *p)
{
	if (get(&captures) != 0 || driver.cuMemPoolTrimTo == NULL)
		return;
	driver.cuMemPoolTrimTo(p->handle, 0);
	pool_settle(p);
}

/* Whether a condemned pool has come to its end, which it is given; what is at its place now is another. */
static bool pool_ended(struct pool *p)
{
	uint64_t bytes;
	if (!p->condemned || p->pending != 0 || get(&captures) != 0)
		return false;
	pool_trim(p);
	if (!pool_reserved(p->handle, &bytes) || bytes != 0 || driver.cuMemPoolDestroy(p->handle) != CUDA_SUCCESS)
		return false;
	if (p->charged != 0)
		memory_return((uint32_t)p->grant, p->charged);
	*p = pools.at[--pools.used];
	return true;
}

void pools_settle(void)
{
	physicals_settle();
	if (get_acquire(&pools_held) == 0 || !task_on())
		return;
	lock_take(&pools_lock);
	for (uint64_t i = pools.used; i-- > 0;) {
		struct pool *p = &pools.at[i];
		if (!pool_ended(p) && p->charged != 0 && !pool_settle(p))
			pool_trim(p);
	}
	lock_give(&pools_lock);
}

/* Has the pools of a device give back what they keep; with wait, also what becomes free once the device has come so far. */
static void pools_trim(uint32_t grant, bool wait)
{
	if (wait && get(&captures) == 0 && driver.cuCtxSynchronize != NULL)
		driver.cuCtxSynchronize();
	lock_take(&pools_lock);
	for (uint64_t i = pools.used; i-- > 0;) {
		struct pool *p = &pools.at[i];
		if (p->grant == (int)grant && p->charged > p->pending && !pool_ended(p))
			pool_trim(p);
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

/* The device of a stream, which need not be that of the current context; false: not known, and the driver refuses. */
static bool stream_device(CUstream stream, CUdevice *device)
{
	CUcontext of = NULL, before = NULL;
	bool own = stream != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD && driver.cuStreamGetCtx != NULL &&
		   driver.cuStreamGetCtx(stream, &of) == CUDA_SUCCESS && driver.cuCtxGetCurrent(&before) == CUDA_SUCCESS && of != before;
	if (!own)
		return driver.cuCtxGetDevice(device) == CUDA_SUCCESS;
	if (driver.cuCtxSetCurrent(of) != CUDA_SUCCESS)
		return false;
	bool known = driver.cuCtxGetDevice(device) == CUDA_SUCCESS;
	driver.cuCtxSetCurrent(before);
	return known;
}

/* Whose memory is in a pool that the program has not made. NULL: there is no memory to remember it in. */
static struct pool *pool_meet(CUmemoryPool handle, CUdevice device)
{
	CUmemoryPool first;
	CUdevice at;
	for (uint32_t g = 0; g < task.grants; g++) {
		if (driver.cuDeviceGetDefaultMemPool != NULL && view_grant_device(g, &at) &&
		    driver.cuDeviceGetDefaultMemPool(&first, at) == CUDA_SUCCESS && first == handle)
			return pool_add(handle, (int)g, false);
	}
	return pool_add(handle, view_grant(device), false);
}

/* One allocation between pool_enter and pool_leave. */
struct request {
	CUmemoryPool handle;
	int grant; /* NOBODY: not counted here */
	uint64_t bytes;
};

/* Whose the pool of a request is; with the lock not taken. */
static CUresult pool_known(struct request *q, CUdevice device)
{
	lock_take(&pools_lock);
	struct pool *p = pool_find(q->handle);
	if (p == NULL)
		p = pool_meet(q->handle, device);
	CUresult r = p == NULL ? CUDA_ERROR_OUT_OF_MEMORY : p->condemned ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	q->grant = r == CUDA_SUCCESS ? p->grant : NOBODY;
	lock_give(&pools_lock);
	return r;
}

static CUresult pool_enter(struct request *q, CUmemoryPool handle, size_t size, CUstream stream, bool per_thread)
{
	CUdevice device;
	*q = (struct request){.handle = handle, .grant = NOBODY, .bytes = memory_round(size)};
	if (!task_on())
		return get_acquire(&task.state) == SHIM_FAILED ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
	/* Inside a capture it becomes a node of the graph, and is charged with that. */
	if (size == 0 || !driver_ready() || gate_capturing(stream, per_thread) || !stream_device(stream, &device))
		return CUDA_SUCCESS;
	if (handle == NULL && (driver.cuDeviceGetMemPool == NULL || driver.cuDeviceGetMemPool(&q->handle, device) != CUDA_SUCCESS))
		return CUDA_SUCCESS;
	CUresult r = pool_known(q, device);
	if (r != CUDA_SUCCESS || q->grant == NOBODY)
		return r;
	put_release(&pools_held, 1);
	if (!pools_reserve((uint32_t)q->grant, q->bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	lock_take(&pools_lock);
	struct pool *p = pool_find(q->handle);
	if (p != NULL) {
		p->charged += q->bytes;
		p->pending += q->bytes;
	}
	lock_give(&pools_lock);
	if (p != NULL)
		return CUDA_SUCCESS;
	memory_return((uint32_t)q->grant, q->bytes); /* destroyed by another thread meanwhile */
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult pool_leave(struct request *q, CUresult r, const CUdeviceptr *address, CUstream stream, bool per_thread)
{
	if (q->grant == NOBODY)
		return r;
	lock_take(&pools_lock);
	struct pool *p = pool_find(q->handle);
	bool fits = true;
	if (p != NULL) {
		p->pending -= q->bytes;
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
	if (r != CUDA_SUCCESS || !task_on() || props == NULL)
		return r;
	/* Its device is known here only; a pool in the host is nobody's. */
	int grant = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? view_grant(props->location.id) : NOBODY;
	lock_take(&pools_lock);
	bool known = pool_add(*pool, grant, true) != NULL;
	lock_give(&pools_lock);
	if (known)
		return r;
	REAL(cuMemPoolDestroy, *pool);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Where the pool is its device's current one, the first one is again, as when the driver destroys it. */
static void pool_replace(const struct pool *p)
{
	CUmemoryPool is;
	CUdevice device;
	if (view_grant_device((uint32_t)p->grant, &device) && driver.cuDeviceGetMemPool(&is, device) == CUDA_SUCCESS && is == p->handle &&
	    driver.cuDeviceGetDefaultMemPool(&is, device) == CUDA_SUCCESS)
		driver.cuDeviceSetMemPool(device, is);
}

/* With the lock. True: it is dealt with here. */
static bool pool_condemn(struct pool *p, CUresult *r)
{
	cuuint64_t none = 0;
	*r = p->condemned ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	if (p->condemned || p->grant == NOBODY || !p->made || driver.cuMemPoolSetAttribute == NULL || driver.cuDeviceSetMemPool == NULL)
		return p->condemned;
	p->condemned = true;
	pool_replace(p);
	driver.cuMemPoolSetAttribute(p->handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none);
	put_release(&pools_held, 1);
	pool_ended(p);
	return true;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult r;
	if (!task_on() || pool == NULL || !driver_ready())
		return REAL(cuMemPoolDestroy, pool);
	lock_take(&pools_lock);
	struct pool *p = pool_find(pool);
	if (p == NULL || !pool_condemn(p, &r)) {
		r = REAL(cuMemPoolDestroy, pool);
		if (p != NULL && r == CUDA_SUCCESS)
			*p = pools.at[--pools.used];
	}
	lock_give(&pools_lock);
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
	pools.at = NULL;
	pools.size = pools.used = 0;
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
