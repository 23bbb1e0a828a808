/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c: the driver's own functions, and cuGetProcAddress.
 *
 * The shim is linked to the driver under a name that only the shim asks for (libcuda-real.so.1), so it is loaded already, and every name
 * that the shim does not define is found there by the dynamic linker. What cuGetProcAddress hands out is swapped by address: the
 * driver chooses the variant that fits version and flags, and if that variant is one we stand in for, ours for exactly that variant is
 * handed out.
 */
#include "driver.h"

#include <dlfcn.h>
#include <string.h>

struct driver driver;
uint32_t driver_loaded;

enum { HOOKS = 0
#define HOOK(name, base, version, per_thread, kind) +1
#include "paths.def"
};

static const struct hook {
	const char *symbol, *base;
	int version;
	bool per_thread;
	void *ours;
	size_t at; /* offset of the driver's own in struct driver */
} hooks[HOOKS] = {
#define HOOK(name, base, version, per_thread, kind) {#name, base, version, per_thread, (void *)name, offsetof(struct driver, name)},
#include "paths.def"
};

#define SWAPS 2048 /* a power of two, several times the hooks */

static struct swap {
	void *theirs, *ours;
} swaps[SWAPS];

static struct swap *swap_at(void *theirs)
{
	uint64_t i = ((uintptr_t)theirs * 0x9e3779b97f4a7c15ull) >> 53;
	while (swaps[i & (SWAPS - 1)].theirs != NULL && swaps[i & (SWAPS - 1)].theirs != theirs)
		i++;
	return &swaps[i & (SWAPS - 1)];
}

static void swap_add(void *theirs, void *ours)
{
	if (theirs == NULL || theirs == ours)
		return;
	struct swap *s = swap_at(theirs);
	if (s->theirs == NULL)
		*s = (struct swap){theirs, ours};
}

/* A driver may hand out another address than it exports; each variant is asked for as a program would that was built for it. */
static void swap_ask(void)
{
	for (int i = 0; driver.cuGetProcAddress != NULL && i < HOOKS; i++) {
		const struct hook *h = &hooks[i];
		void *theirs = NULL;
		cuuint64_t flags = h->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
		if (driver.cuGetProcAddress(h->base, &theirs, h->version, flags) == CUDA_SUCCESS)
			swap_add(theirs, h->ours);
	}
}

static struct lock loading;

bool driver_load(void)
{
	task_watch_forks();
	lock_take(&loading);
	if (driver_loaded == 0) {
		void *real = dlopen("libcuda-real.so.1", RTLD_NOLOAD | RTLD_LAZY);
		if (real == NULL) {
			say("the driver's own libcuda cannot be found as libcuda-real.so.1 (%s); see `aliquot doctor`", dlerror());
			put_release(&driver_loaded, 2);
		} else {
#define X(name) driver.name = (__typeof__(driver.name))dlsym(real, #name);
			DRIVER_PLAIN(X)
#undef X
			for (int i = 0; i < HOOKS; i++) {
				void *theirs = dlsym(real, hooks[i].symbol);
				memcpy((char *)&driver + hooks[i].at, &theirs, sizeof(theirs));
				swap_add(theirs, hooks[i].ours);
			}
			swap_ask();
			put_release(&driver_loaded, 1);
		}
	}
	bool ready = driver_loaded == 1;
	lock_give(&loading);
	return ready;
}

/* The names that pass the shim, with why; see paths.def. */
static const char *const passed[] = {
#define HOOK(name, base, version, per_thread, kind)
#define PASSED(symbol, why) #symbol,
#include "paths.def"
};

/* Whether an exported symbol is a variant of the function that a program asks for by name: name, then _v2 and the like, then _ptsz. */
static bool is_variant(const char *symbol, const char *name)
{
	size_t n = strlen(name);
	return strncmp(symbol, name, n) == 0 &&
	       (symbol[n] == '\0' || strncmp(symbol + n, "_v", 2) == 0 || strncmp(symbol + n, "_pt", 3) == 0);
}

static uint64_t unknown_calls; /* of this process; programs look functions up before they initialise, and so before there is a page */

void driver_republish(void)
{
	__atomic_store_n(&tel_of(0)->unknown_calls, get(&unknown_calls), __ATOMIC_RELAXED);
}

/*
 * A function newer than this library, or one that we know in a variant that we do not: it goes around us, and that is counted in the task's
 * page, for the agent to show. Nothing is printed: runtime libraries look up all that a driver has, and call little of it.
 */
static void unknown_function(const char *symbol)
{
	bool known = false;
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]) && !known; i++)
		known = is_variant(passed[i], symbol);
	if (known)
		return;
	__atomic_fetch_add(&unknown_calls, 1, __ATOMIC_RELAXED);
	if (task_on())
		driver_republish();
}

void driver_forget(void)
{
	loading.word = 0;
	unknown_calls = 0;
}

static void swap_result(const char *symbol, void **pfn)
{
	if (pfn == NULL || *pfn == NULL || task.state == SHIM_OFF)
		return;
	struct swap *s = swap_at(*pfn);
	if (s->theirs != NULL)
		*pfn = s->ours;
	else if (symbol != NULL)
		unknown_function(symbol);
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags)
{
	CUresult r = REAL(cuGetProcAddress, symbol, pfn, cuda_version, flags);
	if (r == CUDA_SUCCESS)
		swap_result(symbol, pfn);
	return r;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags,
				    CUdriverProcAddressQueryResult *symbol_status)
{
	CUresult r = REAL(cuGetProcAddress_v2, symbol, pfn, cuda_version, flags, symbol_status);
	if (r == CUDA_SUCCESS)
		swap_result(symbol, pfn);
	return r;
}
