/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs. A graph launched runs its nodes one after another in an order that its edges allow, which is what the device model does with
 * independent work anyway. Neighbouring kernels go to the device as one operation, so a graph of a thousand kernels is one entry of the ring.
 */
#include "simgpu/cuda/graph.h"

/* --------------------------------------------------------------------------------------------------------------- building */

CUgraph graph_new(void)
{
	CUgraph g = calloc(1, sizeof *g);
	if (!g)
		return NULL;
	g->end = &g->nodes;
	handle_add(g, H_GRAPH);
	return g;
}

static void node_free(CUgraphNode n)
{
	handle_remove(n);
	if (n->work.kind == W_GRAPH)
		graph_free(n->work.graph);
	work_free(&n->work);
	free(n->deps);
	free(n);
}

void graph_free(CUgraph g)
{
	handle_remove(g);
	while (g->nodes) {
		CUgraphNode n = g->nodes;
		g->nodes = n->next;
		node_free(n);
	}
	free(g);
}

CUresult graph_node_add(CUgraph g, const CUgraphNode *deps, size_t count, struct work *w, CUgraphNode *out)
{
	CUgraphNode n = calloc(1, sizeof *n);
	CUgraphNode *copy = malloc((count + 1) * sizeof(CUgraphNode));
	bool known = true;
	for (size_t i = 0; i < count; i++)
		known = known && deps && handle_is(deps[i], H_NODE) && deps[i]->graph == g;
	if (!n || !copy || !known) {
		free(n);
		free(copy);
		work_free(w);
		return known ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	}
	if (count)
		memcpy(copy, deps, count * sizeof *copy);
	*n = (struct CUgraphNode_st){.graph = g, .work = *w, .deps = copy, .dep_count = count, .enabled = true, .number = g->numbers++};
	*g->end = n;
	g->end = &n->next;
	g->count++;
	handle_add(n, H_NODE);
	*out = n;
	return CUDA_SUCCESS;
}

CUresult enter_graph(CUgraph g)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && !handle_is(g, H_GRAPH))
		return leave(CUDA_ERROR_INVALID_VALUE);
	return r;
}

CUresult enter_node(CUgraphNode n, int kind)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && (!handle_is(n, H_NODE) || (kind >= 0 && n->work.kind != (enum work_kind)kind)))
		return leave(CUDA_ERROR_INVALID_VALUE);
	return r;
}

CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter());
	*out = graph_new();
	return leave(*out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuGraphDestroy(CUgraph g)
{
	TRY(enter_graph(g));
	if (g->owner)
		return leave(CUDA_ERROR_INVALID_VALUE);
	graph_free(g);
	return leave(CUDA_SUCCESS);
}

static CUresult graph_copy(CUgraph from, CUgraph *out)
{
	CUgraph g = graph_new();
	CUgraphNode *deps = malloc((from->count + 1) * sizeof(CUgraphNode));
	CUresult r = g && deps ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	/* Edges may point forward (they can be added later), so: all nodes first. */
	for (CUgraphNode n = from->nodes; n && r == CUDA_SUCCESS; n = n->next) {
		struct work w;
		CUgraphNode made;
		if (n->work.kind == W_ALLOC || n->work.kind == W_FREE) {
			r = CUDA_ERROR_NOT_SUPPORTED; /* an address belongs to one graph */
			break;
		}
		if (n->work.kind == W_GRAPH) {
			w.kind = W_GRAPH;
			r = graph_copy(n->work.graph, &w.graph);
		} else {
			r = work_copy(&w, &n->work);
		}
		if (r == CUDA_SUCCESS)
			r = graph_node_add(g, NULL, 0, &w, &made);
		if (r == CUDA_SUCCESS) {
			made->original = n;
			made->enabled = n->enabled;
			if (w.kind == W_GRAPH)
				w.graph->owner = made;
		}
	}
	for (CUgraphNode n = from->nodes, to = g ? g->nodes : NULL; n && r == CUDA_SUCCESS; n = n->next, to = to->next) {
		free(to->deps);
		to->deps = malloc((n->dep_count + 1) * sizeof(CUgraphNode));
		if (!to->deps) {
			r = CUDA_ERROR_OUT_OF_MEMORY;
			break;
		}
		to->dep_count = n->dep_count;
		for (size_t i = 0; i < n->dep_count; i++)
			for (CUgraphNode o = g->nodes; o; o = o->next)
				if (o->original == n->deps[i])
					to->deps[i] = o;
	}
	free(deps);
	if (r == CUDA_SUCCESS)
		*out = g;
	else if (g)
		graph_free(g);
	return r;
}

CUresult cuGraphClone(CUgraph *out, CUgraph from)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_graph(from);
	return r == CUDA_SUCCESS ? leave(graph_copy(from, out)) : r;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original, CUgraph clone)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_graph(clone));
	for (CUgraphNode n = clone->nodes; n; n = n->next)
		if (n->original == original) {
			*out = n;
			return leave(CUDA_SUCCESS);
		}
	return leave(CUDA_ERROR_INVALID_VALUE);
}

/* ----------------------------------------------------------------------------------------------------------------- nodes */

static CUresult add(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, struct work *w, CUresult made)
{
	if (made != CUDA_SUCCESS)
		return leave(made);
	return leave(graph_node_add(g, deps, count, w, out));
}

CUresult kernel_work(struct work *w, const CUDA_KERNEL_NODE_PARAMS *p)
{
	w->kind = W_KERNEL;
	CUfunction f = p->func ? p->func : (CUfunction)(void *)p->kern;
	return kernel_fill(&w->kernel, f, (unsigned[]){p->gridDimX, p->gridDimY, p->gridDimZ},
			   (unsigned[]){p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes, p->kernelParams, p->extra);
}

CUresult copy_work(struct work *w, const CUDA_MEMCPY3D *p)
{
	w->kind = W_COPY;
	w->copy.asked = *p;
	return region_from_3d(p, &w->copy.region);
}

CUresult set_work(struct work *w, const CUDA_MEMSET_NODE_PARAMS *p)
{
	if ((p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) || !p->width || !p->height ||
	    !device_range(p->dst, (p->height - 1) * p->pitch + p->width * p->elementSize))
		return CUDA_ERROR_INVALID_VALUE;
	w->kind = W_SET;
	w->set.asked = *p;
	w->set.fill = (struct fill){.dst = (char *)(uintptr_t)p->dst, .pitch = p->pitch, .width = p->width, .height = p->height, .value = p->value,
				    .element = p->elementSize};
	return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct work w;
	if (!out || !p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_graph(g);
	return r == CUDA_SUCCESS ? add(out, g, deps, count, &w, kernel_work(&w, p)) : r;
}

CUDA_KERNEL_NODE_PARAMS kernel_params_from_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS q = {0};
	memcpy(&q, p, sizeof *p);
	return q;
}

CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS q = kernel_params_from_v1(p);
	return cuGraphAddKernelNode_v2(out, g, deps, count, &q);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, const CUDA_MEMCPY3D *p, CUcontext c)
{
	struct work w;
	(void)c;
	if (!out || !p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_graph(g);
	return r == CUDA_SUCCESS ? add(out, g, deps, count, &w, copy_work(&w, p)) : r;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext c)
{
	struct work w;
	(void)c;
	if (!out || !p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_graph(g);
	return r == CUDA_SUCCESS ? add(out, g, deps, count, &w, set_work(&w, p)) : r;
}

CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, const CUDA_HOST_NODE_PARAMS *p)
{
	if (!out || !p || !p->fn)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_graph(g);
	struct work w = {.kind = W_HOST, .host = {.fn = p->fn, .data = p->userData}};
	return r == CUDA_SUCCESS ? add(out, g, deps, count, &w, CUDA_SUCCESS) : r;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_graph(g);
	struct work w = {.kind = W_EMPTY};
	return r == CUDA_SUCCESS ? add(out, g, deps, count, &w, CUDA_SUCCESS) : r;
}

static CUresult event_node(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, CUevent e, enum work_kind kind)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_graph(g);
	struct work w = {.kind = kind, .event = e};
	return r == CUDA_SUCCESS ? add(out, g, deps, count, &w, handle_is(e, H_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE) : r;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, CUevent e)
{
	return event_node(out, g, deps, count, e, W_RECORD);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, CUevent e)
{
	return event_node(out, g, deps, count, e, W_WAIT);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, CUgraph child)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_graph(g);
	if (r != CUDA_SUCCESS)
		return r;
	struct work w = {.kind = W_GRAPH};
	if (!handle_is(child, H_GRAPH))
		return leave(CUDA_ERROR_INVALID_VALUE);
	r = graph_copy(child, &w.graph);
	if (r == CUDA_SUCCESS) {
		r = graph_node_add(g, deps, count, &w, out);
		if (r == CUDA_SUCCESS)
			w.graph->owner = *out;
		else
			graph_free(w.graph);
	}
	return leave(r);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode n, CUgraph *out)
{
	TRY(enter_node(n, W_GRAPH));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = n->work.graph;
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	struct work w;
	if (!out || !p || (p->count && !p->paramArray))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(enter_graph(g));
	struct work from = {.kind = W_BATCH, .batch = {.count = p->count, .flags = p->flags, .context = p->ctx, .ops = p->paramArray}};
	return add(out, g, deps, count, &w, work_copy(&w, &from));
}

CUresult cuGraphAddNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, CUgraphNodeParams *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return cuGraphAddKernelNode_v2(out, g, deps, count, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphAddMemcpyNode(out, g, deps, count, &p->memcpy.copyParams, p->memcpy.copyCtx);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return cuGraphAddMemsetNode(out, g, deps, count, (const CUDA_MEMSET_NODE_PARAMS *)&p->memset, p->memset.ctx);
	case CU_GRAPH_NODE_TYPE_HOST:
		return cuGraphAddHostNode(out, g, deps, count, &p->host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuGraphAddChildGraphNode(out, g, deps, count, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return cuGraphAddEmptyNode(out, g, deps, count);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphAddEventWaitNode(out, g, deps, count, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphAddEventRecordNode(out, g, deps, count, p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return cuGraphAddBatchMemOpNode(out, g, deps, count, &p->memOp);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return cuGraphAddMemAllocNode(out, g, deps, count, &p->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return cuGraphAddMemFreeNode(out, g, deps, count, p->free.dptr);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *p)
{
	(void)edges;
	return cuGraphAddNode(out, g, deps, count, p);
}

CUresult cuGraphDestroyNode(CUgraphNode n)
{
	TRY(enter_node(n, -1));
	CUgraph g = n->graph;
	for (CUgraphNode *at = &g->nodes; *at; at = &(*at)->next)
		if (*at == n) {
			*at = n->next;
			if (!*at)
				g->end = at;
			break;
		}
	for (CUgraphNode o = g->nodes; o; o = o->next)
		for (size_t i = 0; i < o->dep_count;) {
			if (o->deps[i] == n)
				o->deps[i] = o->deps[--o->dep_count];
			else
				i++;
		}
	g->count--;
	node_free(n);
	return leave(CUDA_SUCCESS);
}
