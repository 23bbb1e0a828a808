/* SPDX-License-Identifier: Apache-2.0 */
/* Looking functions up by name and version. */
#include "simgpu/cuda/internal.h"

typedef void (*function)(void);

static const struct entry {
	const char *name;
	int version;
	function plain, per_thread;
} table[] = {
#define API(name, version, plain, per_thread) {#name, version, (function)plain, (function)per_thread},
#include "simgpu/cuda/api.def"
#undef API
};

CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	const struct entry *found = NULL;
	bool known = false;
	if (!symbol || !out || flags > (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		if (strcmp(table[i].name, symbol) != 0)
			continue;
		known = true;
		if (table[i].version <= version)
			found = &table[i];
	}
	if (status)
		*status = found	  ? CU_GET_PROC_ADDRESS_SUCCESS
			  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (!found)
		return status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
	function f = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? found->per_thread : found->plain;
	memcpy(out, &f, sizeof f);
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **out, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, out, version, flags, NULL);
}

/* Undocumented tables that the vendor's runtime library asks for: there are none here, so that library does not run on simulated devices. */
CUresult cuGetExportTable(const void **out, const CUuuid *id)
{
	if (!out || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	return CUDA_ERROR_NOT_FOUND;
}
