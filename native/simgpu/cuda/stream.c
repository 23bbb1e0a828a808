/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events. */
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

static void slot_back(uint32_t **stack, uint32_t *count, uint32_t slot)
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

/* Begins a call on a stream; on success the lock is held. */
static CUresult enter_stream(CUstream h, CUstream *s)
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
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = s->priority;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetFlags(CUstream h, unsigned int *out)
{
	CUstream s;
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = s->flags;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetId(CUstream h, unsigned long long *out)
{
	CUstream s;
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = s->id;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx(CUstream h, CUcontext *out)
{
	CUstream s;
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = s->context;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetAttribute(CUstream h, CUstreamAttrID id, CUstreamAttrValue *out)
{
	CUstream s;
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
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

/* --------------------------------------------------------------------------------------------------- functions on the host */

CUresult cuLaunchHostFunc(CUstream h, CUhostFn fn, void *data)
{
	CUstream s;
	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	struct work w = {.kind = W_HOST, .host = {.fn = fn, .data = data}};
	return leave(issue(s, &w));
}

CUresult cuStreamAddCallback(CUstream h, CUstreamCallback callback, void *data, unsigned int flags)
{
	CUstream s;
	if (!callback || flags)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (s->capture) {
		s->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	struct work w = {.kind = W_CALLBACK, .host = {.callback = callback, .data = data, .stream = h}};
	return leave(issue(s, &w));
}

/* ---------------------------------------------------------------------------------------------------- values in memory */

static CUresult value_op(CUstream h, CUdeviceptr at, uint64_t value, unsigned flags, bool wide, bool wait)
{
	CUstream s;
	if (!at || at % (wide ? 8 : 4))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (!range_find(at))
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (s->capture) {
		CUstreamBatchMemOpParams *op = calloc(1, sizeof *op);
		if (!op)
			return leave(CUDA_ERROR_OUT_OF_MEMORY);
		op->writeValue.operation = wait ? (wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32)
						: (wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32);
		op->writeValue.address = at;
		op->writeValue.value64 = value;
		op->writeValue.flags = flags;
		struct work w = {.kind = W_BATCH, .batch = {.count = 1, .context = s->context, .ops = op}};
		return leave(issue(s, &w));
	}
	struct work w = {.kind = wait ? W_AWAIT : W_WRITE,
			 .value = {.at = (void *)(uintptr_t)at, .value = value, .flags = flags, .wide = wide}};
	return leave(issue(s, &w));
}

CUresult cuStreamWriteValue32_v2(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned int flags)
{
	return value_op(s, at, value, flags, false, false);
}

CUresult cuStreamWriteValue64_v2(CUstream s, CUdeviceptr at, cuuint64_t value, unsigned int flags)
{
	return value_op(s, at, value, flags, true, false);
}

CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned int flags)
{
	return value_op(s, at, value, flags, false, true);
}

CUresult cuStreamWaitValue64_v2(CUstream s, CUdeviceptr at, cuuint64_t value, unsigned int flags)
{
	return value_op(s, at, value, flags, true, true);
}

CUresult cuStreamWriteValue32(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned int flags)
{
	return value_op(s, at, value, flags, false, false);
}

CUresult cuStreamWriteValue64(CUstream s, CUdeviceptr at, cuuint64_t value, unsigned int flags)
{
	return value_op(s, at, value, flags, true, false);
}

CUresult cuStreamWaitValue32(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned int flags)
{
	return value_op(s, at, value, flags, false, true);
}

CUresult cuStreamWaitValue64(CUstream s, CUdeviceptr at, cuuint64_t value, unsigned int flags)
{
	return value_op(s, at, value, flags, true, true);
}

CUresult cuStreamBatchMemOp_v2(CUstream h, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags)
{
	CUstream s;
	if (flags || count > 256 || (count && !ops))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	struct work from = {.kind = W_BATCH, .batch = {.count = count, .context = s->context, .ops = ops}}, w;
	r = work_copy(&w, &from);
	return leave(r == CUDA_SUCCESS ? issue(s, &w) : r);
}

CUresult cuStreamBatchMemOp(CUstream s, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags)
{
	return cuStreamBatchMemOp_v2(s, count, ops, flags);
}

/* ---------------------------------------------------------------------------------------------------------------- events */

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	CUcontext c;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || (flags & ~7u))
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (flags & CU_EVENT_INTERPROCESS)
		return leave(CUDA_ERROR_NOT_SUPPORTED);
	uint32_t slot;
	if (c->free_event_count)
		slot = c->free_events[--c->free_event_count];
	else if (c->next_event < SIM_EVENTS)
		slot = c->next_event++;
	else
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	CUevent e = calloc(1, sizeof *e);
	if (!e)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	e->context = c;
	e->slot = slot;
	e->flags = flags;
	e->next = c->events;
	c->events = e;
	handle_add(e, H_EVENT);
	*out = e;
	return leave(CUDA_SUCCESS);
}

void event_drop(CUevent e)
{
	CUcontext c = e->context;
	handle_remove(e);
	for (CUevent *at = &c->events; *at; at = &(*at)->next)
		if (*at == e) {
			*at = e->next;
			break;
		}
	slot_back(&c->free_events, &c->free_event_count, e->slot);
	free(e->tips);
	free(e);
}

static CUresult enter_event(CUevent e)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && !handle_is(e, H_EVENT))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	return r;
}

CUresult cuEventDestroy_v2(CUevent e)
{
	CUresult r = enter_event(e);
	if (r != CUDA_SUCCESS)
		return r;
	event_drop(e);
	return leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy(CUevent e)
{
	return cuEventDestroy_v2(e);
}

CUresult cuEventRecordWithFlags(CUevent e, CUstream h, unsigned int flags)
{
	CUstream s;
	CUresult r = enter_event(e);
	if (r != CUDA_SUCCESS)
		return r;
	if (flags > CU_EVENT_RECORD_EXTERNAL)
		return leave(CUDA_ERROR_INVALID_VALUE);
	r = stream_of(h, &s);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (s->context != e->context)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (s->capture && !(flags & CU_EVENT_RECORD_EXTERNAL)) { /* marks a place in the graph; makes no node */
		if (s->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
			return leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		CUgraphNode *tips = malloc((s->tip_count + 1) * sizeof(CUgraphNode));
		if (!tips)
			return leave(CUDA_ERROR_OUT_OF_MEMORY);
		if (s->tip_count)
			memcpy(tips, s->tips, s->tip_count * sizeof *tips);
		free(e->tips);
		e->tips = tips;
		e->tip_count = s->tip_count;
		e->capture = s->capture;
		return leave(CUDA_SUCCESS);
	}
	if (!s->capture) {
		free(e->tips);
		e->tips = NULL;
		e->capture = NULL;
	}
	struct work w = {.kind = W_RECORD, .event = e};
	return leave(issue(s, &w));
}

CUresult cuEventRecord(CUevent e, CUstream s)
{
	return cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_DEFAULT);
}

static bool captured(CUevent e)
{
	for (struct capture *k = captures; k; k = k->next)
		if (k == e->capture)
			return true;
	return false;
}

CUresult cuEventQuery(CUevent e)
{
	CUresult r = enter_event(e);
	if (r != CUDA_SUCCESS)
		return r;
	if (captured(e))
		return leave(CUDA_ERROR_CAPTURED_EVENT);
	r = capture_unsafe();
	if (r == CUDA_SUCCESS)
		r = context_check(e->context);
	if (r == CUDA_SUCCESS && !ended(e->context, e->stream_slot, e->seq))
		r = CUDA_ERROR_NOT_READY;
	return leave(r);
}

CUresult cuEventSynchronize(CUevent e)
{
	CUresult r = enter_event(e);
	if (r != CUDA_SUCCESS)
		return r;
	if (captured(e))
		return leave(CUDA_ERROR_CAPTURED_EVENT);
	r = capture_unsafe();
	if (r == CUDA_SUCCESS)
		r = context_check(e->context);
	if (r == CUDA_SUCCESS)
		r = await(e->context, e->stream_slot, e->seq);
	if (r == CUDA_SUCCESS)
		pools_trim();
	return leave(r);
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
	CUresult r = enter_event(from);
	if (r != CUDA_SUCCESS)
		return r;
	if (!ms)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!handle_is(to, H_EVENT) || from->context != to->context || !from->seq || !to->seq || ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	r = context_check(from->context);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (!ended(from->context, from->stream_slot, from->seq) || !ended(to->context, to->stream_slot, to->seq))
		return leave(CUDA_ERROR_NOT_READY);
	struct sim_event *a = &from->context->channel->event[from->slot], *b = &to->context->channel->event[to->slot];
	int64_t ns = (int64_t)(atomic_load(&b->time_ns) - atomic_load(&a->time_ns));
	*ms = (float)((double)ns / 1e6);
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamWaitEvent(CUstream h, CUevent e, unsigned int flags)
{
	CUstream s;
	CUresult r = enter_event(e);
	if (r != CUDA_SUCCESS)
		return r;
	if (flags > CU_EVENT_WAIT_EXTERNAL)
		return leave(CUDA_ERROR_INVALID_VALUE);
	r = stream_of(h, &s);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (s->capture && (flags & CU_EVENT_WAIT_EXTERNAL)) {
		struct work w = {.kind = W_WAIT, .event = e};
		return leave(issue(s, &w));
	}
	if (captured(e)) {
		struct capture *k = e->capture;
		if (s->capture && s->capture != k) {
			s->capture->status = k->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
			return leave(CUDA_ERROR_STREAM_CAPTURE_MERGE);
		}
		if (k->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
			return leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		if (s->slot == SIM_STREAM_SLOT_LEGACY) {
			k->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
			return leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
		}
		CUgraphNode *tips = realloc(s->tips, (s->tip_count + e->tip_count + 1) * sizeof(CUgraphNode));
		if (!tips)
			return leave(CUDA_ERROR_OUT_OF_MEMORY);
		s->tips = tips;
		for (size_t i = 0; i < e->tip_count; i++) {
			size_t at = 0;
			while (at < s->tip_count && s->tips[at] != e->tips[i])
				at++;
			if (at == s->tip_count)
				s->tips[s->tip_count++] = e->tips[i];
		}
		if (!s->capture) {
			s->capture = k;
			k->refs++;
		}
		return leave(CUDA_SUCCESS);
	}
	if (s->capture) { /* a captured stream may not wait for what is not captured */
		s->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
		return leave(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	}
	struct work w = {.kind = W_WAIT, .event = e};
	return leave(issue(s, &w));
}

