/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc.c: every family of allocations with its frees: reserved first, then allocated; if the driver refuses, nothing stays reserved. What is
 * under 1 MiB and has an address is a piece, and charged by the blocks that the driver cuts it out of; an array has none, and is charged a block
 * however small it is. Memory in the host is not counted; what another process allocated and this one opens is in ipc.c. Allocations in stream order are in pool.c, those of graphs in graph.c.
 */
#include "driver.h"
#include "exports.h"

/* The grant to charge: 0 or more; -1: not ours to count; *error: refused. */
static int charge_grant(CUresult *error)
{
	*error = CUDA_SUCCESS;
	if (task_on())
		return meter_current_grant();
	if (get_acquire(&task.state) == SHIM_FAILED)
		*error = CUDA_ERROR_SYSTEM_NOT_READY;
	return -1;
}

#define PIECE (1u << 20) /* plain allocations under so many bytes share blocks */

/* Books an allocation that was made. False: there is no memory to remember it in. */
static bool book(uint32_t grant, uint64_t size, uint64_t key, enum block_kind kind)
{
	ALQ_POINT("shim.memory.allocated");
	uint64_t reserved = memory_round(size);
	bool piece = size < PIECE && (kind == BLOCK_PLAIN || kind == BLOCK_MANAGED);
	struct block b = {.key = key, .bytes = piece ? 0 : reserved, .grant = grant, .kind = piece ? BLOCK_PIECE : (uint32_t)kind};
	driver.cuCtxGetCurrent(&b.context);
	if (!blocks_add(&b))
		return false;
	if (piece && !pieces_made(&b)) {
		blocks_take(key, &b);
		return false;
	}
	if (!piece && (kind == BLOCK_PLAIN || kind == BLOCK_MANAGED))
		pieces_covered(key, reserved);
	return true;
}

/* Reserves, calls, books; what cannot be booked is undone. what is read after the call. */
#define ALLOCATE(size, kind, what, undo, name, ...)                                                                                \
	do {                                                                                                                       \
		CUresult r;                                                                                                        \
		int grant = charge_grant(&r);                                                                                      \
		if (r != CUDA_SUCCESS)                                                                                             \
			return r;                                                                                                  \
		if (grant < 0)                                                                                                     \
			return REAL(name, __VA_ARGS__);                                                                            \
		uint64_t bytes = size;                                                                                             \
		if (!pools_reserve((uint32_t)grant, memory_round(bytes)))                                                          \
			return CUDA_ERROR_OUT_OF_MEMORY;                                                                           \
		r = REAL(name, __VA_ARGS__);                                                                                       \
		if (likely(r == CUDA_SUCCESS)) {                                                                                   \
			if (likely(book((uint32_t)grant, bytes, (uint64_t)(uintptr_t)(what), kind)))                               \
				return r;                                                                                          \
			REAL(undo, what);                                                                                          \
			r = CUDA_ERROR_OUT_OF_MEMORY;                                                                              \
		}                                                                                                                  \
		memory_return((uint32_t)grant, memory_round(bytes));                                                               \
		return r;                                                                                                          \
	} while (0)

/* Taken out of the table before the driver may hand the same address out again; put back if it does not free. */
#define FREE(key, name, ...)                                                                                                       \
	do {                                                                                                                       \
		struct block b;                                                                                                    \
		struct leaving l;                                                                                                  \
		bool ours = task_on() && blocks_take((uint64_t)(key), &b);                                                         \
		if (ours)                                                                                                          \
			blocks_leaving(&b, &l);                                                                                    \
		CUresult r = REAL(name, __VA_ARGS__);                                                                              \
		if (ours)                                                                                                          \
			blocks_left(&b, &l, r);                                                                                    \
		return r;                                                                                                          \
	} while (0)

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t size)
{
	ALLOCATE(size, BLOCK_PLAIN, *dptr, cuMemFree_v2, cuMemAlloc_v2, dptr, size);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t size, unsigned int flags)
{
	ALLOCATE(size, BLOCK_MANAGED, *dptr, cuMemFree_v2, cuMemAllocManaged, dptr, size, flags);
}

/* The driver chooses the pitch; no device aligns rows to more than this. */
#define PITCH 512

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;
	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	uint64_t row = width > UINT64_MAX - PITCH ? UINT64_MAX : ((uint64_t)width + PITCH - 1) / PITCH * PITCH;
	ALLOCATE(times(row, height), BLOCK_PLAIN, *dptr, cuMemFree_v2, cuMemAllocPitch_v2, dptr, pitch, width, height, element);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct block b;
	struct leaving l;
	bool ours = task_on() && blocks_take(dptr, &b);
	if (ours)
		blocks_leaving(&b, &l);
	CUresult r = REAL(cuMemFree_v2, dptr);
	if (ours)
		blocks_left(&b, &l, r);
	else
		pools_settle(); /* a pool's: freed at once, and the device has come to rest */
	return r;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream)
{
	FREE(dptr, cuMemFreeAsync, dptr, stream);
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream)
{
	FREE(dptr, cuMemFreeAsync_ptsz, dptr, stream);
}

/* -------------------------------------------------------------------------------------------------------------- arrays */

static uint64_t format_bytes(CUarray_format format)
{
	switch ((int)format) {
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 1; /* bytes, and the compressed formats, of which none takes more for an element */
	}
}

static uint64_t array_bytes(uint64_t width, uint64_t height, uint64_t depth, CUarray_format format, unsigned int channels)
{
	uint64_t plane = times(width, height == 0 ? 1 : height);
	return times(times(plane, depth == 0 ? 1 : depth), format_bytes(format) * channels);
}

EXPORT CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *d)
{
	uint64_t size = d == NULL ? 0 : array_bytes(d->Width, d->Height, 1, d->Format, d->NumChannels);
	ALLOCATE(size, BLOCK_ARRAY, *handle, cuArrayDestroy, cuArrayCreate_v2, handle, d);
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	uint64_t size = d == NULL ? 0 : array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels);
	ALLOCATE(size, BLOCK_ARRAY, *handle, cuArrayDestroy, cuArray3DCreate_v2, handle, d);
}

EXPORT CUresult cuArrayDestroy(CUarray array)
{
	FREE((uintptr_t)array, cuArrayDestroy, array);
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	uint64_t size = 0, small = 0;
	/* Levels are allocated one by one; the small ones fit into one block together. */
	for (unsigned int i = 0; d != NULL && i < levels && i < 64; i++) {
		uint64_t w = d->Width >> i, h = d->Height >> i, depth = d->Flags & CUDA_ARRAY3D_LAYERED ? d->Depth : d->Depth >> i;
		uint64_t level = array_bytes(w == 0 ? 1 : w, h, depth, d->Format, d->NumChannels);
		uint64_t *sum = level < PIECE ? &small : &size;
		level = level < PIECE ? level : memory_round(level);
		*sum = *sum > UINT64_MAX - level ? UINT64_MAX : *sum + level;
	}
	small = memory_round(small);
	size = size > UINT64_MAX - small ? UINT64_MAX : size + small;
	ALLOCATE(size, BLOCK_MIPMAP, *handle, cuMipmappedArrayDestroy, cuMipmappedArrayCreate, handle, d, levels);
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	FREE((uintptr_t)array, cuMipmappedArrayDestroy, array);
}

/* ------------------------------------------------------------------------------------------------------- virtual memory */

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	if (get_acquire(&task.state) == SHIM_FAILED)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	/* A location names a device by its handle; what lies in the host is not counted. */
	bool counted = task_on() && prop != NULL && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	int grant = counted ? view_grant(prop->location.id) : -1;
	if (grant < 0)
		return REAL(cuMemCreate, handle, size, prop, flags);
	uint64_t bytes = memory_round(size);
	if (!pools_reserve((uint32_t)grant, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = REAL(cuMemCreate, handle, size, prop, flags);
	ALQ_POINT("shim.memory.created");
	if (r == CUDA_SUCCESS && !physical_add(*handle, bytes, (uint32_t)grant)) {
		REAL(cuMemRelease, *handle);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r != CUDA_SUCCESS)
		memory_return((uint32_t)grant, bytes);
	return r;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	if (!task_on())
		return REAL(cuMemRelease, handle);
	uint64_t number = physical_leaving(handle);
	CUresult r = REAL(cuMemRelease, handle);
	physical_left(number, r);
	return r;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult r = REAL(cuMemRetainAllocationHandle, handle, addr);
	if (r == CUDA_SUCCESS && task_on())
		physical_retain(*handle);
	return r;
}

EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
					     unsigned long long flags)
{
	CUresult r = REAL(cuMemExportToShareableHandle, shareable, handle, type, flags);
	if (r == CUDA_SUCCESS && task_on() && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		physical_export(handle, *(int *)shareable);
	return r;
}

/*
 * Charged to this process too, by what the mark on the descriptor tells; without one (its maker is not held, or it is no descriptor) when it is
 * mapped first. Its maker cannot be rid of its charge meanwhile: the descriptor is still open here.
 */
EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)
{
	CUmemAllocationProp prop = {0};
	if (get_acquire(&task.state) == SHIM_FAILED)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	uint64_t bytes = task_on() && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? mark_read((int)(intptr_t)shareable) : 0;
	CUresult r = REAL(cuMemImportFromShareableHandle, handle, shareable, type);
	if (r != CUDA_SUCCESS || !task_on() || physical_retain(*handle))
		return r;
	bool placed = driver.cuMemGetAllocationPropertiesFromHandle != NULL &&
		      driver.cuMemGetAllocationPropertiesFromHandle(&prop, *handle) == CUDA_SUCCESS;
	if (placed && prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return r; /* in the host */
	int grant = placed ? view_grant(prop.location.id) : meter_current_grant();
	if (grant < 0)
		return r;
	bool reserved = pools_reserve((uint32_t)grant, bytes);
	if (reserved && physical_add(*handle, bytes, (uint32_t)grant))
		return r;
	REAL(cuMemRelease, *handle);
	if (reserved)
		memory_return((uint32_t)grant, bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	if (task_on() && !physical_claim(handle, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = REAL(cuMemMap, ptr, size, offset, handle, flags);
	if (r != CUDA_SUCCESS || !task_on() || physical_map(handle, ptr, size))
		return r;
	REAL(cuMemUnmap, ptr, size);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	CUresult r = REAL(cuMemUnmap, ptr, size);
	if (r == CUDA_SUCCESS && task_on())
		physical_unmap(ptr, size);
	return r;
}

/* ------------------------------------------------------------------------------------------------------ external memory */

/* What another interface (Vulkan, say) allocated on the device: nobody else counts it. */
EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
	uint64_t size = desc == NULL ? 0 : desc->size;
	ALLOCATE(size, BLOCK_EXTERNAL, *memory, cuDestroyExternalMemory, cuImportExternalMemory, memory, desc);
}

EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
	FREE((uintptr_t)memory, cuDestroyExternalMemory, memory);
}
