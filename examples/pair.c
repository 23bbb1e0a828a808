/* SPDX-License-Identifier: Apache-2.0 */
/* pair: a worker on two devices in step: each step runs on both and ends when both are done, as data-parallel training does. */
#include "common.h"

static struct option options[] = {
	{"kernel-us", "device time of one kernel, µs", 500, 0},
	{"kernels", "kernels of one step on each device", 8, 0},
	{"seconds", "how long to run; 0: until stopped", 10, 0},
	{NULL, NULL, 0, 0},
};

int main(int argc, char **argv)
{
	struct work w[2];
	int count = 0;
	uint64_t steps = 0;

	parse(argc, argv, options, "a worker on two devices in step");
	double seconds = option(options, "seconds");
	int kernels = (int)option(options, "kernels");
	if (kernels < 1 || option(options, "kernel-us") < 1) {
		fprintf(stderr, "%s: --kernels and --kernel-us must be at least 1\n", program);
		return 2;
	}
	CHECK(cuInit(0));
	CHECK(cuDeviceGetCount(&count));
	if (count < 2) {
		fprintf(stderr, "%s: needs two devices and sees %d: start it with `--devices 2`\n", program, count);
		return 1;
	}
	for (int d = 0; d < 2; d++)
		open_work(&w[d], d, option(options, "kernel-us"));
	int64_t start = now_ns();
	while (!stopped && (seconds == 0 || (double)(now_ns() - start) < seconds * 1e9)) {
		for (int d = 0; d < 2; d++) {
			CHECK(cuCtxSetCurrent(w[d].context));
			for (int i = 0; i < kernels; i++)
				launch(&w[d]);
		}
		for (int d = 0; d < 2; d++) {
			CHECK(cuCtxSetCurrent(w[d].context));
			CHECK(cuStreamSynchronize(w[d].stream));
		}
		steps++;
	}
	double elapsed = (double)(now_ns() - start) / 1e9;
	printf("pair: %llu steps in %.2f s: %.3f of each device\n", (unsigned long long)steps, elapsed,
	       (double)steps * kernels * (double)w[0].ns / 1e9 / elapsed);
	for (int d = 0; d < 2; d++)
		close_work(&w[d]);
	return 0;
}
