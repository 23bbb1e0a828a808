/* SPDX-License-Identifier: Apache-2.0 */
/* Events, also as they join streams in a capture. */
#include "simgpu/cuda/internal.h"

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	CUcontext c;
	TRY(enter_context(&c));
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
	TRY(enter_event(e));
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
