/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver-API program that does what it is told on its standard input, a line at a time, and says when it has done it:
 *
 *   launch N   runs N kernels of 1 ms and waits for them
 *   hold N     allocates N MiB more; answers `refused` if it may not
 *   lie        writes into its task's tel page that no process of it holds any memory
 *   graph N    runs a graph of N such kernels and waits for it
 *   see        answers the device's UUID, its total memory in MiB as cuMemGetInfo shows it, and how many devices there are
 *
 *   manage     answers the same as libnvidia-ml shows it
 *
 * It knows nothing of shares and finds the driver by its name. Called with the argument `table`, it asks the driver for every
 * function with cuGetProcAddress, as programs on the runtime library do.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "abi.h"
#include "cuda.h"
#include "nvml.h"

static int by_table;

static void check(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	printf("%s failed with error %d\n", what, (int)result);
	exit(1);
}

/* The name without its version, which cuGetProcAddress chooses by the driver's own. */
static void *from_table(CUresult (*table)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *), const char *name)
{
	char base[64];
	void *found = NULL;
	CUdriverProcAddressQueryResult how;
	snprintf(base, sizeof base, "%.*s", (int)(strstr(name, "_v2") ? strstr(name, "_v2") - name : (long)strlen(name)), name);
	check(table(base, &found, 12000, 0, &how), base);
	return found;
}

static void *find(const char *name)
{
	static void *driver;
	if (!driver && !(driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))) {
		printf("no driver: %s\n", dlerror());
		exit(1);
	}
	void *found = dlsym(driver, by_table ? "cuGetProcAddress_v2" : name);
	if (found && by_table)
		found = from_table((CUresult(*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))found, name);
	if (!found) {
		printf("no %s\n", name);
		exit(1);
	}
	return found;
}

#define CALL(name, type, ...) ((CUresult(*) type)find(name))(__VA_ARGS__)

static void launch(CUfunction function, CUstream stream, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		check(CALL("cuLaunchKernel",
			   (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
			    CUstream, void **, void **),
			   function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
		      "cuLaunchKernel");
}

static void graph(CUfunction function, uint64_t n)
{
	CUstream stream;
	CUgraph captured;
	CUgraphExec made;
	check(CALL("cuStreamCreate", (CUstream *, unsigned int), &stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	check(CALL("cuStreamBeginCapture_v2", (CUstream, CUstreamCaptureMode), stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
	launch(function, stream, n);
	check(CALL("cuStreamEndCapture", (CUstream, CUgraph *), stream, &captured), "cuStreamEndCapture");
	check(CALL("cuGraphInstantiateWithFlags", (CUgraphExec *, CUgraph, unsigned long long), &made, captured, 0), "cuGraphInstantiate");
	check(CALL("cuGraphLaunch", (CUgraphExec, CUstream), made, stream), "cuGraphLaunch");
	check(CALL("cuStreamSynchronize", (CUstream), stream), "cuStreamSynchronize");
	check(CALL("cuGraphExecDestroy", (CUgraphExec), made), "cuGraphExecDestroy");
	check(CALL("cuGraphDestroy", (CUgraph), captured), "cuGraphDestroy");
	check(CALL("cuStreamDestroy_v2", (CUstream), stream), "cuStreamDestroy");
}

/* What a management program sees. Its answers are 0 where the driver's are CUDA_SUCCESS. */
static void manage(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	nvmlDevice_t device;
	nvmlMemory_t memory;
	unsigned int count;
	char uuid[96];
#define ASK(name, type, ...) check((CUresult)((nvmlReturn_t(*) type)dlsym(library, name))(__VA_ARGS__), name)
	if (!library) {
		printf("no libnvidia-ml: %s\n", dlerror());
		exit(1);
	}
	ASK("nvmlInit_v2", (void), );
	ASK("nvmlDeviceGetCount_v2", (unsigned int *), &count);
	ASK("nvmlDeviceGetHandleByIndex_v2", (unsigned int, nvmlDevice_t *), 0, &device);
	ASK("nvmlDeviceGetUUID", (nvmlDevice_t, char *, unsigned int), device, uuid, sizeof uuid);
	ASK("nvmlDeviceGetMemoryInfo", (nvmlDevice_t, nvmlMemory_t *), device, &memory);
	printf("%s %llu %u\n", uuid, (unsigned long long)memory.total >> 20, count);
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

static void lie(void)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/tel", getenv("ALIQUOT_TASK"));
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct alq_tel *tel = mmap(NULL, sizeof *tel, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || tel == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	for (int slot = 0; slot < ALQ_MAX_PROCS; slot++) {
		__atomic_store_n(&tel->slot[slot].grant[0].mem_used, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&tel->slot[slot].grant[0].mem_overhead, 0, __ATOMIC_SEQ_CST);
	}
	munmap(tel, sizeof *tel);
	puts("lied");
}

int main(int argc, char **argv)
{
	static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry alq_busy_1000us()\n{\n\tret;\n}\n";
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction function;
	char line[256];
	uint64_t n;

	by_table = argc > 1 && !strcmp(argv[1], "table");
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
			launch(function, NULL, n);
			check(CALL("cuCtxSynchronize", (void), ), "cuCtxSynchronize");
			puts("launched");
		} else if (sscanf(line, "hold %" SCNu64, &n) == 1) {
			CUdeviceptr pointer;
			puts(CALL("cuMemAlloc_v2", (CUdeviceptr *, size_t), &pointer, n << 20) == CUDA_SUCCESS ? "held" : "refused");
		} else if (sscanf(line, "graph %" SCNu64, &n) == 1) {
			graph(function, n);
			puts("launched");
		} else if (strcmp(line, "lie\n") == 0) {
			lie();
		} else if (strcmp(line, "manage\n") == 0) {
			manage();
		} else if (strcmp(line, "see\n") == 0) {
			see();
		} else {
			puts("what?");
		}
	}
	return 0;
}
