/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paths_change.c: graphs changed after they were instantiated, on simulated devices: one that takes 200 times as long as before is charged as long
 * as it takes, and no more of it is queued than of what was never measured.
 */
#include "paths.h"

#define LEARNT 24  /* launches, after which what a graph takes is known */
#define CHANGED 4  /* of the longer one */
#define QUEUED 2   /* of which so many may be on the device */

#define LONG ((size_t)(32 * MI)) /* of a copy */
#define FAR_LONGER ((size_t)(2048 * MI)) /* of a set */
#define SHORT ((size_t)4096)

static struct {
	CUfunction quick, slow;
	CUgraph graph, longer, both, outer, copying, setting;
	CUgraphNode node, first_node, slow_node, child, copy, set;
	CUdeviceptr to;
	void *from;
} of;

static CUDA_KERNEL_NODE_PARAMS kernel(CUfunction f)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = f, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1};
}

static CUgraph graph_of(CUfunction f, CUgraphNode *node)
{
	CUgraph g;
	CUDA_KERNEL_NODE_PARAMS p = kernel(f);
	CHECK_EQ(cuGraphCreate(&g, 0), CUDA_SUCCESS);
	CHECK_EQ(cuGraphAddKernelNode_v2(node, g, NULL, 0, &p), CUDA_SUCCESS);
	return g;
}

static void launch(CUgraphExec x, int times, uint64_t most)
{
	const struct alq_tel_grant *t = &arbiter.tel->slot[0].grant[0];
	for (int i = 0; i < times; i++) {
		CHECK_EQ(cuGraphLaunch(x, tenant.stream[0]), CUDA_SUCCESS);
		uint64_t ended = get_acquire(&t->completed);
		CHECK(get_acquire(&t->launched) - ended <= most);
	}
	come_to_rest();
}

/* One way to change a graph: makes it the longer one, or the shorter one again. */
typedef CUresult way(CUgraphExec x, bool longer);

static CUresult by_update(CUgraphExec x, bool longer)
{
	CUgraphExecUpdateResultInfo info;
	return cuGraphExecUpdate_v2(x, longer ? of.longer : of.graph, &info);
}

static CUresult by_old_update(CUgraphExec x, bool longer)
{
	CUgraphExecUpdateResult result;
	return cuGraphExecUpdate(x, longer ? of.longer : of.graph, NULL, &result);
}

static CUresult by_kernel(CUgraphExec x, bool longer)
{
	CUDA_KERNEL_NODE_PARAMS p = kernel(longer ? of.slow : of.quick);
	return cuGraphExecKernelNodeSetParams_v2(x, of.node, &p);
}

static CUresult by_old_kernel(CUgraphExec x, bool longer)
{
	CUDA_KERNEL_NODE_PARAMS_v1 p = {.func = longer ? of.slow : of.quick, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32,
					.blockDimY = 1, .blockDimZ = 1};
	return cuGraphExecKernelNodeSetParams(x, of.node, &p);
}

static void test_way(const char *symbol, CUgraph g, way *change)
{
	for (int tries = 0;; tries++) {
		CUgraphExec x;
		CHECK_EQ(cuGraphInstantiateWithFlags(&x, g, 0), CUDA_SUCCESS);
		CHECK_EQ(change(x, false), CUDA_SUCCESS);
		launch(x, LEARNT, UINT64_MAX);
		CHECK_EQ(change(x, true), CUDA_SUCCESS);
		struct said before = said_now();
		launch(x, CHANGED, QUEUED);
		bool right = charged_right(symbol, &before, CHANGED, 0, tries);
		CHECK_EQ(cuGraphExecDestroy(x), CUDA_SUCCESS);
		if (right)
			return;
	}
}

/* A quick kernel with a slow one behind it, that is left out or not. */
static CUresult by_enabling(CUgraphExec x, bool longer)
{
	return cuGraphNodeSetEnabled(x, of.slow_node, longer);
}

static CUresult by_child(CUgraphExec x, bool longer)
{
	return cuGraphExecChildGraphNodeSetParams(x, of.child, longer ? of.longer : of.graph);
}

static CUresult by_any(CUgraphExec x, bool longer)
{
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = kernel(longer ? of.slow : of.quick)};
	return cuGraphExecNodeSetParams(x, of.node, &p);
}

static CUDA_MEMCPY3D copy_of(size_t bytes)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = of.from, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = of.to,
			       .WidthInBytes = bytes, .Height = 1, .Depth = 1};
}

static CUresult by_copy(CUgraphExec x, bool longer)
{
	CUDA_MEMCPY3D p = copy_of(longer ? LONG : SHORT);
	return cuGraphExecMemcpyNodeSetParams(x, of.copy, &p, tenant.context[0]);
}

static CUDA_MEMSET_NODE_PARAMS set_of(size_t bytes)
{
	return (CUDA_MEMSET_NODE_PARAMS){.dst = of.to, .elementSize = 1, .width = bytes, .height = 1};
}

static CUresult by_set(CUgraphExec x, bool longer)
{
	CUDA_MEMSET_NODE_PARAMS p = set_of(longer ? FAR_LONGER : SHORT);
	return cuGraphExecMemsetNodeSetParams(x, of.set, &p, tenant.context[0]);
}

static void test_memory_nodes(void)
{
	CUDA_MEMCPY3D copy;
	CUDA_MEMSET_NODE_PARAMS set;
	CHECK_EQ(cuMemAlloc_v2(&of.to, FAR_LONGER), CUDA_SUCCESS);
	CHECK_EQ(cuMemHostAlloc(&of.from, LONG, 0), CUDA_SUCCESS);
	copy = copy_of(SHORT);
	set = set_of(SHORT);
	CHECK_EQ(cuGraphCreate(&of.copying, 0), CUDA_SUCCESS);
	CHECK_EQ(cuGraphAddMemcpyNode(&of.copy, of.copying, NULL, 0, &copy, tenant.context[0]), CUDA_SUCCESS);
	CHECK_EQ(cuGraphCreate(&of.setting, 0), CUDA_SUCCESS);
	CHECK_EQ(cuGraphAddMemsetNode(&of.set, of.setting, NULL, 0, &set, tenant.context[0]), CUDA_SUCCESS);
	test_way("cuGraphExecMemcpyNodeSetParams", of.copying, by_copy);
	test_way("cuGraphExecMemsetNodeSetParams", of.setting, by_set);
	CHECK_EQ(cuGraphDestroy(of.copying), CUDA_SUCCESS);
	CHECK_EQ(cuGraphDestroy(of.setting), CUDA_SUCCESS);
	CHECK_EQ(cuMemFreeHost(of.from), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(of.to), CUDA_SUCCESS);
}

void test_changes(void)
{
	CUDA_KERNEL_NODE_PARAMS slow;
	CHECK_EQ(cuModuleGetFunction(&of.quick, tenant.module[0], "busy_100us"), CUDA_SUCCESS);
	CHECK_EQ(cuModuleGetFunction(&of.slow, tenant.module[0], "busy_20ms"), CUDA_SUCCESS);
	slow = kernel(of.slow);
	of.graph = graph_of(of.quick, &of.node);
	of.longer = graph_of(of.slow, &of.first_node);
	of.both = graph_of(of.quick, &of.first_node);
	CHECK_EQ(cuGraphAddKernelNode_v2(&of.slow_node, of.both, &of.first_node, 1, &slow), CUDA_SUCCESS);
	test_way("cuGraphExecUpdate", of.graph, by_old_update);
	test_way("cuGraphExecUpdate_v2", of.graph, by_update);
	test_way("cuGraphExecKernelNodeSetParams", of.graph, by_old_kernel);
	test_way("cuGraphExecKernelNodeSetParams_v2", of.graph, by_kernel);
	test_way("cuGraphNodeSetEnabled", of.both, by_enabling);
	test_way("cuGraphExecNodeSetParams", of.graph, by_any);
	CHECK_EQ(cuGraphCreate(&of.outer, 0), CUDA_SUCCESS);
	CHECK_EQ(cuGraphAddChildGraphNode(&of.child, of.outer, NULL, 0, of.graph), CUDA_SUCCESS);
	test_way("cuGraphExecChildGraphNodeSetParams", of.outer, by_child);
	test_memory_nodes();
	CHECK_EQ(cuGraphDestroy(of.outer), CUDA_SUCCESS);
	CHECK_EQ(cuGraphDestroy(of.graph), CUDA_SUCCESS);
	CHECK_EQ(cuGraphDestroy(of.longer), CUDA_SUCCESS);
	CHECK_EQ(cuGraphDestroy(of.both), CUDA_SUCCESS);
}
