/* SPDX-License-Identifier: Apache-2.0 */
/*
 * takes TRIES MIB: takes and gives back device memory at random so many times, never more than so many MiB at once, and now and then all of that.
 * Says how often it took and how often that took more than 20 ms, and ends with 1 where it was refused any.
 */
#include "common.h"

#define MOST 256

static CUdeviceptr held[MOST];
static size_t sizes[MOST];
static int count;

static uint64_t draw(void)
{
	static uint64_t random = 1;
	random = random * 6364136223846793005ull + 1442695040888963407ull;
	return random >> 33;
}

int main(int argc, char **argv)
{
	CUdevice device;
	CUcontext context;
	uint64_t taken = 0, slow = 0;
	size_t sum = 0, tries = argc > 2 ? strtoull(argv[1], NULL, 10) : 0, most = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	program = argv[0];
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	for (size_t i = 0; i < tries; i++) {
		size_t mib = i % 1000 < 900 ? 2 + draw() % 32 * 2 : most - sum; /* a tenth of the time it is full */
		if (mib > 0 && sum + mib <= most && count < MOST && (i % 1000 >= 900 || draw() % 2)) {
			int64_t from = now_ns();
			CUresult r = cuMemAlloc(&held[count], mib << 20);
			if (r != CUDA_SUCCESS) {
				printf("at try %zu it was refused %zu MiB beside %zu MiB: error %d\n", i, mib, sum, (int)r);
				return 1;
			}
			slow += now_ns() - from > 20000000;
			taken++;
			sizes[count++] = mib;
			sum += mib;
		} else if (count > 0 && i % 1000 < 990) {
			sum -= sizes[--count];
			CHECK(cuMemFree(held[count]));
		}
		if (i % 1000 == 999)
			while (count > 0) {
				sum -= sizes[--count];
				CHECK(cuMemFree(held[count]));
			}
	}
	printf("took %llu times, %llu of them with a wait\n", (unsigned long long)taken, (unsigned long long)slow);
	return 0;
}
