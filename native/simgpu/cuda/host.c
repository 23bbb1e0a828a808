/* SPDX-License-Identifier: Apache-2.0 */
/* What streams do with the host: call its functions, write and await values in memory. */
#include "simgpu/cuda/internal.h"

CUresult cuLaunchHostFunc(CUstream h, CUhostFn fn, void *data)
{
	CUstream s;
	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_stream(h, &s));
	struct work w = {.kind = W_HOST, .host = {.fn = fn, .data = data}};
	return leave(issue(s, &w));
}

CUresult cuStreamAddCallback(CUstream h, CUstreamCallback callback, void *data, unsigned int flags)
{
	CUstream s;
	if (!callback || flags)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_stream(h, &s));
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
	TRY(enter_stream(h, &s));
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
