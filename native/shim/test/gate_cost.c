/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_cost.c: what a launch costs with an open gate, and an allocation with its free, against the same call into the same driver without the
 * shim. The two sides take turns; what stands is the median of many rounds, and beside it the least. Nothing waits in them: the run-ahead is far larger than all
 * of them. A driver that does nothing stands in, so the difference is all ours.
 */
#include "fake_driver.h"
#include "harness.h"

#include <dlfcn.h>

#define ROUNDS 51
#define CALLS 2000 /* in a round */

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Afterwards ns[0] is the least of the rounds and ns[MEDIAN] the median. */
static void sort(double *ns)
{
	qsort(ns, ROUNDS, sizeof *ns, by_size);
}

#define MEDIAN (ROUNDS / 2)

/* ns of one launch, over a round. */
static double launches(__typeof__(cuLaunchKernel) *launch, uint64_t *kernel)
{
	uint64_t begin = clock_now();
	for (int i = 0; i < CALLS; i++)
		CHECK_EQ(launch((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
	return (double)(clock_now() - begin) / CALLS;
}

/* The same for memory: an allocation with its free. */
static double pairs(__typeof__(cuMemAlloc_v2) *allocate, __typeof__(cuMemFree_v2) *release)
{
	CUdeviceptr p;
	uint64_t begin = clock_now();
	for (int i = 0; i < CALLS; i++) {
		CHECK_EQ(allocate(&p, 2u << 20), CUDA_SUCCESS);
		CHECK_EQ(release(p), CUDA_SUCCESS);
	}
	return (double)(clock_now() - begin) / CALLS;
}

int main(void)
{
	static struct arbiter arbiter;
	static uint64_t kernel = 1;
	double plain[ROUNDS], gated[ROUNDS], ungated[ROUNDS], pair[ROUNDS], counted[ROUNDS];
	void *driver = dlopen("libcuda-real.so.1", RTLD_NOW | RTLD_NOLOAD);
	CHECK(driver != NULL);
	__typeof__(cuLaunchKernel) *launch = (__typeof__(cuLaunchKernel) *)dlsym(driver, "cuLaunchKernel");
	__typeof__(cuMemAlloc_v2) *allocate = (__typeof__(cuMemAlloc_v2) *)dlsym(driver, "cuMemAlloc_v2");
	__typeof__(cuMemFree_v2) *release = (__typeof__(cuMemFree_v2) *)dlsym(driver, "cuMemFree_v2");
	arbiter_make(&arbiter, 1, 1ull << 30, 1ull << 30);
	arbiter.ctl->grant[0].run_ahead_ns = 4000000000u;
	arbiter_serve(&arbiter);
	tenant_start(&arbiter);
	fake_run(true);
	for (int i = 0; i < ROUNDS; i++) {
		plain[i] = launches(launch, &kernel);
		gate_open(&arbiter, 0, UINT64_MAX - 1);
		gated[i] = launches(cuLaunchKernel, &kernel);
		gate_ungate(&arbiter, 0);
		ungated[i] = launches(cuLaunchKernel, &kernel);
		pair[i] = pairs(allocate, release);
		counted[i] = pairs(cuMemAlloc_v2, cuMemFree_v2);
	}
	sort(plain), sort(gated), sort(ungated), sort(pair), sort(counted);
	printf("a launch: %.1f ns without the shim, %+.1f ns with the gate open, %+.1f ns ungated (least %.1f, %+.1f, %+.1f)\n", plain[MEDIAN],
	       gated[MEDIAN] - plain[MEDIAN], ungated[MEDIAN] - plain[MEDIAN], plain[0], gated[0] - plain[0], ungated[0] - plain[0]);
	printf("an allocation with its free: %.1f ns without the shim, %+.1f ns with it (least %.1f, %+.1f)\n", pair[MEDIAN],
	       counted[MEDIAN] - pair[MEDIAN], pair[0], counted[0] - pair[0]);
	printf("medians of %d rounds of %d, in turns\n", ROUNDS, CALLS);
	arbiter_remove(&arbiter);
	return 0;
}
