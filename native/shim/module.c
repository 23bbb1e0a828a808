/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c: modules take memory for their code and variables, of which the program does not say how much: charged is by how much what the
 * driver's own books say that the process holds has grown beyond what was allocated meanwhile. What a driver puts off until a
 * function is first launched is not seen.
 */
#include "driver.h"

#define MODULE_MOST (2ull << 30) /* more than any takes: somebody else's allocation got into the difference */

static struct lock modules_lock; /* charged by difference: one at a time */

/* Charges a module that was just loaded. False: there is no room for it. */
static bool module_charge(CUmodule module, uint32_t grant, uint64_t before, uint64_t own_before)
{
	uint64_t after, own = memory_own(grant);
	if (!overhead_read(grant, &after))
		return true;
	uint64_t grown = after > before ? after - before : 0;
	uint64_t asked = own > own_before ? own - own_before : 0;
	uint64_t cost = grown > asked ? grown - asked : 0;
	struct block b = {.key = (uintptr_t)module, .bytes = cost < MODULE_MOST ? cost : MODULE_MOST, .grant = grant, .kind = BLOCK_MODULE};
	if (b.bytes == 0)
		return true;
	if (!pools_reserve(grant, b.bytes))
		return false;
	driver.cuCtxGetCurrent(&b.context);
	if (!blocks_add(&b))
		memory_return(grant, b.bytes);
	return true;
}

#define LOAD(name, ...)                                                                                                            \
	do {                                                                                                                       \
		int grant = task_on() ? meter_current_grant() : -1;                                                                \
		uint64_t before;                                                                                                   \
		if (grant < 0)                                                                                                     \
			return REAL(name, __VA_ARGS__);                                                                            \
		lock_take(&modules_lock);                                                                                          \
		uint64_t own = memory_own((uint32_t)grant);                                                                        \
		bool known = overhead_read((uint32_t)grant, &before);                                                              \
		pieces_module(1);                                                                                                  \
		CUresult r = REAL(name, __VA_ARGS__);                                                                              \
		if (r == CUDA_SUCCESS && known && !module_charge(*module, (uint32_t)grant, before, own)) {                         \
			REAL(cuModuleUnload, *module);                                                                             \
			r = CUDA_ERROR_OUT_OF_MEMORY;                                                                              \
		}                                                                                                                  \
		pieces_module(r == CUDA_SUCCESS ? 0 : -1);                                                                         \
		lock_give(&modules_lock);                                                                                          \
		return r;                                                                                                          \
	} while (0)

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
	LOAD(cuModuleLoad, module, path);
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	LOAD(cuModuleLoadData, module, image);
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	LOAD(cuModuleLoadDataEx, module, image, count, options, values);
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	LOAD(cuModuleLoadFatBinary, module, image);
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
	struct block b;
	bool ours = task_on() && blocks_take((uintptr_t)module, &b);
	CUresult r = REAL(cuModuleUnload, module);
	if (ours && r == CUDA_SUCCESS)
		memory_return(b.grant, b.bytes);
	else if (ours)
		blocks_add(&b);
	if (r == CUDA_SUCCESS && task_on())
		pieces_module(-1);
	return r;
}

void modules_forget(void)
{
	modules_lock.word = 0;
}
