/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c: streams and captures: passed on, and followed. */
#include "driver.h"

static void created(CUresult r, unsigned int flags)
{
	if (r == CUDA_SUCCESS && (flags & CU_STREAM_NON_BLOCKING) == 0)
		meter_blocking_stream();
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	CUresult r = REAL(cuStreamCreate, stream, flags);
	created(r, flags);
	return r;
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	CUresult r = REAL(cuStreamCreateWithPriority, stream, flags, priority);
	created(r, flags);
	return r;
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
	meter_stream_gone(stream);
	return REAL(cuStreamDestroy, stream);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
	meter_stream_gone(stream);
	return REAL(cuStreamDestroy_v2, stream);
}

/* Counted as open from before it begins, so that nothing of ours is put into a stream that it draws in. */
#define BEGIN(name, per_thread, stream, ...)                                                                                       \
	do {                                                                                                                       \
		struct stream *drawn = meter_capture_begins(stream, per_thread);                                                   \
		CUresult r = REAL(name, stream, ##__VA_ARGS__);                                                                    \
		meter_capture_began(drawn, r == CUDA_SUCCESS);                                                                     \
		return r;                                                                                                          \
	} while (0)

EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
	BEGIN(cuStreamBeginCapture, false, stream);
}

EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
	BEGIN(cuStreamBeginCapture_ptsz, true, stream);
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	BEGIN(cuStreamBeginCapture_v2, false, stream, mode);
}

EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
	BEGIN(cuStreamBeginCapture_v2_ptsz, true, stream, mode);
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n,
					    CUstreamCaptureMode mode)
{
	BEGIN(cuStreamBeginCaptureToGraph, false, stream, graph, deps, data, n, mode);
}

EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *data,
						 size_t n, CUstreamCaptureMode mode)
{
	BEGIN(cuStreamBeginCaptureToGraph_ptsz, true, stream, graph, deps, data, n, mode);
}

/* Ended, also as a failure, unless there was none to end in this stream or thread. */
static CUresult ended(CUresult r, CUstream stream, bool per_thread)
{
	if (r != CUDA_ERROR_ILLEGAL_STATE && r != CUDA_ERROR_INVALID_VALUE && r != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD &&
	    r != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED && r != CUDA_ERROR_NOT_SUPPORTED)
		meter_capture_ended(stream, per_thread);
	return r;
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	return ended(REAL(cuStreamEndCapture, stream, graph), stream, false);
}

EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	return ended(REAL(cuStreamEndCapture_ptsz, stream, graph), stream, true);
}
