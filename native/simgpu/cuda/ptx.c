/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PTX text, read for what the simulation needs. Of a kernel only its name and parameters are read: nothing is computed.
 *
 * How long a kernel takes: a part of its name between underscores that is a number and ns, us, ms or s says so (alq_busy_500us; the last
 * such part counts). A parameter of type .u64 called ns, or ending in _ns, overrides that when it is not zero. A name that says nothing
 * takes kernel_default_ns (costs.h).
 */
#include "simgpu/cuda/internal.h"

#include <ctype.h>

/* ------------------------------------------------------------------------------------------------------------------ text */

/* A copy of the text without comments; NULL: it is no text, or memory is out. */
char *ptx_strip(const char *text)
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

CUresult ptx_entries(CUmodule m, const char *text)
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
CUresult ptx_globals(CUmodule m, const char *text)
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

CUresult ptx_check(const char *text)
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
