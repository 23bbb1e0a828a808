/* SPDX-License-Identifier: Apache-2.0 */
/* launcher.h: launches of kernels on the fake driver, also by a thread beside the test. A kernel is a number: its time on the device, ns. */
#ifndef ALIQUOT_SHIM_LAUNCHER_H
#define ALIQUOT_SHIM_LAUNCHER_H

#include "fake_driver.h"
#include "harness.h"

#include <pthread.h>

static inline uint64_t launches(void)
{
	struct fake_stats s;
	fake_read(&s);
	return s.launches;
}

/* A time in tens of microseconds: the driver tells times as a float of milliseconds, some seconds after its origin to a microsecond. */
static inline uint64_t tens_us(uint64_t ns)
{
	return (ns + 5 * NS_PER_US) / (10 * NS_PER_US);
}

static inline CUresult launch(uint64_t *kernel, CUstream stream)
{
	return cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

struct launcher {
	pthread_t thread;
	uint64_t *kernel;
	CUstream stream;
	CUcontext context;
	uint32_t wanted;
	uint32_t done;
	CUresult last;
};

static inline void *launcher_body(void *arg)
{
	struct launcher *l = arg;
	cuCtxSetCurrent(l->context);
	for (uint32_t i = 0; i < l->wanted; i++) {
		l->last = launch(l->kernel, l->stream);
		__atomic_fetch_add(&l->done, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static inline void launcher_start(struct launcher *l, uint64_t *kernel, uint32_t wanted)
{
	*l = (struct launcher){.kernel = kernel, .wanted = wanted};
	CHECK_EQ(cuCtxGetCurrent(&l->context), CUDA_SUCCESS);
	CHECK_EQ(pthread_create(&l->thread, NULL, launcher_body, l), 0);
}

#endif
