/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: bytes move, capacity holds, every family is accounted for. */
#include "simgpu/test/harness.h"

#define MIB (1ull << 20)

static size_t free_now(void)
{
	size_t available, total;
	OK(cuMemGetInfo(&available, &total));
	CHECK(available <= total);
	return available;
}

static void capacity(void)
{
	struct bench b = bench_open();
	size_t total, there, before = free_now();
	CUdeviceptr all, more;
	(void)b;
	OK(cuDeviceTotalMem(&total, 0));
	size_t available;
	OK(cuMemGetInfo(&available, &there));
	CHECK(there == total);
	CHECK(before + 256 * MIB + 2 * MIB == total); /* the context, and the chunk of the module's variable */
	OK(cuMemAlloc(&all, before));
	CHECK(free_now() == 0);
	IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 4 * MIB));
	OK(cuMemFree(all));
	CHECK(free_now() == before);
	CHECK(record_now()->device[0].peak_bytes == total);
	IS(CUDA_ERROR_INVALID_VALUE, cuMemFree(all));
	IS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&more, 0));
	IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 1ull << 60));
}

static void small_pieces(void)
{
	struct bench b = bench_open();
	static CUdeviceptr p[3000];
	size_t before = free_now(), size;
	CUdeviceptr base;
	(void)b;
	for (int i = 0; i < 3000; i++) {
		OK(cuMemAlloc(&p[i], 1000));
		CHECK(p[i] % 512 == 0);
		OK(cuMemsetD8(p[i], (unsigned char)i, 1000));
	}
	CHECK(before - free_now() == 2 * MIB); /* 3,000 pieces of 1 KiB do not fit into what was left of the first chunk */
	for (int i = 0; i < 3000; i++) {
		unsigned char back[1000];
		OK(cuMemcpyDtoH(back, p[i], sizeof back));
		CHECK(back[0] == (unsigned char)i && back[999] == (unsigned char)i);
	}
	OK(cuMemGetAddressRange(&base, &size, p[7] + 500));
	CHECK(base == p[7] && size == 1000);
	for (int i = 0; i < 3000; i++)
		OK(cuMemFree(p[i * 7 % 3000])); /* in another order; 7 and 3000 have no common factor */
	CHECK(free_now() == before);
}

static void copies(void)
{
	struct bench b = bench_open();
	CUdeviceptr p, q;
	char *pinned, text[64] = "the quick brown fox", back[64] = "";
	OK(cuMemAlloc(&p, MIB));
	OK(cuMemAlloc(&q, MIB));
	OK(cuMemAllocHost((void **)&pinned, 4096));
	OK(cuMemcpyHtoD(p, text, sizeof text));
	OK(cuMemcpyDtoD(q, p, sizeof text));
	OK(cuMemcpyDtoH(back, q, sizeof back));
	CHECK(strcmp(text, back) == 0);
	OK(cuMemcpy(q + 100, (uintptr_t)text, 10)); /* host memory that the driver does not know */
	OK(cuMemcpy((uintptr_t)back, q + 100, 10));
	CHECK(memcmp(back, text, 10) == 0);
	/* Asynchronous, in the order of the stream: the copy out sees the set before it and not the one after. */
	struct gate g = gate_close(b.stream);
	memset(pinned, 'x', 4096);
	OK(cuMemsetD8Async(p, 'a', 4096, b.stream));
	OK(cuMemcpyDtoHAsync(pinned, p, 4096, b.stream));
	OK(cuMemsetD8Async(p, 'b', 4096, b.stream));
	CHECK(pinned[0] == 'x');
	gate_open(&g);
	OK(cuStreamSynchronize(b.stream));
	CHECK(pinned[0] == 'a' && pinned[4095] == 'a');
	OK(cuMemcpyDtoH(back, p, 1));
	CHECK(back[0] == 'b');
	OK(cuMemsetD16(p, 0x1234, 100));
	OK(cuMemsetD32(p + 200, 0xdeadbeef, 100));
	unsigned short half;
	unsigned word;
	OK(cuMemcpyDtoH(&half, p + 198, 2));
	OK(cuMemcpyDtoH(&word, p + 596, 4));
	CHECK(half == 0x1234 && word == 0xdeadbeef);
	IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(p + MIB - 10, text, 20));
	IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(p + 1, 0, 1));
	OK(cuMemFreeHost(pinned));
}

static void shapes(void)
{
	struct bench b = bench_open();
	CUdeviceptr p;
	CUarray array;
	size_t pitch;
	unsigned char in[8 * 16], out[8 * 16];
	(void)b;
	for (int i = 0; i < 128; i++)
		in[i] = (unsigned char)i;
	OK(cuMemAllocPitch(&p, &pitch, 16, 8, 4));
	CHECK(pitch >= 16);
	CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = 16, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = p,
			   .dstPitch = pitch, .WidthInBytes = 16, .Height = 8};
	OK(cuMemcpy2D(&c));
	OK(cuMemsetD2D8(p + 4, pitch, 0xff, 2, 8));
	CUDA_ARRAY_DESCRIPTOR d = {.Width = 16, .Height = 8, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
	OK(cuArrayCreate(&array, &d));
	CUDA_MEMCPY2D e = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .srcPitch = pitch, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			   .dstArray = array, .WidthInBytes = 16, .Height = 8};
	OK(cuMemcpy2D(&e));
	CUDA_MEMCPY2D f = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .dstPitch = 16,
			   .WidthInBytes = 16, .Height = 8};
	OK(cuMemcpy2D(&f));
	for (int i = 0; i < 128; i++)
		CHECK(out[i] == (i % 16 == 4 || i % 16 == 5 ? 0xff : in[i]));
	OK(cuArrayDestroy(array));
	CUDA_ARRAY3D_DESCRIPTOR m = {.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
	CUmipmappedArray mip;
	CUarray level;
	OK(cuMipmappedArrayCreate(&mip, &m, 7));
	OK(cuMipmappedArrayGetLevel(&level, mip, 6));
	CUDA_ARRAY_DESCRIPTOR is;
	OK(cuArrayGetDescriptor(&is, level));
	CHECK(is.Width == 1 && is.Height == 1);
	OK(cuMipmappedArrayDestroy(mip));
}

static void pointers(void)
{
	struct bench b = bench_open();
	CUdeviceptr p, managed;
	static char host[8192];
	unsigned type, is_managed;
	CUcontext c;
	OK(cuMemAlloc(&p, MIB));
	OK(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 5));
	OK(cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
	CHECK(type == CU_MEMORYTYPE_DEVICE && c == b.context && is_managed);
	memset((void *)(uintptr_t)managed, 1, MIB); /* the host may touch it */
	IS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)host));
	OK(cuMemHostRegister(host, sizeof host, 0));
	IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(host + 100, 10, 0));
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)host));
	CHECK(type == CU_MEMORYTYPE_HOST);
	OK(cuMemHostUnregister(host));
	IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host));
	CUdeviceptr table;
	size_t bytes;
	OK(cuModuleGetGlobal(&table, &bytes, b.module, "table"));
	CHECK(bytes == 4096);
	IS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&table, &bytes, b.module, "chair"));
}

static cuuint64_t pool_value(CUmemoryPool pool, CUmemPool_attribute which)
{
	cuuint64_t v;
	OK(cuMemPoolGetAttribute(pool, which, &v));
	return v;
}

static void pooled(void)
{
	struct bench b = bench_open();
	CUmemoryPool pool;
	CUdeviceptr p, q;
	size_t before = free_now();
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemAllocAsync(&p, 10 * MIB, b.stream));
	CHECK(before - free_now() == 10 * MIB);
	CHECK(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 10 * MIB);
	struct gate g = gate_close(b.stream);
	OK(cuMemFreeAsync(p, b.stream));
	OK(cuMemAllocAsync(&q, 10 * MIB, b.stream)); /* the same stream has it again at once */
	CHECK(p == q);
	OK(cuMemFreeAsync(q, b.stream));
	CUstream other;
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&q, 10 * MIB, other)); /* another does not, before the first has come that far */
	CHECK(p != q);
	gate_open(&g);
	OK(cuStreamSynchronize(b.stream)); /* the threshold is 0: what is free goes */
	CHECK(before - free_now() == 10 * MIB);
	OK(cuMemFreeAsync(q, other));
	OK(cuStreamSynchronize(other));
	CHECK(free_now() == before);
	CHECK(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 20 * MIB);
	cuuint64_t keep = 64 * MIB;
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemAllocAsync(&p, 10 * MIB, b.stream));
	OK(cuMemFreeAsync(p, b.stream));
	OK(cuStreamSynchronize(b.stream));
	CHECK(before - free_now() == 10 * MIB);
	OK(cuMemPoolTrimTo(pool, 0));
	CHECK(free_now() == before);
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .maxSize = 8 * MIB};
	CUmemoryPool own;
	OK(cuMemPoolCreate(&own, &props));
	IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&p, 10 * MIB, own, b.stream));
	OK(cuMemPoolDestroy(own));
	IS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(own));
	IS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
	CHECK(free_now() == before);
}

/* A pool that is destroyed keeps its memory until the last of it has been freed; a device whose current one it was goes back to its first. */
static void pool_destroyed(void)
{
	struct bench b = bench_open();
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool pool, first, is;
	CUdeviceptr p, q, kept;
	cuuint64_t all = UINT64_MAX;
	size_t before = free_now();
	OK(cuDeviceGetDefaultMemPool(&first, 0));
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuDeviceSetMemPool(0, pool));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	OK(cuMemAllocAsync(&p, 10 * MIB, b.stream));
	OK(cuMemAllocAsync(&q, 6 * MIB, b.stream));
	OK(cuMemAllocAsync(&kept, 4 * MIB, b.stream));
	OK(cuMemFreeAsync(kept, b.stream));
	OK(cuStreamSynchronize(b.stream));
	CHECK(before - free_now() == 20 * MIB);
	OK(cuMemPoolDestroy(pool));
	OK(cuDeviceGetMemPool(&is, 0));
	CHECK(is == first);
	CHECK(before - free_now() == 16 * MIB);
	IS(CUDA_ERROR_INVALID_HANDLE, cuMemAllocFromPoolAsync(&kept, MIB, pool, b.stream));
	OK(cuMemsetD8(p, 1, 10 * MIB)); /* still there to be used */
	OK(cuMemFree(p));
	CHECK(before - free_now() == 6 * MIB);
	struct gate g = gate_close(b.stream);
	OK(cuMemFreeAsync(q, b.stream));
	CHECK(before - free_now() == 6 * MIB); /* its free has not come yet */
	gate_open(&g);
	OK(cuStreamSynchronize(b.stream));
	CHECK(free_now() == before);
}

/* Memory comes from the device of the pool; where none is named, from the current pool of the stream's device, whatever context is current. */
static void pool_devices(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
	CUcontext c[2];
	CUstream s[2];
	CUmemoryPool pool;
	CUdeviceptr p, q;
	OK(cuInit(0));
	for (int i = 0; i < 2; i++) {
		OK(cuCtxCreate(&c[i], 0, i));
		OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
	}
	OK(cuCtxSetCurrent(c[0]));
	size_t first = record_now()->row[0].bytes, second = record_now()->row[1].bytes;
	OK(cuMemAllocAsync(&p, 10 * MIB, s[1]));
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&q, 6 * MIB, pool, s[0]));
	CHECK(record_now()->row[0].device == 0 && record_now()->row[0].bytes == first);
	CHECK(record_now()->row[1].device == 1 && record_now()->row[1].bytes == second + 16 * MIB);
	OK(cuMemFreeAsync(q, s[0]));
	OK(cuMemFreeAsync(p, s[1]));
	OK(cuStreamSynchronize(s[0]));
	OK(cuStreamSynchronize(s[1]));
	CHECK(record_now()->row[1].bytes == second);
}

static void virtual_memory(void)
{
	struct bench b = bench_open();
	(void)b;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle h, again;
	CUdeviceptr at;
	size_t granule, before = free_now();
	char text[32] = "still here", back[32] = "";
	OK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK(granule == 2 * MIB);
	OK(cuMemAddressReserve(&at, 8 * granule, 0, 0, 0));
	CHECK(free_now() == before);
	IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, granule + 1, &prop, 0));
	OK(cuMemCreate(&h, 2 * granule, &prop, 0));
	CHECK(before - free_now() == 2 * granule);
	IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 7 * granule, 2 * granule, 0, h, 0));
	OK(cuMemMap(at, 2 * granule, 0, h, 0));
	IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + granule, granule, 0, h, 0));
	OK(cuMemSetAccess(at, 2 * granule, &access, 1));
	OK(cuMemcpyHtoD(at + granule, text, sizeof text));
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + granule)));
	CHECK(again == h);
	OK(cuMemRelease(h));
	OK(cuMemUnmap(at, 2 * granule));
	CHECK(before - free_now() == 2 * granule); /* the second handle keeps it */
	IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(back, at + granule, sizeof back));
	OK(cuMemMap(at + 4 * granule, 2 * granule, 0, again, 0));
	OK(cuMemSetAccess(at + 4 * granule, 2 * granule, &access, 1));
	OK(cuMemcpyDtoH(back, at + 5 * granule, sizeof back));
	CHECK(strcmp(text, back) == 0);
	IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 8 * granule));
	OK(cuMemRelease(again));
	OK(cuMemUnmap(at + 4 * granule, 2 * granule));
	CHECK(free_now() == before);
	OK(cuMemAddressFree(at, 8 * granule));
	IS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(h));
}

static void context_end(void)
{
	struct bench b = bench_open();
	CUdeviceptr p;
	CUcontext primary, is;
	size_t before, total;
	unsigned flags;
	int active;
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK(active);
	OK(cuMemAlloc(&p, 100 * MIB));
	OK(cuMemAllocAsync(&p, 100 * MIB, b.stream));
	before = free_now();
	OK(cuCtxDestroy(b.context));
	OK(cuCtxGetCurrent(&is));
	CHECK(is == NULL);
	IS(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo(&total, &total));
	OK(cuCtxSetCurrent(primary));
	CHECK(free_now() - before == (200 + 256 + 2) * MIB);
	OK(cuDevicePrimaryCtxRelease(0));
	IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&p, 100));
}

const struct test memory_tests[] = {{"capacity", "a10", capacity},
				    {"small pieces share chunks", "t4", small_pieces},
				    {"copies and sets move bytes in order", "h200", copies},
				    {"pitch, arrays, mipmaps", "h200", shapes},
				    {"pointers, managed and host memory", "h200", pointers},
				    {"pools", "h100", pooled},
				    {"a pool that is destroyed keeps what is in use", "h100", pool_destroyed},
				    {"pools of several devices", "h100x2", pool_devices},
				    {"virtual memory keeps its bytes", "a100", virtual_memory},
				    {"a context's end frees what was its own", "l4", context_end},
				    {0}};
