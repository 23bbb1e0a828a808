/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked of pools, and set. */
#include "simgpu/cuda/pool.h"

CUresult cuMemPoolGetAttribute(CUmemoryPool p, CUmemPool_attribute which, void *out)
{
	TRY(enter_pool(p));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	switch (which) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)out = p->reuse[which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
		return leave(CUDA_SUCCESS);
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(cuuint64_t *)out = p->threshold;
		return leave(CUDA_SUCCESS);
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*(cuuint64_t *)out = p->reserved;
		return leave(CUDA_SUCCESS);
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*(cuuint64_t *)out = p->reserved_high;
		return leave(CUDA_SUCCESS);
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(cuuint64_t *)out = p->used;
		return leave(CUDA_SUCCESS);
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)out = p->used_high;
		return leave(CUDA_SUCCESS);
	}
	return leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool p, CUmemPool_attribute which, void *value)
{
	TRY(enter_pool(p));
	if (!value)
		return leave(CUDA_ERROR_INVALID_VALUE);
	switch (which) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		p->reuse[which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value != 0;
		return leave(CUDA_SUCCESS);
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		p->threshold = *(cuuint64_t *)value;
		return leave(CUDA_SUCCESS);
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH: /* may only be set back */
		if (*(cuuint64_t *)value)
			return leave(CUDA_ERROR_INVALID_VALUE);
		if (which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
			p->reserved_high = p->reserved;
		else
			p->used_high = p->used;
		return leave(CUDA_SUCCESS);
	default:
		return leave(CUDA_ERROR_INVALID_VALUE);
	}
}

CUresult cuMemPoolSetAccess(CUmemoryPool p, const CUmemAccessDesc *map, size_t count)
{
	TRY(enter_pool(p));
	for (size_t i = 0; i < count; i++)
		if (!map || map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || map[i].location.id < 0 ||
		    (uint32_t)map[i].location.id >= api.devices)
			return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(CUDA_SUCCESS);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *out, CUmemoryPool p, CUmemLocation *location)
{
	TRY(enter_pool(p));
	if (!out || !location)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = CU_MEM_ACCESS_FLAGS_PROT_READWRITE; /* every device of the simulation reaches every other's memory */
	return leave(CUDA_SUCCESS);
}
