/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked of the current context, and set. */
#include "simgpu/cuda/internal.h"

/* Answers with one value, and ends the call. */
#define GIVE(to, value) ((to) ? (*(to) = (value), leave(CUDA_SUCCESS)) : leave(CUDA_ERROR_INVALID_VALUE))

CUresult cuCtxGetDevice(CUdevice *out)
{
	CUcontext c;
	TRY(enter_context(&c));
	return GIVE(out, (CUdevice)c->device);
}

CUresult cuCtxGetFlags(unsigned int *out)
{
	CUcontext c;
	TRY(enter_context(&c));
	return GIVE(out, c->flags);
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	CUcontext c;
	TRY(enter_context(&c));
	c->flags = flags;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetId(CUcontext c, unsigned long long *id)
{
	CUcontext current;
	TRY(c ? enter() : enter_context(&current));
	c = c ? c : current;
	if (!id)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!handle_is(c, H_CONTEXT))
		return leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	*id = c->id;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetApiVersion(CUcontext c, unsigned int *version)
{
	CUcontext current;
	TRY(c ? enter() : enter_context(&current));
	c = c ? c : current;
	if (!version)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!handle_is(c, H_CONTEXT))
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	*version = c->version;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void)
{
	CUcontext c;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	r = capture_unsafe();
	return leave(r == CUDA_SUCCESS ? await_context(c) : r);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CUcontext c;
	TRY(enter_context(&c));
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetLimit(size_t *out, CUlimit limit)
{
	CUcontext c;
	TRY(enter_context(&c));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if ((unsigned)limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
		return leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
	*out = c->limit[limit];
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	CUcontext c;
	TRY(enter_context(&c));
	if ((unsigned)limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
		return leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
	c->limit[limit] = value;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *out)
{
	CUcontext c;
	TRY(enter_context(&c));
	return GIVE(out, (CUfunc_cache)c->cache);
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	CUcontext c;
	TRY(enter_context(&c));
	c->cache = (int)config;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *out)
{
	CUcontext c;
	TRY(enter_context(&c));
	return GIVE(out, (CUsharedconfig)c->banks);
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	CUcontext c;
	TRY(enter_context(&c));
	c->banks = (int)config;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	CUcontext c;
	CUresult r = enter_context(&c);
	return r == CUDA_SUCCESS ? leave(r) : r;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUcontext c;
	TRY(enter_context(&c));
	if (flags)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!handle_is(peer, H_CONTEXT) || peer == c || peer->device == c->device)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	if (c->peers & (1u << peer->device))
		return leave(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	c->peers |= 1u << peer->device;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	CUcontext c;
	TRY(enter_context(&c));
	if (!handle_is(peer, H_CONTEXT))
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!(c->peers & (1u << peer->device)))
		return leave(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	c->peers &= ~(1u << peer->device);
	return leave(CUDA_SUCCESS);
}
