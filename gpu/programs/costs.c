/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of what calls cost and how well events tell the time. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "probe.h"

int probe_events(void)
{
	enum { TIMES = 200 };
	const uint64_t loops = 20000;
	struct device d;
	CUevent from, to;
	double empty[TIMES], kernel[TIMES], host[TIMES], record[TIMES];

	open_device(&d);
	CALL(cuEventCreate, &from, CU_EVENT_DEFAULT);
	CALL(cuEventCreate, &to, CU_EVENT_DEFAULT);
	for (int i = 0; i < TIMES + 10; i++) {
		int at = i < 10 ? 0 : i - 10; /* the first ten load the code and wake the device */
		float ms = 0;
		int64_t began = now_ns();
		CALL(cuEventRecord, from, d.stream);
		record[at] = (double)(now_ns() - began);
		CALL(cuEventRecord, to, d.stream);
		CALL(cuEventSynchronize, to);
		CALL(cuEventElapsedTime, &ms, from, to);
		empty[at] = ms * 1e3;
		began = now_ns();
		CALL(cuEventRecord, from, d.stream);
		launch_busy(&d, loops);
		CALL(cuEventRecord, to, d.stream);
		CALL(cuEventSynchronize, to);
		host[at] = (double)(now_ns() - began) / 1e3;
		CALL(cuEventElapsedTime, &ms, from, to);
		kernel[at] = ms * 1e3;
	}
	printf("{\"nothing_between_us\": %.2f, \"kernel_p1_us\": %.2f, \"kernel_p50_us\": %.2f, \"kernel_p99_us\": %.2f, "
	       "\"kernel_by_host_clock_us\": %.2f, \"record_ns\": %.0f}\n",
	       quantile(empty, TIMES, 0.5), quantile(kernel, TIMES, 0.01), quantile(kernel, TIMES, 0.5), quantile(kernel, TIMES, 0.99),
	       quantile(host, TIMES, 0.5), quantile(record, TIMES, 0.5));
	return 0;
}

/*
 * The driver's own function behind the shim, where this program has the shim: it is loaded then under a name that only the shim asks for. NULL
 * without one. What a call costs through the shim and past it is asked for in turns by the same process, because two processes differ by more
 * than the shim adds.
 */
static void *behind_the_shim(const char *name)
{
	void *driver = dlopen("libcuda-real.so.1", RTLD_NOLOAD | RTLD_LAZY);
	return driver ? dlsym(driver, name) : NULL;
}

enum { THROUGH, PAST, LOCKED, WAYS };

/* The median and the mean of what one call took, by each way there was, in ns; how much more than past the shim. */
static void print_costs(const char *what, double *ns[WAYS], int n, int ways)
{
	static const char *const word[WAYS] = {"", "_past_the_shim", "_locked"};
	double p50[WAYS], mean[WAYS] = {0, 0};
	for (int way = 0; way < ways; way++) {
		for (int i = 0; i < n; i++)
			mean[way] += ns[way][i] / n;
		p50[way] = quantile(ns[way], n, 0.5);
		printf("%s\"%s%s_p50_ns\": %.0f, \"%s%s_mean_ns\": %.0f, \"%s%s_p99_ns\": %.0f", way ? ", " : "", what, word[way], p50[way], what,
		       word[way], mean[way], what, word[way], quantile(ns[way], n, 0.99));
	}
	for (int way = 0; way < ways && ways > 1; way++)
		if (way != PAST)
			printf(", \"%s%s_more_p50_ns\": %.0f, \"%s%s_more_mean_ns\": %.0f", what, word[way], p50[way] - p50[PAST], what, word[way],
			       mean[way] - mean[PAST]);
}

/*
 * What a launch takes of its caller, the device's queue far from full: batches of eight with a wait between them. The third way is past the shim with
 * a locked instruction after each launch, as the shim's gate has one: it waits for what the launch has written to the device, which else goes on
 * beside the program.
 */
int probe_launch(void)
{
	enum { EACH = 8, TIMES = 2000 };
	static double ns[WAYS][TIMES], one[TIMES];
	static uint32_t word;
	double *all[WAYS] = {ns[THROUGH], ns[PAST], ns[LOCKED]};
	struct device d;
	uint64_t busy_ns = BUSY_US * 1000, loops = 1;
	void *args[] = {&busy_ns, &loops};

	open_device(&d);
	__typeof__(&cuLaunchKernel) past = (__typeof__(&cuLaunchKernel))behind_the_shim("cuLaunchKernel");
	__typeof__(&cuLaunchKernel) launch[WAYS] = {DRIVER(cuLaunchKernel), past, past};
	int ways = past ? WAYS : 1;
	for (int i = -10; i < TIMES; i++) /* the first load the code and wake the device */
		for (int k = 0; k < ways; k++) {
			int way = (i + 10 + k) % ways, at = i < 0 ? 0 : i; /* i begins at -10 */
			int64_t from = now_ns();
			check(launch[way](d.busy, 1, 1, 1, 1, 1, 1, 0, d.stream, args, NULL), "cuLaunchKernel");
			int64_t first = now_ns();
			for (int n = 1; n < EACH; n++) {
				check(launch[way](d.busy, 1, 1, 1, 1, 1, 1, 0, d.stream, args, NULL), "cuLaunchKernel");
				if (way == LOCKED)
					__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
			}
			ns[way][at] = (double)(now_ns() - first) / (EACH - 1);
			if (way == THROUGH)
				one[at] = (double)(first - from);
			CALL(cuStreamSynchronize, d.stream);
		}
	printf("{");
	print_costs("launch", all, TIMES, ways);
	printf(", \"first_after_idle_p50_ns\": %.0f}\n", quantile(one, TIMES, 0.5));
	return 0;
}

int probe_alloc(void)
{
	enum { TIMES = 500, BYTES = 4 << 20 };
	static double alloc[WAYS][TIMES], give[WAYS][TIMES], in_order[TIMES];
	double *allocs[WAYS] = {alloc[THROUGH], alloc[PAST]}, *gives[WAYS] = {give[THROUGH], give[PAST]};
	struct device d;
	size_t shown = 0, total = 0;

	open_device(&d);
	CALL(cuMemGetInfo, &shown, &total);
	__typeof__(&cuMemAlloc) take[WAYS] = {DRIVER(cuMemAlloc), (__typeof__(&cuMemAlloc))behind_the_shim(TEXT(cuMemAlloc))};
	__typeof__(&cuMemFree) leave[WAYS] = {DRIVER(cuMemFree), (__typeof__(&cuMemFree))behind_the_shim(TEXT(cuMemFree))};
	int ways = take[PAST] && leave[PAST] ? 2 : 1;
	for (int i = -10; i < TIMES; i++) {
		int at = i < 0 ? 0 : i;
		CUdeviceptr where;
		for (int k = 0; k < ways; k++) {
			int way = (i + k) & (ways - 1);
			int64_t t0 = now_ns();
			check(take[way](&where, BYTES), "cuMemAlloc");
			int64_t t1 = now_ns();
			check(leave[way](where), "cuMemFree");
			int64_t t2 = now_ns();
			alloc[way][at] = (double)(t1 - t0);
			give[way][at] = (double)(t2 - t1);
		}
		int64_t t2 = now_ns();
		CALL(cuMemAllocAsync, &where, BYTES, d.stream);
		CALL(cuMemFreeAsync, where, d.stream);
		in_order[at] = (double)(now_ns() - t2);
		CALL(cuStreamSynchronize, d.stream);
	}
	printf("{");
	print_costs("alloc", allocs, TIMES, ways);
	printf(", ");
	print_costs("free", gives, TIMES, ways);
	printf(", \"alloc_and_free_in_order_ns\": %.0f, \"free_bytes\": %zu, \"total_bytes\": %zu}\n", quantile(in_order, TIMES, 0.5), shown, total);
	return 0;
}
