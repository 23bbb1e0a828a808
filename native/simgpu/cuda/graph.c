/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs. A graph launched runs its nodes one after another in an order that its edges allow, which is what the device model does with
 * independent work anyway. Neighbouring kernels go to the device as one operation, so a graph of a thousand kernels is one entry of the ring.
 */
#include "simgpu/cuda/internal.h"

struct exec_node {
	CUgraphNode original; /* which node of which graph; it may be gone, only the address counts */
	struct work work;
	bool enabled;
};

struct CUgraphExec_st {
	CUcontext context;
	cuuint64_t flags;
	size_t count;
	struct exec_node *node; /* in the order in which they run; child graphs are laid out flat */
};

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

static CUresult enter_graph(CUgraph g)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && !handle_is(g, H_GRAPH))
		return leave(CUDA_ERROR_INVALID_VALUE);
	return r;
}

static CUresult enter_node(CUgraphNode n, int kind)
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
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	*out = graph_new();
	return leave(*out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuGraphDestroy(CUgraph g)
{
	CUresult r = enter_graph(g);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_graph(clone);
	if (r != CUDA_SUCCESS)
		return r;
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

static CUresult kernel_work(struct work *w, const CUDA_KERNEL_NODE_PARAMS *p)
{
	w->kind = W_KERNEL;
	CUfunction f = p->func ? p->func : (CUfunction)(void *)p->kern;
	return kernel_fill(&w->kernel, f, (unsigned[]){p->gridDimX, p->gridDimY, p->gridDimZ},
			   (unsigned[]){p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes, p->kernelParams, p->extra);
}

static CUresult copy_work(struct work *w, const CUDA_MEMCPY3D *p)
{
	w->kind = W_COPY;
	w->copy.asked = *p;
	return region_from_3d(p, &w->copy.region);
}

static CUresult set_work(struct work *w, const CUDA_MEMSET_NODE_PARAMS *p)
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

static CUDA_KERNEL_NODE_PARAMS from_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS q = {0};
	memcpy(&q, p, sizeof *p);
	return q;
}

CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS q = from_v1(p);
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
	CUresult r = enter_node(n, W_GRAPH);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_graph(g);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_node(n, -1);
	if (r != CUDA_SUCCESS)
		return r;
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

/* ------------------------------------------------------------------------------------------------------------ parameters */

static CUDA_KERNEL_NODE_PARAMS kernel_params(const struct kernel *k)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = k->function, .gridDimX = k->grid[0], .gridDimY = k->grid[1], .gridDimZ = k->grid[2],
					 .blockDimX = k->block[0], .blockDimY = k->block[1], .blockDimZ = k->block[2], .sharedMemBytes = k->shared};
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS *out)
{
	CUresult r = enter_node(n, W_KERNEL);
	if (r != CUDA_SUCCESS)
		return r;
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

static CUresult replace(struct work *at, struct work *with, CUresult made)
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
	return r == CUDA_SUCCESS ? replace(&n->work, &w, kernel_work(&w, p)) : r;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS q = from_v1(p);
	return cuGraphKernelNodeSetParams_v2(n, &q);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode n, CUDA_MEMCPY3D *out)
{
	CUresult r = enter_node(n, W_COPY);
	if (r != CUDA_SUCCESS)
		return r;
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
	return r == CUDA_SUCCESS ? replace(&n->work, &w, copy_work(&w, p)) : r;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode n, CUDA_MEMSET_NODE_PARAMS *out)
{
	CUresult r = enter_node(n, W_SET);
	if (r != CUDA_SUCCESS)
		return r;
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
	return r == CUDA_SUCCESS ? replace(&n->work, &w, set_work(&w, p)) : r;
}

CUresult cuGraphHostNodeGetParams(CUgraphNode n, CUDA_HOST_NODE_PARAMS *out)
{
	CUresult r = enter_node(n, W_HOST);
	if (r != CUDA_SUCCESS)
		return r;
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
	return r == CUDA_SUCCESS ? replace(&n->work, &w, CUDA_SUCCESS) : r;
}

CUresult cuGraphNodeGetType(CUgraphNode n, CUgraphNodeType *out)
{
	static const CUgraphNodeType types[] = {[W_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,	 [W_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
						[W_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,	 [W_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
						[W_HOST] = CU_GRAPH_NODE_TYPE_HOST,	 [W_CALLBACK] = CU_GRAPH_NODE_TYPE_HOST,
						[W_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD, [W_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
						[W_WRITE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [W_AWAIT] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
						[W_GRAPH] = CU_GRAPH_NODE_TYPE_GRAPH,	 [W_BATCH] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
	CUresult r = enter_node(n, -1);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_graph(g);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_graph(g);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_graph(g);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_node(node, -1);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_node(node, -1);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_graph(g);
	if (r != CUDA_SUCCESS)
		return r;
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
	CUresult r = enter_graph(g);
	if (r != CUDA_SUCCESS)
		return r;
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

/* ----------------------------------------------------------------------------------------------------------- instantiate */

static size_t flat_count(CUgraph g)
{
	size_t n = 0;
	for (CUgraphNode o = g->nodes; o; o = o->next)
		n += o->work.kind == W_GRAPH ? flat_count(o->work.graph) : 1;
	return n;
}

/* Lays a graph out in an order that its edges allow: each round takes, in order of creation, what waits for nothing more. */
static CUresult flatten(CUgraph g, CUgraphExec x)
{
	CUgraphNode *order = malloc((g->count + 1) * sizeof(CUgraphNode));
	bool *taken = calloc(g->numbers + 1, sizeof *taken);
	CUresult r = order && taken ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	size_t n = 0;
	for (bool moved = true; moved && r == CUDA_SUCCESS && n < g->count;) {
		moved = false;
		for (CUgraphNode o = g->nodes; o; o = o->next) {
			bool ready = !taken[o->number];
			for (size_t i = 0; i < o->dep_count && ready; i++)
				ready = taken[o->deps[i]->number];
			if (!ready)
				continue;
			taken[o->number] = moved = true;
			order[n++] = o;
		}
	}
	if (r == CUDA_SUCCESS && n < g->count)
		r = CUDA_ERROR_INVALID_VALUE; /* it goes in circles */
	for (size_t i = 0; i < n && r == CUDA_SUCCESS; i++) {
		CUgraphNode o = order[i];
		if (o->work.kind == W_GRAPH) {
			r = flatten(o->work.graph, x);
			continue;
		}
		struct exec_node *e = &x->node[x->count];
		r = work_copy(&e->work, &o->work);
		if (r == CUDA_SUCCESS) {
			e->original = o;
			e->enabled = o->enabled;
			x->count++;
		}
	}
	free(order);
	free(taken);
	return r;
}

static void exec_free(CUgraphExec x)
{
	for (size_t i = 0; i < x->count; i++)
		work_free(&x->node[i].work);
	free(x->node);
	free(x);
}

static CUresult instantiate(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
	CUgraphExec x = calloc(1, sizeof *x);
	if (x)
		x->node = calloc(flat_count(g) + 1, sizeof *x->node);
	if (!x || !x->node) {
		free(x);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	x->flags = flags;
	CUresult r = flatten(g, x);
	if (r != CUDA_SUCCESS) {
		exec_free(x);
		return r;
	}
	handle_add(x, H_EXEC);
	*out = x;
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
	if (!out || (flags & ~15ull))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = enter_graph(g);
	return r == CUDA_SUCCESS ? leave(instantiate(out, g, flags)) : r;
}

static CUresult instantiate_logged(CUgraphExec *out, CUgraph g, CUgraphNode *error, char *log, size_t room)
{
	CUresult r = cuGraphInstantiateWithFlags(out, g, 0);
	if (error)
		*error = NULL;
	if (log && room)
		log[0] = '\0';
	return r;
}

CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph g, CUgraphNode *error, char *log, size_t room)
{
	return instantiate_logged(out, g, error, log, room);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph g, CUgraphNode *error, char *log, size_t room)
{
	return instantiate_logged(out, g, error, log, room);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = cuGraphInstantiateWithFlags(out, g, p->flags);
	p->hErrNode_out = NULL;
	p->result_out = r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
	return r;
}

static CUresult enter_exec(CUgraphExec x)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && !handle_is(x, H_EXEC))
		return leave(CUDA_ERROR_INVALID_VALUE);
	return r;
}

CUresult cuGraphExecDestroy(CUgraphExec x)
{
	CUresult r = enter_exec(x);
	if (r != CUDA_SUCCESS)
		return r;
	handle_remove(x);
	exec_free(x);
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphExecGetFlags(CUgraphExec x, cuuint64_t *flags)
{
	CUresult r = enter_exec(x);
	if (r != CUDA_SUCCESS)
		return r;
	if (!flags)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*flags = x->flags;
	return leave(CUDA_SUCCESS);
}

/* Submits the nodes of an instantiated graph. The lock may be let go while the ring is full, so the graph is looked up again. */
static CUresult run(CUgraphExec x, CUstream s)
{
	CUresult r = CUDA_SUCCESS;
	uint64_t ns = 0;
	uint32_t kernels = 0;
	for (size_t i = 0; i < x->count && r == CUDA_SUCCESS; i++) {
		const struct work *w = &x->node[i].work;
		if (!x->node[i].enabled)
			continue;
		if (w->kind == W_KERNEL && w->kernel.ns < SIM_NEVER - ns) {
			ns += w->kernel.ns > api.kernel_min_ns ? w->kernel.ns : api.kernel_min_ns;
			kernels++;
			continue;
		}
		if (kernels)
			r = submit_run(s, ns, kernels);
		ns = kernels = 0;
		struct work copy;
		if (r == CUDA_SUCCESS)
			r = work_copy(&copy, w);
		if (r == CUDA_SUCCESS)
			r = submit(s, &copy);
		if (!handle_is(x, H_EXEC))
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (kernels && r == CUDA_SUCCESS)
		r = submit_run(s, ns, kernels);
	return r;
}

CUresult cuGraphLaunch(CUgraphExec x, CUstream h)
{
	CUstream s;
	CUresult r = enter_exec(x);
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_of(h, &s);
	if (r == CUDA_SUCCESS)
		r = s->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : context_check(s->context);
	if (r == CUDA_SUCCESS && s->slot == SIM_STREAM_SLOT_LEGACY)
		r = capture_legacy(s->context);
	return leave(r == CUDA_SUCCESS ? run(x, s) : r);
}

CUresult cuGraphUpload(CUgraphExec x, CUstream h)
{
	CUstream s;
	CUresult r = enter_exec(x);
	return r == CUDA_SUCCESS ? leave(stream_of(h, &s)) : r;
}

/* ---------------------------------------------------------------------------------------------------------------- update */

static struct exec_node *exec_find(CUgraphExec x, CUgraphNode n, enum work_kind kind)
{
	for (size_t i = 0; i < x->count; i++)
		if (x->node[i].original == n && x->node[i].work.kind == kind)
			return &x->node[i];
	return NULL;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec x, CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct work w;
	CUresult r = enter_exec(x);
	if (r != CUDA_SUCCESS)
		return r;
	struct exec_node *e = exec_find(x, n, W_KERNEL);
	return e && p ? replace(&e->work, &w, kernel_work(&w, p)) : leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec x, CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS q = from_v1(p);
	return cuGraphExecKernelNodeSetParams_v2(x, n, &q);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec x, CUgraphNode n, const CUDA_MEMCPY3D *p, CUcontext c)
{
	struct work w;
	(void)c;
	CUresult r = enter_exec(x);
	if (r != CUDA_SUCCESS)
		return r;
	struct exec_node *e = exec_find(x, n, W_COPY);
	return e && p ? replace(&e->work, &w, copy_work(&w, p)) : leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec x, CUgraphNode n, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext c)
{
	struct work w;
	(void)c;
	CUresult r = enter_exec(x);
	if (r != CUDA_SUCCESS)
		return r;
	struct exec_node *e = exec_find(x, n, W_SET);
	return e && p ? replace(&e->work, &w, set_work(&w, p)) : leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec x, CUgraphNode n, const CUDA_HOST_NODE_PARAMS *p)
{
	CUresult r = enter_exec(x);
	if (r != CUDA_SUCCESS)
		return r;
	struct exec_node *e = exec_find(x, n, W_HOST);
	if (!e || !p || !p->fn)
		return leave(CUDA_ERROR_INVALID_VALUE);
	struct work w = {.kind = W_HOST, .host = {.fn = p->fn, .data = p->userData}};
	return replace(&e->work, &w, CUDA_SUCCESS);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec x, CUgraphNode n, unsigned int enabled)
{
	CUresult r = enter_exec(x);
	if (r != CUDA_SUCCESS)
		return r;
	for (size_t i = 0; i < x->count; i++)
		if (x->node[i].original == n) {
			x->node[i].enabled = enabled != 0;
			return leave(CUDA_SUCCESS);
		}
	return leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec x, CUgraphNode n, unsigned int *enabled)
{
	CUresult r = enter_exec(x);
	if (r != CUDA_SUCCESS)
		return r;
	for (size_t i = 0; enabled && i < x->count; i++)
		if (x->node[i].original == n) {
			*enabled = x->node[i].enabled;
			return leave(CUDA_SUCCESS);
		}
	return leave(CUDA_ERROR_INVALID_VALUE);
}

/* Takes the parameters of a graph of the same shape. */
static CUgraphExecUpdateResult update(CUgraphExec x, CUgraph g)
{
	CUgraphExec fresh;
	if (instantiate(&fresh, g, x->flags) != CUDA_SUCCESS)
		return CU_GRAPH_EXEC_UPDATE_ERROR;
	CUgraphExecUpdateResult result = fresh->count == x->count ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t i = 0; i < x->count && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++)
		if (x->node[i].work.kind != fresh->node[i].work.kind)
			result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	for (size_t i = 0; i < x->count && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
		struct work kept = x->node[i].work;
		x->node[i].work = fresh->node[i].work;
		fresh->node[i].work = kept;
	}
	handle_remove(fresh);
	exec_free(fresh);
	return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec x, CUgraph g, CUgraphExecUpdateResultInfo *info)
{
	CUresult r = enter_exec(x);
	if (r != CUDA_SUCCESS)
		return r;
	if (!info || !handle_is(g, H_GRAPH))
		return leave(CUDA_ERROR_INVALID_VALUE);
	*info = (CUgraphExecUpdateResultInfo){.result = update(x, g)};
	return leave(info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
}

CUresult cuGraphExecUpdate(CUgraphExec x, CUgraph g, CUgraphNode *error, CUgraphExecUpdateResult *result)
{
	CUgraphExecUpdateResultInfo info;
	CUresult r = cuGraphExecUpdate_v2(x, g, &info);
	if (error)
		*error = NULL;
	if (result)
		*result = r == CUDA_SUCCESS || r == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE ? info.result : CU_GRAPH_EXEC_UPDATE_ERROR;
	return r;
}
