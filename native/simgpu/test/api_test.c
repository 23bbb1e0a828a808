/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, looking up functions, modules, bad input. */
#include "simgpu/test/harness.h"

static void devices(void)
{
	int count, value;
	char name[64], bus[16];
	CUuuid a, b;
	CUdevice d;
	size_t bytes;
	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	CHECK(count == 3);
	OK(cuDeviceGetName(name, sizeof name, 0));
	CHECK(strcmp(name, "NVIDIA H200") == 0);
	OK(cuDeviceGetName(name, sizeof name, 2));
	CHECK(strcmp(name, "Tesla T4") == 0);
	OK(cuDeviceGetUuid(&a, 0));
	OK(cuDeviceGetUuid(&b, 1));
	CHECK(memcmp(&a, &b, sizeof a) != 0);
	OK(cuDeviceTotalMem(&bytes, 0));
	CHECK(bytes == (143771ull - 512) << 20);
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 2));
	CHECK(value == 7);
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	CHECK(value == 132);
	OK(cuDeviceGetPCIBusId(bus, sizeof bus, 1));
	OK(cuDeviceGetByPCIBusId(&d, bus));
	CHECK(d == 1);
	IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&d, 3));
	IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName(name, sizeof name, -1));
}

static void lookup(void)
{
	CUdriverProcAddressQueryResult status;
	void *f, *g;
	OK(cuGetProcAddress("cuMemAlloc", &f, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
	CHECK(f == (void *)cuMemAlloc && status == CU_GET_PROC_ADDRESS_SUCCESS); /* the plain name stands for _v2 */
	OK(cuGetProcAddress("cuLaunchKernel", &f, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
	OK(cuGetProcAddress("cuLaunchKernel", &g, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
	CHECK(f == (void *)cuLaunchKernel && g != f && g);
	OK(cuGetProcAddress("cuStreamGetCaptureInfo", &f, 10010, 0, &status));
	OK(cuGetProcAddress("cuStreamGetCaptureInfo", &g, 12030, 0, &status));
	CHECK(f != g);
	OK(cuGetProcAddress("cuLibraryLoadData", &f, 11000, 0, &status));
	CHECK(!f && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	OK(cuGetProcAddress("cuMakeCoffee", &f, 12000, 0, &status));
	CHECK(!f && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	IS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuMakeCoffee", &f, 12000, 0, NULL));
	CUresult (*old)(const char *, void **, int, cuuint64_t);
	OK(cuGetProcAddress("cuGetProcAddress", (void **)&old, 11030, 0, &status));
	OK(old("cuInit", &f, 11030, 0));
	CHECK(f == (void *)cuInit);
	const char *text;
	OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
	CHECK(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
	IS(CUDA_ERROR_INVALID_VALUE, cuGetErrorString((CUresult)12345, &text));
}

static void modules(void)
{
	struct bench b = bench_open();
	static const char *const bad[] = {"hello", "", ".version 7.0\n.target sm_50\n.address_size 64\n.entry f( {",
					  ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry f(.param .u99 x) { ret; }",
					  ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry f(.param .u32 x { ret; }",
					  ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry (.param .u32 x) { ret; }"};
	CUmodule m;
	CUfunction f;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		IS(bad[i][0] ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, bad[i]));
	IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&m, "\177ELF\2\1\1"));
	IS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&m, "/nonexistent.ptx"));
	IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&f, b.module, "absent"));
	unsigned count;
	OK(cuModuleGetFunctionCount(&count, b.module));
	CHECK(count == 5);
	size_t offset, size;
	OK(cuFuncGetParamInfo(b.plain, 1, &offset, &size));
	CHECK(offset == 16 && size == 24);
	IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(b.plain, 1, 1, 1, 1, 1, 1, 0, b.stream, NULL, NULL)); /* it has parameters */
	IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(b.us100, 0, 1, 1, 1, 1, 1, 0, b.stream, NULL, NULL));
	IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(b.us100, 1, 1, 1, 1025, 1, 1, 0, b.stream, NULL, NULL));
	IS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchCooperativeKernel(b.us100, 1u << 20, 1, 1, 32, 1, 1, 0, b.stream, NULL));
	OK(cuLaunchCooperativeKernel(b.us100, 132, 1, 1, 32, 1, 1, 0, b.stream, NULL));
	char block[40] = "";
	size_t bytes = sizeof block;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
	OK(cuLaunchKernel(b.plain, 1, 1, 1, 1, 1, 1, 0, b.stream, NULL, extra));
	CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .hStream = b.stream};
	OK(cuLaunchKernelEx(&config, b.us100, NULL, NULL));
	OK(cuStreamSynchronize(b.stream));
	CHECK(record_now()->device[0].launches == 3);
	OK(cuModuleUnload(b.module));
	IS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(b.module));
	IS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(b.us100, 1, 1, 1, 1, 1, 1, 0, b.stream, NULL, NULL));
}

static void libraries(void)
{
	struct bench b = bench_open();
	CUlibrary l;
	CUkernel k;
	CUfunction f;
	OK(cuLibraryLoadData(&l, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&k, l, "busy_500us"));
	OK(cuKernelGetFunction(&f, k));
	launch(f, b.stream);
	launch((CUfunction)k, b.stream);
	OK(cuStreamSynchronize(b.stream));
	CHECK(record_now()->device[0].busy_ns == 1000000);
	/* Without a context a kernel goes into a stream by the stream's, a function does not, and default streams are nobody's. */
	CUcontext popped;
	OK(cuCtxPopCurrent(&popped));
	launch((CUfunction)k, b.stream);
	IS(CUDA_ERROR_INVALID_CONTEXT, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, b.stream, NULL, NULL));
	IS(CUDA_ERROR_INVALID_CONTEXT, cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	OK(cuStreamSynchronize(b.stream));
	CHECK(record_now()->device[0].busy_ns == 1500000);
	OK(cuCtxPushCurrent(popped));
	IS(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&k, l, "absent"));
	OK(cuLibraryUnload(l));
	IS(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(l));
}

static void handles(void)
{
	struct bench b = bench_open();
	CUevent e, untimed;
	float ms;
	OK(cuEventCreate(&e, 0));
	OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	OK(cuEventQuery(e)); /* never recorded */
	IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, e, e));
	OK(cuEventRecord(e, b.stream));
	OK(cuEventRecord(untimed, b.stream));
	OK(cuStreamSynchronize(b.stream));
	OK(cuEventElapsedTime(&ms, e, e));
	CHECK(ms == 0);
	IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, e, untimed));
	OK(cuEventDestroy(e));
	IS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(e));
	OK(cuStreamDestroy(b.stream));
	IS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(b.stream));
	IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent((CUcontext)(uintptr_t)0x1234));
	for (int i = 0; i < 20000; i++) { /* more than there are slots: they come back */
		CUstream s;
		OK(cuStreamCreate(&s, 0));
		OK(cuStreamDestroy(s));
		OK(cuEventCreate(&e, 0));
		OK(cuEventDestroy(e));
	}
	CUcontext popped;
	OK(cuCtxPopCurrent(&popped));
	CHECK(popped == b.context);
	IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
	OK(cuCtxPushCurrent(popped));
	OK(cuCtxSynchronize());
}

/* A context ends with the last of its uses, where it is the thread's own. */
static void attached(void)
{
	struct bench b = bench_open();
	CUcontext same, other;
	OK(cuCtxAttach(&same, 0));
	CHECK(same == b.context);
	OK(cuCtxDetach(same));
	OK(cuCtxSynchronize());
	OK(cuCtxCreate(&other, 0, 0));
	IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDetach(b.context));
	OK(cuCtxDetach(other));
	IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(other));
	OK(cuCtxSetCurrent(b.context));
	OK(cuCtxDetach(b.context));
	IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
}

const struct test api_tests[] = {{"devices", "h200x2,t4", devices},
				 {"functions by name and version", NULL, lookup},
				 {"modules and launches", "h200", modules},
				 {"libraries", "h200", libraries},
				 {"handles", "h200", handles},
				 {"contexts attached", "h200", attached},
				 {0}};
