/* SPDX-License-Identifier: Apache-2.0 */
/* Launches as programs of before CUDA 4 make them: the function keeps its block and its parameters between calls. And one kernel on
 * several devices at once. */
#include "simgpu/cuda/internal.h"

/* Begins a call on a function; on success the lock is held. */
static CUresult enter_function(CUfunction h, CUfunction *f)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = function_of(h, f);
	return r == CUDA_SUCCESS ? r : leave(r);
}

CUresult cuFuncSetBlockShape(CUfunction h, int x, int y, int z)
{
	CUfunction f;
	TRY(enter_function(h, &f));
	if (x < 1 || y < 1 || z < 1)
		return leave(CUDA_ERROR_INVALID_VALUE);
	f->legacy.block[0] = (unsigned)x;
	f->legacy.block[1] = (unsigned)y;
	f->legacy.block[2] = (unsigned)z;
	return leave(CUDA_SUCCESS);
}

CUresult cuFuncSetSharedSize(CUfunction h, unsigned int bytes)
{
	CUfunction f;
	TRY(enter_function(h, &f));
	f->legacy.shared = bytes;
	return leave(CUDA_SUCCESS);
}

CUresult cuParamSetSize(CUfunction h, unsigned int bytes)
{
	CUfunction f;
	TRY(enter_function(h, &f));
	if (bytes > sizeof f->legacy.params)
		return leave(CUDA_ERROR_INVALID_VALUE);
	f->legacy.bytes = bytes;
	return leave(CUDA_SUCCESS);
}

CUresult cuParamSetv(CUfunction h, int offset, void *from, unsigned int bytes)
{
	CUfunction f;
	TRY(enter_function(h, &f));
	if (!from || offset < 0 || bytes > sizeof f->legacy.params || (size_t)offset > sizeof f->legacy.params - bytes)
		return leave(CUDA_ERROR_INVALID_VALUE);
	memcpy(f->legacy.params + offset, from, bytes);
	return leave(CUDA_SUCCESS);
}

CUresult cuParamSeti(CUfunction f, int offset, unsigned int value)
{
	return cuParamSetv(f, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction f, int offset, float value)
{
	return cuParamSetv(f, offset, &value, sizeof value);
}

CUresult cuLaunchGridAsync(CUfunction h, int width, int height, CUstream s)
{
	CUfunction f;
	if (width < 1 || height < 1)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_function(h, &f));
	struct legacy l = f->legacy;
	leave(CUDA_SUCCESS);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, l.params, CU_LAUNCH_PARAM_BUFFER_SIZE, &l.bytes, CU_LAUNCH_PARAM_END};
	return cuLaunchKernel(h, (unsigned)width, (unsigned)height, 1, l.block[0], l.block[1], l.block[2], l.shared, s, NULL, extra);
}

CUresult cuLaunchGrid(CUfunction f, int width, int height)
{
	return cuLaunchGridAsync(f, width, height, NULL);
}

CUresult cuLaunch(CUfunction f)
{
	return cuLaunchGridAsync(f, 1, 1, NULL);
}

/* Every stream another device's, none of them a default stream; each device then runs its part on its own. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags)
{
	uint32_t devices = 0;
	if (!list || !count || flags > 3)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++) {
		CUstream s;
		CUresult r = enter_stream(list[i].hStream, &s);
		if (r != CUDA_SUCCESS)
			return r;
		uint32_t bit = 1u << s->context->device;
		bool own = list[i].hStream && list[i].hStream != CU_STREAM_LEGACY && list[i].hStream != CU_STREAM_PER_THREAD;
		leave(CUDA_SUCCESS);
		if (!own || (devices & bit))
			return own ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_HANDLE;
		devices |= bit;
	}
	CUresult r = CUDA_SUCCESS;
	for (unsigned i = 0; i < count && r == CUDA_SUCCESS; i++) {
		const CUDA_LAUNCH_PARAMS *p = &list[i];
		r = cuLaunchKernel(p->function, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY, p->blockDimZ, p->sharedMemBytes,
				   p->hStream, p->kernelParams, NULL);
	}
	return r;
}
