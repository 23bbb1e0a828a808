/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a graph's nodes, and its edges. */
#include "simgpu/cuda/graph.h"

/* ------------------------------------------------------------------------------------------------------------ parameters */

static CUDA_KERNEL_NODE_PARAMS kernel_params(const struct kernel *k)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = k->function, .gridDimX = k->grid[0], .gridDimY = k->grid[1], .gridDimZ = k->grid[2],
					 .blockDimX = k->block[0], .blockDimY = k->block[1], .blockDimZ = k->block[2], .sharedMemBytes = k->shared};
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS *out)
{
	TRY(enter_node(n, W_KERNEL));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = kernel_params(&n->work.kernel);
	/* Pointers to the values, as the driver gives them: they live as long as the node. */
	CUfunction f = n->work.kernel.function;
	static __thread void *values[64];
	for (unsigned i = 0; i < f->params; i++)
		values[i] = n->work.kernel.params + f->param[i].offset;
	out->kernelParams = f->params ? values : NULL;
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS_v1 *out)
{
	CUDA_KERNEL_NODE_PARAMS p;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = cuGraphKernelNodeGetParams_v2(n, &p);
	if (r == CUDA_SUCCESS)
		memcpy(out, &p, sizeof *out);
	return r;
}

CUresult work_replace(struct work *at, struct work *with, CUresult made)
{
	if (made != CUDA_SUCCESS)
		return leave(made);
	work_free(at);
	*at = *with;
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct work w;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_node(n, W_KERNEL);
	return r == CUDA_SUCCESS ? work_replace(&n->work, &w, kernel_work(&w, p)) : r;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS q = kernel_params_from_v1(p);
	return cuGraphKernelNodeSetParams_v2(n, &q);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode n, CUDA_MEMCPY3D *out)
{
	TRY(enter_node(n, W_COPY));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = n->work.copy.asked;
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode n, const CUDA_MEMCPY3D *p)
{
	struct work w;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_node(n, W_COPY);
	return r == CUDA_SUCCESS ? work_replace(&n->work, &w, copy_work(&w, p)) : r;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode n, CUDA_MEMSET_NODE_PARAMS *out)
{
	TRY(enter_node(n, W_SET));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = n->work.set.asked;
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode n, const CUDA_MEMSET_NODE_PARAMS *p)
{
	struct work w;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_node(n, W_SET);
	return r == CUDA_SUCCESS ? work_replace(&n->work, &w, set_work(&w, p)) : r;
}

CUresult cuGraphHostNodeGetParams(CUgraphNode n, CUDA_HOST_NODE_PARAMS *out)
{
	TRY(enter_node(n, W_HOST));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = (CUDA_HOST_NODE_PARAMS){.fn = n->work.host.fn, .userData = n->work.host.data};
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode n, const CUDA_HOST_NODE_PARAMS *p)
{
	if (!p || !p->fn)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_node(n, W_HOST);
	struct work w = {.kind = W_HOST, .host = {.fn = p->fn, .data = p->userData}};
	return r == CUDA_SUCCESS ? work_replace(&n->work, &w, CUDA_SUCCESS) : r;
}

CUresult cuGraphNodeGetType(CUgraphNode n, CUgraphNodeType *out)
{
	static const CUgraphNodeType types[] = {[W_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,	 [W_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
						[W_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,	 [W_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
						[W_HOST] = CU_GRAPH_NODE_TYPE_HOST,	 [W_CALLBACK] = CU_GRAPH_NODE_TYPE_HOST,
						[W_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD, [W_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
						[W_WRITE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [W_AWAIT] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
						[W_GRAPH] = CU_GRAPH_NODE_TYPE_GRAPH,	 [W_BATCH] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
						[W_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,	 [W_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE};
	TRY(enter_node(n, -1));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = types[n->work.kind];
	return leave(CUDA_SUCCESS);
}

/* ----------------------------------------------------------------------------------------------------------------- edges */

/* Lists are filled up to *count; *count becomes how many there are. With no list, only that. */
static void list_put(CUgraphNode *list, size_t room, size_t *n, CUgraphNode node)
{
	if (list && *n < room)
		list[*n] = node;
	++*n;
}

CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *list, size_t *count)
{
	TRY(enter_graph(g));
	if (!count)
		return leave(CUDA_ERROR_INVALID_VALUE);
	size_t n = 0, room = *count;
	for (CUgraphNode o = g->nodes; o; o = o->next)
		list_put(list, room, &n, o);
	*count = list && room < n ? room : n;
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphGetRootNodes(CUgraph g, CUgraphNode *list, size_t *count)
{
	TRY(enter_graph(g));
	if (!count)
		return leave(CUDA_ERROR_INVALID_VALUE);
	size_t n = 0, room = *count;
	for (CUgraphNode o = g->nodes; o; o = o->next)
		if (!o->dep_count)
			list_put(list, room, &n, o);
	*count = list && room < n ? room : n;
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphGetEdges(CUgraph g, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
	TRY(enter_graph(g));
	if (!count || !from != !to)
		return leave(CUDA_ERROR_INVALID_VALUE);
	size_t n = 0, m = 0, room = *count;
	for (CUgraphNode o = g->nodes; o; o = o->next)
		for (size_t i = 0; i < o->dep_count; i++) {
			list_put(from, room, &n, o->deps[i]);
			list_put(to, room, &m, o);
		}
	*count = from && room < n ? room : n;
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *list, size_t *count)
{
	TRY(enter_node(node, -1));
	if (!count)
		return leave(CUDA_ERROR_INVALID_VALUE);
	size_t n = 0, room = *count;
	for (size_t i = 0; i < node->dep_count; i++)
		list_put(list, room, &n, node->deps[i]);
	*count = list && room < n ? room : n;
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *list, size_t *count)
{
	TRY(enter_node(node, -1));
	if (!count)
		return leave(CUDA_ERROR_INVALID_VALUE);
	size_t n = 0, room = *count;
	for (CUgraphNode o = node->graph->nodes; o; o = o->next)
		for (size_t i = 0; i < o->dep_count; i++)
			if (o->deps[i] == node)
				list_put(list, room, &n, o);
	*count = list && room < n ? room : n;
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	TRY(enter_graph(g));
	for (size_t i = 0; i < count; i++) {
		if (!from || !to || !handle_is(from[i], H_NODE) || !handle_is(to[i], H_NODE) || from[i]->graph != g || to[i]->graph != g ||
		    from[i] == to[i])
			return leave(CUDA_ERROR_INVALID_VALUE);
		CUgraphNode *deps = realloc(to[i]->deps, (to[i]->dep_count + 2) * sizeof(CUgraphNode));
		if (!deps)
			return leave(CUDA_ERROR_OUT_OF_MEMORY);
		to[i]->deps = deps;
		deps[to[i]->dep_count++] = from[i];
	}
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphRemoveDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	TRY(enter_graph(g));
	for (size_t i = 0; i < count; i++) {
		if (!from || !to || !handle_is(to[i], H_NODE) || to[i]->graph != g)
			return leave(CUDA_ERROR_INVALID_VALUE);
		for (size_t k = 0; k < to[i]->dep_count; k++)
			if (to[i]->deps[k] == from[i]) {
				to[i]->deps[k] = to[i]->deps[--to[i]->dep_count];
				break;
			}
	}
	return leave(CUDA_SUCCESS);
}
