/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of what calls cost and how well events tell the time. */
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

/* The CPU time that a launch takes of its caller, the device's queue far from full: batches of eight with a wait between them. */
int probe_launch(void)
{
	enum { EACH = 8, TIMES = 1000 };
	struct device d;
	static double ns[TIMES], one[TIMES];

	open_device(&d);
	for (int i = 0; i < TIMES; i++) {
		int64_t from = now_ns();
		launch_busy(&d, 1);
		int64_t first = now_ns();
		for (int k = 1; k < EACH; k++)
			launch_busy(&d, 1);
		ns[i] = (double)(now_ns() - first) / (EACH - 1);
		one[i] = (double)(first - from);
		CALL(cuStreamSynchronize, d.stream);
	}
	printf("{\"launch_p50_ns\": %.0f, \"launch_p99_ns\": %.0f, \"first_after_idle_p50_ns\": %.0f}\n", quantile(ns, TIMES, 0.5),
	       quantile(ns, TIMES, 0.99), quantile(one, TIMES, 0.5));
	return 0;
}

int probe_alloc(void)
{
	enum { TIMES = 300 };
	struct device d;
	double alloc[TIMES], give[TIMES], in_order[TIMES];
	size_t shown = 0, total = 0;

	open_device(&d);
	CALL(cuMemGetInfo, &shown, &total);
	for (int i = 0; i < TIMES; i++) {
		CUdeviceptr at;
		int64_t t0 = now_ns();
		CALL(cuMemAlloc, &at, 4 << 20);
		int64_t t1 = now_ns();
		CALL(cuMemFree, at);
		int64_t t2 = now_ns();
		CALL(cuMemAllocAsync, &at, 4 << 20, d.stream);
		CALL(cuMemFreeAsync, at, d.stream);
		int64_t t3 = now_ns();
		CALL(cuStreamSynchronize, d.stream);
		alloc[i] = (double)(t1 - t0);
		give[i] = (double)(t2 - t1);
		in_order[i] = (double)(t3 - t2);
	}
	printf("{\"alloc_ns\": %.0f, \"free_ns\": %.0f, \"alloc_and_free_in_order_ns\": %.0f, \"free_bytes\": %zu, \"total_bytes\": %zu}\n",
	       quantile(alloc, TIMES, 0.5), quantile(give, TIMES, 0.5), quantile(in_order, TIMES, 0.5), shown, total);
	return 0;
}
