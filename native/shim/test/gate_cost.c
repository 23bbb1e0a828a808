/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_cost.c: what a launch costs with an open gate, and an allocation, against the same call into the same driver without the shim. Best of many rounds, in
 * which nothing waits: the run-ahead is far larger than a round. A driver that does nothing stands in, so the difference is all ours.
 */
#include "fake_driver.h"
#include "harness.h"

#include <dlfcn.h>

#define ROUNDS 50
#define LAUNCHES 2000

static uint64_t best(__typeof__(cuLaunchKernel) *launch, uint64_t *kernel)
{
	uint64_t least = UINT64_MAX;
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t begin = clock_now();
		for (int i = 0; i < LAUNCHES; i++)
			CHECK_EQ(launch((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
		uint64_t took = clock_now() - begin;
		least = took < least ? took : least;
	}
	return least / LAUNCHES;
}

/* The same for memory: an allocation with its free. */
static uint64_t best_pair(__typeof__(cuMemAlloc_v2) *allocate, __typeof__(cuMemFree_v2) *release)
{
	uint64_t least = UINT64_MAX;
	for (int round = 0; round < ROUNDS; round++) {
		CUdeviceptr p;
		uint64_t begin = clock_now();
		for (int i = 0; i < LAUNCHES; i++) {
			CHECK_EQ(allocate(&p, 2u << 20), CUDA_SUCCESS);
			CHECK_EQ(release(p), CUDA_SUCCESS);
		}
		uint64_t took = clock_now() - begin;
		least = took < least ? took : least;
	}
	return least / LAUNCHES;
}

int main(void)
{
	static struct arbiter arbiter;
	static uint64_t kernel = 1;
	void *driver = dlopen("libcuda-real.so.1", RTLD_NOW | RTLD_NOLOAD);
	CHECK(driver != NULL);
	arbiter_make(&arbiter, 1, 1ull << 30, 1ull << 30);
	arbiter.ctl->grant[0].run_ahead_ns = 4000000000u;
	arbiter_serve(&arbiter);
	tenant_start(&arbiter);
	fake_run(true);
	uint64_t plain = best((__typeof__(cuLaunchKernel) *)dlsym(driver, "cuLaunchKernel"), &kernel);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	uint64_t gated = best(cuLaunchKernel, &kernel);
	gate_ungate(&arbiter, 0);
	uint64_t ungated = best(cuLaunchKernel, &kernel);
	printf("a launch: %llu ns without the shim, %+lld ns with the gate open, %+lld ns ungated (best of %d rounds of %d)\n",
	       (unsigned long long)plain, (long long)(gated - plain), (long long)(ungated - plain), ROUNDS, LAUNCHES);
	uint64_t pair = best_pair((__typeof__(cuMemAlloc_v2) *)dlsym(driver, "cuMemAlloc_v2"),
				  (__typeof__(cuMemFree_v2) *)dlsym(driver, "cuMemFree_v2"));
	printf("an allocation with its free: %llu ns without the shim, %+lld ns with it\n", (unsigned long long)pair,
	       (long long)(best_pair(cuMemAlloc_v2, cuMemFree_v2) - pair));
	arbiter_remove(&arbiter);
	return 0;
}
