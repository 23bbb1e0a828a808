/* SPDX-License-Identifier: Apache-2.0 */
/* memory: takes device memory in every way of its own that a share is charged for, and gives it back, until it is ended. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda.h"

#define STEP ((size_t)8 << 20)

static void check(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) {
		printf("%s failed with error %d\n", what, (int)result);
		exit(1);
	}
}

int main(void)
{
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUmemAllocationProp pinned = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};

	check(cuInit(0), "cuInit");
	check(cuDeviceGet(&device, 0), "cuDeviceGet");
	pinned.location.id = device;
	check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
	check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	for (;;) {
		CUmemGenericAllocationHandle handle;
		CUdeviceptr pooled, plain;
		CUresult made = cuMemCreate(&handle, STEP, &pinned, 0), took = cuMemAllocAsync(&pooled, STEP, stream), plainly = cuMemAlloc(&plain, STEP);
		check(made, "cuMemCreate");
		check(took, "cuMemAllocAsync");
		check(plainly, "cuMemAlloc");
		if (made == CUDA_SUCCESS)
			check(cuMemRelease(handle), "cuMemRelease");
		if (took == CUDA_SUCCESS)
			check(cuMemFreeAsync(pooled, stream), "cuMemFreeAsync");
		if (plainly == CUDA_SUCCESS)
			check(cuMemFree(plain), "cuMemFree");
		check(cuStreamSynchronize(stream), "cuStreamSynchronize");
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
}
