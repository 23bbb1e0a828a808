/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of how calls behave: addresses of symbols, stream capture, the virtual memory API. */
#include <string.h>

#include "probe.h"

/* Names that programs look up, with the version of CUDA that they say: what the shim swaps is found by these addresses. */
static const struct {
	const char *asked; /* cuGetProcAddress takes names without a version */
	const char *exported;
} symbols[] = {
	{"cuLaunchKernel", "cuLaunchKernel"},
	{"cuLaunchKernelEx", "cuLaunchKernelEx"},
	{"cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel"},
	{"cuGraphLaunch", "cuGraphLaunch"},
	{"cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags"},
	{"cuMemAlloc", "cuMemAlloc_v2"},
	{"cuMemFree", "cuMemFree_v2"},
	{"cuMemAllocPitch", "cuMemAllocPitch_v2"},
	{"cuMemAllocManaged", "cuMemAllocManaged"},
	{"cuMemAllocAsync", "cuMemAllocAsync"},
	{"cuMemCreate", "cuMemCreate"},
	{"cuMemGetInfo", "cuMemGetInfo_v2"},
	{"cuDeviceTotalMem", "cuDeviceTotalMem_v2"},
	{"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2"},
	{"cuMemsetD8Async", "cuMemsetD8Async"},
	{"cuStreamBeginCapture", "cuStreamBeginCapture_v2"},
	{"cuStreamSynchronize", "cuStreamSynchronize"},
	{"cuEventRecord", "cuEventRecord"},
	{"cuGetProcAddress", "cuGetProcAddress_v2"},
};

int probe_symbols(void)
{
	int equal = 0, version = 0;
	const int count = (int)(sizeof symbols / sizeof *symbols);
	CALL(cuInit, 0);
	CALL(cuDriverGetVersion, &version);
	__typeof__(&cuGetProcAddress_v2) ask = (__typeof__(ask))find("cuGetProcAddress_v2");
	printf("{\"driver_api\": %d, \"differ\": [", version);
	for (int i = 0; i < count; i++) {
		void *by_address = NULL, *by_name = find_if_any(symbols[i].exported);
		CUdriverProcAddressQueryResult found = 0;
		CUresult result = ask(symbols[i].asked, &by_address, CUDA_VERSION, 0, &found);
		if (result == CUDA_SUCCESS && by_address && by_address == by_name)
			equal++;
		else
			printf("%s\"%s\"", i > equal ? ", " : "", symbols[i].exported);
	}
	printf("], \"equal\": %d, \"asked\": %d}\n", equal, count);
	return 0;
}

int probe_capture(void)
{
	enum { LAUNCHES = 16, TIMES = 200 };
	struct device d;
	CUgraph graph;
	CUgraphExec exec;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	size_t nodes = 0, shown = 0, total = 0;
	double host[TIMES];

	open_device(&d);
	CALL(cuStreamBeginCapture, d.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
	for (int i = 0; i < LAUNCHES; i++)
		launch_busy(&d, 1);
	CALL(cuStreamIsCapturing, d.stream, &status);
	/* The shim asks for memory figures of its own at odd moments: do such calls end a capture? */
	CUresult info = DRIVER(cuMemGetInfo)(&shown, &total);
	CALL(cuStreamEndCapture, d.stream, &graph);
	CALL(cuGraphGetNodes, graph, NULL, &nodes);
	CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
	CALL(cuGraphUpload, exec, d.stream);
	CALL(cuStreamSynchronize, d.stream);
	for (int i = 0; i < TIMES; i++) {
		int64_t from = now_ns();
		CALL(cuGraphLaunch, exec, d.stream);
		host[i] = (double)(now_ns() - from);
		CALL(cuStreamSynchronize, d.stream);
	}
	printf("{\"launches\": %d, \"nodes\": %zu, \"capturing\": %d, \"cuMemGetInfo_during\": %d, \"graph_launch_ns\": %.0f}\n", LAUNCHES,
	       nodes, status == CU_STREAM_CAPTURE_STATUS_ACTIVE, (int)info, quantile(host, TIMES, 0.5));
	CALL(cuGraphExecDestroy, exec);
	CALL(cuGraphDestroy, graph);
	return nodes == LAUNCHES ? 0 : 1;
}

/* What parking will do: physical memory behind an address is taken away and comes back, there and elsewhere, with its content. */
int probe_vmm(void)
{
	struct device d;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	size_t least = 0, best = 0, size = 64 << 20, before = 0, during = 0, after = 0, total = 0;
	unsigned int there = 0, elsewhere = 0;

	open_device(&d);
	prop.location.id = access.location.id = d.device;
	CALL(cuMemGetAllocationGranularity, &least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	CALL(cuMemGetAllocationGranularity, &best, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
	if (least == 0 || size % least)
		refuse("a granularity of %zu bytes does not divide %zu", least, size);
	CALL(cuMemGetInfo, &before, &total);
	CALL(cuMemAddressReserve, &at, 2 * size, 0, 0, 0);
	CALL(cuMemCreate, &handle, size, &prop, 0);
	CALL(cuMemGetInfo, &during, &total);
	CALL(cuMemMap, at, size, 0, handle, 0);
	CALL(cuMemSetAccess, at, size, &access, 1);
	CALL(cuMemsetD32, at, 0xa110c8ed, size / 4);
	CALL(cuCtxSynchronize);
	int64_t t0 = now_ns();
	CALL(cuMemUnmap, at, size);
	int64_t t1 = now_ns();
	CALL(cuMemMap, at, size, 0, handle, 0);
	CALL(cuMemSetAccess, at, size, &access, 1);
	int64_t t2 = now_ns();
	CALL(cuMemcpyDtoH, &there, at + size - 4, 4);
	CALL(cuMemUnmap, at, size);
	CALL(cuMemMap, at + size, size, 0, handle, 0);
	CALL(cuMemSetAccess, at + size, size, &access, 1);
	CALL(cuMemcpyDtoH, &elsewhere, at + size, 4);
	CALL(cuMemUnmap, at + size, size);
	CALL(cuMemRelease, handle);
	CALL(cuMemAddressFree, at, 2 * size);
	CALL(cuMemGetInfo, &after, &total);
	printf("{\"granularity\": %zu, \"recommended\": %zu, \"kept\": %s, \"kept_elsewhere\": %s, \"unmap_us\": %.1f, \"map_us\": %.1f, "
	       "\"created_bytes\": %zu, \"free_fell_by\": %lld, \"not_given_back\": %lld}\n",
	       least, best, there == 0xa110c8ed ? "true" : "false", elsewhere == 0xa110c8ed ? "true" : "false", (double)(t1 - t0) / 1e3,
	       (double)(t2 - t1) / 1e3, size, (long long)before - (long long)during, (long long)before - (long long)after);
	return there == 0xa110c8ed && elsewhere == 0xa110c8ed ? 0 : 1;
}
