/* SPDX-License-Identifier: Apache-2.0 */
/* fake_context.c: the fake driver's contexts. One that is gone is kept, so that whoever uses it, or waits in it, is found out. */
#include "fake_parts.h"


EXPORT CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device)
{
	(void)flags;
	if (fake_forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	*ctx = fake_forever(sizeof(**ctx));
	(*ctx)->device = device;
	(*ctx)->uses = 1;
	(*ctx)->legacy.context = *ctx;
	fake_current = *ctx;
	return CUDA_SUCCESS;
}

/* Kept, so that whoever uses it now is found out, or waits in it still. */
EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	pthread_mutex_lock(&fake_lock);
	fake_now.misused += ctx->waiting;
	__atomic_store_n(&ctx->gone, true, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&fake_lock);
	if (fake_current == ctx)
		fake_current = NULL;
	return CUDA_SUCCESS;
}

EXPORT uint32_t fake_waiting(CUcontext ctx)
{
	pthread_mutex_lock(&fake_lock);
	uint32_t waiting = ctx->waiting;
	pthread_mutex_unlock(&fake_lock);
	return waiting;
}

EXPORT void fake_end(CUcontext ctx)
{
	cuCtxDestroy_v2(ctx);
}

/* A green context is the context that stands for it. */
EXPORT CUresult cuCtxFromGreenCtx(CUcontext *ctx, CUgreenCtx green)
{
	*ctx = (CUcontext)green;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
	return cuCtxDestroy_v2((CUcontext)green);
}

EXPORT void fake_begin_again(CUcontext ctx)
{
	__atomic_store_n(&ctx->gone, false, __ATOMIC_SEQ_CST);
}

EXPORT CUresult cuCtxAttach(CUcontext *ctx, unsigned int flags)
{
	(void)flags;
	if (fake_current == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	fake_current->uses++;
	*ctx = fake_current;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDetach(CUcontext ctx)
{
	if (ctx != fake_current)
		return CUDA_ERROR_INVALID_CONTEXT;
	return --ctx->uses == 0 ? cuCtxDestroy_v2(ctx) : CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	*ctx = fake_current;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext ctx)
{
	if (ctx != NULL && __atomic_load_n(&ctx->gone, __ATOMIC_SEQ_CST))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	fake_current = ctx;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
	if (fake_current == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = fake_current->device;
	return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------------------------------------------- primary contexts */

static CUcontext primary[FAKE_DEVICES];

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
	CUcontext *at = &primary[device - 10];
	if (*at == NULL) {
		CUcontext before = fake_current;
		cuCtxCreate_v2(at, 0, device);
		fake_current = before;
	} else {
		(*at)->uses++;
	}
	*ctx = *at;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	CUcontext *at = &primary[device - 10];
	if (*at == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--(*at)->uses == 0) {
		cuCtxDestroy_v2(*at);
		*at = NULL;
	}
	return CUDA_SUCCESS;
}
