/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: copies and sets through the gate: those of LARGE bytes and more, and of smaller ones, which take no time worth a lease, the one with which
 * they have added up to as much. It stands for the others, whose time is measured with it where they follow each other. What one takes is learned by
 * kind and by the power of two that its size falls into.
 */
#include "driver.h"

#define LARGE (1u << 20)
#define LEAST (16u << 10) /* what a smaller one counts as: in the time that it takes to begin so much is copied */

enum kind { TO_DEVICE = 1, TO_HOST, ON_DEVICE, TO_PEER, SET, BATCH, PREFETCH, DECOMPRESS, SMALL };

/* Whether small ones, of all threads and devices, have added up to LARGE again with this one. */
static bool adds_up(uint64_t bytes)
{
	static uint64_t all;
	uint64_t counts = bytes == 0 ? 0 : bytes < LEAST ? LEAST : bytes;
	uint64_t before = __atomic_fetch_add(&all, counts, __ATOMIC_RELAXED);
	return before / LARGE != (before + counts) / LARGE;
}

static uint64_t copy_key(enum kind kind, uint64_t bytes)
{
	return cost_key((void *)(uintptr_t)kind, 64u - (unsigned)__builtin_clzll(bytes | 1));
}

/* Of small ones, by kind alone. */
static uint64_t small_key(enum kind kind)
{
	return cost_key((void *)(uintptr_t)SMALL, kind);
}

/* One hook: name, parameters, arguments, what it is, how many bytes, which stream. */
#define COPY(name, params, args, kind, bytes, stream, per_thread)                                                                  \
	EXPORT CUresult name params                                                                                                \
	{                                                                                                                          \
		struct pass pass;                                                                                                  \
		uint64_t size = bytes;                                                                                             \
		if (size < LARGE && !adds_up(size))                                                                                \
			return CALL(name, args);                                                                                   \
		uint64_t key = size < LARGE ? small_key(kind) : copy_key(kind, size);                                        \
		CUresult result = gate_enter(&pass, stream, per_thread, key);                                                      \
		if (result != CUDA_SUCCESS)                                                                                        \
			return result;                                                                                             \
		result = CALL(name, args);                                                                                         \
		gate_leave(&pass, result);                                                                                         \
		return result;                                                                                                     \
	}
#define CALL(name, args) (driver_ready() && driver.name != NULL ? driver.name args : CUDA_ERROR_NOT_SUPPORTED)

/* A synchronous call with its per-thread variant; an asynchronous one with its. */
#define SYNC(name, params, args, kind, bytes)                                                                                      \
	COPY(name, params, args, kind, bytes, NULL, false) COPY(name##_ptds, params, args, kind, bytes, NULL, true)
#define ASYNC(name, params, args, kind, bytes)                                                                                     \
	COPY(name, params, args, kind, bytes, stream, false) COPY(name##_ptsz, params, args, kind, bytes, stream, true)

SYNC(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t n), (dst, src, n), ON_DEVICE, n)
ASYNC(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream), (dst, src, n, stream), ON_DEVICE, n)
SYNC(cuMemcpyPeer, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n), (dst, to, src, from, n), TO_PEER, n)
ASYNC(cuMemcpyPeerAsync, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream stream),
      (dst, to, src, from, n, stream), TO_PEER, n)
SYNC(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t n), (dst, src, n), TO_DEVICE, n)
ASYNC(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t n, CUstream stream), (dst, src, n, stream), TO_DEVICE, n)
SYNC(cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t n), (dst, src, n), TO_HOST, n)
ASYNC(cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t n, CUstream stream), (dst, src, n, stream), TO_HOST, n)
SYNC(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n), (dst, src, n), ON_DEVICE, n)
ASYNC(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream), (dst, src, n, stream), ON_DEVICE, n)
SYNC(cuMemcpyDtoA_v2, (CUarray dst, size_t at, CUdeviceptr src, size_t n), (dst, at, src, n), ON_DEVICE, n)
SYNC(cuMemcpyAtoD_v2, (CUdeviceptr dst, CUarray src, size_t at, size_t n), (dst, src, at, n), ON_DEVICE, n)
SYNC(cuMemcpyHtoA_v2, (CUarray dst, size_t at, const void *src, size_t n), (dst, at, src, n), TO_DEVICE, n)
SYNC(cuMemcpyAtoH_v2, (void *dst, CUarray src, size_t at, size_t n), (dst, src, at, n), TO_HOST, n)
SYNC(cuMemcpyAtoA_v2, (CUarray dst, size_t to, CUarray src, size_t from, size_t n), (dst, to, src, from, n), ON_DEVICE, n)
ASYNC(cuMemcpyHtoAAsync_v2, (CUarray dst, size_t at, const void *src, size_t n, CUstream stream), (dst, at, src, n, stream), TO_DEVICE, n)
ASYNC(cuMemcpyAtoHAsync_v2, (void *dst, CUarray src, size_t at, size_t n, CUstream stream), (dst, src, at, n, stream), TO_HOST, n)

#define BYTES_2D (c == NULL ? 0 : (uint64_t)c->WidthInBytes * c->Height)
#define BYTES_3D (c == NULL ? 0 : (uint64_t)c->WidthInBytes * c->Height * c->Depth)
#define KIND_OF                                                                                                                    \
	(c == NULL				       ? ON_DEVICE                                                                 \
	 : c->srcMemoryType == CU_MEMORYTYPE_HOST ? TO_DEVICE                                                                      \
	 : c->dstMemoryType == CU_MEMORYTYPE_HOST ? TO_HOST                                                                        \
						  : ON_DEVICE)
SYNC(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *c), (c), KIND_OF, BYTES_2D)
SYNC(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *c), (c), KIND_OF, BYTES_2D)
ASYNC(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *c, CUstream stream), (c, stream), KIND_OF, BYTES_2D)
SYNC(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *c), (c), KIND_OF, BYTES_3D)
ASYNC(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *c, CUstream stream), (c, stream), KIND_OF, BYTES_3D)
SYNC(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *c), (c), TO_PEER, BYTES_3D)
ASYNC(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *c, CUstream stream), (c, stream), TO_PEER, BYTES_3D)

static uint64_t batch_bytes(const size_t *sizes, size_t count)
{
	uint64_t bytes = 0;
	for (size_t i = 0; sizes != NULL && i < count; i++)
		bytes += sizes[i];
	return bytes;
}

/* Elements of arrays count as bytes here, so what goes between two arrays is taken for less than it is. */
static uint64_t batch_3d_bytes(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count)
{
	uint64_t bytes = 0;
	for (size_t i = 0; ops != NULL && i < count; i++)
		bytes += (uint64_t)ops[i].extent.width * ops[i].extent.height * ops[i].extent.depth;
	return bytes;
}

#define EXPANDS 1032 /* the most that a compressed byte becomes, in the format that can do so best */

/* A program need not say how much it expects. */
static uint64_t decompressed_bytes(const CUmemDecompressParams *params, size_t count)
{
	uint64_t bytes = 0;
	for (size_t i = 0; params != NULL && i < count; i++)
		bytes += params[i].dstNumBytes != 0 ? params[i].dstNumBytes : EXPANDS * (uint64_t)params[i].srcNumBytes;
	return bytes;
}

ASYNC(cuMemcpyBatchAsync,
      (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *indices, size_t n, size_t *failed,
       CUstream stream),
      (dsts, srcs, sizes, count, attrs, indices, n, failed, stream), BATCH, batch_bytes(sizes, count))
ASYNC(cuMemcpyBatchAsync_v2,
      (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *indices, size_t n,
       CUstream stream),
      (dsts, srcs, sizes, count, attrs, indices, n, stream), BATCH, batch_bytes(sizes, count))
ASYNC(cuMemcpy3DBatchAsync, (size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags, CUstream stream),
      (count, ops, failed, flags, stream), BATCH, batch_3d_bytes(ops, count))
ASYNC(cuMemcpy3DBatchAsync_v2, (size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream),
      (count, ops, flags, stream), BATCH, batch_3d_bytes(ops, count))
ASYNC(cuMemPrefetchAsync, (CUdeviceptr at, size_t n, CUdevice to, CUstream stream), (at, n, to, stream), PREFETCH, n)
ASYNC(cuMemPrefetchAsync_v2, (CUdeviceptr at, size_t n, CUmemLocation to, unsigned int flags, CUstream stream), (at, n, to, flags, stream),
      PREFETCH, n)
ASYNC(cuMemPrefetchBatchAsync,
      (CUdeviceptr * at, size_t *sizes, size_t count, CUmemLocation *to, size_t *indices, size_t n, unsigned long long flags, CUstream stream),
      (at, sizes, count, to, indices, n, flags, stream), PREFETCH, batch_bytes(sizes, count))
ASYNC(cuMemDiscardAndPrefetchBatchAsync,
      (CUdeviceptr * at, size_t *sizes, size_t count, CUmemLocation *to, size_t *indices, size_t n, unsigned long long flags, CUstream stream),
      (at, sizes, count, to, indices, n, flags, stream), PREFETCH, batch_bytes(sizes, count))
ASYNC(cuMemBatchDecompressAsync, (CUmemDecompressParams * params, size_t count, unsigned int flags, size_t *failed, CUstream stream),
      (params, count, flags, failed, stream), DECOMPRESS, decompressed_bytes(params, count))

SYNC(cuMemsetD8_v2, (CUdeviceptr dst, unsigned char v, size_t n), (dst, v, n), SET, n)
SYNC(cuMemsetD16_v2, (CUdeviceptr dst, unsigned short v, size_t n), (dst, v, n), SET, 2ull * n)
SYNC(cuMemsetD32_v2, (CUdeviceptr dst, unsigned int v, size_t n), (dst, v, n), SET, 4ull * n)
SYNC(cuMemsetD2D8_v2, (CUdeviceptr dst, size_t pitch, unsigned char v, size_t w, size_t h), (dst, pitch, v, w, h), SET, (uint64_t)w *h)
SYNC(cuMemsetD2D16_v2, (CUdeviceptr dst, size_t pitch, unsigned short v, size_t w, size_t h), (dst, pitch, v, w, h), SET, 2ull * w * h)
SYNC(cuMemsetD2D32_v2, (CUdeviceptr dst, size_t pitch, unsigned int v, size_t w, size_t h), (dst, pitch, v, w, h), SET, 4ull * w * h)
ASYNC(cuMemsetD8Async, (CUdeviceptr dst, unsigned char v, size_t n, CUstream stream), (dst, v, n, stream), SET, n)
ASYNC(cuMemsetD16Async, (CUdeviceptr dst, unsigned short v, size_t n, CUstream stream), (dst, v, n, stream), SET, 2ull * n)
ASYNC(cuMemsetD32Async, (CUdeviceptr dst, unsigned int v, size_t n, CUstream stream), (dst, v, n, stream), SET, 4ull * n)
ASYNC(cuMemsetD2D8Async, (CUdeviceptr dst, size_t pitch, unsigned char v, size_t w, size_t h, CUstream stream),
      (dst, pitch, v, w, h, stream), SET, (uint64_t)w *h)
ASYNC(cuMemsetD2D16Async, (CUdeviceptr dst, size_t pitch, unsigned short v, size_t w, size_t h, CUstream stream),
      (dst, pitch, v, w, h, stream), SET, 2ull * w * h)
ASYNC(cuMemsetD2D32Async, (CUdeviceptr dst, size_t pitch, unsigned int v, size_t w, size_t h, CUstream stream),
      (dst, pitch, v, w, h, stream), SET, 4ull * w * h)
