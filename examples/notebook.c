/* SPDX-License-Identifier: Apache-2.0 */
/* notebook: a person at work: a cell runs now and then, the device idles in between, memory stays held. */
#include "common.h"

static struct option options[] = {
	{"kernel-us", "device time of one kernel, µs", 500, 0},
	{"cell-ms", "device time of one cell, mean, ms", 200, 0},
	{"think-ms", "pause between cells, mean, ms", 800, 0},
	{"seconds", "how long to run; 0: until stopped", 10, 0},
	{"mem-mib", "device memory to hold, MiB", 256, 0},
	{"seed", "of the random numbers", 1, 0},
	{NULL, NULL, 0, 0},
};

int main(int argc, char **argv)
{
	struct work w;
	CUdeviceptr memory = 0;
	uint64_t cells = 0;
	double slowest = 0, took = 0, asked = 0;

	parse(argc, argv, options, "bursts of work with pauses between them");
	uint64_t random = (uint64_t)option(options, "seed");
	double seconds = option(options, "seconds"), kernel_us = option(options, "kernel-us");
	if (kernel_us < 1) {
		fprintf(stderr, "%s: --kernel-us must be at least 1\n", program);
		return 2;
	}
	CHECK(cuInit(0));
	open_work(&w, 0, kernel_us);
	if (option(options, "mem-mib") > 0)
		CHECK(cuMemAlloc(&memory, (size_t)option(options, "mem-mib") << 20));
	int64_t start = now_ns();
	while (!stopped && (seconds == 0 || (double)(now_ns() - start) < seconds * 1e9)) {
		double device_ms = exponential(&random, option(options, "cell-ms"));
		int kernels = (int)(device_ms * 1000 / kernel_us) + 1;
		int64_t began = now_ns();
		for (int i = 0; i < kernels && !stopped; i++)
			launch(&w);
		CHECK(cuStreamSynchronize(w.stream));
		double ms = (double)(now_ns() - began) / 1e6;
		double slowdown = ms / (kernels * kernel_us / 1000);
		slowest = slowdown > slowest ? slowdown : slowest;
		took += ms;
		asked += kernels * kernel_us / 1000;
		cells++;
		sleep_until(now_ns() + (int64_t)(exponential(&random, option(options, "think-ms")) * 1e6));
	}
	printf("notebook: %llu cells, %.1f ms of device time each on average; a cell took %.2f × its device time, the slowest %.2f ×\n",
	       (unsigned long long)cells, cells ? asked / (double)cells : 0, asked > 0 ? took / asked : 0, slowest);
	if (memory)
		CHECK(cuMemFree(memory));
	close_work(&w);
	return 0;
}
