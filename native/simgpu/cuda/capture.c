/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: what is issued to a capturing stream becomes nodes of a graph. */
#include "simgpu/cuda/internal.h"

struct capture *captures;

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUstreamCaptureMode before = thread_mode;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

/*
 * A thread may do unsafe things (allocate, wait, ask) unless its own capture forbids it, or, in global mode, any other thread's global
 * capture does. What is refused breaks the capture that forbade it.
 */
CUresult capture_unsafe(void)
{
	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	CUresult r = CUDA_SUCCESS;
	for (struct capture *k = captures; k; k = k->next) {
		bool own = pthread_equal(k->thread, pthread_self());
		if (k->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
			continue;
		if (own || (k->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
			k->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return r;
}

CUresult capture_legacy(CUcontext c)
{
	CUresult r = CUDA_SUCCESS;
	for (CUstream s = c->streams; s; s = s->next)
		if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING)) {
			s->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
			r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	return r;
}

CUresult capture_add(CUstream s, struct work *w)
{
	CUgraphNode node;
	if (s->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		work_free(w);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	TRY(graph_node_add(s->capture->graph, s->tips, s->tip_count, w, &node));
	if (!s->tips)
		s->tips = malloc(sizeof(CUgraphNode));
	if (!s->tips)
		return CUDA_ERROR_OUT_OF_MEMORY;
	s->tips[0] = node;
	s->tip_count = 1;
	return CUDA_SUCCESS;
}

static void capture_free(struct capture *k)
{
	for (struct capture **at = &captures; *at; at = &(*at)->next)
		if (*at == k) {
			*at = k->next;
			break;
		}
	free(k);
}

void capture_leave(CUstream s)
{
	struct capture *k = s->capture;
	s->capture = NULL;
	s->tip_count = 0;
	k->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
	if (--k->refs == 0) {
		if (k->own_graph)
			graph_free(k->graph);
		capture_free(k);
	} else if (k->origin == s) {
		k->origin = NULL;
	}
}

static CUresult begin(CUstream h, CUgraph graph, const CUgraphNode *deps, size_t count, CUstreamCaptureMode mode)
{
	CUstream s;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_of(h, &s);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (s->slot == SIM_STREAM_SLOT_LEGACY)
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (s->capture)
		return leave(CUDA_ERROR_ILLEGAL_STATE);
	if (graph && !handle_is(graph, H_GRAPH))
		return leave(CUDA_ERROR_INVALID_VALUE);
	struct capture *k = calloc(1, sizeof *k);
	CUgraphNode *tips = malloc((count + 1) * sizeof(CUgraphNode));
	if (k && !graph)
		k->graph = graph_new();
	if (!k || !tips || (!graph && !k->graph)) {
		free(k);
		free(tips);
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	k->own_graph = !graph;
	if (graph)
		k->graph = graph;
	for (size_t i = 0; i < count; i++)
		tips[i] = deps[i];
	free(s->tips);
	s->tips = tips;
	s->tip_count = count;
	k->id = ++api.ids;
	k->mode = mode;
	k->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	k->origin = s;
	k->thread = pthread_self();
	k->refs = 1;
	k->next = captures;
	captures = k;
	s->capture = k;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
	return begin(s, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCapture(CUstream s)
{
	return begin(s, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream s, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t count,
				     CUstreamCaptureMode mode)
{
	(void)edges;
	return !graph || (count && !deps) ? CUDA_ERROR_INVALID_VALUE : begin(s, graph, deps, count, mode);
}

/* Whether every node of the capture is on the way to what the origin stream ends with: else other streams were not joined. */
static bool joined(struct capture *k, CUstream origin)
{
	for (CUgraphNode n = k->graph->nodes; n; n = n->next) {
		bool used = false;
		for (CUgraphNode o = k->graph->nodes; o && !used; o = o->next)
			for (size_t i = 0; i < o->dep_count; i++)
				used |= o->deps[i] == n;
		for (size_t i = 0; i < origin->tip_count; i++)
			used |= origin->tips[i] == n;
		if (!used && k->own_graph)
			return false;
	}
	return true;
}

CUresult cuStreamEndCapture(CUstream h, CUgraph *out)
{
	CUstream s;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_of(h, &s);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (!out || !s->capture)
		return leave(out ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_VALUE);
	struct capture *k = s->capture;
	*out = NULL;
	if (k->origin != s) {
		k->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	}
	if (k->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(k->thread, pthread_self()))
		return leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	if (k->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!joined(k, s))
		r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	for (CUstream o = s->context->streams; o; o = o->next)
		if (o->capture == k) {
			o->capture = NULL;
			o->tip_count = 0;
		}
	if (r == CUDA_SUCCESS)
		*out = k->graph;
	else if (k->own_graph)
		graph_free(k->graph);
	capture_free(k);
	return leave(r);
}

CUresult cuStreamIsCapturing(CUstream h, CUstreamCaptureStatus *out)
{
	CUstream s;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_of(h, &s);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (s->slot == SIM_STREAM_SLOT_LEGACY)
		for (CUstream o = s->context->streams; o; o = o->next)
			if (o->capture && !(o->flags & CU_STREAM_NON_BLOCKING))
				return leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	*out = s->capture ? s->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
	return leave(CUDA_SUCCESS);
}

static CUresult capture_info(CUstream h, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps, size_t *count)
{
	CUstream s;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_of(h, &s);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (!status)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*status = s->capture ? s->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
	if (s->capture && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		if (id)
			*id = s->capture->id;
		if (graph)
			*graph = s->capture->graph;
		if (deps)
			*deps = s->tips;
		if (count)
			*count = s->tip_count;
	}
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCaptureInfo(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	return capture_info(s, status, id, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps, size_t *count)
{
	return capture_info(s, status, id, graph, deps, count);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps,
				   const CUgraphEdgeData **edges, size_t *count)
{
	if (edges)
		*edges = NULL;
	return capture_info(s, status, id, graph, deps, count);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream h, CUgraphNode *deps, size_t count, unsigned int flags)
{
	CUstream s;
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count && !deps))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_of(h, &s);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (!s->capture || s->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return leave(CUDA_ERROR_ILLEGAL_STATE);
	size_t kept = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES ? 0 : s->tip_count;
	CUgraphNode *tips = realloc(s->tips, (kept + count + 1) * sizeof(CUgraphNode));
	if (!tips)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	s->tips = tips;
	for (size_t i = 0; i < count; i++)
		tips[kept + i] = deps[i];
	s->tip_count = kept + count;
	return leave(CUDA_SUCCESS);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream s, CUgraphNode *deps, const CUgraphEdgeData *edges, size_t count, unsigned int flags)
{
	(void)edges;
	return cuStreamUpdateCaptureDependencies(s, deps, count, flags);
}
