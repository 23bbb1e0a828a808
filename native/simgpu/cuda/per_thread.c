/* SPDX-License-Identifier: Apache-2.0 */
/* Each call that takes a stream, as it is for programs whose default stream is the thread's own. */
#include "simgpu/cuda/internal.h"

static CUstream own(CUstream s)
{
	return s ? s : CU_STREAM_PER_THREAD;
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
	return cuEventRecord(event, own(stream));
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
	return cuEventRecordWithFlags(event, own(stream), flags);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec graph_exec, CUstream stream)
{
	return cuGraphLaunch(graph_exec, own(stream));
}

CUresult cuGraphUpload_ptsz(CUgraphExec graph_exec, CUstream stream)
{
	return cuGraphUpload(graph_exec, own(stream));
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z,
		unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z, unsigned int shared_mem_bytes, CUstream stream,
		void **kernel_params)
{
	return cuLaunchCooperativeKernel(f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, shared_mem_bytes, own(stream), kernel_params);
}

CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn fn, void *user_data)
{
	return cuLaunchHostFunc(own(stream), fn, user_data);
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z,
		unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z, unsigned int shared_mem_bytes, CUstream stream,
		void **kernel_params, void **extra)
{
	return cuLaunchKernel(f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, shared_mem_bytes, own(stream), kernel_params, extra);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream stream)
{
	return cuMemAllocAsync(dptr, bytesize, own(stream));
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream stream)
{
	return cuMemAllocFromPoolAsync(dptr, bytesize, pool, own(stream));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream)
{
	return cuMemFreeAsync(dptr, own(stream));
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr dev_ptr, size_t count, CUdevice dst_device, CUstream stream)
{
	return cuMemPrefetchAsync(dev_ptr, count, dst_device, own(stream));
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr dev_ptr, size_t count, CUmemLocation location, unsigned int flags, CUstream stream)
{
	return cuMemPrefetchAsync_v2(dev_ptr, count, location, flags, own(stream));
}

CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *locations, size_t *indices,
				      size_t num_locations, unsigned long long flags, CUstream stream)
{
	return cuMemPrefetchBatchAsync(dptrs, sizes, count, locations, indices, num_locations, flags, own(stream));
}

CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *locations, size_t *indices,
						size_t num_locations, unsigned long long flags, CUstream stream)
{
	return cuMemDiscardAndPrefetchBatchAsync(dptrs, sizes, count, locations, indices, num_locations, flags, own(stream));
}

CUresult cuMemBatchDecompressAsync_ptsz(CUmemDecompressParams *params, size_t count, unsigned int flags, size_t *error_index, CUstream stream)
{
	return cuMemBatchDecompressAsync(params, count, flags, error_index, own(stream));
}

CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *copy, CUstream stream)
{
	return cuMemcpy2DAsync_v2(copy, own(stream));
}

CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *copy, CUstream stream)
{
	return cuMemcpy3DAsync_v2(copy, own(stream));
}

CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
	return cuMemcpy3DPeerAsync(copy, own(stream));
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t byte_count, CUstream stream)
{
	return cuMemcpyAsync(dst, src, byte_count, own(stream));
}

CUresult cuMemcpyAtoHAsync_v2_ptsz(void *dst_host, CUarray src_array, size_t src_offset, size_t byte_count, CUstream stream)
{
	return cuMemcpyAtoHAsync_v2(dst_host, src_array, src_offset, byte_count, own(stream));
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst_device, CUdeviceptr src_device, size_t byte_count, CUstream stream)
{
	return cuMemcpyDtoDAsync_v2(dst_device, src_device, byte_count, own(stream));
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void *dst_host, CUdeviceptr src_device, size_t byte_count, CUstream stream)
{
	return cuMemcpyDtoHAsync_v2(dst_host, src_device, byte_count, own(stream));
}

CUresult cuMemcpyHtoAAsync_v2_ptsz(CUarray dst_array, size_t dst_offset, const void *src_host, size_t byte_count, CUstream stream)
{
	return cuMemcpyHtoAAsync_v2(dst_array, dst_offset, src_host, byte_count, own(stream));
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst_device, const void *src_host, size_t byte_count, CUstream stream)
{
	return cuMemcpyHtoDAsync_v2(dst_device, src_host, byte_count, own(stream));
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device, CUcontext src_context,
		size_t byte_count, CUstream stream)
{
	return cuMemcpyPeerAsync(dst_device, dst_context, src_device, src_context, byte_count, own(stream));
}

CUresult cuMemsetD16Async_ptsz(CUdeviceptr dst_device, unsigned short us, size_t n, CUstream stream)
{
	return cuMemsetD16Async(dst_device, us, n, own(stream));
}

CUresult cuMemsetD2D16Async_ptsz(CUdeviceptr dst_device, size_t dst_pitch, unsigned short us, size_t width, size_t height, CUstream stream)
{
	return cuMemsetD2D16Async(dst_device, dst_pitch, us, width, height, own(stream));
}

CUresult cuMemsetD2D32Async_ptsz(CUdeviceptr dst_device, size_t dst_pitch, unsigned int ui, size_t width, size_t height, CUstream stream)
{
	return cuMemsetD2D32Async(dst_device, dst_pitch, ui, width, height, own(stream));
}

CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr dst_device, size_t dst_pitch, unsigned char uc, size_t width, size_t height, CUstream stream)
{
	return cuMemsetD2D8Async(dst_device, dst_pitch, uc, width, height, own(stream));
}

CUresult cuMemsetD32Async_ptsz(CUdeviceptr dst_device, unsigned int ui, size_t n, CUstream stream)
{
	return cuMemsetD32Async(dst_device, ui, n, own(stream));
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr dst_device, unsigned char uc, size_t n, CUstream stream)
{
	return cuMemsetD8Async(dst_device, uc, n, own(stream));
}

CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *user_data, unsigned int flags)
{
	return cuStreamAddCallback(own(stream), callback, user_data, flags);
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
	return cuStreamAttachMemAsync(own(stream), dptr, length, flags);
}

CUresult cuStreamBatchMemOp_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *param_array, unsigned int flags)
{
	return cuStreamBatchMemOp(own(stream), count, param_array, flags);
}

CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *param_array, unsigned int flags)
{
	return cuStreamBatchMemOp_v2(own(stream), count, param_array, flags);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
	return cuStreamBeginCapture(own(stream));
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
		const CUgraphEdgeData *dependency_data, size_t num_dependencies, CUstreamCaptureMode mode)
{
	return cuStreamBeginCaptureToGraph(own(stream), graph, dependencies, dependency_data, num_dependencies, mode);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
	return cuStreamBeginCapture_v2(own(stream), mode);
}

CUresult cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src)
{
	return cuStreamCopyAttributes(own(dst), own(src));
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	return cuStreamEndCapture(own(stream), graph);
}

CUresult cuStreamGetAttribute_ptsz(CUstream stream, CUstreamAttrID attr, CUstreamAttrValue *value_out)
{
	return cuStreamGetAttribute(own(stream), attr, value_out);
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus *capture_status_out, cuuint64_t *id_out)
{
	return cuStreamGetCaptureInfo(own(stream), capture_status_out, id_out);
}

CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus *capture_status_out, cuuint64_t *id_out,
		CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *num_dependencies_out)
{
	return cuStreamGetCaptureInfo_v2(own(stream), capture_status_out, id_out, graph_out, dependencies_out, num_dependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus *capture_status_out, cuuint64_t *id_out,
		CUgraph *graph_out, const CUgraphNode **dependencies_out, const CUgraphEdgeData **edge_data_out, size_t *num_dependencies_out)
{
	return cuStreamGetCaptureInfo_v3(own(stream), capture_status_out, id_out, graph_out, dependencies_out, edge_data_out, num_dependencies_out);
}

CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *pctx)
{
	return cuStreamGetCtx(own(stream), pctx);
}

CUresult cuStreamGetFlags_ptsz(CUstream stream, unsigned int *flags)
{
	return cuStreamGetFlags(own(stream), flags);
}

CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long *stream_id)
{
	return cuStreamGetId(own(stream), stream_id);
}

CUresult cuStreamGetPriority_ptsz(CUstream stream, int *priority)
{
	return cuStreamGetPriority(own(stream), priority);
}

CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *capture_status)
{
	return cuStreamIsCapturing(own(stream), capture_status);
}

CUresult cuStreamQuery_ptsz(CUstream stream)
{
	return cuStreamQuery(own(stream));
}

CUresult cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
	return cuStreamSetAttribute(own(stream), attr, value);
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
	return cuStreamSynchronize(own(stream));
}

CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream stream, CUgraphNode *dependencies, size_t num_dependencies, unsigned int flags)
{
	return cuStreamUpdateCaptureDependencies(own(stream), dependencies, num_dependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode *dependencies,
		const CUgraphEdgeData *dependency_data, size_t num_dependencies, unsigned int flags)
{
	return cuStreamUpdateCaptureDependencies_v2(own(stream), dependencies, dependency_data, num_dependencies, flags);
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
	return cuStreamWaitEvent(own(stream), event, flags);
}

CUresult cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return cuStreamWaitValue32(own(stream), addr, value, flags);
}

CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return cuStreamWaitValue32_v2(own(stream), addr, value, flags);
}

CUresult cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return cuStreamWaitValue64(own(stream), addr, value, flags);
}

CUresult cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return cuStreamWaitValue64_v2(own(stream), addr, value, flags);
}

CUresult cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return cuStreamWriteValue32(own(stream), addr, value, flags);
}

CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return cuStreamWriteValue32_v2(own(stream), addr, value, flags);
}

CUresult cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return cuStreamWriteValue64(own(stream), addr, value, flags);
}

CUresult cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return cuStreamWriteValue64_v2(own(stream), addr, value, flags);
}

CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *attrs_idxs,
		size_t num_attrs, size_t *fail_idx, CUstream stream)
{
	return cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs, fail_idx, own(stream));
}

CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
		size_t *attrs_idxs, size_t num_attrs, CUstream stream)
{
	return cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs, own(stream));
}

CUresult cuMemcpy3DBatchAsync_ptsz(size_t num_ops, CUDA_MEMCPY3D_BATCH_OP *op_list, size_t *fail_idx, unsigned long long flags, CUstream stream)
{
	return cuMemcpy3DBatchAsync(num_ops, op_list, fail_idx, flags, own(stream));
}

CUresult cuMemcpy3DBatchAsync_v2_ptsz(size_t num_ops, CUDA_MEMCPY3D_BATCH_OP *op_list, unsigned long long flags, CUstream stream)
{
	return cuMemcpy3DBatchAsync_v2(num_ops, op_list, flags, own(stream));
}
