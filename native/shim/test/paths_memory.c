/* SPDX-License-Identifier: Apache-2.0 */
/* paths_memory.c: every family of allocations on simulated devices: what is charged is what the device holds. */
#include "paths.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

const CUmemAllocationProp exported = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static void test_plain(void)
{
	CUdeviceptr p;
	size_t pitch;
	ACCOUNTED(cuMemAlloc_v2, 4 * MI, &p, 3 * MI);
	ACCOUNTED(cuMemFree_v2, -4ll * (int64_t)MI, p);
	ACCOUNTED(cuMemAllocPitch_v2, 8 * MI, &p, &pitch, 4000, 2048, 4);
	ACCOUNTED(cuMemFree_v2, -8ll * (int64_t)MI, p);
	ACCOUNTED(cuMemAllocManaged, 2 * MI, &p, 2 * MI, CU_MEM_ATTACH_GLOBAL);
	ACCOUNTED(cuMemFree_v2, -2ll * (int64_t)MI, p);
}

/* Pieces under 1 MiB: the device holds the blocks that they lie in, and these are charged. */
static void test_pieces(void)
{
	CUdeviceptr p[5];
	size_t pitch;
	ACCOUNTED(cuMemAlloc_v2, 2 * MI, &p[0], 1);
	ACCOUNTED(cuMemAlloc_v2, 0, &p[1], MI - 1);
	ACCOUNTED(cuMemAllocManaged, 0, &p[2], MI / 2, CU_MEM_ATTACH_GLOBAL);
	ACCOUNTED(cuMemAllocPitch_v2, 2 * MI, &p[3], &pitch, 500, 1500, 4);
	ACCOUNTED(cuMemAlloc_v2, 0, &p[4], 512);
	ACCOUNTED(cuMemFree_v2, 0, p[1]);
	ACCOUNTED(cuMemFree_v2, 0, p[3]);
	ACCOUNTED(cuMemFreeAsync, 0, p[0], tenant.stream[0]);
	ACCOUNTED(cuMemFreeAsync, -2ll * (int64_t)MI, p[4], tenant.stream[0]);
	ACCOUNTED(cuMemFree_v2, -2ll * (int64_t)MI, p[2]);
	/* Arrays lie in blocks too, and nobody says where: a block is charged for each. */
	CUDA_ARRAY_DESCRIPTOR d = {.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUarray a;
	ACCOUNTED(cuArrayCreate_v2, 2 * MI, &a, &d);
	ACCOUNTED(cuArrayDestroy, -2ll * (int64_t)MI, a);
}

/* Processes of one share that race to its ceiling come to it, and by the device's own record never hold a byte more. */
static void test_race(void)
{
	struct other o[4];
	char byte;
	for (int i = 0; i < 4; i++) {
		o[i] = other_start("races");
		CHECK(read(o[i].from, &byte, 1) == 1);
	}
	for (int i = 0; i < 4; i++)
		CHECK(write(o[i].to, "", 1) == 1);
	for (int i = 0; i < 4; i++)
		CHECK(read(o[i].from, &byte, 1) == 1);
	CHECK_EQ(bytes_peak(1), LIMIT);
	for (int i = 0; i < 4; i++)
		other_end(&o[i]);
}

static void test_arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR two = {.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUDA_ARRAY3D_DESCRIPTOR three = {.Width = 1024, .Height = 512, .Depth = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUDA_ARRAY3D_DESCRIPTOR mip = {.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUarray a;
	CUmipmappedArray m;
	ACCOUNTED(cuArrayCreate_v2, 4 * MI, &a, &two);
	ACCOUNTED(cuArrayDestroy, -4ll * (int64_t)MI, a);
	ACCOUNTED(cuArray3DCreate_v2, 8 * MI, &a, &three);
	ACCOUNTED(cuArrayDestroy, -8ll * (int64_t)MI, a);
	ACCOUNTED(cuMipmappedArrayCreate, 4 * MI, &m, &mip, 1);
	ACCOUNTED(cuMipmappedArrayDestroy, -4ll * (int64_t)MI, m);
	ACCOUNTED(cuMipmappedArrayCreate, 8 * MI, &m, &mip, 11); /* of 4 MiB, 1 MiB, and the rest together */
	ACCOUNTED(cuMipmappedArrayDestroy, -8ll * (int64_t)MI, m);
}

static void test_handles(void)
{
	CUmemGenericAllocationHandle h, again;
	CUdeviceptr at;
	int fd;
	CHECK_EQ(cuMemAddressReserve(&at, 8 * MI, 0, 0, 0), CUDA_SUCCESS);
	ACCOUNTED(cuMemCreate, 8 * MI, &h, 8 * MI, &exported, 0);
	ACCOUNTED(cuMemMap, 0, at, 8 * MI, 0, h, 0);
	ACCOUNTED(cuMemRetainAllocationHandle, 0, &again, (void *)(uintptr_t)at);
	ACCOUNTED(cuMemExportToShareableHandle, 0, &fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	close(fd);
	ACCOUNTED(cuMemRelease, 0, h);
	ACCOUNTED(cuMemUnmap, 0, at, 8 * MI); /* the retained handle still holds it */
	ACCOUNTED(cuMemMap, 0, at, 8 * MI, 0, again, 0);
	ACCOUNTED(cuMemRelease, 0, again);
	/* The mapping alone holds it, and can be turned into a handle again. */
	ACCOUNTED(cuMemRetainAllocationHandle, 0, &h, (void *)(uintptr_t)(at + 4 * MI));
	ACCOUNTED(cuMemUnmap, 0, at, 8 * MI);
	ACCOUNTED(cuMemRelease, -8ll * (int64_t)MI, h);
	CHECK_EQ(cuMemAddressFree(at, 8 * MI), CUDA_SUCCESS);
}

static CUgraph graph_with_memory(uint64_t bytes)
{
	CUgraph g;
	CUgraphNode alloc, release;
	CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
					.bytesize = bytes};
	CHECK_EQ(cuGraphCreate(&g, 0), CUDA_SUCCESS);
	CHECK_EQ(cuGraphAddMemAllocNode(&alloc, g, NULL, 0, &p), CUDA_SUCCESS);
	CHECK_EQ(cuGraphAddMemFreeNode(&release, g, &alloc, 1, p.dptr), CUDA_SUCCESS);
	return g;
}

/* A graph is charged before its first launch can take the memory, and once. */
#define INSTANTIATED(name, ...)                                                                                                    \
	do {                                                                                                                       \
		CUgraph g = graph_with_memory(10 * MI);                                                                            \
		CUgraphExec x;                                                                                                     \
		name_called(#name);                                                                                                \
		CHECK_EQ(name(&x, g, ##__VA_ARGS__), CUDA_SUCCESS);                                                                \
		CHECK_EQ(bytes_used(), 10 * MI);                                                                                   \
		CHECK_EQ(cuGraphLaunch(x, tenant.stream[0]), CUDA_SUCCESS);                                                        \
		CHECK_EQ(cuStreamSynchronize(tenant.stream[0]), CUDA_SUCCESS);                                                     \
		CHECK_EQ(bytes_used(), 10 * MI);                                                                                   \
		CHECK_EQ(bytes_charged(), bytes_held(getpid()));                                                                   \
		ACCOUNTED(cuGraphExecDestroy, -10ll * (int64_t)MI, x);                                                             \
		CHECK_EQ(cuGraphDestroy(g), CUDA_SUCCESS);                                                                         \
	} while (0)

static void test_graphs(void)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
	INSTANTIATED(cuGraphInstantiate, NULL, NULL, 0);
	INSTANTIATED(cuGraphInstantiate_v2, NULL, NULL, 0);
	INSTANTIATED(cuGraphInstantiateWithFlags, 0);
	INSTANTIATED(cuGraphInstantiateWithParams, &params);
	INSTANTIATED(cuGraphInstantiateWithParams_ptsz, &params);
	ACCOUNTED(cuDeviceGraphMemTrim, 0, 0);
	CUgraph large = graph_with_memory(LIMIT);
	CUgraphExec x;
	CHECK_EQ(cuGraphInstantiateWithFlags(&x, large, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(bytes_used(), 0);
	CHECK_EQ(cuGraphDestroy(large), CUDA_SUCCESS);
}

/* A captured allocation is a node of the graph, and charged with it; what a launch of it leaves allocated stays charged after the graph is gone. */
static void test_captured(void)
{
	CUstream s = tenant.stream[0];
	CUgraph g;
	CUgraphExec x;
	CUdeviceptr p;
	CHECK_EQ(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	ACCOUNTED(cuMemAllocAsync, 0, &p, 20 * MI, s);
	CHECK_EQ(cuStreamEndCapture(s, &g), CUDA_SUCCESS);
	CHECK_EQ(cuGraphInstantiateWithFlags(&x, g, 0), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), 20 * MI);
	CHECK_EQ(cuGraphLaunch(x, s), CUDA_SUCCESS);
	CHECK_EQ(cuGraphExecDestroy(x), CUDA_SUCCESS);
	CHECK_EQ(cuGraphDestroy(g), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), 20 * MI);
	CHECK_EQ(cuMemFreeAsync(p, s), CUDA_SUCCESS);
	CHECK_EQ(cuStreamSynchronize(s), CUDA_SUCCESS);
	ACCOUNTED(cuDeviceGraphMemTrim, -20ll * (int64_t)MI, 0);
}

static void test_external(void)
{
	CUexternalMemory m;
	int fd = (int)syscall(SYS_memfd_create, "elsewhere", 1u /* MFD_CLOEXEC */);
	CHECK(fd >= 0 && ftruncate(fd, 6 * (off_t)MI) == 0);
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC d = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = 6 * MI};
	ACCOUNTED(cuImportExternalMemory, 6 * MI, &m, &d);
	ACCOUNTED(cuDestroyExternalMemory, -6ll * (int64_t)MI, m);
}

/* A limit raised is memory that the driver will take for kernels; charged before, as simulated devices run none that need it. */
static void test_limits(void)
{
	uint64_t used = bytes_used();
	size_t value;
	name_called("cuCtxSetLimit");
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 72 * MI), CUDA_SUCCESS); /* from 8 MiB */
	CHECK_EQ(bytes_used(), used + 64 * MI);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, LIMIT), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE), CUDA_SUCCESS);
	CHECK_EQ(value, 72 * MI);
	CHECK_EQ(bytes_used(), used + 64 * MI);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * MI), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), used);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS); /* 1 KiB more for each of 148 times 2048 threads */
	CHECK_EQ(bytes_used(), used + 296 * MI);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), used);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128), CUDA_SUCCESS);
	/* It goes with its context. */
	CUcontext other;
	CHECK_EQ(cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 72 * MI), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), used + 64 * MI);
	CHECK_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), used);
}

/* A module whose variables do not fit into what small allocations share already takes memory of its own. */
static const char large_ptx[] = ".version 7.0\n.target sm_50\n.address_size 64\n.global .align 8 .b8 large[6291456];\n"
				".visible .entry plain() { ret; }\n";

/* The same as a fat binary: its header, that of its only entry, the text. */
static const void *fat_binary(void)
{
	static struct {
		uint32_t magic;
		uint16_t version, header;
		uint64_t bytes;
		uint16_t kind, entry_version;
		uint32_t entry_header;
		uint64_t entry_bytes;
		uint8_t rest[48];
		char text[sizeof(large_ptx)];
	} fat = {.magic = 0xba55ed50, .version = 1, .header = 16, .bytes = 64 + sizeof(large_ptx), .kind = 1, .entry_version = 0x101, .entry_header = 64,
		 .entry_bytes = sizeof(large_ptx)};
	memcpy(fat.text, large_ptx, sizeof(large_ptx));
	return &fat;
}

static void test_modules(void)
{
	CUmodule m;
	char path[300];
	snprintf(path, sizeof(path), "%s/module.ptx", arbiter.folder);
	FILE *f = fopen(path, "w");
	CHECK(f != NULL && fputs(large_ptx, f) >= 0 && fclose(f) == 0);
	ACCOUNTED(cuModuleLoad, 6 * MI, &m, path);
	ACCOUNTED(cuModuleUnload, -6ll * (int64_t)MI, m);
	CUlibrary l;
	ACCOUNTED(cuLibraryLoadFromFile, 6 * MI, &l, path, NULL, NULL, 0, NULL, NULL, 0);
	ACCOUNTED(cuLibraryUnload, -6ll * (int64_t)MI, l);
	unlink(path);
	ACCOUNTED(cuModuleLoadData, 6 * MI, &m, large_ptx);
	ACCOUNTED(cuModuleUnload, -6ll * (int64_t)MI, m);
	ACCOUNTED(cuModuleLoadDataEx, 6 * MI, &m, large_ptx, 0, NULL, NULL);
	ACCOUNTED(cuModuleUnload, -6ll * (int64_t)MI, m);
	ACCOUNTED(cuLibraryLoadData, 6 * MI, &l, large_ptx, NULL, NULL, 0, NULL, NULL, 0);
	ACCOUNTED(cuLibraryUnload, -6ll * (int64_t)MI, l);
	/* Simulated devices run no machine code: a module that does not load leaves nothing behind. */
	uint64_t used = bytes_used();
	CHECK_EQ(cuModuleLoadFatBinary(&m, "\x50\xed\x55\xba\x01\0\x10\0\0\0\0\0\0\0\0"), CUDA_ERROR_NO_BINARY_FOR_GPU);
	CHECK_EQ(bytes_used(), used);
	ACCOUNTED(cuModuleLoadFatBinary, 6 * MI, &m, fat_binary());
	ACCOUNTED(cuModuleUnload, -6ll * (int64_t)MI, m);
}

/* How much one takes shows only once it is loaded: where there is no room it is unloaded again. */
static void test_library_limit(void)
{
	uint64_t used = bytes_used();
	CUlibrary l, more;
	CUdeviceptr rest;
	CHECK_EQ(cuMemAlloc_v2(&rest, (LIMIT - bytes_charged() - 8 * MI) / (2 * MI) * (2 * MI)), CUDA_SUCCESS);
	CHECK_EQ(cuLibraryLoadData(&l, large_ptx, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	CHECK_EQ(cuLibraryLoadData(&more, large_ptx, NULL, NULL, 0, NULL, NULL, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(bytes_charged(), bytes_held(getpid()));
	CHECK_EQ(cuLibraryUnload(l), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(rest), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), used);
}

void test_memory(void)
{
	/* So that small pieces do not need a new chunk in the middle of a count. */
	uint64_t base = bytes_used();
	test_modules();
	CHECK_EQ(bytes_used(), base);
	CHECK_EQ(cuModuleUnload(tenant.module[0]), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), 0);
	test_plain();
	test_limits();
	test_pieces();
	test_race();
	test_arrays();
	test_handles();
	test_pools();
	test_graphs();
	test_captured();
	test_external();
	test_shared();
	test_late();
	test_library_limit();
	CHECK_EQ(cuModuleLoadData(&tenant.module[0], tenant_ptx), CUDA_SUCCESS);
	CHECK_EQ(cuModuleGetFunction(&tenant.kernel[0], tenant.module[0], "busy_2ms"), CUDA_SUCCESS);
}

/* Each under a share says that it is not to be had, whatever it is called with. Looked up, as the simulated driver has none of them. */
static void refused(const char *symbol)
{
	typedef CUresult call(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
	call *f = (call *)dlsym(RTLD_DEFAULT, symbol);
	name_called(symbol);
	CHECK(f != NULL);
	CHECK_EQ(f(0, 0, 0, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
}

void test_refused(void)
{
#define HOOK(symbol, base, version, per_thread, kind)
#define REFUSED(symbol, base, version, why) refused(#symbol);
#include "../paths.def"
}
