/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_names.c: every function that the shim stands in for, as a driver of which nothing is known but the names: each answers with
 * success and remembers that it was called. fake_driver.c and fake_memory.c have the ones that do something. cuda.h is not included, so that
 * one body fits all.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static const char *fake_called_last;
int fake_lookup(const char *symbol, void **pfn, int version, uint64_t flags);

EXPORT const char *fake_called(void)
{
	return fake_called_last;
}

#define NAME(name)                                                                                                                 \
	EXPORT __attribute__((weak)) int name(void)                                                                                \
	{                                                                                                                          \
		fake_called_last = #name;                                                                                          \
		return 0;                                                                                                          \
	}
#define HOOK(name, base, version, per_thread, kind) NAME(name)
#include "../paths.def"
NAME(cuOccupancyMaxActiveClusters) /* one that the shim does not know */
NAME(cuFromAFutureDriver)

static const struct variant {
	const char *symbol, *base;
	int version, per_thread;
} variants[] = {
#define HOOK(name, base, version, per_thread, kind) {#name, base, version, per_thread},
#include "../paths.def"
	{"cuOccupancyMaxActiveClusters", "cuOccupancyMaxActiveClusters", 11070, 0},
	{"cuFromAFutureDriver", "cuFromAFutureDriver", 12000, 0},
};

/* The newest variant that a program built for that version knows; the per-thread one where it is asked for and there is one. */
int fake_lookup(const char *symbol, void **pfn, int version, uint64_t flags)
{
	const struct variant *best = NULL;
	for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
		const struct variant *v = &variants[i];
		if (strcmp(v->base, symbol) != 0 || v->version > version || (v->per_thread && flags != 2))
			continue;
		if (best == NULL || v->per_thread > best->per_thread || (v->per_thread == best->per_thread && v->version > best->version))
			best = v;
	}
	*pfn = NULL;
	if (best == NULL)
		return 500;
	Dl_info info;
	dladdr((void *)fake_lookup, &info);
	void *self = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
	*pfn = self == NULL ? NULL : dlsym(self, best->symbol);
	return *pfn == NULL ? 500 : 0;
}
