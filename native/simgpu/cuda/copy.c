/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and sets. Each is brought to one form, a box of bytes, whatever call it came through. */
#include "simgpu/cuda/internal.h"

uint64_t copy_ns(uint32_t device, const struct region *r)
{
	const struct sim_info *info = &api.info[device];
	uint64_t bps = r->src_host || r->dst_host ? info->copy_host_bps : info->copy_device_bps;
	double bytes = (double)r->width * (double)r->height * (double)r->depth;
	return api.copy_start_ns + (uint64_t)(bytes * 1e9 / (double)bps);
}

uint64_t fill_ns(uint32_t device, const struct fill *f)
{
	double bytes = (double)f->width * f->element * (double)f->height;
	return api.copy_start_ns + (uint64_t)(bytes * 1e9 / (double)api.info[device].copy_device_bps);
}

/* ----------------------------------------------------------------------------------------------------------------- boxes */

struct side {
	CUmemorytype type;
	void *host;
	CUdeviceptr device;
	CUarray array;
	size_t x, y, z, pitch, height;
};

/* Where one side's first byte lies, and its pitches; checks that the whole box is memory that the driver knows. */
static CUresult place(const struct side *s, const CUDA_MEMCPY3D *c, char **at, size_t *pitch, size_t *slice, bool *host, bool *pageable)
{
	size_t width = c->WidthInBytes, height = c->Height, depth = c->Depth;
	struct range *known = NULL;
	*host = false;
	if (s->type == CU_MEMORYTYPE_ARRAY) {
		CUarray a = s->array;
		if (!handle_is(a, H_ARRAY))
			return CUDA_ERROR_INVALID_HANDLE;
		size_t rows = a->desc.Height ? a->desc.Height : 1, slices = a->desc.Depth ? a->desc.Depth : 1;
		if (s->x + width > a->pitch || s->y + height > rows || s->z + depth > slices)
			return CUDA_ERROR_INVALID_VALUE;
		*pitch = a->pitch;
		*slice = a->slice;
		*at = (char *)(uintptr_t)a->data + s->z * a->slice + s->y * a->pitch + s->x;
		return CUDA_SUCCESS;
	}
	char *base = s->type == CU_MEMORYTYPE_HOST ? s->host : (char *)(uintptr_t)s->device;
	*pitch = s->pitch ? s->pitch : width;
	*slice = *pitch * (s->height ? s->height : height);
	if (!base || (height > 1 && *pitch < width) || (depth > 1 && s->height && s->height < height))
		return CUDA_ERROR_INVALID_VALUE;
	*at = base + s->z * *slice + s->y * *pitch + s->x;
	size_t extent = (depth - 1) * *slice + (height - 1) * *pitch + width;
	known = range_find((uintptr_t)*at);
	if (s->type == CU_MEMORYTYPE_HOST) {
		*host = !known || known->kind == R_HOST || known->kind == R_REGISTERED;
		*pageable |= !known;
		return CUDA_SUCCESS;
	}
	if (!known && s->type == CU_MEMORYTYPE_UNIFIED) { /* ordinary host memory */
		*host = *pageable = true;
		return CUDA_SUCCESS;
	}
	if (!known || !device_range((CUdeviceptr)(uintptr_t)*at, extent))
		return CUDA_ERROR_INVALID_VALUE;
	*host = known->kind == R_HOST || known->kind == R_REGISTERED;
	return CUDA_SUCCESS;
}

CUresult region_from_3d(const CUDA_MEMCPY3D *c, struct region *r)
{
	*r = (struct region){.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
	if (!r->width || !r->height || !r->depth)
		return CUDA_SUCCESS;
	struct side src = {c->srcMemoryType, (void *)c->srcHost, c->srcDevice, c->srcArray, c->srcXInBytes, c->srcY, c->srcZ, c->srcPitch, c->srcHeight};
	struct side dst = {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstXInBytes, c->dstY, c->dstZ, c->dstPitch, c->dstHeight};
	CUresult result = place(&src, c, &r->src, &r->src_pitch, &r->src_slice, &r->src_host, &r->pageable);
	if (result == CUDA_SUCCESS)
		result = place(&dst, c, &r->dst, &r->dst_pitch, &r->dst_slice, &r->dst_host, &r->pageable);
	return result;
}

/* `wait`: the call returns when the bytes have moved. Copies from and to pageable memory always do: the driver stages them. */
static CUresult copy(const CUDA_MEMCPY3D *asked, CUstream h, bool wait)
{
	CUcontext c;
	CUstream s;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_of(h, &s);
	if (r == CUDA_SUCCESS && wait && !s->capture)
		r = capture_unsafe();
	if (r != CUDA_SUCCESS)
		return leave(r);
	struct work w = {.kind = W_COPY, .copy = {.asked = *asked}};
	r = region_from_3d(asked, &w.copy.region);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (!w.copy.region.width || !w.copy.region.height || !w.copy.region.depth)
		return leave(CUDA_SUCCESS);
	if (s->capture && wait) {
		s->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	bool capturing = s->capture != NULL;
	bool crosses = w.copy.region.src_host || w.copy.region.dst_host;
	bool stay = !capturing && ((wait && crosses) || w.copy.region.pageable);
	r = issue(s, &w);
	if (r == CUDA_SUCCESS && stay)
		r = await_stream(s);
	return leave(r);
}

static CUDA_MEMCPY3D line(CUmemorytype to, CUdeviceptr dst, CUmemorytype from, CUdeviceptr src, size_t bytes)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = from,
			       .srcHost = (void *)(uintptr_t)src,
			       .srcDevice = src,
			       .dstMemoryType = to,
			       .dstHost = (void *)(uintptr_t)dst,
			       .dstDevice = dst,
			       .WidthInBytes = bytes,
			       .Height = 1,
			       .Depth = 1};
}

#define HOST CU_MEMORYTYPE_HOST
#define DEVICE CU_MEMORYTYPE_DEVICE
#define UNIFIED CU_MEMORYTYPE_UNIFIED

static CUresult copy_line(CUmemorytype to, CUdeviceptr dst, CUmemorytype from, CUdeviceptr src, size_t bytes, CUstream s, bool wait)
{
	CUDA_MEMCPY3D c = line(to, dst, from, src, bytes);
	return copy(&c, s, wait);
}

/* ----------------------------------------------------------------------------------------------------------------- lines */

/* Each synchronous call in its two forms: on the legacy default stream, and on the thread's own. */
#define BOTH(name, arguments, body)                     \
	CUresult name arguments                         \
	{                                               \
		const CUstream stream = CU_STREAM_LEGACY; \
		return body;                            \
	}                                               \
	CUresult name##_ptds arguments                  \
	{                                               \
		const CUstream stream = CU_STREAM_PER_THREAD; \
		return body;                            \
	}

BOTH(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t n), copy_line(UNIFIED, dst, UNIFIED, src, n, stream, true))
BOTH(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t n), copy_line(DEVICE, dst, HOST, (uintptr_t)src, n, stream, true))
BOTH(cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t n), copy_line(HOST, (uintptr_t)dst, DEVICE, src, n, stream, true))
BOTH(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n), copy_line(DEVICE, dst, DEVICE, src, n, stream, true))

static CUresult copy_peer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream s, bool wait)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	bool known = handle_is(to, H_CONTEXT) && handle_is(from, H_CONTEXT);
	leave(CUDA_SUCCESS);
	return known ? copy_line(UNIFIED, dst, UNIFIED, src, n, s, wait) : CUDA_ERROR_INVALID_CONTEXT;
}

BOTH(cuMemcpyPeer, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n), copy_peer(dst, to, src, from, n, stream, true))

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return copy_line(UNIFIED, dst, UNIFIED, src, n, s, false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream s)
{
	return copy_peer(dst, to, src, from, n, s, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
	return copy_line(DEVICE, dst, HOST, (uintptr_t)src, n, s, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	return copy_line(HOST, (uintptr_t)dst, DEVICE, src, n, s, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return copy_line(DEVICE, dst, DEVICE, src, n, s, false);
}

/* ---------------------------------------------------------------------------------------------------------------- arrays */

/* A line within an array: offsets are bytes of its first row. */
static CUresult copy_array(CUarray to, size_t to_at, CUdeviceptr dst, CUarray from, size_t from_at, CUdeviceptr src, CUmemorytype other, size_t n,
			   CUstream s, bool wait)
{
	CUDA_MEMCPY3D c = line(other, dst, other, src, n);
	if (to) {
		c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		c.dstArray = to;
		c.dstXInBytes = to_at;
	}
	if (from) {
		c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		c.srcArray = from;
		c.srcXInBytes = from_at;
	}
	return to || from ? copy(&c, s, wait) : CUDA_ERROR_INVALID_VALUE;
}

BOTH(cuMemcpyDtoA_v2, (CUarray a, size_t at, CUdeviceptr src, size_t n), copy_array(a, at, 0, NULL, 0, src, DEVICE, n, stream, true))
BOTH(cuMemcpyAtoD_v2, (CUdeviceptr dst, CUarray a, size_t at, size_t n), copy_array(NULL, 0, dst, a, at, 0, DEVICE, n, stream, true))
BOTH(cuMemcpyHtoA_v2, (CUarray a, size_t at, const void *src, size_t n), copy_array(a, at, 0, NULL, 0, (uintptr_t)src, HOST, n, stream, true))
BOTH(cuMemcpyAtoH_v2, (void *dst, CUarray a, size_t at, size_t n), copy_array(NULL, 0, (uintptr_t)dst, a, at, 0, HOST, n, stream, true))
BOTH(cuMemcpyAtoA_v2, (CUarray to, size_t to_at, CUarray from, size_t from_at, size_t n),
     copy_array(to, to_at, 0, from, from_at, 0, DEVICE, n, stream, true))

CUresult cuMemcpyHtoAAsync_v2(CUarray a, size_t at, const void *src, size_t n, CUstream s)
{
	return copy_array(a, at, 0, NULL, 0, (uintptr_t)src, HOST, n, s, false);
}

CUresult cuMemcpyAtoHAsync_v2(void *dst, CUarray a, size_t at, size_t n, CUstream s)
{
	return copy_array(NULL, 0, (uintptr_t)dst, a, at, 0, HOST, n, s, false);
}

/* ------------------------------------------------------------------------------------------------------ two and three D */

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream s, bool wait)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_MEMCPY3D c = {.srcXInBytes = p->srcXInBytes, .srcY = p->srcY, .srcMemoryType = p->srcMemoryType, .srcHost = p->srcHost,
			   .srcDevice = p->srcDevice, .srcArray = p->srcArray, .srcPitch = p->srcPitch, .dstXInBytes = p->dstXInBytes,
			   .dstY = p->dstY, .dstMemoryType = p->dstMemoryType, .dstHost = p->dstHost, .dstDevice = p->dstDevice,
			   .dstArray = p->dstArray, .dstPitch = p->dstPitch, .WidthInBytes = p->WidthInBytes, .Height = p->Height, .Depth = 1};
	return copy(&c, s, wait);
}

BOTH(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *p), copy_2d(p, stream, true))
BOTH(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *p), copy_2d(p, stream, true))
BOTH(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *p), p ? copy(p, stream, true) : CUDA_ERROR_INVALID_VALUE)

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *p, CUstream s)
{
	return copy_2d(p, s, false);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *p, CUstream s)
{
	return p ? copy(p, s, false) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream s, bool wait)
{
	CUDA_MEMCPY3D c;
	_Static_assert(sizeof c == sizeof *p, "the same layout, contexts in place of reserved pointers");
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&c, p, sizeof c);
	c.reserved0 = c.reserved1 = NULL;
	return copy(&c, s, wait);
}

BOTH(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *p), copy_3d_peer(p, stream, true))

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *p, CUstream s)
{
	return copy_3d_peer(p, s, false);
}

/* ------------------------------------------------------------------------------------------------------------------ sets */

static CUresult set(CUdeviceptr dst, size_t pitch, uint32_t value, uint32_t element, size_t width, size_t height, CUstream h)
{
	CUcontext c;
	CUstream s;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (dst % element || (height > 1 && pitch < width * element))
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!width || !height)
		return leave(CUDA_SUCCESS);
	if (!device_range(dst, (height - 1) * pitch + width * element))
		return leave(CUDA_ERROR_INVALID_VALUE);
	r = stream_of(h, &s);
	if (r != CUDA_SUCCESS)
		return leave(r);
	struct work w = {.kind = W_SET,
			 .set = {.fill = {.dst = (char *)(uintptr_t)dst, .pitch = pitch, .width = width, .height = height, .value = value, .element = element},
				 .asked = {.dst = dst, .pitch = pitch, .value = value, .elementSize = element, .width = width, .height = height}}};
	return leave(issue(s, &w));
}

BOTH(cuMemsetD8_v2, (CUdeviceptr dst, unsigned char v, size_t n), set(dst, n, v, 1, n, 1, stream))
BOTH(cuMemsetD16_v2, (CUdeviceptr dst, unsigned short v, size_t n), set(dst, n * 2, v, 2, n, 1, stream))
BOTH(cuMemsetD32_v2, (CUdeviceptr dst, unsigned int v, size_t n), set(dst, n * 4, v, 4, n, 1, stream))
BOTH(cuMemsetD2D8_v2, (CUdeviceptr dst, size_t pitch, unsigned char v, size_t w, size_t h), set(dst, pitch, v, 1, w, h, stream))
BOTH(cuMemsetD2D16_v2, (CUdeviceptr dst, size_t pitch, unsigned short v, size_t w, size_t h), set(dst, pitch, v, 2, w, h, stream))
BOTH(cuMemsetD2D32_v2, (CUdeviceptr dst, size_t pitch, unsigned int v, size_t w, size_t h), set(dst, pitch, v, 4, w, h, stream))

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char v, size_t n, CUstream s)
{
	return set(dst, n, v, 1, n, 1, s);
}

CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short v, size_t n, CUstream s)
{
	return set(dst, n * 2, v, 2, n, 1, s);
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int v, size_t n, CUstream s)
{
	return set(dst, n * 4, v, 4, n, 1, s);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char v, size_t w, size_t h, CUstream s)
{
	return set(dst, pitch, v, 1, w, h, s);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short v, size_t w, size_t h, CUstream s)
{
	return set(dst, pitch, v, 2, w, h, s);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int v, size_t w, size_t h, CUstream s)
{
	return set(dst, pitch, v, 4, w, h, s);
}
