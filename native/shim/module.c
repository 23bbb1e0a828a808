/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c: modules and libraries take memory for their code and variables, of which the program does not say how much: charged is by how much
 * what the driver's own books say that the process holds has grown beyond what was allocated meanwhile. What a driver puts off, of a
 * library or a module, until something of it is first used is not seen.
 */
#include "driver.h"

#define MODULE_MOST (2ull << 30) /* more than any takes: somebody else's allocation got into the difference */

static struct lock modules_lock; /* charged by difference: one at a time */

/* What the process holds, before a call that may take memory. */
struct books {
	uint32_t grant;
	bool known;
	uint64_t held, own;
};

static void books_open(struct books *k, uint32_t grant)
{
	k->grant = grant;
	k->own = memory_own(grant);
	k->known = overhead_read(grant, &k->held);
}

/* What a call took that nothing was charged for. */
static uint64_t books_grown(const struct books *k)
{
	uint64_t after, own = memory_own(k->grant);
	if (!k->known || !overhead_read(k->grant, &after))
		return 0;
	uint64_t grown = after > k->held ? after - k->held : 0;
	uint64_t asked = own > k->own ? own - k->own : 0;
	uint64_t cost = grown > asked ? grown - asked : 0;
	return cost < MODULE_MOST ? cost : MODULE_MOST;
}

/* Charges what was just loaded. False: there is no room for it. */
static bool module_charge(uint64_t key, const struct books *k)
{
	struct block b = {.key = key, .bytes = books_grown(k), .grant = k->grant, .kind = BLOCK_MODULE};
	if (b.bytes == 0)
		return true;
	if (!pools_reserve(b.grant, b.bytes))
		return false;
	driver.cuCtxGetCurrent(&b.context);
	if (!blocks_add(&b))
		memory_return(b.grant, b.bytes);
	return true;
}

/* Loaded where no context of ours is current: charged to nobody, and counted, as its end will be. */
static CUresult unseen(CUresult r)
{
	if (r == CUDA_SUCCESS && task_on()) {
		pieces_module(1);
		pieces_module(0);
	}
	return r;
}

#define LOAD(name, loaded, key, unload, ...)                                                                               \
	do {                                                                                                                       \
		int grant = task_on() ? meter_current_grant() : -1;                                                                \
		struct books books;                                                                                                \
		if (grant < 0)                                                                                                     \
			return unseen(REAL(name, __VA_ARGS__));                                                                    \
		lock_take(&modules_lock);                                                                                          \
		books_open(&books, (uint32_t)grant);                                                                               \
		pieces_module(1);                                                                                                  \
		CUresult r = REAL(name, __VA_ARGS__);                                                                              \
		if (r == CUDA_SUCCESS && !module_charge(key, &books)) {                                                            \
			REAL(unload, *(loaded));                                                                                   \
			r = CUDA_ERROR_OUT_OF_MEMORY;                                                                              \
		}                                                                                                                  \
		pieces_module(r == CUDA_SUCCESS ? 0 : -1);                                                                         \
		lock_give(&modules_lock);                                                                                          \
		return r;                                                                                                          \
	} while (0)

#define LOAD_MODULE(name, ...) LOAD(name, module, (uintptr_t)*module, cuModuleUnload, __VA_ARGS__)

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
	LOAD_MODULE(cuModuleLoad, module, path);
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	LOAD_MODULE(cuModuleLoadData, module, image);
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	LOAD_MODULE(cuModuleLoadDataEx, module, image, count, options, values);
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	LOAD_MODULE(cuModuleLoadFatBinary, module, image);
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

/* ----------------------------------------------------------------------------------------------------------- libraries */

/* A library's charge is found by its handle and grant, as that of a graph; handles are aligned. */
static uint64_t library_key(CUlibrary library, uint32_t grant)
{
	return (uint64_t)(uintptr_t)library + 1 + grant;
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values, unsigned int jit_count,
				  CUlibraryOption *options, void **values, unsigned int count)
{
	LOAD(cuLibraryLoadData, library, library_key(*library, (uint32_t)grant), cuLibraryUnload, library, code, jit, jit_values, jit_count,
	     options, values, count);
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit, void **jit_values, unsigned int jit_count,
				      CUlibraryOption *options, void **values, unsigned int count)
{
	LOAD(cuLibraryLoadFromFile, library, library_key(*library, (uint32_t)grant), cuLibraryUnload, library, path, jit, jit_values, jit_count,
	     options, values, count);
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
	struct block b[ALQ_MAX_GRANTS] = {{0}};
	uint32_t grants = task_on() ? task.grants : 0;
	for (uint32_t g = 0; g < grants; g++)
		blocks_take(library_key(library, g), &b[g]);
	CUresult r = REAL(cuLibraryUnload, library);
	for (uint32_t g = 0; g < grants; g++) {
		if (b[g].key != 0 && r == CUDA_SUCCESS)
			memory_return(g, b[g].bytes);
		else if (b[g].key != 0)
			blocks_add(&b[g]);
	}
	if (r == CUDA_SUCCESS && grants != 0)
		pieces_module(-1);
	return r;
}

void modules_forget(void)
{
	modules_lock.word = 0;
}
