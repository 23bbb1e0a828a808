/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables_test.c: where there is no memory for what is to be remembered of an allocation, the allocation fails: the driver frees it again, and
 * nothing stays charged.
 */
#include "fake_driver.h"
#include "harness.h"

#include <string.h>

#define MI (1ull << 20)
#define ROOM 1024 /* entries that a table has from its first page on */

static struct arbiter arbiter;
static bool none;
static int undone; /* handles released, memory unmapped */

void *__real_pages_take(size_t bytes);
void *__wrap_pages_take(size_t bytes);

void *__wrap_pages_take(size_t bytes)
{
	return none ? NULL : __real_pages_take(bytes);
}

static uint64_t used(void)
{
	return get_seq(&tel_of(0)->mem_used);
}

static void undoes(void)
{
	undone++;
}

static bool undone_by(const char *name)
{
	return *name == '\0' || (fake_called() != NULL && strcmp(fake_called(), name) == 0);
}

/* Refused, and undone in the driver: by the call that is named, or, without a name, by one that the driver's count of bytes shows. */
#define UNDONE(call, by)                                                                                                           \
	do {                                                                                                                       \
		uint64_t used_ = used(), held_ = fake_booked();                                                                    \
		CHECK_EQ(call, CUDA_ERROR_OUT_OF_MEMORY);                                                                          \
		CHECK(undone_by(by));                                                                                              \
		CHECK_EQ(used(), used_);                                                                                           \
		CHECK_EQ(fake_booked(), held_);                                                                                    \
	} while (0)

static const CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 10}};

/* The first of each kind finds no table, and none can be made. */
static void test_first(void)
{
	CUmemGenericAllocationHandle h;
	CUmemPoolProps props = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 10}};
	CUmemoryPool pool;
	CUipcMemHandle ipc = {{0}};
	CUdeviceptr p = 0x7300;
	none = true;
	UNDONE(cuMemAlloc_v2(&p, 4 * MI), "");
	UNDONE(cuMemAlloc_v2(&p, 512), "");
	UNDONE(cuMemAllocAsync(&p, 4 * MI, NULL), "");
	UNDONE(cuMemPoolCreate(&pool, &props), "");
	UNDONE(cuIpcOpenMemHandle_v2(&p, ipc, 0), "cuIpcCloseMemHandle");
	fake_at_release(undoes, false);
	UNDONE(cuMemCreate(&h, 4 * MI, &prop, 0), "");
	CHECK_EQ(undone, 1);
	fake_at_release(undoes, false);
	UNDONE(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)-1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), "");
	CHECK_EQ(undone, 2);
	none = false;
	CHECK_EQ(cuMemCreate(&h, 4 * MI, &prop, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, 4 * MI), CUDA_SUCCESS);
	none = true;
	UNDONE(cuMemAlloc_v2(&(CUdeviceptr){0}, 512), ""); /* there is a table for it, none for its block */
	fake_at_release(undoes, false);
	UNDONE(cuMemMap(0x100000000, 4 * MI, 0, h, 0), "");
	CHECK_EQ(undone, 3);
	none = false;
	CHECK_EQ(cuMemRelease(h), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
}

/* A table that is full and cannot be made larger takes no more, and loses nothing. */
static void test_full(void)
{
	static CUdeviceptr p[ROOM];
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 1024, .Height = 1024, .Depth = 1, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC e = {.size = 4 * MI};
	CUmemPoolPtrExportData data = {{0}};
	CUexternalMemory external = (CUexternalMemory)(uintptr_t)0x7100;
	CUmipmappedArray mip = (CUmipmappedArray)(uintptr_t)0x7200;
	CUarray array;
	CUgraphExec exec = (CUgraphExec)(uintptr_t)0x7000; /* the driver here says nothing of it, nor of those below */
	CUmodule module;
	CUdeviceptr more = 0x7400, plain;
	int n = 1;
	CHECK_EQ(cuMemAlloc_v2(&plain, 2 * MI), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p[0], 512), CUDA_SUCCESS); /* so that there is a table of blocks */
	none = true;
	while (n < ROOM && cuMemAlloc_v2(&p[n], 512) == CUDA_SUCCESS)
		n++;
	CHECK(n > ROOM / 4 * 3 && n < ROOM);
	CHECK_EQ(used(), 4 * MI);
	CHECK_EQ(fake_booked(), 4 * MI);
	UNDONE(cuMemAlloc_v2(&more, 4 * MI), "");
	UNDONE(cuArray3DCreate_v2(&array, &d), "cuArrayDestroy");
	UNDONE(cuMipmappedArrayCreate(&mip, &d, 1), "cuMipmappedArrayDestroy");
	UNDONE(cuImportExternalMemory(&external, &e), "cuDestroyExternalMemory");
	UNDONE(cuMemPoolImportPointer(&more, NULL, &data), "");
	fake_takes(4 * MI, 2);
	UNDONE(cuGraphInstantiateWithFlags(&exec, NULL, 0), "cuGraphExecDestroy");
	UNDONE(cuModuleLoadData(&module, ""), "");
	UNDONE(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * MI), "");
	size_t limit;
	CHECK_EQ(cuCtxGetLimit(&limit, CU_LIMIT_MALLOC_HEAP_SIZE), CUDA_SUCCESS);
	CHECK_EQ(limit, 0);
	none = false;
	CHECK_EQ(cuGraphInstantiateWithFlags(&exec, NULL, 0), CUDA_SUCCESS);
	CHECK_EQ(used(), 8 * MI);
	CHECK_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
	while (n-- > 0)
		CHECK_EQ(cuMemFree_v2(p[n]), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(plain), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
	CHECK_EQ(fake_booked(), 0);
}

int main(void)
{
	fake_books(true);
	arbiter_make(&arbiter, 1, 64 * MI, 64 * MI);
	arbiter_serve(&arbiter);
	tenant_start(&arbiter);
	test_first();
	test_full();
	arbiter_remove(&arbiter);
	printf("tables: ok\n");
	return 0;
}
