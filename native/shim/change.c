/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change.c: changes of graphs that have been instantiated: what one was measured to take before says nothing of what it takes now. What a
 * kernel on the device changes in a graph nobody tells: the measurements do, see cost.c.
 */
#include "driver.h"

#define CHANGE(name, exec, ...)                                                                                                    \
	do {                                                                                                                       \
		CUresult r = REAL(name, __VA_ARGS__);                                                                              \
		if (r == CUDA_SUCCESS && task_on())                                                                                \
			meter_graph_changed(exec, false);                                                                          \
		return r;                                                                                                          \
	} while (0)

EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *result)
{
	CHANGE(cuGraphExecUpdate, exec, exec, graph, error, result);
}

EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	CHANGE(cuGraphExecUpdate_v2, exec, exec, graph, info);
}

EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CHANGE(cuGraphExecKernelNodeSetParams, exec, exec, node, params);
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	CHANGE(cuGraphExecKernelNodeSetParams_v2, exec, exec, node, params);
}

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext context)
{
	CHANGE(cuGraphExecMemcpyNodeSetParams, exec, exec, node, params, context);
}

EXPORT CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
	CHANGE(cuGraphExecMemsetNodeSetParams, exec, exec, node, params, context);
}

EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	CHANGE(cuGraphExecChildGraphNodeSetParams, exec, exec, node, child);
}

EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	CHANGE(cuGraphExecNodeSetParams, exec, exec, node, params);
}

EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
	CHANGE(cuGraphNodeSetEnabled, exec, exec, node, enabled);
}
