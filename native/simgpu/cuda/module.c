/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, and their functions and variables. */
#include "simgpu/cuda/internal.h"

#include <stdio.h>

static CUresult text_load(CUcontext c, const char *image, CUmodule *out)
{
	char *text = ptx_strip(image);
	CUmodule m = calloc(1, sizeof *m);
	if (!text || !m) {
		free(text);
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	m->context = c;
	m->next = c->modules;
	c->modules = m;
	handle_add(m, H_MODULE);
	CUresult r = ptx_check(text);
	if (r == CUDA_SUCCESS)
		r = ptx_entries(m, text);
	m->put_off = text;
	if (r == CUDA_SUCCESS && !api.puts_off)
		r = module_ready(m);
	if (r != CUDA_SUCCESS)
		module_free(m);
	else
		*out = m;
	return r;
}

CUresult module_load(CUcontext c, const void *image, CUmodule *out)
{
	const unsigned char *b = image;
	if (!b[0])
		return CUDA_ERROR_INVALID_IMAGE;
	if (b[0] == 0x7f && b[1] == 'E') /* machine code for a real GPU: nothing here runs it */
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	if (!fat_is(image))
		return text_load(c, image, out);
	char *text = fat_text(image);
	CUresult r = text ? text_load(c, text, out) : CUDA_ERROR_NO_BINARY_FOR_GPU;
	free(text);
	return r;
}

CUresult module_ready(CUmodule m)
{
	char *text = m->put_off;
	m->put_off = NULL;
	CUresult r = text ? ptx_globals(m, text) : CUDA_SUCCESS;
	free(text);
	return r;
}

void module_free(CUmodule m)
{
	handle_remove(m);
	for (CUmodule *at = &m->context->modules; *at; at = &(*at)->next)
		if (*at == m) {
			*at = m->next;
			break;
		}
	while (m->functions) {
		CUfunction f = m->functions;
		m->functions = f->next;
		handle_remove(f);
		free(f);
	}
	while (m->variables) {
		struct variable *v = m->variables;
		m->variables = v->next;
		struct range *r = v->at ? range_find(v->at) : NULL;
		if (r)
			memory_free(r, NULL);
		free(v);
	}
	free(m->put_off);
	free(m);
}

/* ----------------------------------------------------------------------------------------------------------- the modules */

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	CUcontext c;
	if (!out || !image)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	r = capture_unsafe();
	return leave(r == CUDA_SUCCESS ? module_load(c, image, out) : r);
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	CUresult r = cuModuleLoadData(out, image);
	for (unsigned i = 0; options && values && i < count; i++) {
		bool log = options[i] == CU_JIT_ERROR_LOG_BUFFER && values[i];
		for (unsigned k = 0; log && k < count; k++) {
			if (options[k] != CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
				continue;
			size_t room = (size_t)(uintptr_t)values[k];
			if (room)
				snprintf(values[i], room, "%s", r == CUDA_ERROR_INVALID_PTX ? "simgpu: the text is not PTX that it can read" : "");
		}
	}
	return r;
}

CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
	return cuModuleLoadData(out, image);
}

/* The whole of a file, with a NUL after it. */
static CUresult read_file(const char *path, char **out)
{
	FILE *f = fopen(path, "re");
	if (!f)
		return CUDA_ERROR_FILE_NOT_FOUND;
	char *text = NULL;
	size_t size = 0, got = 0, n;
	do {
		char *more = realloc(text, size += 65536);
		if (!more) {
			free(text);
			fclose(f);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		text = more;
		n = fread(text + got, 1, size - got - 1, f);
		got += n;
	} while (n);
	text[got] = '\0';
	fclose(f);
	*out = text;
	return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule *out, const char *path)
{
	char *text;
	if (!out || !path)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = read_file(path, &text);
	if (r != CUDA_SUCCESS)
		return r;
	r = cuModuleLoadData(out, text);
	free(text);
	return r;
}

CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *jit, void **jit_values, unsigned int jit_count,
			       CUlibraryOption *options, void **values, unsigned int count)
{
	char *text;
	if (!out || !path)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = read_file(path, &text);
	if (r != CUDA_SUCCESS)
		return r;
	r = cuLibraryLoadData(out, text, jit, jit_values, jit_count, options, values, count);
	free(text);
	return r;
}

CUresult cuModuleUnload(CUmodule m)
{
	CUcontext c;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(m, H_MODULE) || m->library)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	r = await_context(m->context); /* its kernels may be running */
	if (handle_is(m, H_MODULE))
		module_free(m);
	return leave(r);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = api.puts_off ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
	return CUDA_SUCCESS;
}

static CUresult function_named(CUmodule m, const char *name, CUfunction *out)
{
	for (CUfunction f = m->functions; f; f = f->next)
		if (strcmp(f->name, name) == 0) {
			*out = f;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name)
{
	TRY(enter());
	if (!out || !name)
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(handle_is(m, H_MODULE) ? function_named(m, name, out) : CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule m)
{
	TRY(enter());
	if (!count)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!handle_is(m, H_MODULE))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	*count = 0;
	for (CUfunction f = m->functions; f; f = f->next)
		++*count;
	return leave(CUDA_SUCCESS);
}

CUresult cuModuleEnumerateFunctions(CUfunction *out, unsigned int room, CUmodule m)
{
	TRY(enter());
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!handle_is(m, H_MODULE))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	for (CUfunction f = m->functions; f && room; f = f->next, room--)
		*out++ = f;
	return leave(CUDA_SUCCESS);
}

static CUresult variable_named(CUmodule m, const char *name, CUdeviceptr *at, size_t *bytes)
{
	CUresult r = module_ready(m);
	if (r != CUDA_SUCCESS)
		return r;
	for (struct variable *v = m->variables; v; v = v->next) {
		if (strcmp(v->name, name) != 0)
			continue;
		if (at)
			*at = v->at;
		if (bytes)
			*bytes = v->bytes;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *bytes, CUmodule m, const char *name)
{
	TRY(enter());
	if (!name)
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(handle_is(m, H_MODULE) ? variable_named(m, name, at, bytes) : CUDA_ERROR_INVALID_HANDLE);
}

/* --------------------------------------------------------------------------------------------------------- the functions */

CUresult function_of(CUfunction f, CUfunction *out)
{
	if (handle_is(f, H_KERNEL))
		f = ((CUkernel)(void *)f)->function;
	if (!handle_is(f, H_FUNCTION))
		return CUDA_ERROR_INVALID_HANDLE;
	*out = f;
	return module_ready(f->module);
}

static CUresult enter_function(CUfunction h, CUfunction *f)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = function_of(h, f);
	return r == CUDA_SUCCESS ? r : leave(r);
}

CUresult cuFuncGetModule(CUmodule *out, CUfunction h)
{
	CUfunction f;
	TRY(enter_function(h, &f));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = f->module;
	return leave(CUDA_SUCCESS);
}

CUresult cuFuncGetName(const char **out, CUfunction h)
{
	CUfunction f;
	TRY(enter_function(h, &f));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = f->name;
	return leave(CUDA_SUCCESS);
}

CUresult cuFuncGetParamInfo(CUfunction h, size_t index, size_t *offset, size_t *size)
{
	CUfunction f;
	TRY(enter_function(h, &f));
	if (!offset || index >= f->params)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*offset = f->param[index].offset;
	if (size)
		*size = f->param[index].size;
	return leave(CUDA_SUCCESS);
}

CUresult cuFuncGetAttribute(int *out, CUfunction_attribute attribute, CUfunction h)
{
	CUfunction f;
	TRY(enter_function(h, &f));
	const struct sim_info *info = &api.info[f->module->context->device];
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*out = 1024;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*out = 32;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*out = (int)(info->major * 10 + info->minor);
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*out = f->dynamic_shared ? f->dynamic_shared : 49152;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*out = f->carveout;
		break;
	default:
		if ((unsigned)attribute > CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
			return leave(CUDA_ERROR_INVALID_VALUE);
		*out = 0;
	}
	return leave(CUDA_SUCCESS);
}

CUresult cuFuncSetAttribute(CUfunction h, CUfunction_attribute attribute, int value)
{
	CUfunction f;
	TRY(enter_function(h, &f));
	if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		if (value < 0 || (uint32_t)value > api.info[f->module->context->device].shared_optin)
			return leave(CUDA_ERROR_INVALID_VALUE);
		f->dynamic_shared = value;
	} else if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
		f->carveout = value;
	} else if ((unsigned)attribute < CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET ||
		   (unsigned)attribute > CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE) {
		return leave(CUDA_ERROR_INVALID_VALUE);
	}
	return leave(CUDA_SUCCESS);
}

CUresult cuFuncLoad(CUfunction h)
{
	CUfunction f;
	CUresult r = enter_function(h, &f);
	return r == CUDA_SUCCESS ? leave(r) : r;
}

CUresult cuFuncSetCacheConfig(CUfunction h, CUfunc_cache config)
{
	CUfunction f;
	(void)config;
	CUresult r = enter_function(h, &f);
	return r == CUDA_SUCCESS ? leave(r) : r;
}

CUresult cuFuncSetSharedMemConfig(CUfunction h, CUsharedconfig config)
{
	CUfunction f;
	(void)config;
	CUresult r = enter_function(h, &f);
	return r == CUDA_SUCCESS ? leave(r) : r;
}
