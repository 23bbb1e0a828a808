/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot-probe: what a program with a share sees of its device. `aliquot doctor` starts it as a workload and compares what it
 * prints with the share: a line of JSON with the number of devices and the first one's memory, after a kernel has run there. It
 * finds the driver as unmodified programs do, by name.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

static void *driver;

static void fail(const char *what, CUresult result)
{
	fprintf(stderr, "aliquot-probe: %s failed with error %d\n", what, (int)result);
	exit(1);
}

static void *find(const char *name)
{
	void *found = dlsym(driver, name);
	if (!found) {
		fprintf(stderr, "aliquot-probe: the driver has no %s: %s\n", name, dlerror());
		exit(1);
	}
	return found;
}

#define CALL(name, type, ...)                                     \
	do {                                                      \
		CUresult result = ((type)find(name))(__VA_ARGS__); \
		if (result != CUDA_SUCCESS)                       \
			fail(name, result);                       \
	} while (0)

typedef CUresult (*init_fn)(unsigned int);
typedef CUresult (*count_fn)(int *);
typedef CUresult (*device_fn)(CUdevice *, int);
typedef CUresult (*context_fn)(CUcontext *, CUdevice);
typedef CUresult (*current_fn)(CUcontext);
typedef CUresult (*info_fn)(size_t *, size_t *);
typedef CUresult (*module_fn)(CUmodule *, const void *);
typedef CUresult (*function_fn)(CUfunction *, CUmodule, const char *);
typedef CUresult (*launch_fn)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
			      unsigned int, CUstream, void **, void **);
typedef CUresult (*sync_fn)(void);

/* The name says for how long the simulated driver runs it; a real one is done with it at once. */
static const char ptx[] = ".version 6.0\n"
			  ".target sm_50\n"
			  ".address_size 64\n"
			  ".visible .entry alq_busy_100us()\n"
			  "{\n"
			  "	ret;\n"
			  "}\n";

int main(void)
{
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction function;
	size_t free_bytes = 0, total = 0;
	int count = 0;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		fprintf(stderr, "aliquot-probe: %s\n", dlerror());
		return 1;
	}
	CALL("cuInit", init_fn, 0);
	CALL("cuDeviceGetCount", count_fn, &count);
	CALL("cuDeviceGet", device_fn, &device, 0);
	CALL("cuDevicePrimaryCtxRetain", context_fn, &context, device);
	CALL("cuCtxSetCurrent", current_fn, context);
	CALL("cuModuleLoadData", module_fn, &module, ptx);
	CALL("cuModuleGetFunction", function_fn, &function, module, "alq_busy_100us");
	CALL("cuLaunchKernel", launch_fn, function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	CALL("cuCtxSynchronize", sync_fn);
	CALL("cuMemGetInfo_v2", info_fn, &free_bytes, &total);
	printf("{\"devices\": %d, \"total\": %zu, \"free\": %zu}\n", count, total, free_bytes);
	return 0;
}
