/* SPDX-License-Identifier: Apache-2.0 */
/* Launches, and what is asked about them beforehand. */
#include "simgpu/cuda/internal.h"

/* Takes the parameters in the two forms that there are into one block of bytes. */
static CUresult gather(CUfunction f, void **params, void **extra, char **out)
{
	*out = NULL;
	if (!f->param_bytes)
		return CUDA_SUCCESS;
	const char *buffer = NULL;
	size_t size = 0;
	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(size_t *)extra[i + 1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (!params && (!buffer || size < f->param_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	char *copy = malloc(f->param_bytes);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (buffer)
		memcpy(copy, buffer, f->param_bytes);
	for (unsigned i = 0; !buffer && i < f->params; i++) {
		if (!params[i]) {
			free(copy);
			return CUDA_ERROR_INVALID_VALUE;
		}
		memcpy(copy + f->param[i].offset, params[i], f->param[i].size);
	}
	*out = copy;
	return CUDA_SUCCESS;
}

CUresult kernel_fill(struct kernel *k, CUfunction h, const unsigned grid[3], const unsigned block[3], unsigned shared, void **params, void **extra)
{
	CUfunction f;
	CUresult r = function_of(h, &f);
	if (r != CUDA_SUCCESS)
		return r;
	const struct sim_info *info = &api.info[f->module->context->device];
	if (!grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2] || grid[1] > 65535 || grid[2] > 65535 || block[0] > 1024 ||
	    block[1] > 1024 || block[2] > 64 || (uint64_t)block[0] * block[1] * block[2] > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (shared > info->shared_optin || (shared > 49152 && (int)shared > f->dynamic_shared))
		return CUDA_ERROR_INVALID_VALUE;
	*k = (struct kernel){.function = f, .shared = shared, .param_bytes = f->param_bytes, .ns = f->ns};
	memcpy(k->grid, grid, sizeof k->grid);
	memcpy(k->block, block, sizeof k->block);
	r = gather(f, params, extra, &k->params);
	if (r == CUDA_SUCCESS && f->ns_param >= 0) {
		uint64_t ns;
		memcpy(&ns, k->params + f->param[f->ns_param].offset, sizeof ns);
		if (ns)
			k->ns = ns;
	}
	return r;
}

/* The stream that a function goes into. One of a module needs a context, a library's kernel only where its stream is a default one. */
static CUresult enter_launch(CUfunction f, CUstream h, CUstream *s)
{
	CUcontext c;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(f, H_KERNEL)) {
		r = context_current(&c);
		if (r != CUDA_SUCCESS)
			return leave(r);
	}
	r = stream_of(h, s);
	return r == CUDA_SUCCESS ? r : leave(r);
}

static CUresult launch(CUfunction f, const unsigned grid[3], const unsigned block[3], unsigned shared, CUstream h, void **params, void **extra)
{
	CUstream s;
	CUresult r = enter_launch(f, h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	struct work w = {.kind = W_KERNEL};
	r = kernel_fill(&w.kernel, f, grid, block, shared, params, extra);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (w.kernel.function->module->context != s->context) {
		work_free(&w);
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	}
	return leave(issue(s, &w));
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
			unsigned int shared, CUstream s, void **params, void **extra)
{
	return launch(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, s, params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	if (!c || (c->numAttrs && !c->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	return launch(f, (unsigned[]){c->gridDimX, c->gridDimY, c->gridDimZ}, (unsigned[]){c->blockDimX, c->blockDimY, c->blockDimZ},
		      c->sharedMemBytes, c->hStream, params, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	CUlaunchConfig own = *c;
	own.hStream = c->hStream ? c->hStream : CU_STREAM_PER_THREAD;
	return cuLaunchKernelEx(&own, f, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
				   unsigned int bz, unsigned int shared, CUstream s, void **params)
{
	CUstream of;
	TRY(enter_launch(f, s, &of));
	const struct sim_info *info = &api.info[of->context->device];
	/* All blocks must be on the device at once. */
	uint64_t per_sm = bx && by && bz ? info->threads_per_sm / ((uint64_t)bx * by * bz) : 0;
	if (per_sm > 32)
		per_sm = 32;
	if ((uint64_t)gx * gy * gz > per_sm * info->multiprocessors)
		return leave(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	leave(CUDA_SUCCESS);
	return launch(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, s, params, NULL);
}

/* ------------------------------------------------------------------------------------------------------------ occupancy */

static CUresult occupancy(int *blocks, CUfunction h, int block_size, size_t shared)
{
	CUfunction f;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = function_of(h, &f);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (!blocks || block_size < 1)
		return leave(CUDA_ERROR_INVALID_VALUE);
	const struct sim_info *info = &api.info[f->module->context->device];
	uint64_t n = block_size > 1024 ? 0 : info->threads_per_sm / (uint64_t)block_size;
	if (shared && info->shared_per_sm / shared < n)
		n = info->shared_per_sm / shared;
	*blocks = (int)(n > 32 ? 32 : n);
	return leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int block_size, size_t shared)
{
	return occupancy(blocks, f, block_size, shared);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction f, int block_size, size_t shared, unsigned int flags)
{
	return flags > 1 ? CUDA_ERROR_INVALID_VALUE : occupancy(blocks, f, block_size, shared);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction h, CUoccupancyB2DSize shared_of, size_t shared, int limit,
						   unsigned int flags)
{
	if (!grid || !block || flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	CUcontext c;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	int processors = (int)api.info[c->device].multiprocessors;
	leave(CUDA_SUCCESS);
	int best = 0, blocks;
	*block = *grid = 0;
	for (int size = limit > 0 && limit < 1024 ? limit / 32 * 32 : 1024; size >= 32; size -= 32) {
		r = occupancy(&blocks, h, size, shared_of ? shared_of(size) : shared);
		if (r != CUDA_SUCCESS)
			return r;
		if (blocks * size > best) {
			best = blocks * size;
			*block = size;
			*grid = blocks * processors;
		}
	}
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction f, CUoccupancyB2DSize shared_of, size_t shared, int limit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, f, shared_of, shared, limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *out, CUfunction h, int blocks, int block_size)
{
	CUfunction f;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = function_of(h, &f);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (!out || blocks < 1 || block_size < 1 || block_size > 1024)
		return leave(CUDA_ERROR_INVALID_VALUE);
	const struct sim_info *info = &api.info[f->module->context->device];
	size_t each = info->shared_per_sm / (unsigned)blocks;
	*out = each > info->shared_optin ? info->shared_optin : each;
	return leave(CUDA_SUCCESS);
}
