/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of how calls behave: addresses of symbols, stream capture, the virtual memory API. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "probe.h"

/* Every function that the shim stands in for, as native/shim/paths.def has it: found is one by these names, versions and variants. */
static const struct hook {
	const char *symbol, *base;
	int version;
	int per_thread; /* the variant for per-thread default streams */
} hooks[] = {
#define HOOK(symbol, base, version, ptsz, how) {#symbol, base, version, ptsz},
#define REFUSED(symbol, base, version, why) {#symbol, base, version, 0}, /* through HOOK, cuda.h would make a newer name of it */
#include "shim/paths.def"
};

/* All names of paths.def, those included that the shim passes on. */
static const char *const entries[] = {
#define HOOK(symbol, base, version, ptsz, how) #symbol,
#define REFUSED(symbol, base, version, why) #symbol,
#define PASSED(symbol, why) #symbol,
#include "shim/paths.def"
};

int probe_entries(void)
{
	Dl_info from;
	if (!dladdr(find("cuInit"), &from))
		refuse("the loader does not say where cuInit is from");
	printf("{\"library\": \"%s\", \"entries\": [", from.dli_fname);
	for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
		printf("%s\"%s\"", i ? ", " : "", entries[i]);
	printf("]}\n");
	return 0;
}

/* What of a hook the driver has. */
enum having { EQUAL, DIFFERENT, BY_NAME_ONLY, LACKED, HAVINGS };

static enum having compare(const struct hook *h, __typeof__(&cuGetProcAddress_v2) ask)
{
	void *by_address = NULL, *by_name = find_if_any(h->symbol);
	cuuint64_t flags = h->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
	CUdriverProcAddressQueryResult found = 0;
	CUresult result = ask(h->base, &by_address, h->version, flags, &found);
	if (result != CUDA_SUCCESS || !by_address)
		return by_name ? BY_NAME_ONLY : LACKED;
	return by_address == by_name ? EQUAL : DIFFERENT;
}

int probe_symbols(void)
{
	static const char *const words[HAVINGS] = {NULL, "differ", "by_name_only", "lacked"};
	const size_t count = sizeof hooks / sizeof *hooks;
	enum having have[sizeof hooks / sizeof *hooks];
	int version = 0, of[HAVINGS] = {0};
	CALL(cuInit, 0);
	CALL(cuDriverGetVersion, &version);
	__typeof__(&cuGetProcAddress_v2) ask = (__typeof__(ask))find("cuGetProcAddress_v2");
	for (size_t i = 0; i < count; i++)
		of[have[i] = compare(&hooks[i], ask)]++;
	printf("{\"driver_api\": %d, \"asked\": %zu, \"equal\": %d", version, count, of[EQUAL]);
	for (int w = 1; w < HAVINGS; w++) {
		int said = 0;
		printf(", \"%s\": [", words[w]);
		for (size_t i = 0; i < count; i++)
			if ((int)have[i] == w)
				printf("%s\"%s\"", said++ ? ", " : "", hooks[i].symbol);
		printf("]");
	}
	printf("}\n");
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
