/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inference: a server under an open-loop load: requests come at random times whether or not earlier ones are done, each of so
 * many kernels; latency counts from the time a request was due, so that a stall is not hidden by requests that were not sent.
 */
#include "common.h"

static struct option options[] = {
	{"kernel-us", "device time of one kernel, µs", 500, 0},
	{"kernels", "kernels of one request", 40, 0},
	{"loops", "of one kernel on a real GPU; 0: find out now", 0, 0},
	{"load", "part of a device that the requests need, 0..1", 0.1, 0},
	{"seconds", "how long to run; 0: until stopped", 10, 0},
	{"seed", "of the random numbers", 1, 0},
	{NULL, NULL, 0, 0},
};

#define KEPT 1000000

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static double percentile(const float *sorted, size_t n, double p)
{
	return n ? (double)sorted[(size_t)((double)(n - 1) * p + 0.5)] : 0;
}

int main(int argc, char **argv)
{
	struct work w;
	size_t served = 0;

	parse(argc, argv, options, "an inference server under an open-loop Poisson load");
	uint64_t random = (uint64_t)option(options, "seed");
	double seconds = option(options, "seconds"), load = option(options, "load");
	double kernel_us = option(options, "kernel-us");
	int kernels = (int)option(options, "kernels");
	if (kernel_us < 1 || kernels < 1 || load <= 0 || load > 1) {
		fprintf(stderr, "%s: --kernel-us and --kernels must be at least 1, --load over 0 and at most 1\n", program);
		return 2;
	}
	float *latency = malloc(KEPT * sizeof *latency);
	if (!latency) {
		fprintf(stderr, "%s: no memory for %d latencies\n", program, KEPT);
		return 1;
	}
	CHECK(cuInit(0));
	open_work_of(&w, 0, kernel_us, option(options, "loops"));
	double mean_ns = kernels * kernel_us * 1000 / load;
	int64_t start = now_ns();
	double due = (double)start;
	while (!stopped && served < KEPT) {
		due += exponential(&random, mean_ns);
		if (seconds > 0 && due - (double)start > seconds * 1e9)
			break;
		sleep_until((int64_t)due);
		if (stopped)
			break;
		for (int i = 0; i < kernels; i++)
			launch(&w);
		CHECK(cuStreamSynchronize(w.stream));
		latency[served++] = (float)(((double)now_ns() - due) / 1e6);
	}
	double elapsed = (double)(now_ns() - start) / 1e9;
	qsort(latency, served, sizeof *latency, by_value);
	printf("inference: %zu requests of %.1f ms in %.1f s: latency ms p50 %.2f p90 %.2f p99 %.2f p99.9 %.2f max %.2f\n", served,
	       kernels * kernel_us / 1000, elapsed, percentile(latency, served, 0.5), percentile(latency, served, 0.9),
	       percentile(latency, served, 0.99), percentile(latency, served, 0.999), percentile(latency, served, 1));
	free(latency);
	close_work(&w);
	return 0;
}
