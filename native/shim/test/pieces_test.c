/* SPDX-License-Identifier: Apache-2.0 */
/* pieces_test.c: small allocations are charged by the blocks that the driver holds for them, whatever it does with empty ones. */
#include "../driver.h"
#include "fake_driver.h"
#include "harness.h"

#define MI (1ull << 20)

static uint64_t used(void)
{
	return get_seq(&tel_of(0)->mem_used);
}

/* What the driver has taken from the device for this process. */
static uint64_t taken(void)
{
	size_t rest, all;
	CHECK_EQ(driver.cuMemGetInfo_v2(&rest, &all), CUDA_SUCCESS);
	return all - rest;
}

static size_t free_bytes(void)
{
	size_t rest, all;
	CHECK_EQ(cuMemGetInfo_v2(&rest, &all), CUDA_SUCCESS);
	return rest;
}

/* Pieces are charged by the blocks that they are cut out of. The first blocks that become empty show what the driver does with them. */
static void test_pieces(void)
{
	CUdeviceptr p[9], more;
	for (int i = 0; i < 9; i++) {
		CHECK_EQ(cuMemAlloc_v2(&p[i], MI / 2), CUDA_SUCCESS);
		CHECK_EQ(used(), (uint64_t)(i / 4 + 1) * 2 * MI);
		CHECK_EQ(used(), taken());
	}
	CHECK_EQ(free_bytes(), 58 * MI);
	/* A block stays until its last piece is gone. */
	for (int i = 0; i < 9; i++) {
		CHECK_EQ(cuMemFree_v2(p[i]), CUDA_SUCCESS);
		CHECK_EQ(used(), taken());
	}
	CHECK_EQ(used(), 0);
	/* A piece needs room for a block, since only the driver knows whether it takes one. */
	CHECK_EQ(cuMemAlloc_v2(&p[0], 512), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p[1], 60 * MI + 1), CUDA_SUCCESS);
	CHECK_EQ(free_bytes(), 0);
	CHECK_EQ(cuMemAlloc_v2(&more, 512), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(cuMemFree_v2(p[0]), CUDA_SUCCESS);
	CHECK_EQ(free_bytes(), 2 * MI);
	CHECK_EQ(cuMemFree_v2(p[1]), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
}

/* A driver that keeps empty blocks: they stay charged, and what is cut out of them again costs nothing more. */
static void test_kept(void)
{
	CUdeviceptr p[8];
	pieces_forget(); /* as in a process that has freed nothing yet */
	fake_keeps(true);
	uint64_t before = taken();
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 8; i++)
			CHECK_EQ(cuMemAlloc_v2(&p[i], MI / 2), CUDA_SUCCESS);
		CHECK_EQ(used(), 4 * MI);
		for (int i = 0; i < 8; i++)
			CHECK_EQ(cuMemFree_v2(p[i]), CUDA_SUCCESS);
		CHECK_EQ(used(), 4 * MI);
		CHECK_EQ(taken() - before, 4 * MI);
	}
	fake_keeps(false);
	/* Now it gives them back, and the next look at its books tells. */
	for (int round = 0; round < 64 && used() != 0; round++) {
		CHECK_EQ(cuMemAlloc_v2(&p[0], MI / 2), CUDA_SUCCESS);
		CHECK_EQ(cuMemFree_v2(p[0]), CUDA_SUCCESS);
	}
	CHECK_EQ(used(), 0);
}

/* A module's variables may lie in a block that was there before: only the driver's books say that it is gone. */
static void test_pinned(void)
{
	CUdeviceptr p, q;
	CHECK_EQ(cuMemAlloc_v2(&p, MI / 2), CUDA_SUCCESS);
	pieces_module(1);
	CHECK_EQ(driver.cuMemAlloc_v2(&q, MI / 2), CUDA_SUCCESS); /* the module's */
	pieces_module(0);
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
		CHECK_EQ(used(), 2 * MI);
		CHECK_EQ(cuMemAlloc_v2(&p, MI / 2), CUDA_SUCCESS);
		CHECK_EQ(used(), 2 * MI);
	}
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQ(driver.cuMemFree_v2(q), CUDA_SUCCESS);
	pieces_module(-1);
	CHECK_EQ(used(), 0);
}

int main(void)
{
	static struct arbiter arbiter;
	arbiter_make(&arbiter, 1, 64 * MI, 128 * MI);
	arbiter_serve(&arbiter);
	tenant_start(&arbiter);
	test_pieces();
	test_kept();
	test_pinned();
	arbiter_remove(&arbiter);
	printf("pieces: ok\n");
	return 0;
}
