/* SPDX-License-Identifier: Apache-2.0 */
/* pools_test.c: pools that grow by more than is asked for: what they took is charged, whatever comes of it. */
#include "fake_driver.h"
#include "harness.h"

#define MI (1ull << 20)

static uint64_t used(void)
{
	return get_seq(&tel_of(0)->mem_used);
}

/* Past the limit the allocation is undone, and what the pool took for it is charged until the pool has let go of it. */
static void test_growth(void)
{
	CUdeviceptr p, q, plain;
	CHECK_EQ(cuMemAllocAsync(&p, 2 * MI, NULL), CUDA_SUCCESS);
	CHECK_EQ(used(), FAKE_GROWTH);
	CHECK_EQ(cuMemAlloc_v2(&plain, 28 * MI), CUDA_SUCCESS);
	CHECK_EQ(cuMemAllocAsync(&q, 31 * MI, NULL), CUDA_ERROR_OUT_OF_MEMORY); /* 4 MiB are left of 64 */
	CHECK_EQ(cuMemFree_v2(plain), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&plain, 16 * MI), CUDA_SUCCESS);
	CHECK_EQ(cuMemAllocAsync(&q, 8 * MI, NULL), CUDA_SUCCESS); /* out of what the pool has */
	CHECK_EQ(used(), FAKE_GROWTH + 16 * MI);
	CHECK_EQ(cuMemAllocAsync(&p, 30 * MI, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(used(), FAKE_GROWTH + 16 * MI);
	fake_pools_stuck(true);
	CUdeviceptr more;
	CHECK_EQ(cuMemAllocAsync(&more, 14 * MI, NULL), CUDA_SUCCESS);
	CHECK_EQ(cuMemAllocAsync(&p, 12 * MI, NULL), CUDA_ERROR_OUT_OF_MEMORY); /* reserved; but the pool grows by 32 MiB */
	CHECK_EQ(used(), 2 * FAKE_GROWTH + 16 * MI);
	CHECK_EQ(cuMemAlloc_v2(&p, 2 * MI), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(cuMemAllocAsync(&p, 2 * MI, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(used(), 2 * FAKE_GROWTH + 16 * MI);
	fake_pools_stuck(false);
	CHECK_EQ(cuMemAlloc_v2(&p, 2 * MI), CUDA_SUCCESS); /* now they are made to let go */
	CHECK_EQ(used(), FAKE_GROWTH + 18 * MI);
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(plain), CUDA_SUCCESS);
}

int main(void)
{
	static struct arbiter arbiter;
	arbiter_make(&arbiter, 1, 64 * MI, 64 * MI);
	arbiter_serve(&arbiter);
	tenant_start(&arbiter);
	test_growth();
	arbiter_remove(&arbiter);
	printf("pools: ok\n");
	return 0;
}
