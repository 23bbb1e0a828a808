/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries: code that is loaded without a context and used in each. Here a library belongs to the context that was current when it was loaded,
 * and its kernels are functions of that context. */
#include "simgpu/cuda/internal.h"



struct CUlib_st {
	CUmodule module;
	CUkernel kernels;
};

CUresult cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *jit, void **jit_values, unsigned int jit_count,
			   CUlibraryOption *options, void **values, unsigned int count)
{
	CUcontext c;
	(void)jit;
	(void)jit_values;
	(void)jit_count;
	(void)options;
	(void)values;
	(void)count;
	if (!out || !code)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	CUlibrary l = calloc(1, sizeof *l);
	if (!l)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	r = module_load(c, code, &l->module);
	if (r != CUDA_SUCCESS) {
		free(l);
		return leave(r);
	}
	l->module->library = l;
	for (CUfunction f = l->module->functions; f; f = f->next) {
		CUkernel k = calloc(1, sizeof *k);
		if (!k) {
			r = CUDA_ERROR_OUT_OF_MEMORY;
			break;
		}
		k->library = l;
		k->function = f;
		f->kernel = k;
		k->next = l->kernels;
		l->kernels = k;
		handle_add(k, H_KERNEL);
	}
	handle_add(l, H_LIBRARY);
	*out = l;
	return leave(r);
}

CUresult cuLibraryUnload(CUlibrary l)
{
	TRY(enter());
	if (!handle_is(l, H_LIBRARY))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	handle_remove(l);
	if (handle_is(l->module, H_MODULE)) { /* else its context is gone, and the module with it */
		await_context(l->module->context);
		if (handle_is(l->module, H_MODULE))
			module_free(l->module);
	}
	while (l->kernels) {
		CUkernel k = l->kernels;
		l->kernels = k->next;
		handle_remove(k);
		free(k);
	}
	free(l);
	return leave(CUDA_SUCCESS);
}

static CUresult enter_library(CUlibrary l)
{
	TRY(enter());
	if (!handle_is(l, H_LIBRARY))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	return handle_is(l->module, H_MODULE) ? CUDA_SUCCESS : leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary l, const char *name)
{
	if (!out || !name)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_library(l));
	for (CUkernel k = l->kernels; k; k = k->next)
		if (strcmp(k->function->name, name) == 0) {
			*out = k;
			return leave(CUDA_SUCCESS);
		}
	return leave(CUDA_ERROR_NOT_FOUND);
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary l)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_library(l));
	*count = 0;
	for (CUkernel k = l->kernels; k; k = k->next)
		++*count;
	return leave(CUDA_SUCCESS);
}

CUresult cuLibraryEnumerateKernels(CUkernel *out, unsigned int room, CUlibrary l)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_library(l));
	for (CUkernel k = l->kernels; k && room; k = k->next, room--)
		*out++ = k;
	return leave(CUDA_SUCCESS);
}

CUresult cuLibraryGetModule(CUmodule *out, CUlibrary l)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_library(l));
	*out = l->module;
	return leave(CUDA_SUCCESS);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *at, size_t *bytes, CUlibrary l, const char *name)
{
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_library(l));
	CUresult r = module_ready(l->module);
	if (r != CUDA_SUCCESS)
		return leave(r);
	for (struct variable *v = l->module->variables; v; v = v->next)
		if (strcmp(v->name, name) == 0) {
			if (at)
				*at = v->at;
			if (bytes)
				*bytes = v->bytes;
			return leave(CUDA_SUCCESS);
		}
	return leave(CUDA_ERROR_NOT_FOUND);
}

static CUresult enter_kernel(CUkernel k)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && !handle_is(k, H_KERNEL))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	return r;
}

CUresult cuKernelGetFunction(CUfunction *out, CUkernel k)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_kernel(k));
	if (!handle_is(k->function, H_FUNCTION))
		return leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	*out = k->function;
	return leave(CUDA_SUCCESS);
}

CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel k)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_kernel(k));
	*out = k->library;
	return leave(CUDA_SUCCESS);
}

CUresult cuKernelGetName(const char **out, CUkernel k)
{
	CUfunction f;
	CUresult r = cuKernelGetFunction(&f, k);
	return r == CUDA_SUCCESS ? cuFuncGetName(out, f) : r;
}

CUresult cuKernelGetParamInfo(CUkernel k, size_t index, size_t *offset, size_t *size)
{
	CUfunction f;
	CUresult r = cuKernelGetFunction(&f, k);
	return r == CUDA_SUCCESS ? cuFuncGetParamInfo(f, index, offset, size) : r;
}

CUresult cuKernelGetAttribute(int *out, CUfunction_attribute attribute, CUkernel k, CUdevice device)
{
	CUfunction f;
	(void)device;
	CUresult r = cuKernelGetFunction(&f, k);
	return r == CUDA_SUCCESS ? cuFuncGetAttribute(out, attribute, f) : r;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel k, CUdevice device)
{
	CUfunction f;
	(void)device;
	CUresult r = cuKernelGetFunction(&f, k);
	return r == CUDA_SUCCESS ? cuFuncSetAttribute(f, attribute, value) : r;
}

CUresult cuKernelSetCacheConfig(CUkernel k, CUfunc_cache config, CUdevice device)
{
	CUfunction f;
	(void)device;
	CUresult r = cuKernelGetFunction(&f, k);
	return r == CUDA_SUCCESS ? cuFuncSetCacheConfig(f, config) : r;
}
