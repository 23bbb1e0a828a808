/* SPDX-License-Identifier: Apache-2.0 */
/* pieces_test.c: small allocations are charged by the blocks that the driver holds for them, whatever it does with empty ones. */
#include "../driver.h"
#include "fake_driver.h"
#include "harness.h"

#include <pthread.h>

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

/* As in a process that has freed nothing yet. books: the driver's say what it holds. */
static void begin(bool books)
{
	CHECK_EQ(used(), 0);
	pieces_forget();
	fake_books(books);
}

/* Blocks of four pieces each, which are empty again when freed. */
static void make_blocks(CUdeviceptr *p, int blocks)
{
	for (int i = 0; i < 4 * blocks; i++)
		CHECK_EQ(cuMemAlloc_v2(&p[i], MI / 2), CUDA_SUCCESS);
}

static void free_blocks(const CUdeviceptr *p, int blocks)
{
	for (int i = 0; i < 4 * blocks; i++) {
		CHECK_EQ(cuMemFree_v2(p[i]), CUDA_SUCCESS);
		CHECK(used() >= taken());
	}
}

/* Pieces are charged by the blocks that they are cut out of. The first block that becomes empty shows what the driver does with them. */
static void test_pieces(void)
{
	CUdeviceptr p[9], more;
	begin(true);
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
	CUdeviceptr p[16];
	begin(false);
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
	/* Now it gives them back, and the next looks at its books tell. */
	for (int round = 0; round < 64 && used() != 0; round++) {
		make_blocks(p, 4);
		free_blocks(p, 4);
	}
	CHECK_EQ(used(), 0);
}

/* In books of all processes another's memory goes at the same moment: that says nothing of a block that stays. */
static void test_coincidence(void)
{
	CUdeviceptr p[16];
	begin(false);
	fake_keeps(true);
	fake_others(4, 0);
	make_blocks(p, 4);
	CHECK_EQ(used(), 8 * MI);
	for (int i = 0; i < 16; i++) {
		if (i == 3)
			fake_others(0, -1);
		CHECK_EQ(cuMemFree_v2(p[i]), CUDA_SUCCESS);
		CHECK_EQ(used(), 8 * MI);
	}
	fake_others(-3, 0);
	fake_keeps(false);
	for (int round = 0; round < 64 && used() != 0; round++) {
		make_blocks(p, 4);
		free_blocks(p, 4);
	}
	CHECK_EQ(used(), 0);
}

/* A module's variables may lie in a block that was there before: only the driver's books say that it is gone. */
static void test_pinned(void)
{
	CUdeviceptr p, q, rest;
	begin(true);
	CHECK_EQ(cuMemAlloc_v2(&rest, 2 * MI), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, MI / 2), CUDA_SUCCESS);
	pieces_module(1);
	CHECK_EQ(driver.cuMemAlloc_v2(&q, MI / 2), CUDA_SUCCESS); /* the module's */
	pieces_module(0);
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
		CHECK_EQ(used(), 4 * MI);
		CHECK_EQ(cuMemAlloc_v2(&p, MI / 2), CUDA_SUCCESS);
		CHECK_EQ(used(), 4 * MI);
	}
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQ(driver.cuMemFree_v2(q), CUDA_SUCCESS);
	pieces_module(-1);
	CHECK_EQ(free_bytes(), 62 * MI); /* the books are read once more */
	CHECK_EQ(cuMemFree_v2(rest), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
}

/* Blocks that were there before a module: where they are gone, what they were charged can be had, and is shown. */
static void test_pinned_gone(void)
{
	CUdeviceptr p[112], q, large, rest;
	for (int shown = 0; shown < 2; shown++) {
		begin(true);
		CHECK_EQ(cuMemAlloc_v2(&rest, 2 * MI), CUDA_SUCCESS);
		make_blocks(p, 28);
		CHECK_EQ(cuMemFree_v2(p[0]), CUDA_SUCCESS);
		pieces_module(1);
		CHECK_EQ(driver.cuMemAlloc_v2(&q, 512), CUDA_SUCCESS); /* the module's, in the first block */
		pieces_module(0);
		CHECK_EQ(cuMemAlloc_v2(&p[0], 512), CUDA_SUCCESS);
		free_blocks(p, 28);
		CHECK_EQ(taken(), 4 * MI);
		CHECK(used() > 40 * MI);
		if (shown != 0)
			CHECK_EQ(free_bytes(), 60 * MI);
		CHECK_EQ(cuMemAlloc_v2(&large, 60 * MI + 1), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQ(cuMemAlloc_v2(&large, 60 * MI), CUDA_SUCCESS);
		CHECK_EQ(used(), taken());
		CHECK_EQ(free_bytes(), 0);
		CHECK_EQ(cuMemFree_v2(large), CUDA_SUCCESS);
		/* Pieces beside the module's, in the block that is left without a name. */
		make_blocks(p, 2);
		CHECK(used() >= taken());
		free_blocks(p, 2);
		CHECK_EQ(free_bytes(), 60 * MI);
		CHECK_EQ(used(), taken());
		CHECK_EQ(driver.cuMemFree_v2(q), CUDA_SUCCESS);
		pieces_module(-1);
		CHECK_EQ(cuMemFree_v2(rest), CUDA_SUCCESS);
		CHECK_EQ(used(), 0);
	}
}

/* What the books do not know apart stays charged: memory that is charged before the driver takes it hides nothing. */
static void test_reserved_ahead(void)
{
	CUdeviceptr p[16], rest, large;
	begin(true);
	CHECK_EQ(cuMemAlloc_v2(&rest, 2 * MI), CUDA_SUCCESS);
	fake_keeps(true);
	make_blocks(p, 4);
	free_blocks(p, 4);
	CHECK(memory_reserve(0, 40 * MI)); /* as a graph does, long before its first launch */
	CHECK_EQ(free_bytes(), 14 * MI);
	CHECK_EQ(cuMemAlloc_v2(&large, 16 * MI), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(used(), taken() + 40 * MI);
	memory_return(0, 40 * MI);
	fake_keeps(false);
	make_blocks(p, 4);
	free_blocks(p, 4);
	CHECK_EQ(free_bytes(), 62 * MI);
	CHECK_EQ(cuMemFree_v2(rest), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
}

/* Whoever has a block's addresses now has its memory: it is charged once. */
static void test_covered(void)
{
	CUdeviceptr p[20], large;
	begin(true);
	make_blocks(p, 5);
	free_blocks(p, 5);
	CHECK_EQ(used(), 0); /* it gives them back */
	fake_books(false);
	make_blocks(p, 3);
	pieces_module(1);
	pieces_module(0);
	free_blocks(p, 3);
	CHECK_EQ(used(), 6 * MI);
	CHECK_EQ(cuMemAlloc_v2(&large, 5 * MI), CUDA_SUCCESS);
	CHECK_EQ(large, p[0]);
	CHECK_EQ(used(), 6 * MI);
	CHECK_EQ(cuMemFree_v2(large), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
	pieces_module(-1);
	CHECK_EQ(used(), 0);
}

static void *allocate_all_over(void *context)
{
	CUdeviceptr p[8], large;
	CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
	for (int round = 0; round < 300; round++) {
		make_blocks(p, 2);
		CHECK_EQ(cuMemAlloc_v2(&large, 3 * MI), CUDA_SUCCESS);
		pieces_module(1);
		pieces_module(0);
		for (int i = 0; i < 8; i++)
			CHECK_EQ(cuMemFree_v2(p[i]), CUDA_SUCCESS);
		CHECK(free_bytes() <= 62 * MI);
		CHECK_EQ(cuMemFree_v2(large), CUDA_SUCCESS);
		pieces_module(-1);
	}
	return NULL;
}

/* Several threads, and their books: what is charged is what is there in the end. */
static void test_threads(void)
{
	pthread_t thread[3];
	CUdeviceptr rest;
	CUcontext context;
	begin(true);
	CHECK_EQ(cuMemAlloc_v2(&rest, 2 * MI), CUDA_SUCCESS);
	CHECK_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, allocate_all_over, context), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	CHECK_EQ(free_bytes(), 62 * MI);
	CHECK_EQ(used(), taken());
	CHECK_EQ(cuMemFree_v2(rest), CUDA_SUCCESS);
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
	test_coincidence();
	test_pinned();
	test_pinned_gone();
	test_reserved_ahead();
	test_covered();
	test_threads();
	arbiter_remove(&arbiter);
	printf("pieces: ok\n");
	return 0;
}
