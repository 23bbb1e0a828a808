/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays: memory with a shape. */
#include "simgpu/cuda/internal.h"

#define MAX_LEVELS 17

struct CUmipmappedArray_st {
	CUcontext context;
	unsigned levels;
	CUarray level[MAX_LEVELS];
};

static size_t element_bytes(CUarray_format format, unsigned channels)
{
	if (channels != 1 && channels != 2 && channels != 4)
		return 0;
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2 * channels;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4 * channels;
	default:
		return 0;
	}
}

static CUresult array_make(CUcontext c, const CUDA_ARRAY3D_DESCRIPTOR *d, CUarray *out)
{
	size_t element = element_bytes(d->Format, d->NumChannels);
	if (!element || !d->Width || (d->Depth && !d->Height && !(d->Flags & CUDA_ARRAY3D_LAYERED)))
		return CUDA_ERROR_INVALID_VALUE;
	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUarray a = calloc(1, sizeof *a);
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	size_t rows = d->Height ? d->Height : 1, slices = d->Depth ? d->Depth : 1;
	*a = (struct CUarray_st){.context = c, .desc = *d, .element = element};
	a->pitch = d->Width * element;
	a->slice = a->pitch * rows;
	a->bytes = a->slice * slices;
	CUresult r = memory_alloc(c, NULL, NULL, a->bytes, R_DEVICE, &a->data);
	if (r != CUDA_SUCCESS) {
		free(a);
		return r;
	}
	handle_add(a, H_ARRAY);
	*out = a;
	return CUDA_SUCCESS;
}

static void array_free(CUarray a)
{
	struct range *r = range_find((uintptr_t)a->data); /* gone already if its context is */
	handle_remove(a);
	if (r && handle_is(a->context, H_CONTEXT))
		memory_free(r, NULL);
	free(a);
}

CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	CUcontext c;
	if (!out || !d)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	return r == CUDA_SUCCESS ? leave(array_make(c, d, out)) : r;
}

CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d)
{
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_ARRAY3D_DESCRIPTOR e = {.Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels};
	return cuArray3DCreate_v2(out, &e);
}

static CUresult enter_array(CUarray a)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && !handle_is(a, H_ARRAY))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	return r;
}

CUresult cuArrayDestroy(CUarray a)
{
	CUresult r = enter_array(a);
	if (r != CUDA_SUCCESS)
		return r;
	if (a->part_of_mipmap)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (handle_is(a->context, H_CONTEXT))
		r = await_context(a->context);
	if (handle_is(a, H_ARRAY))
		array_free(a);
	return leave(r);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray a)
{
	TRY(enter_array(a));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = a->desc;
	return leave(CUDA_SUCCESS);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *out, CUarray a)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	CUresult r = cuArray3DGetDescriptor_v2(&d, a);
	if (r == CUDA_SUCCESS && out)
		*out = (CUDA_ARRAY_DESCRIPTOR){.Width = d.Width, .Height = d.Height, .Format = d.Format, .NumChannels = d.NumChannels};
	return r == CUDA_SUCCESS && !out ? CUDA_ERROR_INVALID_VALUE : r;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray a, CUdevice d)
{
	(void)d;
	TRY(enter_array(a));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = a->bytes, .alignment = GRAIN};
	return leave(CUDA_SUCCESS);
}

/* --------------------------------------------------------------------------------------------------------------- mipmaps */

static size_t halved(size_t n, unsigned level)
{
	return n && !(n >> level) ? 1 : n >> level;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	CUcontext c;
	if (!out || !d || !levels)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	CUmipmappedArray m = calloc(1, sizeof *m);
	if (!m)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	m->context = c;
	for (unsigned i = 0; i < levels && i < MAX_LEVELS && r == CUDA_SUCCESS; i++) {
		CUDA_ARRAY3D_DESCRIPTOR e = *d;
		e.Width = halved(d->Width, i);
		e.Height = halved(d->Height, i);
		e.Depth = d->Flags & CUDA_ARRAY3D_LAYERED ? d->Depth : halved(d->Depth, i);
		r = array_make(c, &e, &m->level[i]);
		if (r == CUDA_SUCCESS) {
			m->level[i]->part_of_mipmap = true;
			m->levels++;
		}
	}
	if (r != CUDA_SUCCESS) {
		while (m->levels)
			array_free(m->level[--m->levels]);
		free(m);
		return leave(r);
	}
	handle_add(m, H_MIPMAP);
	*out = m;
	return leave(CUDA_SUCCESS);
}

CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray m, unsigned int level)
{
	TRY(enter());
	if (!handle_is(m, H_MIPMAP))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (!out || level >= m->levels)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = m->level[level];
	return leave(CUDA_SUCCESS);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray m)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(m, H_MIPMAP))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (handle_is(m->context, H_CONTEXT))
		r = await_context(m->context);
	if (handle_is(m, H_MIPMAP)) {
		handle_remove(m);
		while (m->levels)
			array_free(m->level[--m->levels]);
		free(m);
	}
	return leave(r);
}
