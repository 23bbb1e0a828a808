/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_pool.c: the fake driver's pools: they grow by more than is asked for, as real ones do, and give back what is not in use when they are
 * trimmed, if the test lets them.
 */
#include "fake_driver.h"

#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

#define DEVICES (10 + FAKE_DEVICES)

struct CUmemPoolHandle_st {
	uint64_t reserved, used;
};

static struct CUmemPoolHandle_st first[DEVICES];
static struct CUmemPoolHandle_st *current[DEVICES];
static bool stuck;
static CUdeviceptr next = 0x6f0000000000;
static struct {
	CUmemoryPool pool;
	uint64_t bytes;
} made[64]; /* by the address, in steps of FAKE_GROWTH */

EXPORT void fake_pools_stuck(bool on)
{
	stuck = on;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	*pool = &first[device];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	*pool = current[device] != NULL ? current[device] : &first[device];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	current[device] = pool;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	(void)props;
	*pool = calloc(1, sizeof(**pool));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	free(pool);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
	if (which != CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
		return CUDA_ERROR_INVALID_VALUE;
	*(cuuint64_t *)value = pool->reserved;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
	(void)pool, (void)which, (void)value;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	(void)keep;
	if (!stuck)
		pool->reserved = (pool->used + FAKE_GROWTH - 1) / FAKE_GROWTH * FAKE_GROWTH;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t bytes, CUmemoryPool pool, CUstream s)
{
	(void)s;
	*p = next += FAKE_GROWTH;
	made[next / FAKE_GROWTH % 64].pool = pool;
	made[next / FAKE_GROWTH % 64].bytes = bytes;
	pool->used += bytes;
	while (pool->reserved < pool->used)
		pool->reserved += FAKE_GROWTH;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *p, size_t bytes, CUstream s)
{
	CUmemoryPool pool;
	cuDeviceGetMemPool(&pool, 10);
	return cuMemAllocFromPoolAsync(p, bytes, pool, s);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s)
{
	(void)s;
	made[p / FAKE_GROWTH % 64].pool->used -= made[p / FAKE_GROWTH % 64].bytes;
	return CUDA_SUCCESS;
}
