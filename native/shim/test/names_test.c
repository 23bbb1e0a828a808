/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names_test.c: every function that the shim stands in for is found as ours on each way that a program can take, and calls exactly its own
 * variant of the driver; what the shim does not know is the driver's.
 */
#include "fake_driver.h"
#include "harness.h"

#include <dlfcn.h>
#include <string.h>

static const struct name {
	const char *symbol, *base;
	int version;
	bool per_thread;
	void *linked;
} names[] = {
#define HOOK(name, base, version, per_thread, kind) {#name, base, version, per_thread, (void *)name},
#include "../paths.def"
};

#define NAMES (sizeof(names) / sizeof(names[0]))

static bool ours(void *address)
{
	Dl_info info;
	return dladdr(address, &info) != 0 && strstr(info.dli_fname, "lib/libcuda.so.1") != NULL;
}

static void fail(const struct name *n, const char *why)
{
	fprintf(stderr, "%s (%s, version %d): %s\n", n->symbol, n->base, n->version, why);
	exit(1);
}

static void test_found(void *shim)
{
	for (size_t i = 0; i < NAMES; i++) {
		const struct name *n = &names[i];
		void *v1 = NULL, *v2 = NULL;
		cuuint64_t flags =
			n->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
		if (!ours(n->linked))
			fail(n, "linked, it is not the shim's");
		if (dlsym(shim, n->symbol) != n->linked)
			fail(n, "looked up with dlsym, it is another");
		if (cuGetProcAddress(n->base, &v1, n->version, flags) != CUDA_SUCCESS || v1 != n->linked)
			fail(n, "cuGetProcAddress gives another");
		if (cuGetProcAddress_v2(n->base, &v2, n->version, flags, NULL) != CUDA_SUCCESS || v2 != n->linked)
			fail(n, "cuGetProcAddress_v2 gives another");
	}
}

/* A program asks cuGetProcAddress for cuGetProcAddress and goes on with that. */
static void test_through_itself(void)
{
	__typeof__(cuGetProcAddress_v2) *again = NULL;
	void *launch = NULL;
	CHECK_EQ(cuGetProcAddress_v2("cuGetProcAddress", (void **)&again, 12000, 0, NULL), CUDA_SUCCESS);
	CHECK(again == cuGetProcAddress_v2);
	CHECK_EQ(again("cuLaunchKernel", &launch, 12000, 0, NULL), CUDA_SUCCESS);
	CHECK(launch == (void *)cuLaunchKernel);
	CHECK_EQ(again("cuLaunchKernel", &launch, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL), CUDA_SUCCESS);
	CHECK(launch == (void *)cuLaunchKernel_ptsz);
}

static void test_unknown(void *shim)
{
	const char *unknown[] = {"cuOccupancyMaxActiveClusters", "cuFromAFutureDriver"};
	for (int i = 0; i < 2; i++) {
		void *found = dlsym(shim, unknown[i]), *asked = NULL;
		CHECK(found != NULL && !ours(found));
		CHECK_EQ(cuGetProcAddress(unknown[i], &asked, 12060, 0), CUDA_SUCCESS);
		CHECK(asked == found);
		CHECK_EQ(((int (*)(void))found)(), 0);
		CHECK(strcmp(fake_called(), unknown[i]) == 0);
	}
	void *none = shim;
	CHECK_EQ(cuGetProcAddress("cuNoSuchThing", &none, 12060, 0), CUDA_ERROR_NOT_FOUND);
}

/* Called with nothing but zeros, outside of any task: each reaches the driver's function of its own name. */
static void test_variants(void *driver)
{
	int reached = 0;
	for (size_t i = 0; i < NAMES; i++) {
		const struct name *n = &names[i];
		void *theirs = dlsym(driver, n->symbol);
		typedef int call(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
		if (theirs == NULL || ours(theirs))
			fail(n, "the driver does not have it");
		/* Those with a body of their own do not say that they were called; these have tests of their own. */
		char word[96];
		snprintf(word, sizeof(word), " %s ", n->symbol);
		if (strstr(fake_named(), word) != NULL)
			continue;
		((call *)n->linked)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
		if (strcmp(fake_called(), n->symbol) != 0)
			fail(n, fake_called());
		reached++;
	}
	CHECK(reached > 70);
}

int main(void)
{
	unsetenv("ALIQUOT_TASK");
	void *shim = dlopen("libcuda.so.1", RTLD_NOW);
	void *driver = dlopen("libcuda-real.so.1", RTLD_NOW | RTLD_NOLOAD);
	CHECK(shim != NULL && driver != NULL && shim != driver);
	test_found(shim);
	test_through_itself();
	test_unknown(shim);
	test_variants(driver);
	printf("names: ok\n");
	return 0;
}
