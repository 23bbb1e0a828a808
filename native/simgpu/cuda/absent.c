/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What programs link against or look up and the simulated devices do not have: sharing events between processes, multicast, the
 * linker. They say so: CUDA_ERROR_NOT_SUPPORTED, or CUDA_ERROR_JIT_COMPILER_NOT_FOUND for the linker.
 */
#include "simgpu/cuda/internal.h"

#define ABSENT(name, arguments)                                             \
	CUresult name arguments                                             \
	{                                                                   \
		CUresult r = enter();                                       \
		return r == CUDA_SUCCESS ? leave(CUDA_ERROR_NOT_SUPPORTED) : r; \
	}

#pragma GCC diagnostic ignored "-Wunused-parameter"

ABSENT(cuIpcGetEventHandle, (CUipcEventHandle *handle, CUevent e))
ABSENT(cuIpcOpenEventHandle, (CUevent *e, CUipcEventHandle handle))
ABSENT(cuMemGetHandleForAddressRange, (void *out, CUdeviceptr p, size_t size, CUmemRangeHandleType type, unsigned long long flags))
ABSENT(cuMulticastCreate, (CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *prop))
ABSENT(cuMulticastGetGranularity, (size_t *out, const CUmulticastObjectProp *prop, CUmulticastGranularity_flags option))

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *out)
{
	CUresult r = enter();
	return r == CUDA_SUCCESS ? leave(CUDA_ERROR_JIT_COMPILER_NOT_FOUND) : r;
}
