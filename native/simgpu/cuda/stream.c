/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: made, asked, waited for. */
#include "simgpu/cuda/internal.h"

/* -------------------------------------------------------------------------------------------------------- making streams */

CUresult stream_make(CUcontext c, unsigned flags, int priority, CUstream *out)
{
	uint32_t slot;
	if (c->free_stream_count)
		slot = c->free_streams[--c->free_stream_count];
	else if (c->next_stream < SIM_STREAMS)
		slot = c->next_stream++;
	else
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUstream s = calloc(1, sizeof *s);
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	s->context = c;
	s->id = ++api.ids;
	s->slot = slot;
	s->flags = flags;
	s->priority = priority;
	s->next = c->streams;
	c->streams = s;
	c->channel->stream[slot].flags = flags & CU_STREAM_NON_BLOCKING ? SIM_STREAM_NONBLOCKING : 0;
	c->channel->stream[slot].priority = priority;
	handle_add(s, H_STREAM);
	*out = s;
	return CUDA_SUCCESS;
}

void slot_back(uint32_t **stack, uint32_t *count, uint32_t slot)
{
	if (!(*count & (*count - 1))) { /* grows at powers of two */
		uint32_t *more = realloc(*stack, (*count ? *count * 2 : 1) * sizeof **stack);
		if (!more)
			return; /* the slot is lost, nothing else */
		*stack = more;
	}
	(*stack)[(*count)++] = slot;
}

void stream_drop(CUstream s)
{
	CUcontext c = s->context;
	if (s->capture)
		capture_leave(s);
	handle_remove(s);
	for (CUstream *at = &c->streams; *at; at = &(*at)->next)
		if (*at == s) {
			*at = s->next;
			break;
		}
	slot_back(&c->free_streams, &c->free_stream_count, s->slot);
	free(s->tips);
	free(s);
}

CUstream stream_per_thread(CUcontext c)
{
	static __thread struct {
		CUcontext context;
		uint64_t id;
		CUstream stream;
	} mine[8];
	static __thread unsigned next;
	for (int i = 0; i < 8; i++)
		if (mine[i].context == c && mine[i].id == c->id && handle_is(mine[i].stream, H_STREAM))
			return mine[i].stream;
	CUstream s;
	if (stream_make(c, CU_STREAM_DEFAULT, 0, &s) != CUDA_SUCCESS)
		return NULL;
	s->per_thread = true;
	mine[next % 8].context = c;
	mine[next % 8].id = c->id;
	mine[next++ % 8].stream = s;
	return s;
}

CUresult stream_of(CUstream h, CUstream *out)
{
	if (h == NULL || h == CU_STREAM_LEGACY || h == CU_STREAM_PER_THREAD) {
		CUcontext c;
		CUresult r = context_current(&c);
		if (r != CUDA_SUCCESS)
			return r;
		*out = h == CU_STREAM_PER_THREAD ? stream_per_thread(c) : c->legacy;
		return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!handle_is(h, H_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	*out = h;
	return CUDA_SUCCESS;
}

CUresult enter_stream(CUstream h, CUstream *s)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_of(h, s);
	return r == CUDA_SUCCESS ? r : leave(r);
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	CUcontext c;
	TRY(enter_context(&c));
	if (!out || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
		return leave(CUDA_ERROR_INVALID_VALUE);
	priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	return leave(stream_make(c, flags, priority, out));
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	return cuStreamCreateWithPriority(out, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream h)
{
	if (h == NULL || h == CU_STREAM_LEGACY || h == CU_STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_HANDLE;
	CUstream s;
	TRY(enter_stream(h, &s));
	stream_drop(s);
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamDestroy(CUstream h)
{
	return cuStreamDestroy_v2(h);
}

/* ------------------------------------------------------------------------------------------------------------ questions */

CUresult cuStreamGetPriority(CUstream h, int *out)
{
	CUstream s;
	TRY(enter_stream(h, &s));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = s->priority;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetFlags(CUstream h, unsigned int *out)
{
	CUstream s;
	TRY(enter_stream(h, &s));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = s->flags;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetId(CUstream h, unsigned long long *out)
{
	CUstream s;
	TRY(enter_stream(h, &s));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = s->id;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx(CUstream h, CUcontext *out)
{
	CUstream s;
	TRY(enter_stream(h, &s));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = s->context;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetAttribute(CUstream h, CUstreamAttrID id, CUstreamAttrValue *out)
{
	CUstream s;
	TRY(enter_stream(h, &s));
	if (!out || (unsigned)id >= 16)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = s->attribute[id];
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		out->priority = s->priority;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamSetAttribute(CUstream h, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	CUstream s;
	TRY(enter_stream(h, &s));
	if (!value || (unsigned)id >= 16)
		return leave(CUDA_ERROR_INVALID_VALUE);
	s->attribute[id] = *value;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
	CUstream d, s;
	CUresult r = enter_stream(to, &d);
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_of(from, &s);
	if (r == CUDA_SUCCESS)
		memcpy(d->attribute, s->attribute, sizeof d->attribute);
	return leave(r);
}

CUresult cuStreamAttachMemAsync(CUstream h, CUdeviceptr p, size_t length, unsigned int flags)
{
	CUstream s;
	(void)length;
	TRY(enter_stream(h, &s));
	struct range *range = range_find(p);
	if (!range || range->kind != R_MANAGED || flags > 4)
		return leave(CUDA_ERROR_INVALID_VALUE);
	struct work w = {.kind = W_EMPTY};
	return leave(issue(s, &w));
}

/* --------------------------------------------------------------------------------------------------------------- waiting */

CUresult cuStreamSynchronize(CUstream h)
{
	CUstream s;
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (s->capture) {
		s->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	r = capture_unsafe();
	if (r == CUDA_SUCCESS)
		r = context_check(s->context);
	if (r == CUDA_SUCCESS && s->slot == SIM_STREAM_SLOT_LEGACY) { /* it also waits for all blocking streams */
		struct work w = {.kind = W_EMPTY};
		r = issue(s, &w);
	}
	if (r == CUDA_SUCCESS)
		r = await_stream(s);
	if (r == CUDA_SUCCESS)
		pools_trim();
	return leave(r);
}

CUresult cuStreamQuery(CUstream h)
{
	CUstream s;
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (s->capture) {
		s->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	r = capture_unsafe();
	if (r == CUDA_SUCCESS)
		r = context_check(s->context);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (s->slot == SIM_STREAM_SLOT_LEGACY)
		for (CUstream o = s->context->streams; o; o = o->next)
			if (!(o->flags & CU_STREAM_NON_BLOCKING) && !ended(o->context, o->slot, o->last))
				return leave(CUDA_ERROR_NOT_READY);
	return leave(ended(s->context, s->slot, s->last) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}
