/* SPDX-License-Identifier: Apache-2.0 */
/* hog: takes device memory until it is refused, says what it was shown and what it got, and holds it for a while. */
#include "common.h"

static struct option options[] = {
	{"block-mib", "size of one allocation, MiB", 256, 0},
	{"seconds", "how long to hold what was got; 0: until stopped", 0.001, 0},
	{NULL, NULL, 0, 0},
};

#define BLOCKS 65536

int main(int argc, char **argv)
{
	static CUdeviceptr blocks[BLOCKS];
	size_t shown_free = 0, shown_total = 0, n = 0, free_after = 0, size;
	CUdevice device;
	CUcontext context;
	CUresult refused = CUDA_SUCCESS;
	const char *name = "nothing";

	parse(argc, argv, options, "takes device memory until it is refused");
	size = (size_t)(option(options, "block-mib") * 1048576);
	if (size == 0) {
		fprintf(stderr, "%s: --block-mib must be more than 0\n", program);
		return 2;
	}
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemGetInfo(&shown_free, &shown_total));
	while (!stopped && n < BLOCKS && (refused = cuMemAlloc(&blocks[n], size)) == CUDA_SUCCESS)
		n++;
	if (refused != CUDA_SUCCESS)
		cuGetErrorName(refused, &name);
	CHECK(cuMemGetInfo(&free_after, &shown_total));
	printf("hog: was shown %zu MiB free of %zu; got %zu MiB in %zu blocks, then %s with %zu MiB shown free\n", shown_free >> 20,
	       shown_total >> 20, (n * size) >> 20, n, name, free_after >> 20);
	fflush(stdout);
	double seconds = option(options, "seconds");
	sleep_until(seconds == 0 ? INT64_MAX : now_ns() + (int64_t)(seconds * 1e9));
	while (n > 0)
		CHECK(cuMemFree(blocks[--n]));
	CHECK(cuDevicePrimaryCtxRelease(device));
	return refused == CUDA_SUCCESS || refused == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1;
}
