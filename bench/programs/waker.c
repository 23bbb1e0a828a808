/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waker: an owner that sleeps most of the time. It wakes at random, launches one short kernel and waits for it; for each time it
 * prints how long the launch took (the gate, if there is one, is in it) and how long it was until the kernel was done, in ns. So
 * the figures include what it takes to be scheduled on the CPU again; none is left out.
 */
#include "../../examples/common.h"

static struct option options[] = {
	{"kernel-us", "device time of the kernel, µs", 200, 0},
	{"pause-ms", "mean pause between two launches, ms", 15, 0},
	{"wakes", "how often", 1000, 0},
	{"seed", "of the random numbers", 1, 0},
	{NULL, NULL, 0, 0},
};

int main(int argc, char **argv)
{
	struct work w;

	parse(argc, argv, options, "an owner that wakes now and then");
	uint64_t random = (uint64_t)option(options, "seed");
	double pause_ns = option(options, "pause-ms") * 1e6;
	int wakes = (int)option(options, "wakes");
	if (option(options, "kernel-us") < 1 || wakes < 1) {
		fprintf(stderr, "%s: --kernel-us and --wakes must be at least 1\n", program);
		return 2;
	}
	int64_t *waited = calloc((size_t)wakes * 2, sizeof *waited);
	if (!waited) {
		fprintf(stderr, "%s: no memory for %d figures\n", program, wakes);
		return 1;
	}
	CHECK(cuInit(0));
	open_work(&w, 0, option(options, "kernel-us"));
	for (int i = 0; i < wakes && !stopped; i++) {
		sleep_until(now_ns() + (int64_t)exponential(&random, pause_ns));
		int64_t from = now_ns();
		launch(&w);
		waited[2 * i] = now_ns() - from;
		CHECK(cuStreamSynchronize(w.stream));
		waited[2 * i + 1] = now_ns() - from;
	}
	if (stopped) {
		fprintf(stderr, "%s: stopped before it was done\n", program);
		return 1;
	}
	for (int i = 0; i < wakes; i++)
		printf("%lld %lld\n", (long long)waited[2 * i], (long long)waited[2 * i + 1]);
	free(waited);
	close_work(&w);
	return 0;
}
