/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h: what the files about pools share. */
#ifndef ALIQUOT_SIMGPU_CUDA_POOL_H
#define ALIQUOT_SIMGPU_CUDA_POOL_H

#include "simgpu/cuda/internal.h"

struct CUmemPoolHandle_st {
	uint32_t device;
	bool is_default;
	bool shareable; /* by a descriptor */
	bool imported;  /* another process', from which pointers are imported alone */
	bool destroyed; /* by the program; it ends with its last chunk */
	size_t max;
	uint64_t threshold, reserved, reserved_high, used, used_high;
	int reuse[3];
	struct chunk *chunks; /* all, in use or kept */
	CUmemoryPool next;
};

CUmemoryPool pool_new(uint32_t device);

/* Begins a call on a pool; on success the lock is held. */
CUresult enter_pool(CUmemoryPool p);

#endif
