/* SPDX-License-Identifier: Apache-2.0 */
/* paths_pools.c: pools on simulated devices: what they have taken from a device is charged to its grant, until they have let go of it. */
#include "paths.h"

static const CUmemPoolProps on_first = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemPoolProps on_second = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};

/* Charged to the second grant. */
static uint64_t second_used(void)
{
	return get_seq(&arbiter.tel->slot[0].grant[1].mem_used);
}

static uint64_t reserved(CUmemoryPool pool)
{
	cuuint64_t bytes;
	CHECK_EQ(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes), CUDA_SUCCESS);
	return bytes;
}

/* What a pool keeps is charged until it lets go of it. */
static void test_kept(void)
{
	cuuint64_t all = UINT64_MAX;
	CUmemoryPool pool, other;
	CUdeviceptr p, q;
	CUstream s = tenant.stream[0];
	CHECK_EQ(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
	ACCOUNTED(cuMemAllocAsync, 4 * MI, &p, 3 * MI, s);
	ACCOUNTED(cuMemFreeAsync, 0, p, s);
	ACCOUNTED(cuMemAllocAsync_ptsz, 6 * MI, &p, 6 * MI, NULL);
	ACCOUNTED(cuMemFreeAsync_ptsz, 0, p, NULL);
	CHECK_EQ(bytes_used(), reserved(pool));
	CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), 0);
	CHECK_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all), CUDA_SUCCESS);
	ACCOUNTED(cuMemAllocAsync, 64 * MI, &p, 64 * MI, s);
	ACCOUNTED(cuMemFreeAsync, 0, p, s);
	CHECK_EQ(cuStreamSynchronize(s), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), 64 * MI);
	ACCOUNTED(cuMemAllocAsync, 0, &p, 64 * MI, s); /* out of what was kept */
	CHECK_EQ(cuMemFreeAsync(p, s), CUDA_SUCCESS);
	CHECK_EQ(cuStreamSynchronize(s), CUDA_SUCCESS);
	ACCOUNTED(cuMemPoolTrimTo, -64ll * (int64_t)MI, pool, 0);
	ACCOUNTED(cuMemPoolCreate, 0, &other, &on_first);
	ACCOUNTED(cuMemAllocFromPoolAsync, 10 * MI, &p, 10 * MI, other, s);
	ACCOUNTED(cuMemAllocFromPoolAsync_ptsz, 2 * MI, &q, MI, other, NULL);
	ACCOUNTED(cuMemPoolDestroy, 0, other);
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(q), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), 0);
}

/* Near the limit pools are made to let go first, and the limit holds. */
static void test_limit(void)
{
	CUmemoryPool pool;
	CUdeviceptr p, q;
	CUstream s = tenant.stream[0];
	cuuint64_t all = UINT64_MAX, none = 0;
	uint64_t room = (LIMIT - bytes_charged()) / (2 * MI) * (2 * MI);
	CHECK_EQ(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all), CUDA_SUCCESS);
	CHECK_EQ(cuMemAllocAsync(&p, room, s), CUDA_SUCCESS);
	CHECK_EQ(cuMemAllocAsync(&q, 2 * MI, s), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(cuMemFreeAsync(p, s), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), room);
	CHECK_EQ(cuMemAlloc_v2(&q, room), CUDA_SUCCESS);
	CHECK_EQ(bytes_charged(), bytes_held(getpid()));
	CHECK(bytes_held(getpid()) <= LIMIT);
	CHECK_EQ(cuMemFree_v2(q), CUDA_SUCCESS);
	CHECK_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), 0);
}

/* A destroyed pool keeps what is allocated from it, and that is charged: made, used and destroyed again and again, it comes to the limit. */
static void test_destroyed(void)
{
	CUdeviceptr p[8], more;
	CUmemoryPool pool, first, is;
	CUstream s = tenant.stream[0];
	int n = 0;
	CHECK_EQ(cuDeviceGetDefaultMemPool(&first, 0), CUDA_SUCCESS);
	for (;; n++) {
		CHECK(n < 8);
		CHECK_EQ(cuMemPoolCreate(&pool, &on_first), CUDA_SUCCESS);
		CHECK_EQ(cuDeviceSetMemPool(0, pool), CUDA_SUCCESS);
		CUresult r = cuMemAllocAsync(&p[n], 1024 * MI, s);
		CHECK_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
		CHECK_EQ(cuDeviceGetMemPool(&is, 0), CUDA_SUCCESS);
		CHECK(is == first);
		CHECK_EQ(bytes_charged(), bytes_held(getpid()));
		if (r == CUDA_ERROR_OUT_OF_MEMORY)
			break;
		CHECK_EQ(r, CUDA_SUCCESS);
		CHECK_EQ(cuMemAllocFromPoolAsync(&more, MI, pool, s), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQ(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
	}
	CHECK_EQ(n, 3); /* beside the context */
	while (n-- > 0) {
		CHECK_EQ(cuMemFreeAsync(p[n], s), CUDA_SUCCESS);
		CHECK_EQ(cuStreamSynchronize(s), CUDA_SUCCESS);
		CHECK_EQ(bytes_used(), (uint64_t)n * 1024 * MI);
		CHECK_EQ(bytes_charged(), bytes_held(getpid()));
	}
	CHECK_EQ(cuMemPoolDestroy(first), CUDA_ERROR_INVALID_VALUE);
}

/* Nothing that happens to a pool breaks a stream's capture. */
static void test_captured_meanwhile(void)
{
	CUmemoryPool pool;
	CUdeviceptr p;
	CUgraph g;
	CHECK_EQ(cuMemPoolCreate(&pool, &on_first), CUDA_SUCCESS);
	CHECK_EQ(cuMemAllocFromPoolAsync(&p, 8 * MI, pool, tenant.stream[0]), CUDA_SUCCESS);
	CHECK_EQ(cuStreamBeginCapture_v2(tenant.stream[0], CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
	CHECK_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	CHECK_EQ(cuMemFreeAsync(p, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
	CHECK_EQ(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
	CHECK_EQ(bytes_charged(), bytes_held(getpid()));
	CHECK_EQ(cuStreamEndCapture(tenant.stream[0], &g), CUDA_SUCCESS);
	CHECK_EQ(cuGraphDestroy(g), CUDA_SUCCESS);
	CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), 0);
	CHECK_EQ(bytes_charged(), bytes_held(getpid()));
}

#define MANY 200

/* However many pools there are, each is charged and the limit holds. */
static void test_many(void)
{
	static CUmemoryPool pool[MANY];
	static CUdeviceptr p[MANY];
	CUdeviceptr more;
	CUstream s = tenant.stream[0];
	for (int i = 0; i < MANY; i++) {
		CHECK_EQ(cuMemPoolCreate(&pool[i], &on_first), CUDA_SUCCESS);
		ACCOUNTED(cuMemAllocFromPoolAsync, 16 * MI, &p[i], 16 * MI, pool[i], s);
	}
	CHECK_EQ(cuMemAllocFromPoolAsync(&more, LIMIT - MANY * 16 * MI, pool[MANY - 1], s), CUDA_ERROR_OUT_OF_MEMORY);
	for (int i = 0; i < MANY; i++) {
		CHECK_EQ(cuMemFreeAsync(p[i], s), CUDA_SUCCESS);
		if (i % 2 == 0)
			CHECK_EQ(cuMemPoolDestroy(pool[i]), CUDA_SUCCESS);
	}
	CHECK_EQ(cuStreamSynchronize(s), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), 0);
	CHECK_EQ(bytes_charged(), bytes_held(getpid()));
	for (int i = 1; i < MANY; i += 2)
		CHECK_EQ(cuMemPoolDestroy(pool[i]), CUDA_SUCCESS);
}

/* Charged is the device of the pool, or of the stream where no pool is named, whatever context is current. */
static void test_devices(void)
{
	CUmemoryPool own, first;
	CUdeviceptr p;
	CUstream s = tenant.stream[1];
	uint64_t other = bytes_used(), used = second_used();
	CHECK_EQ(cuMemAllocAsync(&p, 8 * MI, s), CUDA_SUCCESS);
	CHECK_EQ(second_used(), used + 8 * MI);
	CHECK_EQ(cuMemFreeAsync(p, s), CUDA_SUCCESS);
	CHECK_EQ(cuStreamSynchronize(s), CUDA_SUCCESS);
	CHECK_EQ(second_used(), used);
	CHECK_EQ(cuMemAllocAsync(&p, LIMIT, s), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(cuDeviceGetDefaultMemPool(&first, 1), CUDA_SUCCESS);
	CHECK_EQ(cuMemPoolCreate(&own, &on_second), CUDA_SUCCESS);
	CUmemoryPool pools[] = {own, first};
	for (int i = 0; i < 2; i++) { /* into a stream of the first */
		CHECK_EQ(cuMemAllocFromPoolAsync(&p, 8 * MI, pools[i], tenant.stream[0]), CUDA_SUCCESS);
		CHECK_EQ(second_used(), used + 8 * MI);
		CHECK_EQ(cuMemFreeAsync(p, tenant.stream[0]), CUDA_SUCCESS);
		CHECK_EQ(cuStreamSynchronize(tenant.stream[0]), CUDA_SUCCESS);
		CHECK_EQ(second_used(), used);
	}
	CHECK_EQ(cuMemPoolDestroy(own), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), other);
}

void test_pools(void)
{
	test_kept();
	test_limit();
	test_destroyed();
	test_captured_meanwhile();
	test_many();
	test_devices();
}
