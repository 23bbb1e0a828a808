/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver-API program that does what it is told on its standard input, a line at a time, and says when it has done it:
 *
 *   launch N   runs N kernels of 1 ms and waits for them
 *   hold N     allocates N MiB more; answers `refused` if it may not
 *   see        answers the device's UUID, its total memory in MiB as cuMemGetInfo shows it, and how many devices there are
 *
 * It knows nothing of shares and finds the driver by its name.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

static void *find(const char *name)
{
	static void *driver;
	if (!driver && !(driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))) {
		printf("no driver: %s\n", dlerror());
		exit(1);
	}
	void *found = dlsym(driver, name);
	if (!found) {
		printf("no %s\n", name);
		exit(1);
	}
	return found;
}

#define CALL(name, type, ...) ((CUresult(*) type)find(name))(__VA_ARGS__)

static void check(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	printf("%s failed with error %d\n", what, (int)result);
	exit(1);
}

static void see(void)
{
	CUuuid id;
	CUdevice device;
	size_t free_bytes, total;
	int count;
	check(CALL("cuDeviceGetCount", (int *), &count), "cuDeviceGetCount");
	check(CALL("cuDeviceGet", (CUdevice *, int), &device, 0), "cuDeviceGet");
	check(CALL("cuDeviceGetUuid", (CUuuid *, CUdevice), &id, device), "cuDeviceGetUuid");
	check(CALL("cuMemGetInfo_v2", (size_t *, size_t *), &free_bytes, &total), "cuMemGetInfo");
	printf("GPU-");
	for (int i = 0; i < 16; i++)
		printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)id.bytes[i]);
	printf(" %zu %d\n", total >> 20, count);
}

int main(void)
{
	static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry alq_busy_1000us()\n{\n\tret;\n}\n";
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction function;
	char line[256];
	uint64_t n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	check(CALL("cuInit", (unsigned int), 0), "cuInit");
	check(CALL("cuDeviceGet", (CUdevice *, int), &device, 0), "cuDeviceGet");
	check(CALL("cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice), &context, device), "cuDevicePrimaryCtxRetain");
	check(CALL("cuCtxSetCurrent", (CUcontext), context), "cuCtxSetCurrent");
	check(CALL("cuModuleLoadData", (CUmodule *, const void *), &module, ptx), "cuModuleLoadData");
	check(CALL("cuModuleGetFunction", (CUfunction *, CUmodule, const char *), &function, module, "alq_busy_1000us"), "cuModuleGetFunction");
	puts("ready");
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "launch %" SCNu64, &n) == 1) {
			for (uint64_t i = 0; i < n; i++)
				check(CALL("cuLaunchKernel",
					   (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
					    unsigned int, CUstream, void **, void **),
					   function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
				      "cuLaunchKernel");
			check(CALL("cuCtxSynchronize", (void), ), "cuCtxSynchronize");
			puts("launched");
		} else if (sscanf(line, "hold %" SCNu64, &n) == 1) {
			CUdeviceptr pointer;
			puts(CALL("cuMemAlloc_v2", (CUdeviceptr *, size_t), &pointer, n << 20) == CUDA_SUCCESS ? "held" : "refused");
		} else if (strcmp(line, "see\n") == 0) {
			see();
		} else {
			puts("what?");
		}
	}
	return 0;
}
