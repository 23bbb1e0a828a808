/* SPDX-License-Identifier: Apache-2.0 */
/* paths_launch.c: every launch, copy and set through the gate on simulated devices. */
#include "paths.h"

#include <pthread.h>
#include <string.h>

const char tenant_ptx[] = ".version 7.0\n"
			  ".target sm_50\n"
			  ".address_size 64\n"
			  ".global .align 8 .b8 table[4096];\n"
			  ".visible .entry busy_2ms() { ret; }\n"
			  ".visible .entry busy_100us() { ret; }\n"
			  ".visible .entry busy_20ms() { ret; }\n";

static CUgraphExec graph_of_two(void)
{
	CUgraph g;
	CUgraphExec x;
	CUgraphNode a, b;
	CUDA_KERNEL_NODE_PARAMS p = {.func = tenant.kernel[0], .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1,
				     .blockDimZ = 1};
	CHECK_EQ(cuGraphCreate(&g, 0), CUDA_SUCCESS);
	CHECK_EQ(cuGraphAddKernelNode_v2(&a, g, NULL, 0, &p), CUDA_SUCCESS);
	CHECK_EQ(cuGraphAddKernelNode_v2(&b, g, &a, 1, &p), CUDA_SUCCESS);
	CHECK_EQ(cuGraphInstantiateWithFlags(&x, g, 0), CUDA_SUCCESS);
	CHECK_EQ(cuGraphDestroy(g), CUDA_SUCCESS);
	return x;
}

/* A graph that is carried to the device as it is instantiated. */
static void test_uploaded(void)
{
	CUgraph g;
	CUgraphExec x;
	CUgraphNode a;
	CUDA_KERNEL_NODE_PARAMS p = {.func = tenant.kernel[0], .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1,
				     .blockDimZ = 1};
	CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, .hUploadStream = tenant.stream[0]};
	CHECK_EQ(cuGraphCreate(&g, 0), CUDA_SUCCESS);
	CHECK_EQ(cuGraphAddKernelNode_v2(&a, g, NULL, 0, &p), CUDA_SUCCESS);
	GATED(cuGraphInstantiateWithParams, 1, &x, g, &how);
	how.hUploadStream = NULL;
	GATED(cuGraphInstantiateWithParams_ptsz, 1, &x, g, &how);
	CHECK_EQ(cuGraphDestroy(g), CUDA_SUCCESS);
}

/* Inside a capture nothing is gated: it is only written down. */
static void test_captured(CUfunction f, CUstream s)
{
	CUgraph g;
	come_to_rest();
	struct said before = said_now();
	CHECK_EQ(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	CHECK_EQ(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL), CUDA_SUCCESS);
	CHECK_EQ(cuStreamEndCapture(s, &g), CUDA_SUCCESS);
	CHECK_EQ(cuGraphDestroy(g), CUDA_SUCCESS);
	struct said after = said_now();
	CHECK_EQ(after.launched, before.launched);
	CHECK_EQ(after.busy_ns, before.busy_ns);
}

static struct { /* what a thread does that has the context of another device, or none */
	CUcontext context;
	CUkernel kernel;
	CUdeviceptr to;
} far;

static void *far_copies(void *unused)
{
	CHECK_EQ(cuCtxSetCurrent(far.context), CUDA_SUCCESS);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(cuMemsetD8Async(far.to, 1, 256 * MI, tenant.stream[1]), CUDA_SUCCESS);
	return unused;
}

static void *far_kernels(void *unused)
{
	CHECK_EQ(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(cuLaunchKernel((CUfunction)(void *)far.kernel, 1, 1, 1, 32, 1, 1, 0, tenant.stream[1], NULL, NULL), CUDA_SUCCESS);
	return unused;
}

/* So many launches by that thread, which wait at the second device's gate and are charged to it as long as they took there. */
static void test_far(void *(*body)(void *))
{
	const struct alq_tel_grant *t = &arbiter.tel->slot[0].grant[1];
	for (int tries = 0;; tries++) {
		pthread_t thread;
		come_to_rest();
		struct said before = said_now();
		uint64_t launched = get(&t->launched);
		gate_close(&arbiter, 1);
		CHECK_EQ(pthread_create(&thread, NULL, body, NULL), 0);
		WAIT(get_seq(&t->wait_since_ns) != 0 || said_now().busy_ns != before.busy_ns);
		CHECK_EQ(said_now().busy_ns, before.busy_ns);
		gate_open(&arbiter, 1, UINT64_MAX - 1);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		come_to_rest();
		CHECK_EQ(get(&t->launched) - launched, 4);
		if (charged_right("cuLaunchKernel", &before, 4, 0, tries))
			return;
	}
}

static void test_other_devices(void)
{
	CUlibrary library;
	CHECK_EQ(cuCtxSetCurrent(tenant.context[1]), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&far.to, 256 * MI), CUDA_SUCCESS);
	CHECK_EQ(cuLibraryLoadData(&library, tenant_ptx, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	CHECK_EQ(cuLibraryGetKernel(&far.kernel, library, "busy_2ms"), CUDA_SUCCESS);
	far.context = tenant.context[0];
	test_far(far_copies);
	test_far(far_kernels);
	CHECK_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(far.to), CUDA_SUCCESS);
}

void test_launches(void)
{
	CUfunction f = tenant.kernel[0];
	CUstream s = tenant.stream[0];
	CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1, .hStream = s};
	CUDA_LAUNCH_PARAMS list[GRANTS] = {{0}};
	GATED(cuLaunchKernel, 1, f, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL);
	GATED(cuLaunchKernel_ptsz, 1, f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
	GATED(cuLaunchKernelEx, 1, &config, f, NULL, NULL);
	config.hStream = NULL;
	GATED(cuLaunchKernelEx_ptsz, 1, &config, f, NULL, NULL);
	GATED(cuLaunchCooperativeKernel, 1, f, 2, 1, 1, 32, 1, 1, 0, s, NULL);
	GATED(cuLaunchCooperativeKernel_ptsz, 1, f, 2, 1, 1, 32, 1, 1, 0, NULL, NULL);
	for (int g = 0; g < GRANTS; g++)
		list[g] = (CUDA_LAUNCH_PARAMS){.function = tenant.kernel[g], .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
					       .blockDimZ = 1, .hStream = tenant.stream[g]};
	GATED(cuLaunchCooperativeKernelMultiDevice, GRANTS, list, GRANTS, 0);
	CHECK_EQ(cuFuncSetBlockShape(f, 32, 1, 1), CUDA_SUCCESS);
	GATED(cuLaunch, 1, f);
	GATED(cuLaunchGrid, 1, f, 2, 2);
	GATED(cuLaunchGridAsync, 1, f, 4, 1, s);
	CUgraphExec x = graph_of_two();
	GATED(cuGraphUpload, 1, x, s);
	GATED(cuGraphUpload_ptsz, 1, x, NULL);
	GATED(cuGraphLaunch, 1, x, s);
	GATED(cuGraphLaunch_ptsz, 1, x, NULL);
	CHECK_EQ(cuGraphExecDestroy(x), CUDA_SUCCESS);
	test_uploaded();
	test_captured(f, s);
	test_other_devices();
}

/* --------------------------------------------------------------------------------------------------------------- copies */

#define N ((size_t)(16 * MI))
#define ROW ((size_t)4096)

static CUdeviceptr to, from, managed;
static void *host;
static CUarray array, array2;

static void buffers_make(void)
{
	CUDA_ARRAY_DESCRIPTOR d = {.Width = N, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
	CHECK_EQ(cuMemAlloc_v2(&to, N), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&from, N), CUDA_SUCCESS);
	CHECK_EQ(cuMemAllocManaged(&managed, N, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_EQ(cuMemHostAlloc(&host, N, 0), CUDA_SUCCESS);
	CHECK_EQ(cuArrayCreate_v2(&array, &d), CUDA_SUCCESS);
	CHECK_EQ(cuArrayCreate_v2(&array2, &d), CUDA_SUCCESS);
}

/* A call that waits, with its variant for threads' own streams; one in a stream, with its. */
#define SYNC(name, ...)                             \
	do {                                        \
		GATED_FOR(name, 1, true, __VA_ARGS__);\
		GATED_FOR(name##_ptds, 1, true, __VA_ARGS__);\
	} while (0)
#define ASYNC(name, ...)                                                                                                           \
	do {                                                                                                                       \
		GATED(name, 1, __VA_ARGS__, tenant.stream[0]);                                                                     \
		GATED(name##_ptsz, 1, __VA_ARGS__, NULL);                                                                          \
	} while (0)

static void test_lines(void)
{
	CUcontext c = tenant.context[0];
	SYNC(cuMemcpy, to, from, N);
	ASYNC(cuMemcpyAsync, to, from, N);
	SYNC(cuMemcpyPeer, to, c, from, c, N);
	ASYNC(cuMemcpyPeerAsync, to, c, from, c, N);
	SYNC(cuMemcpyHtoD_v2, to, host, N);
	ASYNC(cuMemcpyHtoDAsync_v2, to, host, N);
	SYNC(cuMemcpyDtoH_v2, host, from, N);
	ASYNC(cuMemcpyDtoHAsync_v2, host, from, N);
	SYNC(cuMemcpyDtoD_v2, to, from, N);
	ASYNC(cuMemcpyDtoDAsync_v2, to, from, N);
	SYNC(cuMemcpyDtoA_v2, array, 0, from, N);
	SYNC(cuMemcpyAtoD_v2, to, array, 0, N);
	SYNC(cuMemcpyHtoA_v2, array, 0, host, N);
	SYNC(cuMemcpyAtoH_v2, host, array, 0, N);
	SYNC(cuMemcpyAtoA_v2, array2, 0, array, 0, N);
	ASYNC(cuMemcpyHtoAAsync_v2, array, 0, host, N);
	ASYNC(cuMemcpyAtoHAsync_v2, host, array, 0, N);
}

static void test_shapes(void)
{
	CUDA_MEMCPY2D two = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .srcPitch = ROW, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			     .dstDevice = to, .dstPitch = ROW, .WidthInBytes = ROW, .Height = N / ROW};
	CUDA_MEMCPY3D three = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .srcPitch = ROW, .srcHeight = N / ROW / 4,
			       .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = host, .dstPitch = ROW, .dstHeight = N / ROW / 4, .WidthInBytes = ROW,
			       .Height = N / ROW / 4, .Depth = 4};
	CUDA_MEMCPY3D_PEER peer;
	memcpy(&peer, &three, sizeof(peer));
	peer.srcContext = peer.dstContext = tenant.context[0];
	SYNC(cuMemcpy2D_v2, &two);
	SYNC(cuMemcpy2DUnaligned_v2, &two);
	ASYNC(cuMemcpy2DAsync_v2, &two);
	SYNC(cuMemcpy3D_v2, &three);
	ASYNC(cuMemcpy3DAsync_v2, &three);
	SYNC(cuMemcpy3DPeer, &peer);
	ASYNC(cuMemcpy3DPeerAsync, &peer);
}

static void test_batches(void)
{
	CUdeviceptr dst[2] = {to, to + N / 2}, src[2] = {from, (CUdeviceptr)(uintptr_t)host};
	size_t sizes[2] = {N / 2, N / 2}, index = 0;
	CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CUDA_MEMCPY3D_BATCH_OP op = {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = from},
				     .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = (CUdeviceptr)(uintptr_t)host},
				     .extent = {ROW, N / ROW / 2, 2},
				     .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	ASYNC(cuMemcpyBatchAsync, dst, src, sizes, 2, &how, &index, 1, NULL);
	ASYNC(cuMemcpyBatchAsync_v2, dst, src, sizes, 2, &how, &index, 1);
	ASYNC(cuMemcpy3DBatchAsync, 1, &op, NULL, 0);
	ASYNC(cuMemcpy3DBatchAsync_v2, 1, &op, 0);
	ASYNC(cuMemPrefetchAsync, managed, N, 0);
	ASYNC(cuMemPrefetchAsync_v2, managed, N, here, 0);
	CUdeviceptr at[2] = {managed, managed + N / 2};
	ASYNC(cuMemPrefetchBatchAsync, at, sizes, 2, &here, &index, 1, 0);
	ASYNC(cuMemDiscardAndPrefetchBatchAsync, at, sizes, 2, &here, &index, 1, 0);
}

/* A block of LZ4 that is so many times the letter a; its length. */
static size_t block_of(uint8_t *at, size_t bytes)
{
	size_t rest = bytes - 1 - 5 - 4 - 15, n = 0;
	const uint8_t first[] = {0x1f, 'a', 1, 0}, last[] = {0x50, 'a', 'a', 'a', 'a', 'a'};
	memcpy(at, first, sizeof(first));
	for (n = sizeof(first); rest >= 255; rest -= 255)
		at[n++] = 255;
	at[n++] = (uint8_t)rest;
	memcpy(at + n, last, sizeof(last));
	return n + sizeof(last);
}

static void test_decompression(void)
{
	CUmemDecompressParams how = {.dstNumBytes = N, .dstActBytes = (cuuint32_t *)(uintptr_t)managed, .src = (void *)(uintptr_t)from,
				     .dst = (void *)(uintptr_t)to, .algo = CU_MEM_DECOMPRESS_ALGORITHM_LZ4};
	cuuint32_t written;
	size_t failed = 0;
	char text[16];
	how.srcNumBytes = block_of(host, N);
	CHECK_EQ(cuMemcpyHtoD_v2(from, host, how.srcNumBytes), CUDA_SUCCESS);
	GATED(cuMemBatchDecompressAsync, 1, &how, 1, 0, &failed, tenant.stream[0]);
	GATED(cuMemBatchDecompressAsync_ptsz, 1, &how, 1, 0, &failed, NULL);
	CHECK_EQ(cuMemcpyDtoH_v2(&written, managed, sizeof(written)), CUDA_SUCCESS);
	CHECK_EQ(written, N);
	CHECK_EQ(cuMemcpyDtoH_v2(text, to + N - sizeof(text), sizeof(text)), CUDA_SUCCESS);
	CHECK(memcmp(text, "aaaaaaaaaaaaaaaa", sizeof(text)) == 0);
	/* Also where the program does not say how much it will be. */
	how.dstNumBytes = 0;
	struct said before = said_now();
	CHECK_EQ(cuMemBatchDecompressAsync(&how, 1, 0, &failed, tenant.stream[0]), CUDA_SUCCESS);
	come_to_rest();
	CHECK_EQ(said_now().launched, before.launched + 1);
}

static void test_sets(void)
{
	SYNC(cuMemsetD8_v2, to, 1, N);
	SYNC(cuMemsetD16_v2, to, 1, N / 2);
	SYNC(cuMemsetD32_v2, to, 1, N / 4);
	SYNC(cuMemsetD2D8_v2, to, ROW, 1, ROW, N / ROW);
	SYNC(cuMemsetD2D16_v2, to, ROW, 1, ROW / 2, N / ROW);
	SYNC(cuMemsetD2D32_v2, to, ROW, 1, ROW / 4, N / ROW);
	ASYNC(cuMemsetD8Async, to, 1, N);
	ASYNC(cuMemsetD16Async, to, 1, N / 2);
	ASYNC(cuMemsetD32Async, to, 1, N / 4);
	ASYNC(cuMemsetD2D8Async, to, ROW, 1, ROW, N / ROW);
	ASYNC(cuMemsetD2D16Async, to, ROW, 1, ROW / 2, N / ROW);
	ASYNC(cuMemsetD2D32Async, to, ROW, 1, ROW / 4, N / ROW);
}

#define SMALL (MI / 2)
#define SMALLS 400

static void *small_copies(void *unused)
{
	CHECK_EQ(cuCtxSetCurrent(tenant.context[0]), CUDA_SUCCESS);
	for (int i = 0; i < SMALLS; i++)
		CHECK_EQ(cuMemcpyHtoDAsync_v2(to, host, SMALL, tenant.stream[0]), CUDA_SUCCESS);
	return unused;
}

/*
 * Such copies behind kernels that take longer than the host needs to queue them all: on a slow machine, or under a sanitizer, they would else end
 * sooner than the next is queued, and the device wait in between, which is measured with them. How long it needs shows in the tries.
 */
static bool queued_copies(int tries)
{
	struct alq_ctl_grant *c = &arbiter.ctl->grant[0];
	uint32_t ahead_ns = c->run_ahead_ns, share_ns = c->run_ahead_share_ns, kernels = tries < 64 ? 1 + (uint32_t)tries : 64;
	CUfunction kernel;
	CHECK_EQ(cuModuleGetFunction(&kernel, tenant.module[0], "busy_20ms"), CUDA_SUCCESS);
	put(&c->run_ahead_ns, 4000000000u); /* as good as none: all are queued */
	put(&c->run_ahead_share_ns, 4000000000u);
	struct said before = said_now();
	for (uint32_t i = 0; i < kernels; i++)
		CHECK_EQ(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, tenant.stream[0], NULL, NULL), CUDA_SUCCESS);
	small_copies(NULL);
	come_to_rest();
	put(&c->run_ahead_ns, ahead_ns);
	put(&c->run_ahead_share_ns, share_ns);
	before.launched += kernels, before.measured += kernels;
	before.busy_ns += kernels * 20 * NS_PER_MS, before.device_ns += kernels * 20 * NS_PER_MS;
	return charged_right("cuMemcpyHtoDAsync_v2", &before, SMALLS * SMALL / MI, 0, tries);
}

/* A small copy is not worth a lease; where they follow each other they are held, and charged as long as they all take. */
static void test_small(void)
{
	const struct alq_tel_grant *t = &arbiter.tel->slot[0].grant[0];
	pthread_t thread;
	struct said before = said_now();
	CHECK_EQ(cuMemcpyDtoD_v2(to, from, 4096), CUDA_SUCCESS);
	come_to_rest();
	CHECK_EQ(said_now().launched, before.launched);
	for (int tries = 0; !queued_copies(tries); tries++)
		;
	before = said_now();
	small_copies(NULL);
	come_to_rest();
	uint64_t each = (said_now().busy_ns - before.busy_ns) / SMALLS;
	before = said_now();
	gate_close(&arbiter, 0);
	CHECK_EQ(pthread_create(&thread, NULL, small_copies, NULL), 0);
	WAIT(get_seq(&t->wait_since_ns) != 0 || said_now().busy_ns - before.busy_ns > each * SMALLS / 2);
	CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK(said_now().busy_ns - before.busy_ns <= 3 * each);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	pthread_join(thread, NULL);
	come_to_rest();
}

void test_copies(void)
{
	buffers_make();
	test_lines();
	test_shapes();
	test_batches();
	test_decompression();
	test_sets();
	test_small();
}
