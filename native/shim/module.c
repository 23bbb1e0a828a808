/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c: modules and libraries take memory for their code and variables, of which the program does not say how much: charged is by how much
 * what the driver's own books say that the process holds has grown beyond what was allocated meanwhile. What a driver puts off until it is first
 * used (CUDA_MODULE_LOADING=LAZY, as by default) shows in them only then: the watcher looks after launches of what was never launched before.
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

/* Charges what was just loaded. False: there is no room for it, or no memory to remember it in; *over is to be returned once it is unloaded. */
static bool module_charge(uint64_t key, const struct books *k, uint64_t *over)
{
	struct block b = {.key = key, .bytes = books_grown(k), .grant = k->grant, .kind = BLOCK_MODULE};
	if (b.bytes == 0)
		return true;
	if (!pools_reserve(b.grant, b.bytes))
		return false;
	driver.cuCtxGetCurrent(&b.context);
	if (blocks_add(&b))
		return true;
	*over = b.bytes;
	return false;
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

/* --------------------------------------------------------------------------------------------------------- what was put off */

/* Stands in the table for all that was put off in a context. */
static uint64_t late_key(CUcontext context)
{
	return context_key(context, KEY_LATE);
}

/* What the process holds beyond what it is charged for. 0 also where that cannot be told, since something comes or goes. */
static uint64_t uncharged(uint32_t grant)
{
	uint64_t held = 0, own = memory_own(grant), added = blocks_added();
	bool known = overhead_read(grant, &held);
	if (!known || held <= own || memory_own(grant) != own || blocks_added() != added)
		return 0;
	return held - own < MODULE_MOST ? held - own : MODULE_MOST;
}

static bool late_charge(uint32_t grant, CUcontext context, uint64_t bytes)
{
	struct block b = {.key = late_key(context), .context = context, .grant = grant, .kind = BLOCK_MODULE};
	if (!pools_reserve(grant, bytes))
		return false;
	blocks_take(b.key, &b);
	b.bytes += bytes;
	if (blocks_add(&b))
		return true;
	memory_return(grant, b.bytes); /* found again, and charged, the next time */
	return false;
}

enum settled modules_settle(uint32_t grant, CUcontext context)
{
	enum settled settled = SETTLED_LATER;
	if (!lock_try(&modules_lock))
		return settled;
	if (contexts_hold()) {
		uint64_t bytes = uncharged(grant);
		contexts_let_go();
		settled = bytes == 0 ? SETTLED_NOTHING : late_charge(grant, context, bytes) ? SETTLED_CHARGED : SETTLED_LATER;
	}
	lock_give(&modules_lock);
	return settled;
}

/* Around the unloading of a module or library of a context: returns also what was charged late for it. known: what it was charged at once. */
static void late_return(const struct books *k, CUcontext context, uint64_t known)
{
	struct block b;
	uint64_t after;
	if (!k->known || memory_own(k->grant) != k->own || !overhead_read(k->grant, &after) || after + known >= k->held)
		return;
	uint64_t gone = k->held - after - known;
	if (!blocks_take(late_key(context), &b))
		return;
	gone = gone < b.bytes ? gone : b.bytes;
	b.bytes -= gone;
	if (b.bytes != 0)
		blocks_add(&b);
	memory_return(b.grant, gone);
}

/* Reads the books before something of the current context is unloaded, if anything was charged late there. False: nothing was. */
static bool late_open(struct books *k, CUcontext *context)
{
	struct block b;
	int grant = meter_current_grant();
	*context = NULL;
	if (grant < 0 || driver.cuCtxGetCurrent == NULL || driver.cuCtxGetCurrent(context) != CUDA_SUCCESS ||
	    !blocks_take(late_key(*context), &b))
		return false;
	blocks_add(&b);
	books_open(k, (uint32_t)grant);
	return true;
}

/* ------------------------------------------------------------------------------------------------------------- modules */

#define LOAD(name, loaded, key, unload, ...)                                                                               \
	do {                                                                                                                       \
		int grant = task_on() ? meter_current_grant() : -1;                                                                \
		struct books books;                                                                                                \
		if (grant < 0)                                                                                                     \
			return unseen(REAL(name, __VA_ARGS__));                                                                    \
		lock_take(&modules_lock);                                                                                          \
		books_open(&books, (uint32_t)grant);                                                                               \
		pieces_module(1);                                                                                                  \
		CUresult r;                                                                                                        \
		uint64_t over = 0;                                                                                                 \
		WITH_ROOM(r, (uint32_t)grant, REAL(name, __VA_ARGS__));                                                            \
		if (r == CUDA_SUCCESS && !module_charge(key, &books, &over)) {                                                     \
			REAL(unload, *(loaded));                                                                                   \
			memory_return((uint32_t)grant, over);                                                                      \
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
	struct block b = {0};
	struct books books;
	CUcontext context;
	bool late = task_on() && late_open(&books, &context);
	bool ours = task_on() && blocks_take((uintptr_t)module, &b);
	CUresult r = REAL(cuModuleUnload, module);
	if (late && r == CUDA_SUCCESS)
		late_return(&books, context, b.bytes);
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
	struct books books;
	CUcontext context;
	uint32_t grants = task_on() ? task.grants : 0;
	bool late = grants != 0 && late_open(&books, &context);
	for (uint32_t g = 0; g < grants; g++)
		blocks_take(library_key(library, g), &b[g]);
	CUresult r = REAL(cuLibraryUnload, library);
	if (late && r == CUDA_SUCCESS)
		late_return(&books, context, b[books.grant].bytes);
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
