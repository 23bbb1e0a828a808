/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs and capture. */
#include "simgpu/test/harness.h"

static float timed_launch(CUgraphExec x, CUstream s)
{
	CUevent from, to;
	float ms;
	OK(cuEventCreate(&from, 0));
	OK(cuEventCreate(&to, 0));
	struct gate g = gate_close(s);
	OK(cuEventRecord(from, s));
	OK(cuGraphLaunch(x, s));
	OK(cuEventRecord(to, s));
	gate_open(&g);
	OK(cuStreamSynchronize(s));
	OK(cuEventElapsedTime(&ms, from, to));
	return ms;
}

static void takes(CUgraphExec x, CUstream s, float ms)
{
	float took = timed_launch(x, s);
	if (took != ms)
		FAIL("the graph took %.9g ms, not %.9g", (double)took, (double)ms);
}

static CUDA_KERNEL_NODE_PARAMS kernel(CUfunction f, void **params)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = f, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
					 .kernelParams = params};
}

static void count(void *data)
{
	++*(int *)data;
}

static void built(void)
{
	struct bench b = bench_open();
	CUgraph g;
	CUgraphNode k1, k2, host, set, copy, join, deps[3];
	CUgraphExec x;
	CUdeviceptr p;
	int calls = 0;
	char back[16] = "";
	uint64_t ns = 300000;
	unsigned other = 0;
	void *params[] = {&other, &ns};
	OK(cuMemAlloc(&p, 4096));
	OK(cuGraphCreate(&g, 0));
	CUDA_KERNEL_NODE_PARAMS a = kernel(b.us500, NULL), t = kernel(b.timed, params);
	OK(cuGraphAddKernelNode(&k1, g, NULL, 0, &a));
	OK(cuGraphAddKernelNode(&k2, g, &k1, 1, &t));
	CUDA_HOST_NODE_PARAMS h = {.fn = count, .userData = &calls};
	OK(cuGraphAddHostNode(&host, g, &k1, 1, &h));
	CUDA_MEMSET_NODE_PARAMS m = {.dst = p, .value = 'z', .elementSize = 1, .width = 16, .height = 1};
	OK(cuGraphAddMemsetNode(&set, g, &k1, 1, &m, b.context));
	CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .WidthInBytes = 16,
			   .Height = 1, .Depth = 1};
	OK(cuGraphAddMemcpyNode(&copy, g, &set, 1, &c, b.context));
	deps[0] = k2, deps[1] = host, deps[2] = copy;
	OK(cuGraphAddEmptyNode(&join, g, deps, 3));
	size_t n = 0;
	OK(cuGraphGetNodes(g, NULL, &n));
	CHECK(n == 6);
	OK(cuGraphGetEdges(g, NULL, NULL, &n));
	CHECK(n == 7);
	OK(cuGraphInstantiate(&x, g, 0));
	for (int i = 1; i <= 3; i++) {
		memset(back, 0, sizeof back);
		OK(cuGraphLaunch(x, b.stream));
		OK(cuStreamSynchronize(b.stream));
		CHECK(calls == i && back[15] == 'z');
	}
	CHECK(record_now()->device[0].launches == 6);
	CUgraph circle;
	CUgraphNode one, two;
	OK(cuGraphCreate(&circle, 0));
	OK(cuGraphAddEmptyNode(&one, circle, NULL, 0));
	OK(cuGraphAddEmptyNode(&two, circle, &one, 1));
	OK(cuGraphAddDependencies(circle, &two, &one, 1));
	CUgraphExec none;
	IS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&none, circle, 0));
	OK(cuGraphDestroy(circle));
	OK(cuGraphExecDestroy(x));
	OK(cuGraphDestroy(g));
	IS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(g));
}

static void times(void)
{
	struct bench b = bench_open();
	CUgraph g, child;
	CUgraphNode n, inner, before = NULL;
	CUgraphExec x;
	CUDA_KERNEL_NODE_PARAMS a = kernel(b.us100, NULL);
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphCreate(&child, 0));
	OK(cuGraphAddKernelNode(&inner, child, NULL, 0, &a));
	OK(cuGraphAddKernelNode(&inner, child, &inner, 1, &a));
	for (int i = 0; i < 1500; i++) { /* more than the ring has entries */
		OK(cuGraphAddKernelNode(&n, g, before ? &before : NULL, before ? 1 : 0, &a));
		before = n;
	}
	OK(cuGraphAddChildGraphNode(&before, g, &n, 1, child));
	OK(cuGraphInstantiate(&x, g, 0));
	takes(x, b.stream, 150.2f);
	CHECK(record_now()->device[0].launches == 1502);
	CUDA_KERNEL_NODE_PARAMS longer = kernel(b.us500, NULL);
	OK(cuGraphExecKernelNodeSetParams(x, n, &longer));
	takes(x, b.stream, 150.6f);
	OK(cuGraphKernelNodeSetParams(n, &a));
	CUgraphExecUpdateResultInfo info;
	OK(cuGraphExecUpdate(x, g, &info));
	takes(x, b.stream, 150.2f);
	OK(cuGraphNodeSetEnabled(x, n, 0));
	takes(x, b.stream, 150.1f);
	IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(x, child, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

static void captured(void)
{
	struct bench b = bench_open();
	CUstream side;
	CUevent fork, join;
	CUgraph g;
	CUgraphExec x;
	CUstreamCaptureStatus status;
	cuuint64_t id;
	CUdeviceptr p;
	unsigned char back[8];
	OK(cuMemAlloc(&p, 64));
	OK(cuMemsetD8(p, 0, 64));
	OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&fork, 0));
	OK(cuEventCreate(&join, 0));
	OK(cuStreamBeginCapture(b.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch(b.us500, b.stream);
	OK(cuEventRecord(fork, b.stream));
	OK(cuStreamWaitEvent(side, fork, 0));
	OK(cuStreamIsCapturing(side, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	launch(b.us100, side);
	OK(cuMemsetD8Async(p, 7, 8, side));
	OK(cuEventRecord(join, side));
	launch(b.us100, b.stream);
	OK(cuStreamWaitEvent(b.stream, join, 0));
	launch(b.us100, b.stream);
	OK(cuStreamGetCaptureInfo(b.stream, &status, &id, NULL, NULL, NULL));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0);
	IS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(fork));
	IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(side, &g));
	IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(b.stream, &g));
	CHECK(g == NULL);

	OK(cuStreamBeginCapture(b.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch(b.us500, b.stream);
	OK(cuEventRecord(fork, b.stream));
	OK(cuStreamWaitEvent(side, fork, 0));
	launch(b.us100, side);
	OK(cuMemsetD8Async(p, 7, 8, side));
	OK(cuEventRecord(join, side));
	OK(cuStreamWaitEvent(b.stream, join, 0));
	launch(b.us100, b.stream);
	OK(cuStreamEndCapture(b.stream, &g));
	OK(cuStreamIsCapturing(side, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
	CHECK(record_now()->device[0].launches == 0); /* nothing ran yet */
	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	OK(cuGraphLaunch(x, b.stream));
	OK(cuStreamSynchronize(b.stream));
	CHECK(record_now()->device[0].launches == 3);
	OK(cuMemcpyDtoH(back, p, 8));
	CHECK(back[0] == 7 && back[7] == 7);
}

static void forbidden(void)
{
	struct bench b = bench_open();
	CUstream side, blocking;
	CUevent e;
	CUgraph g;
	CUdeviceptr p;
	OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuEventCreate(&e, 0));
	/* An unsafe call breaks a global capture ... */
	OK(cuStreamBeginCapture(b.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&p, 100));
	IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuLaunchKernel(b.us100, 1, 1, 1, 1, 1, 1, 0, b.stream, NULL, NULL));
	IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(b.stream, &g));
	/* ... not a relaxed one. */
	OK(cuStreamBeginCapture(b.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAlloc(&p, 100));
	IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(b.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	launch(b.us100, side); /* other streams run on */
	OK(cuStreamSynchronize(side));
	OK(cuStreamEndCapture(b.stream, &g));
	OK(cuGraphDestroy(g));
	/* Waiting for the stream that is captured. */
	OK(cuStreamBeginCapture(b.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(b.stream));
	IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(b.stream, &g));
	/* The legacy stream beside a blocking one that is captured. */
	OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuLaunchKernel(b.us100, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &g));
	IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	/* A stream that was drawn in and not joined. */
	OK(cuStreamBeginCapture(b.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	launch(b.us100, b.stream);
	OK(cuEventRecord(e, b.stream));
	OK(cuStreamWaitEvent(side, e, 0));
	launch(b.us100, side);
	IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(b.stream, &g));
	/* A captured stream that waits for what is not captured. */
	OK(cuEventRecord(e, side));
	OK(cuStreamBeginCapture(b.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(b.stream, e, 0));
	IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(b.stream, &g));
	IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(b.stream, &g));
}

const struct test graph_tests[] = {{"graphs built node by node", "h200", built},
				   {"a graph takes the time of its kernels", "h200", times},
				   {"capture across streams", "h200", captured},
				   {"what capture forbids", "h200", forbidden},
				   {0}};
