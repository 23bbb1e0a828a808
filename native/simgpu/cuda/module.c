/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules from PTX text. Of a kernel only its name and parameters are read: nothing is computed.
 *
 * How long a kernel takes: a part of its name between underscores that is a number and ns, us, ms or s says so (alq_busy_500us; the last
 * such part counts). A parameter of type .u64 called ns, or ending in _ns, overrides that when it is not zero. A name that says nothing
 * takes kernel_default_ns (costs.h).
 */
#include "simgpu/cuda/internal.h"

#include <ctype.h>
#include <stdio.h>

/* ------------------------------------------------------------------------------------------------------------------ text */

/* A copy of the text without comments; NULL: it is no text, or memory is out. */
static char *strip(const char *text)
{
	size_t n = strlen(text), out = 0;
	char *copy = malloc(n + 1);
	if (!copy)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		if (text[i] == '/' && text[i + 1] == '/') {
			while (i < n && text[i] != '\n')
				i++;
			copy[out++] = '\n';
		} else if (text[i] == '/' && text[i + 1] == '*') {
			const char *end = strstr(text + i + 2, "*/");
			i = end ? (size_t)(end - text) + 1 : n;
			copy[out++] = ' ';
		} else {
			copy[out++] = text[i];
		}
	}
	copy[out] = '\0';
	return copy;
}

static bool in_name(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static const char *skip_space(const char *p)
{
	while (isspace((unsigned char)*p))
		p++;
	return p;
}

/* Reads a name into `to`; NULL: there is none, or it is too long. */
static const char *read_name(const char *p, char *to, size_t room)
{
	size_t n = 0;
	p = skip_space(p);
	while (in_name(*p) && n + 1 < room)
		to[n++] = *p++;
	to[n] = '\0';
	return n && !in_name(*p) ? p : NULL;
}

/* Bytes of a PTX type such as u64 or b8; 0: no such type. */
static size_t type_bytes(const char *type)
{
	static const char *const known[] = {"u8", "s8", "b8", "u16", "s16", "b16", "f16", "u32", "s32", "b32", "f32", "u64", "s64", "b64", "f64"};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(known[i], type) == 0)
			return (size_t)atoi(type + 1) / 8;
	return 0;
}

static uint64_t name_ns(const char *name)
{
	uint64_t found = 0;
	for (const char *p = name; *p;) {
		size_t n = strcspn(p, "_");
		char *end;
		if (isdigit((unsigned char)*p)) {
			uint64_t value = strtoull(p, &end, 10);
			size_t unit = n - (size_t)(end - p);
			uint64_t scale = unit == 2 && !strncmp(end, "ns", 2)   ? 1
					 : unit == 2 && !strncmp(end, "us", 2) ? 1000
					 : unit == 2 && !strncmp(end, "ms", 2) ? 1000000
					 : unit == 1 && *end == 's'	       ? 1000000000
									       : 0;
			if (scale && value && value <= SIM_NEVER / scale)
				found = value * scale;
		}
		p += n;
		p += *p == '_';
	}
	return found;
}

/* ------------------------------------------------------------------------------------------------------------- functions */

/* A declaration `.align 8 .b8 name[24]` from after its state space: name, size and alignment. */
static const char *read_variable(const char *p, char *name, size_t room, size_t *bytes, size_t *align)
{
	char word[32];
	size_t element = 0;
	*align = 0;
	for (p = skip_space(p); *p == '.'; p = skip_space(p)) {
		p = read_name(p + 1, word, sizeof word);
		if (!p)
			return NULL;
		if (strcmp(word, "align") == 0) {
			char *end;
			*align = strtoul(skip_space(p), &end, 10);
			p = end;
		} else if (type_bytes(word)) {
			element = type_bytes(word);
		} else if (strcmp(word, "v2") == 0 || strcmp(word, "v4") == 0) {
			element *= (size_t)(word[1] - '0');
		} else if (strcmp(word, "ptr") == 0 || strcmp(word, "global") == 0 || strcmp(word, "shared") == 0 || strcmp(word, "const") == 0) {
			continue; /* where a pointer points */
		} else {
			return NULL;
		}
	}
	p = read_name(p, name, room);
	if (!p || !element)
		return NULL;
	if (!*align)
		*align = element;
	*bytes = element;
	for (p = skip_space(p); *p == '['; p = skip_space(p)) {
		char *end;
		*bytes *= strtoul(p + 1, &end, 10);
		p = skip_space(end);
		if (*p++ != ']')
			return NULL;
	}
	return *bytes ? p : NULL;
}

static bool read_params(const char *p, CUfunction f)
{
	p = skip_space(p);
	if (*p != '(')
		return true; /* a kernel without parameters */
	p = skip_space(p + 1);
	while (*p != ')') {
		char name[256];
		size_t bytes, align;
		if (strncmp(p, ".param", 6) != 0 || f->params == 64)
			return false;
		p = read_variable(p + 6, name, sizeof name, &bytes, &align);
		if (!p || (align & (align - 1)) || align > 4096 || bytes > 32768)
			return false;
		size_t n = strlen(name);
		if (bytes == 8 && f->ns_param < 0 && (strcmp(name, "ns") == 0 || (n > 3 && strcmp(name + n - 3, "_ns") == 0)))
			f->ns_param = (int)f->params;
		f->param_bytes = (f->param_bytes + align - 1) & ~(align - 1);
		f->param[f->params++] = (struct param){f->param_bytes, bytes};
		f->param_bytes += bytes;
		p = skip_space(p);
		if (*p == ',')
			p = skip_space(p + 1);
		else if (*p != ')')
			return false;
	}
	return true;
}

static CUresult read_entries(CUmodule m, const char *text)
{
	for (const char *p = text; (p = strstr(p, ".entry"));) {
		p += 6;
		CUfunction f = calloc(1, sizeof *f);
		if (!f)
			return CUDA_ERROR_OUT_OF_MEMORY;
		f->module = m;
		f->ns_param = -1;
		f->carveout = -1;
		f->next = m->functions;
		m->functions = f;
		handle_add(f, H_FUNCTION);
		const char *after = read_name(p, f->name, sizeof f->name);
		if (!after || !read_params(after, f))
			return CUDA_ERROR_INVALID_PTX;
		f->ns = name_ns(f->name);
		if (!f->ns)
			f->ns = api.kernel_default_ns;
		p = after;
	}
	return CUDA_SUCCESS;
}

/* Variables outside of functions. */
static CUresult read_globals(CUmodule m, const char *text)
{
	int depth = 0;
	for (const char *p = text; *p; p++) {
		depth += *p == '{' || *p == '(';
		depth -= *p == '}' || *p == ')';
		bool global = !strncmp(p, ".global", 7) || !strncmp(p, ".const", 6);
		if (depth || !global)
			continue;
		struct variable *v = calloc(1, sizeof *v);
		size_t align;
		if (!v)
			return CUDA_ERROR_OUT_OF_MEMORY;
		const char *after = read_variable(p + (p[1] == 'g' ? 7 : 6), v->name, sizeof v->name, &v->bytes, &align);
		if (!after) {
			free(v);
			return CUDA_ERROR_INVALID_PTX;
		}
		v->next = m->variables;
		m->variables = v;
		CUresult r = memory_alloc(m->context, NULL, NULL, v->bytes, R_DEVICE, &v->at);
		if (r != CUDA_SUCCESS)
			return r;
		memset((void *)(uintptr_t)v->at, 0, v->bytes);
		p = after - 1;
	}
	return CUDA_SUCCESS;
}

static CUresult check_text(const char *text)
{
	int depth = 0;
	for (const char *p = text; *p; p++) {
		if ((unsigned char)*p >= 0x80 || (iscntrl((unsigned char)*p) && !isspace((unsigned char)*p)))
			return CUDA_ERROR_INVALID_PTX;
		depth += *p == '{';
		depth -= *p == '}';
		if (depth < 0)
			return CUDA_ERROR_INVALID_PTX;
	}
	if (depth || !strstr(text, ".version") || !strstr(text, ".target") || !strstr(text, ".address_size"))
		return CUDA_ERROR_INVALID_PTX;
	return CUDA_SUCCESS;
}

CUresult module_load(CUcontext c, const void *image, CUmodule *out)
{
	const unsigned char *b = image;
	if (!b[0])
		return CUDA_ERROR_INVALID_IMAGE;
	/* Machine code for a real GPU (ELF, fat binary): nothing here runs it. */
	if ((b[0] == 0x7f && b[1] == 'E') || (b[0] == 0x50 && b[1] == 0xed))
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	char *text = strip(image);
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
	CUresult r = check_text(text);
	if (r == CUDA_SUCCESS)
		r = read_entries(m, text);
	if (r == CUDA_SUCCESS)
		r = read_globals(m, text);
	free(text);
	if (r != CUDA_SUCCESS)
		module_free(m);
	else
		*out = m;
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
	CUcontext c;
	if (!out || !image)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	return r == CUDA_SUCCESS ? leave(CUDA_ERROR_NO_BINARY_FOR_GPU) : r;
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
	*mode = CU_MODULE_EAGER_LOADING;
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
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !name)
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(handle_is(m, H_MODULE) ? function_named(m, name, out) : CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule m)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
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
	return CUDA_SUCCESS;
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
	CUresult r = enter_function(h, &f);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = f->module;
	return leave(CUDA_SUCCESS);
}

CUresult cuFuncGetName(const char **out, CUfunction h)
{
	CUfunction f;
	CUresult r = enter_function(h, &f);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = f->name;
	return leave(CUDA_SUCCESS);
}

CUresult cuFuncGetParamInfo(CUfunction h, size_t index, size_t *offset, size_t *size)
{
	CUfunction f;
	CUresult r = enter_function(h, &f);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_function(h, &f);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_function(h, &f);
	if (r != CUDA_SUCCESS)
		return r;
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
