/* SPDX-License-Identifier: Apache-2.0 */
/* Time on the device: exact, in the order that streams and events allow. */
#include "simgpu/test/harness.h"

#include <pthread.h>
#include <sched.h>

static float elapsed(CUevent from, CUevent to)
{
	float ms;
	OK(cuEventSynchronize(to));
	OK(cuEventElapsedTime(&ms, from, to));
	return ms;
}

static CUevent event(void)
{
	CUevent e;
	OK(cuEventCreate(&e, 0));
	return e;
}

static void durations(void)
{
	struct bench b = bench_open();
	CUevent e[5];
	for (int i = 0; i < 5; i++)
		e[i] = event();
	struct gate g = gate_close(b.stream);
	OK(cuEventRecord(e[0], b.stream));
	for (int i = 0; i < 20; i++)
		launch(b.us500, b.stream);
	OK(cuEventRecord(e[1], b.stream));
	unsigned a = 1;
	char block[24] = "";
	void *params[] = {&a, block};
	OK(cuLaunchKernel(b.plain, 1, 1, 1, 1, 1, 1, 0, b.stream, params, NULL));
	OK(cuEventRecord(e[2], b.stream));
	launch_ns(b.timed, 1234567, b.stream);
	OK(cuEventRecord(e[3], b.stream));
	launch_ns(b.timed, 1, b.stream); /* the least there is */
	OK(cuEventRecord(e[4], b.stream));
	IS(CUDA_ERROR_NOT_READY, cuEventQuery(e[4]));
	IS(CUDA_ERROR_NOT_READY, cuStreamQuery(b.stream));
	gate_open(&g);
	OK(cuStreamSynchronize(b.stream));
	OK(cuStreamQuery(b.stream));
	CHECK(elapsed(e[0], e[1]) == 10.0f);
	CHECK(elapsed(e[1], e[2]) == 0.01f);
	CHECK(elapsed(e[2], e[3]) == 1.234567f);
	CHECK(elapsed(e[3], e[4]) == 0.002f);
	struct sim_record *r = record_now();
	CHECK(r->device[0].busy_ns == 10000000 + 10000 + 1234567 + 2000);
	CHECK(r->device[0].launches == 23);
	CHECK(r->row[0].pid == getpid() && r->row[0].busy_ns == r->device[0].busy_ns);
}

static void default_streams(void)
{
	struct bench b = bench_open();
	CUstream blocking, other;
	CUevent behind = event(), beside = event(), after = event();
	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
	struct gate g = gate_close(blocking);
	launch(b.us100, NULL);
	OK(cuEventRecord(behind, NULL));   /* the legacy stream waits for the blocking one */
	launch(b.us100, other);
	OK(cuEventRecord(after, other));   /* and another blocking one for the legacy one */
	launch(b.us100, b.stream);
	OK(cuEventRecord(beside, b.stream)); /* this one for nobody */
	OK(cuEventSynchronize(beside));
	IS(CUDA_ERROR_NOT_READY, cuEventQuery(behind));
	IS(CUDA_ERROR_NOT_READY, cuEventQuery(after));
	gate_open(&g);
	OK(cuEventSynchronize(after));
	OK(cuEventQuery(behind));
	CHECK(elapsed(beside, behind) > 0);
}

static void events_across(void)
{
	struct bench b = bench_open();
	CUstream second;
	CUcontext there;
	CUmodule module;
	CUfunction f;
	CUstream far;
	CUevent here = event(), done = event();
	OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	struct gate g = gate_close(b.stream);
	launch(b.us500, b.stream);
	OK(cuEventRecord(here, b.stream));
	OK(cuStreamWaitEvent(second, here, 0));
	launch(b.us100, second);
	OK(cuEventRecord(done, second));
	/* and across devices */
	OK(cuCtxCreate(&there, 0, 1));
	OK(cuModuleLoadData(&module, kernels_ptx));
	OK(cuModuleGetFunction(&f, module, "busy_100us"));
	OK(cuStreamCreate(&far, CU_STREAM_NON_BLOCKING));
	CUevent far_done = event();
	OK(cuStreamWaitEvent(far, here, 0));
	launch(f, far);
	OK(cuEventRecord(far_done, far));
	IS(CUDA_ERROR_NOT_READY, cuEventQuery(far_done));
	IS(CUDA_ERROR_NOT_READY, cuEventQuery(done));
	gate_open(&g);
	OK(cuEventSynchronize(far_done));
	OK(cuEventQuery(here));
	OK(cuCtxPopCurrent(NULL));
	CHECK(elapsed(here, done) == 0.1f);
	struct sim_record *r = record_now();
	CHECK(r->device[0].busy_ns == 600000 && r->device[1].busy_ns == 100000);
}

static void priorities(void)
{
	struct bench b = bench_open();
	CUstream high;
	int least, greatest, is;
	OK(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(greatest < least);
	OK(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, greatest));
	OK(cuStreamGetPriority(high, &is));
	CHECK(is == greatest);
	CUevent begin = event(), low_done = event(), high_done = event();
	/* One gate for both: of two the device is told one after the other, the second however late. */
	struct gate g = gate_close(b.stream);
	OK(cuEventRecord(begin, b.stream));
	OK(cuStreamWaitEvent(high, begin, 0));
	launch(b.us500, b.stream);
	launch(b.us500, b.stream);
	OK(cuEventRecord(low_done, b.stream));
	launch(b.us500, high);
	OK(cuEventRecord(high_done, high));
	gate_open(&g);
	OK(cuCtxSynchronize());
	CHECK(elapsed(high_done, low_done) > 0);
}

static void values(void)
{
	struct bench b = bench_open();
	uint32_t *word;
	OK(cuMemHostAlloc((void **)&word, 4096, 0));
	CUdeviceptr at = (uintptr_t)word;
	/* Written in the order of the stream, seen without any call. */
	launch(b.us100, b.stream);
	OK(cuStreamWriteValue32(b.stream, at, 7, 0));
	OK(cuStreamWriteValue64(b.stream, at + 8, 1ull << 40, 0));
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != 7 || __atomic_load_n((uint64_t *)(word + 2), __ATOMIC_ACQUIRE) != 1ull << 40)
		sched_yield();
	/* Waited for, and given by the host. */
	OK(cuStreamWaitValue32(b.stream, at + 4, 5, CU_STREAM_WAIT_VALUE_GEQ));
	launch(b.us100, b.stream);
	IS(CUDA_ERROR_NOT_READY, cuStreamQuery(b.stream));
	__atomic_store_n(word + 1, 6, __ATOMIC_SEQ_CST);
	OK(cuStreamSynchronize(b.stream));
	/* Waited for in one stream, given by another. */
	CUstream other;
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuStreamWaitValue32(b.stream, at + 16, 3, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWriteValue32(other, at + 16, 3, 0));
	OK(cuStreamSynchronize(b.stream));
	CUstreamBatchMemOpParams ops[2] = {{.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = at + 20, .value = 9}},
					   {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = at + 20, .value = 9}}};
	OK(cuStreamBatchMemOp(b.stream, 2, ops, 0));
	OK(cuStreamSynchronize(b.stream));
	CHECK(__atomic_load_n(word + 5, __ATOMIC_ACQUIRE) == 9);
	IS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(b.stream, 2, 7, 0));
}

static void count(void *data)
{
	++*(int *)data;
}

static void called(CUstream s, CUresult status, void *data)
{
	(void)s;
	*(int *)data = status == CUDA_SUCCESS ? *(int *)data + 1 : -1;
}

static void host_functions(void)
{
	struct bench b = bench_open();
	int n = 0;
	for (int i = 0; i < 50; i++) {
		OK(cuLaunchHostFunc(b.stream, count, &n));
		launch(b.us100, b.stream);
		OK(cuStreamAddCallback(b.stream, called, &n, 0));
	}
	OK(cuStreamSynchronize(b.stream));
	CHECK(n == 100);
}

static void full_ring(void)
{
	struct bench b = bench_open();
	for (int i = 0; i < 5000; i++)
		launch_ns(b.timed, 3000, b.stream);
	OK(cuCtxSynchronize());
	CHECK(record_now()->device[0].busy_ns == 15000000);
}

static struct bench shared;

/* Launches, waits, allocates and copies like the others, on a stream of its own and on its thread's default one. */
static void *work(void *arg)
{
	CUdeviceptr p;
	CUstream s;
	uint32_t in = (uint32_t)(uintptr_t)arg, out = 0;
	OK(cuCtxSetCurrent(shared.context));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 50; i++) {
		OK(cuMemAllocAsync(&p, 4096, s));
		OK(cuMemsetD32Async(p, in, 1024, s));
		launch(shared.us100, s);
		OK(cuLaunchHostFunc(CU_STREAM_PER_THREAD, count, &out));
		OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
		CHECK(out == 1);
		OK(cuMemcpyDtoHAsync(&out, p, sizeof out, s)); /* pageable: it has moved when the call returns */
		CHECK(out == in);
		out = 0;
		OK(cuMemFreeAsync(p, s));
		OK(cuStreamSynchronize(s));
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[8];
	shared = bench_open();
	for (uintptr_t i = 0; i < 8; i++)
		CHECK(pthread_create(&thread[i], NULL, work, (void *)(i + 10)) == 0);
	for (int i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
	CHECK(record_now()->device[0].launches == 400);
	OK(cuCtxDestroy(shared.context));
}

const struct test time_tests[] = {{"durations are exact", "h200", durations},
				  {"default streams wait as they should", "h200", default_streams},
				  {"events order streams and devices", "h200x2", events_across},
				  {"priorities", "h200", priorities},
				  {"values in memory", "h200", values},
				  {"functions on the host", "h200", host_functions},
				  {"more launches than the ring holds", "h200", full_ring},
				  {"threads of a process", "h200", threads},
				  {0}};
