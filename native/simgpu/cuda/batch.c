/* SPDX-License-Identifier: Apache-2.0 */
/* Several copies, or prefetches, in one call. They go one after the other, which the call allows; the hints about where and when are not needed here. */
#include "simgpu/cuda/internal.h"

static CUresult batch(const CUdeviceptr *dst, const CUdeviceptr *src, const size_t *sizes, size_t count, size_t *failed, CUstream s)
{
	if (!dst || !src || !sizes || !count || !s) /* not in the legacy default stream */
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult r = cuMemcpyAsync(dst[i], src[i], sizes[i], s);
		if (r != CUDA_SUCCESS) {
			if (failed)
				*failed = i;
			return r;
		}
	}
	return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dst, CUdeviceptr *src, size_t *sizes, size_t count, CUmemcpyAttributes *attributes, size_t *indices,
			    size_t kinds, size_t *failed, CUstream s)
{
	return !attributes || !indices || !kinds ? CUDA_ERROR_INVALID_VALUE : batch(dst, src, sizes, count, failed, s);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dst, CUdeviceptr *src, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
			       size_t *indices, size_t kinds, CUstream s)
{
	return cuMemcpyBatchAsync(dst, src, sizes, count, attributes, indices, kinds, NULL, s);
}

/* One side of a copy of many dimensions, in the words of CUDA_MEMCPY3D. */
struct side {
	CUmemorytype type;
	CUdeviceptr at;
	CUarray array;
	size_t pitch, height, x, y, z;
};

static struct side side_of(const CUmemcpy3DOperand *o, const CUextent3D *extent)
{
	if (o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
		return (struct side){.type = CU_MEMORYTYPE_ARRAY, .array = o->op.array.array, .x = o->op.array.offset.x, .y = o->op.array.offset.y,
				     .z = o->op.array.offset.z};
	return (struct side){.type = CU_MEMORYTYPE_UNIFIED,
			     .at = o->op.ptr.ptr,
			     .pitch = o->op.ptr.rowLength ? o->op.ptr.rowLength : extent->width,
			     .height = o->op.ptr.layerHeight ? o->op.ptr.layerHeight : extent->height};
}

static CUresult copy_one(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream s)
{
	struct side from = side_of(&op->src, &op->extent), to = side_of(&op->dst, &op->extent);
	CUDA_MEMCPY3D c = {.srcMemoryType = from.type, .srcDevice = from.at, .srcArray = from.array, .srcPitch = from.pitch, .srcHeight = from.height,
			   .srcXInBytes = from.x, .srcY = from.y, .srcZ = from.z, .dstMemoryType = to.type, .dstDevice = to.at, .dstArray = to.array,
			   .dstPitch = to.pitch, .dstHeight = to.height, .dstXInBytes = to.x, .dstY = to.y, .dstZ = to.z,
			   .WidthInBytes = op->extent.width, .Height = op->extent.height, .Depth = op->extent.depth};
	return cuMemcpy3DAsync_v2(&c, s);
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags, CUstream s)
{
	if (!ops || !count || flags || !s)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult r = copy_one(&ops[i], s);
		if (r != CUDA_SUCCESS) {
			if (failed)
				*failed = i;
			return r;
		}
	}
	return CUDA_SUCCESS;
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream s)
{
	return cuMemcpy3DBatchAsync(count, ops, NULL, flags, s);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *at, size_t *sizes, size_t count, CUmemLocation *locations, size_t *indices, size_t kinds,
				 unsigned long long flags, CUstream s)
{
	if (!at || !sizes || !count || !locations || !indices || !kinds || kinds > count || flags || !s)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult r = cuMemPrefetchAsync_v2(at[i], sizes[i], locations[0], 0, s); /* where to does not matter to the model */
		if (r != CUDA_SUCCESS)
			return r;
	}
	return CUDA_SUCCESS;
}

/* What is discarded may keep its bytes. */
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *at, size_t *sizes, size_t count, CUmemLocation *locations, size_t *indices, size_t kinds,
					   unsigned long long flags, CUstream s)
{
	return cuMemPrefetchBatchAsync(at, sizes, count, locations, indices, kinds, flags, s);
}
