/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paths_late.c: code and variables that the driver puts off until they are first used (CUDA_MODULE_LOADING=LAZY): charged once a launch has had
 * them loaded, and returned with what they belong to. Done by another process, since a driver is told so before it begins.
 */
#include "paths.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#define TAKES (6 * MI)

static const char ptx[] = ".version 7.0\n.target sm_50\n.address_size 64\n.global .align 8 .b8 large[6291456];\n"
			  ".visible .entry one() { ret; }\n.visible .entry other() { ret; }\n";

static CUmodule module;
static CUlibrary library;

static CUresult launch(CUfunction f)
{
	CUresult r = cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	return r == CUDA_SUCCESS ? cuCtxSynchronize() : r;
}

static CUresult launch_named(const char *name)
{
	CUfunction f;
	CUresult r = cuModuleGetFunction(&f, module, name);
	return r == CUDA_SUCCESS ? launch(f) : r;
}

static CUresult launch_kernel(void)
{
	CUkernel k;
	CUresult r = cuLibraryGetKernel(&k, library, "one");
	return r == CUDA_SUCCESS ? launch((CUfunction)(void *)k) : r;
}

static CUresult obey(char word)
{
	switch (word) {
	case 'm': return cuModuleLoadData(&module, ptx);
	case '1': return launch_named("one");
	case '2': return launch_named("other");
	case 's': return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 512); /* from 1 KiB */
	case 'u': return cuModuleUnload(module);
	case 'l': return cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0);
	case 'k': return launch_kernel();
	case 'v': return cuLibraryUnload(library);
	default: return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Does what it is told, a letter each, until the line ends. */
int role_late(int in, int out)
{
	CUcontext ctx;
	CUmoduleLoadingMode mode;
	char word;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	CHECK_EQ(cuModuleGetLoadingMode(&mode), CUDA_SUCCESS);
	CHECK_EQ(mode, CU_MODULE_LAZY_LOADING);
	CHECK_EQ(cuCtxCreate_v2(&ctx, 0, 0), CUDA_SUCCESS);
	while (read(in, &word, 1) == 1) {
		CUresult r = obey(word);
		CHECK(write(out, &r, sizeof(r)) == (ssize_t)sizeof(r));
	}
	return 0;
}

/* The process does something, after which the device holds so much for it, and it is charged for that, soon. */
static void told(struct other *o, char word, uint64_t holds)
{
	CUresult r;
	CHECK(write(o->to, &word, 1) == 1 && read(o->from, &r, sizeof(r)) == (ssize_t)sizeof(r));
	CHECK_EQ(r, CUDA_SUCCESS);
	CHECK_EQ(bytes_held(o->pid), holds);
	WAIT(bytes_of_other() == holds);
}

void test_late(void)
{
	setenv("CUDA_MODULE_LOADING", "LAZY", 1);
	struct other o = other_start("late");
	WAIT(bytes_held(o.pid) != 0 && bytes_of_other() == bytes_held(o.pid));
	unsetenv("CUDA_MODULE_LOADING");
	uint64_t context = bytes_held(o.pid);
	told(&o, 'm', context);
	told(&o, '1', context + TAKES);
	told(&o, 's', context + TAKES); /* what contexts begin with was never charged for it */
	told(&o, 'l', context + TAKES);
	told(&o, 'k', context + 2 * TAKES);
	told(&o, 'u', context + TAKES);
	told(&o, 'v', context);
	/* Where there is no room it cannot be undone: it is charged as soon as there is. */
	CUdeviceptr rest;
	CUresult r;
	CHECK_EQ(cuMemAlloc_v2(&rest, (LIMIT - bytes_charged() - bytes_of_other() - TAKES / 2) / (2 * MI) * (2 * MI)), CUDA_SUCCESS);
	told(&o, 'm', context);
	const struct alq_tel_grant *t = &arbiter.tel->slot[1].grant[0];
	uint64_t refused = get(&t->mem_refused);
	CHECK(write(o.to, "2", 1) == 1 && read(o.from, &r, sizeof(r)) == (ssize_t)sizeof(r));
	CHECK_EQ(r, CUDA_SUCCESS);
	WAIT(get(&t->mem_refused) != refused);
	CHECK_EQ(bytes_of_other(), context);
	CHECK_EQ(cuMemFree_v2(rest), CUDA_SUCCESS);
	WAIT(bytes_of_other() == context + TAKES);
	told(&o, 'u', context);
	other_end(&o);
	WAIT(get_acquire(&arbiter.tel->slot[1].state) == ALQ_SLOT_FREE);
}
