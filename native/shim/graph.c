/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.c: memory that graphs allocate themselves. A launch cannot be refused for what its allocation nodes take, so a graph is charged
 * for all of them when it is instantiated, until it is destroyed. The driver keeps what graphs have used in a pool of its own for the
 * device; what that holds beyond the graphs that there are is charged too, until it is trimmed, which we do when a graph ends.
 */
#include "driver.h"

#include <stdlib.h>

static struct lock graphs_lock;
static struct {
	uint64_t graphs; /* bytes that the instantiated graphs are charged for */
	uint64_t kept;   /* bytes that the driver's pool holds beyond these, charged */
} held[ALQ_MAX_GRANTS];

static uint64_t more(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Adds up the bytes of a graph's allocation nodes, by grant. False: it cannot be told. */
static bool graph_need(CUgraph graph, uint64_t need[ALQ_MAX_GRANTS])
{
	size_t count = 0;
	if (driver.cuGraphGetNodes == NULL || driver.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS)
		return false;
	CUgraphNode *nodes = count == 0 ? NULL : malloc(count * sizeof(CUgraphNode));
	bool known = count == 0 || (nodes != NULL && driver.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS);
	for (size_t i = 0; i < count && known; i++) {
		CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
		CUDA_MEM_ALLOC_NODE_PARAMS p;
		CUgraph child;
		driver.cuGraphNodeGetType(nodes[i], &type);
		if (type == CU_GRAPH_NODE_TYPE_GRAPH && driver.cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS)
			known = graph_need(child, need);
		if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || driver.cuGraphMemAllocNodeGetParams(nodes[i], &p) != CUDA_SUCCESS)
			continue;
		int grant = view_grant(p.poolProps.location.id);
		if (grant >= 0)
			need[grant] = more(need[grant], memory_round(p.bytesize));
	}
	free(nodes);
	return known;
}

/* Charges what the driver's pool holds beyond the graphs that there are. */
static void graph_settle(uint32_t grant)
{
	cuuint64_t reserved = 0;
	CUdevice device;
	if (!view_grant_device(grant, &device) || driver.cuDeviceGetGraphMemAttribute == NULL ||
	    driver.cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) != CUDA_SUCCESS)
		return;
	lock_take(&graphs_lock);
	uint64_t want = reserved > held[grant].graphs ? reserved - held[grant].graphs : 0;
	if (want < held[grant].kept)
		memory_return(grant, held[grant].kept - want);
	else if (want > held[grant].kept && !memory_reserve(grant, want - held[grant].kept))
		want = held[grant].kept; /* what was lent meanwhile: said again at the next change */
	held[grant].kept = want;
	lock_give(&graphs_lock);
}

/* A graph's charge is found by its handle and grant; handles are aligned, so these are no other handle's. */
static uint64_t exec_key(CUgraphExec exec, uint32_t grant)
{
	return (uint64_t)(uintptr_t)exec + grant;
}

static void need_return(const uint64_t need[ALQ_MAX_GRANTS], uint32_t grants)
{
	for (uint32_t g = 0; g < grants; g++)
		memory_return(g, need[g]);
}

static bool need_reserve(const uint64_t need[ALQ_MAX_GRANTS])
{
	for (uint32_t g = 0; g < task.grants; g++) {
		if (!pools_reserve(g, need[g])) {
			need_return(need, g);
			return false;
		}
	}
	return true;
}

/* Takes out of the table what a graph is charged, by grant. */
static void need_take(CUgraphExec exec, struct block charged[ALQ_MAX_GRANTS], uint32_t grants)
{
	for (uint32_t g = 0; g < grants; g++) {
		if (!blocks_take(exec_key(exec, g), &charged[g]))
			charged[g].bytes = 0;
	}
}

static void graphs_hold(uint32_t grant, uint64_t more, uint64_t less)
{
	lock_take(&graphs_lock);
	held[grant].graphs += more - less;
	lock_give(&graphs_lock);
}

/* Books a graph that was instantiated. False: there is no memory to remember it in. */
static bool need_book(CUgraphExec exec, const uint64_t need[ALQ_MAX_GRANTS])
{
	struct block booked[ALQ_MAX_GRANTS];
	for (uint32_t g = 0; g < task.grants; g++) {
		struct block b = {.key = exec_key(exec, g), .bytes = need[g], .grant = g, .kind = BLOCK_GRAPH};
		if (need[g] != 0 && !blocks_add(&b)) {
			need_take(exec, booked, g);
			return false;
		}
	}
	for (uint32_t g = 0; g < task.grants; g++)
		graphs_hold(g, need[g], 0);
	return true;
}

#define INSTANTIATE(name, ...)                                                                                                     \
	do {                                                                                                                       \
		uint64_t need[ALQ_MAX_GRANTS] = {0};                                                                               \
		if (!task_on() || !driver_ready() || !graph_need(graph, need))                                                     \
			return REAL(name, __VA_ARGS__);                                                                            \
		if (!need_reserve(need))                                                                                           \
			return CUDA_ERROR_OUT_OF_MEMORY;                                                                           \
		CUresult r = REAL(name, __VA_ARGS__);                                                                              \
		if (r == CUDA_SUCCESS && !need_book(*exec, need)) {                                                                \
			REAL(cuGraphExecDestroy, *exec);                                                                           \
			r = CUDA_ERROR_OUT_OF_MEMORY;                                                                              \
		}                                                                                                                  \
		if (r != CUDA_SUCCESS)                                                                                             \
			need_return(need, task.grants);                                                                            \
		return r;                                                                                                          \
	} while (0)

EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
	INSTANTIATE(cuGraphInstantiate, exec, graph, error, log, size);
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
	INSTANTIATE(cuGraphInstantiate_v2, exec, graph, error, log, size);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	INSTANTIATE(cuGraphInstantiateWithFlags, exec, graph, flags);
}

static CUresult with_params(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	INSTANTIATE(cuGraphInstantiateWithParams, exec, graph, params);
}

static CUresult with_params_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	INSTANTIATE(cuGraphInstantiateWithParams_ptsz, exec, graph, params);
}

/* Carries the graph to the device right away, where the flags say so: through the gate, as cuGraphUpload. */
#define UPLOADING(with, per_thread)                                                                                                \
	do {                                                                                                                       \
		struct pass pass;                                                                                                  \
		if (params == NULL || (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0)                                   \
			return with(exec, graph, params);                                                                          \
		CUresult result = gate_enter(&pass, params->hUploadStream, per_thread, cost_key(graph, 1));                        \
		if (result != CUDA_SUCCESS)                                                                                        \
			return result;                                                                                             \
		result = with(exec, graph, params);                                                                                \
		gate_leave(&pass, result);                                                                                         \
		return result;                                                                                                     \
	} while (0)

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	UPLOADING(with_params, false);
}

EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	UPLOADING(with_params_ptsz, true);
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	struct block charged[ALQ_MAX_GRANTS];
	uint32_t grants = task_on() ? task.grants : 0;
	/* Taken out before the driver may give the same handle again. */
	need_take(exec, charged, grants);
	meter_graph_changed(exec, true);
	CUresult r = REAL(cuGraphExecDestroy, exec);
	for (uint32_t g = 0; g < grants; g++) {
		CUdevice device;
		if (charged[g].bytes == 0)
			continue;
		if (r != CUDA_SUCCESS) {
			blocks_add(&charged[g]);
			continue;
		}
		if (view_grant_device(g, &device))
			REAL(cuDeviceGraphMemTrim, device);
		graphs_hold(g, 0, charged[g].bytes);
		/* What stays in the pool is charged before what is gone is returned, so that nothing is free that is not. */
		graph_settle(g);
		memory_return(g, charged[g].bytes);
		graph_settle(g);
	}
	return r;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult r = REAL(cuDeviceGraphMemTrim, device);
	int grant = r == CUDA_SUCCESS && task_on() ? view_grant(device) : -1;
	if (grant >= 0)
		graph_settle((uint32_t)grant);
	return r;
}

void graphs_forget(void)
{
	graphs_lock.word = 0;
	for (int g = 0; g < ALQ_MAX_GRANTS; g++)
		held[g].graphs = held[g].kept = 0;
}
