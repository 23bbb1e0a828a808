/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that the driver knows, managed memory, and what can be asked of a pointer. */
#include "simgpu/cuda/internal.h"

#include <sys/mman.h>

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	CUcontext c;
	if (!out || !bytes || (flags & ~7u))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	r = capture_unsafe();
	if (r != CUDA_SUCCESS)
		return leave(r);
	size_t size = (bytes + 4095) & ~(size_t)4095;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	struct range range = {.start = (uintptr_t)p, .size = size, .kind = R_HOST, .flags = flags, .device = c->device, .context = c};
	if (!range_add(range)) {
		munmap(p, size);
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*out = p;
	return leave(CUDA_SUCCESS);
}

CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
	return cuMemHostAlloc(out, bytes, 0);
}

static CUresult host_end(void *p, enum range_kind kind, CUresult otherwise)
{
	CUcontext c;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct range *range = range_find((uintptr_t)p);
	if (!p || !range || range->start != (uintptr_t)p || range->kind != kind)
		return leave(otherwise);
	r = await_context(range->context);
	range = range_find((uintptr_t)p);
	if (r != CUDA_SUCCESS || !range)
		return leave(r);
	if (kind == R_HOST)
		munmap(p, range->size);
	range_remove((uintptr_t)p);
	return leave(CUDA_SUCCESS);
}

CUresult cuMemFreeHost(void *p)
{
	return host_end(p, R_HOST, CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
	CUcontext c;
	if (!p || !bytes || (flags & ~15u))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (range_overlaps((uintptr_t)p, bytes))
		return leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	struct range range = {.start = (uintptr_t)p, .size = bytes, .kind = R_REGISTERED, .flags = flags, .device = c->device, .context = c};
	return leave(range_add(range) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuMemHostRegister(void *p, size_t bytes, unsigned int flags)
{
	return cuMemHostRegister_v2(p, bytes, flags);
}

CUresult cuMemHostUnregister(void *p)
{
	return host_end(p, R_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static struct range *host_range(const void *p)
{
	struct range *r = range_find((uintptr_t)p);
	return r && (r->kind == R_HOST || r->kind == R_REGISTERED) ? r : NULL;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned int flags)
{
	CUcontext c;
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!host_range(p))
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = (CUdeviceptr)(uintptr_t)p; /* one address space */
	return leave(CUDA_SUCCESS);
}

CUresult cuMemHostGetFlags(unsigned int *out, void *p)
{
	CUcontext c;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct range *range = host_range(p);
	if (!range)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = range->flags | CU_MEMHOSTALLOC_DEVICEMAP;
	return leave(CUDA_SUCCESS);
}

/* -------------------------------------------------------------------------------------------- advice on managed memory */

static CUresult managed(CUdeviceptr p, size_t count)
{
	CUcontext c;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct range *range = device_range(p, count);
	return leave(range && range->kind == R_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemAdvise(CUdeviceptr p, size_t count, CUmem_advise advice, CUdevice device)
{
	(void)device;
	return (unsigned)advice - 1 > 5 ? CUDA_ERROR_INVALID_VALUE : managed(p, count);
}

CUresult cuMemAdvise_v2(CUdeviceptr p, size_t count, CUmem_advise advice, CUmemLocation location)
{
	(void)location;
	return (unsigned)advice - 1 > 5 ? CUDA_ERROR_INVALID_VALUE : managed(p, count);
}

static CUresult prefetch(CUdeviceptr p, size_t count, CUstream h)
{
	CUstream s;
	CUresult r = managed(p, count);
	if (r != CUDA_SUCCESS)
		return r;
	r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_of(h, &s);
	if (r != CUDA_SUCCESS)
		return leave(r);
	/* The bytes are where they are; what is modelled is that they cross the bus. */
	struct region region = {.src = (char *)(uintptr_t)p, .dst = (char *)(uintptr_t)p, .width = count, .height = 1, .depth = 1, .src_host = true};
	struct work w = {.kind = W_COPY, .copy = {.region = region}};
	return leave(issue(s, &w));
}

CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t count, CUdevice device, CUstream s)
{
	(void)device;
	return prefetch(p, count, s);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr p, size_t count, CUmemLocation location, unsigned int flags, CUstream s)
{
	(void)location;
	return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(p, count, s);
}

/* ------------------------------------------------------------------------------------------------------------- pointers */

static CUresult attribute(void *out, CUpointer_attribute which, CUdeviceptr p)
{
	struct range *r = range_find((uintptr_t)p);
	bool host = r && (r->kind == R_HOST || r->kind == R_REGISTERED);
	if (!r)
		return CUDA_ERROR_INVALID_VALUE;
	switch (which) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)out = r->context;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)out = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)out = p;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!host && r->kind != R_MANAGED)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)out = (void *)(uintptr_t)p;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(int *)out = r->sync_memops;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)out = r->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)out = r->kind == R_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = (int)r->device;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*(unsigned *)out = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)out = r->start;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)out = r->size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned *)out = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(uint64_t *)out = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(unsigned *)out = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)out = r->pool;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute which, CUdeviceptr p)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	return leave(out ? attribute(out, which, p) : CUDA_ERROR_INVALID_VALUE);
}

/* Bytes of an attribute's value, to clear it for a pointer that the driver does not know. */
static size_t attribute_bytes(CUpointer_attribute which)
{
	switch (which) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return 4;
	default:
		return 8;
	}
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *which, void **out, CUdeviceptr p)
{
	if (!count || !which || !out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	for (unsigned i = 0; i < count; i++) {
		if (attribute(out[i], which[i], p) == CUDA_SUCCESS)
			continue;
		memset(out[i], 0, attribute_bytes(which[i]));
		if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)out[i] = -2;
	}
	return leave(CUDA_SUCCESS);
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute which, CUdeviceptr p)
{
	if (!value || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	struct range *range = range_find((uintptr_t)p);
	if (range)
		range->sync_memops = *(const int *)value != 0;
	return leave(range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
