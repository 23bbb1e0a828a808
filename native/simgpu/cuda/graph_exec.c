/* SPDX-License-Identifier: Apache-2.0 */
/* Instantiated graphs: laid out, launched, updated. */
#include "simgpu/cuda/graph.h"

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

static CUresult instantiate_with(CUgraphExec *out, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p, CUstream upload)
{
	CUresult r = cuGraphInstantiateWithFlags(out, g, p->flags);
	if (r == CUDA_SUCCESS && (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)) {
		r = cuGraphUpload(*out, upload);
		if (r != CUDA_SUCCESS)
			cuGraphExecDestroy(*out);
	}
	p->hErrNode_out = NULL;
	p->result_out = r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
	return r;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	return p ? instantiate_with(out, g, p, p->hUploadStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	return p ? instantiate_with(out, g, p, p->hUploadStream ? p->hUploadStream : CU_STREAM_PER_THREAD) : CUDA_ERROR_INVALID_VALUE;
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
	TRY(enter_exec(x));
	handle_remove(x);
	exec_free(x);
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphExecGetFlags(CUgraphExec x, cuuint64_t *flags)
{
	TRY(enter_exec(x));
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
		if (w->kind == W_ALLOC) {
			r = graph_memory_take(w->memory, s->context, x->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
			continue;
		}
		if (w->kind == W_FREE) {
			graph_memory_give(w->memory);
			continue;
		}
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
	TRY(enter_exec(x));
	struct exec_node *e = exec_find(x, n, W_KERNEL);
	return e && p ? work_replace(&e->work, &w, kernel_work(&w, p)) : leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec x, CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS q = kernel_params_from_v1(p);
	return cuGraphExecKernelNodeSetParams_v2(x, n, &q);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec x, CUgraphNode n, const CUDA_MEMCPY3D *p, CUcontext c)
{
	struct work w;
	(void)c;
	TRY(enter_exec(x));
	struct exec_node *e = exec_find(x, n, W_COPY);
	return e && p ? work_replace(&e->work, &w, copy_work(&w, p)) : leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec x, CUgraphNode n, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext c)
{
	struct work w;
	(void)c;
	TRY(enter_exec(x));
	struct exec_node *e = exec_find(x, n, W_SET);
	return e && p ? work_replace(&e->work, &w, set_work(&w, p)) : leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec x, CUgraphNode n, const CUDA_HOST_NODE_PARAMS *p)
{
	TRY(enter_exec(x));
	struct exec_node *e = exec_find(x, n, W_HOST);
	if (!e || !p || !p->fn)
		return leave(CUDA_ERROR_INVALID_VALUE);
	struct work w = {.kind = W_HOST, .host = {.fn = p->fn, .data = p->userData}};
	return work_replace(&e->work, &w, CUDA_SUCCESS);
}

/* Takes the parameters of a child graph of the same shape, node by node. */
static CUresult child_update(CUgraphExec x, CUgraph old, CUgraph with)
{
	CUgraphNode o = old->nodes, n = with->nodes;
	for (; o && n; o = o->next, n = n->next) {
		struct exec_node *e = exec_find(x, o, n->work.kind);
		struct work w;
		CUresult r = o->work.kind != n->work.kind ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
		if (r == CUDA_SUCCESS && o->work.kind == W_GRAPH)
			r = child_update(x, o->work.graph, n->work.graph);
		else if (r == CUDA_SUCCESS)
			r = e ? work_copy(&w, &n->work) : CUDA_ERROR_INVALID_VALUE;
		if (r != CUDA_SUCCESS)
			return r;
		if (e) {
			work_free(&e->work);
			e->work = w;
		}
	}
	return o || n ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec x, CUgraphNode n, CUgraph child)
{
	TRY(enter_exec(x));
	if (!handle_is(n, H_NODE) || n->work.kind != W_GRAPH || !handle_is(child, H_GRAPH))
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(child_update(x, n->work.graph, child));
}

CUresult cuGraphExecNodeSetParams(CUgraphExec x, CUgraphNode n, CUgraphNodeParams *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return cuGraphExecKernelNodeSetParams_v2(x, n, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphExecMemcpyNodeSetParams(x, n, &p->memcpy.copyParams, p->memcpy.copyCtx);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return cuGraphExecMemsetNodeSetParams(x, n, (const CUDA_MEMSET_NODE_PARAMS *)&p->memset, p->memset.ctx);
	case CU_GRAPH_NODE_TYPE_HOST:
		return cuGraphExecHostNodeSetParams(x, n, &p->host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuGraphExecChildGraphNodeSetParams(x, n, p->graph.graph);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuGraphNodeSetEnabled(CUgraphExec x, CUgraphNode n, unsigned int enabled)
{
	TRY(enter_exec(x));
	for (size_t i = 0; i < x->count; i++)
		if (x->node[i].original == n) {
			x->node[i].enabled = enabled != 0;
			return leave(CUDA_SUCCESS);
		}
	return leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec x, CUgraphNode n, unsigned int *enabled)
{
	TRY(enter_exec(x));
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
	TRY(enter_exec(x));
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
