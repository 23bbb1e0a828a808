/* SPDX-License-Identifier: Apache-2.0 */
/* fake_parts.h: what the parts of the fake driver share. */
#ifndef ALIQUOT_SHIM_FAKE_PARTS_H
#define ALIQUOT_SHIM_FAKE_PARTS_H

#include "fake_driver.h"

#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))

extern pthread_mutex_t fake_lock; /* of all but memory */
extern struct fake_stats fake_now;
extern bool fake_forked; /* in a child nothing of it is to be used; what it holds is nobody's there */
extern __thread CUcontext fake_current;

struct CUstream_st {
	CUcontext context;
	uint64_t busy_until;
	bool capturing, gone;
};

struct CUctx_st {
	CUdevice device;
	bool gone;
	uint32_t uses;    /* cuCtxCreate and each cuCtxAttach */
	uint32_t waiting; /* threads in cuEventSynchronize */
	struct CUstream_st legacy;
};

/* Objects are kept to the end, also destroyed ones, so that whoever uses one afterwards finds it marked. */
void *fake_forever(size_t size);

#endif
