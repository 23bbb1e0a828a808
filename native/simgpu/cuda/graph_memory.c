/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that graphs allocate and free themselves. An allocation node has its address from the moment it is made; bytes of the device are
 * taken when the graph is first launched, and kept for its next launch until the device's graph memory is trimmed. A node's memory is
 * its own here: that of two graphs never overlaps, which the real driver allows where they cannot run at the same time.
 */
#include "simgpu/cuda/graph.h"

#include <sys/mman.h>

struct graph_memory {
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	char *base;
	size_t size;
	uint32_t device;
	CUcontext context; /* whose channel is charged while it is resident */
	uint64_t id;       /* the server's; 0: not resident */
	bool in_use;       /* allocated by a launch, not freed */
	unsigned refs;     /* nodes, in graphs and in instantiated ones */
	struct graph_memory *next;
};

static struct graph_memory *memories;
static uint64_t high[SIM_MAX_DEVICES][2]; /* of what is in use, of what is resident */

static uint64_t sum(uint32_t device, bool resident)
{
	uint64_t bytes = 0;
	for (struct graph_memory *m = memories; m; m = m->next)
		bytes += m->device == device && (resident ? m->id != 0 : m->in_use) ? m->size : 0;
	return bytes;
}

static void note_high(uint32_t device)
{
	for (int i = 0; i < 2; i++)
		if (sum(device, i) > high[device][i])
			high[device][i] = sum(device, i);
}

static void let_go(struct graph_memory *m)
{
	struct sim_request q = {.call = SIM_FREE, .arg[0] = m->id};
	struct sim_answer a;
	server_call(&q, &a, NULL); /* unknown there if its context is gone */
	madvise(m->base, m->size, MADV_DONTNEED);
	m->id = 0;
}

static void memory_end(struct graph_memory *m)
{
	for (struct graph_memory **at = &memories; *at; at = &(*at)->next)
		if (*at == m) {
			*at = m->next;
			break;
		}
	range_remove((uintptr_t)m->base);
	munmap(m->base, m->size);
	free(m);
}

void graph_memory_ref(struct graph_memory *m)
{
	m->refs++;
}

void graph_memory_unref(struct graph_memory *m)
{
	/* What is resident stays until it is trimmed; what the program still uses, until it frees it. */
	if (--m->refs == 0 && !m->id)
		memory_end(m);
}

CUresult graph_memory_take(struct graph_memory *m, CUcontext c, bool again)
{
	if (m->in_use)
		return again ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (!m->id) {
		struct sim_request q = {.call = SIM_ALLOC, .arg = {c->channel->id, m->size}};
		struct sim_answer a;
		CUresult r = server_call(&q, &a, NULL);
		if (r != CUDA_SUCCESS)
			return r;
		m->id = a.value[0];
		m->context = c;
	}
	m->in_use = true;
	note_high(m->device);
	return CUDA_SUCCESS;
}

void graph_memory_give(struct graph_memory *m)
{
	m->in_use = false;
}

void graph_memory_forget(CUcontext c)
{
	for (struct graph_memory *m = memories, *next; m; m = next) {
		next = m->next;
		if (m->context != c)
			continue;
		m->id = 0;
		m->in_use = false;
		m->context = NULL;
		if (!m->refs)
			memory_end(m);
	}
}

CUresult graph_memory_make(CUDA_MEM_ALLOC_NODE_PARAMS *p, struct work *w)
{
	if (!p->bytesize || p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->poolProps.location.id < 0 || (uint32_t)p->poolProps.location.id >= api.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	struct graph_memory *m = calloc(1, sizeof *m);
	size_t size = (p->bytesize + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
	char *base = size < p->bytesize ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!m || base == MAP_FAILED) {
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*m = (struct graph_memory){.params = *p, .base = base, .size = size, .device = (uint32_t)p->poolProps.location.id, .refs = 1, .next = memories};
	struct range range = {.start = (uintptr_t)base, .size = p->bytesize, .kind = R_GRAPH, .device = m->device, .owner = m};
	if (!range_add(range)) {
		munmap(base, size);
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memories = m;
	p->dptr = m->params.dptr = (CUdeviceptr)(uintptr_t)base;
	*w = (struct work){.kind = W_ALLOC, .memory = m};
	return CUDA_SUCCESS;
}

CUresult graph_memory_free_work(CUdeviceptr p, struct work *w)
{
	struct range *r = range_find((uintptr_t)p);
	if (!r || r->kind != R_GRAPH || r->start != (uintptr_t)p)
		return CUDA_ERROR_INVALID_VALUE;
	*w = (struct work){.kind = W_FREE, .memory = r->owner};
	graph_memory_ref(r->owner);
	return CUDA_SUCCESS;
}

/* -------------------------------------------------------------------------------------------------------------- the calls */

CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	struct work w;
	if (!out || !p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_graph(g);
	if (r != CUDA_SUCCESS)
		return r;
	r = graph_memory_make(p, &w);
	return leave(r == CUDA_SUCCESS ? graph_node_add(g, deps, count, &w, out) : r);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t count, CUdeviceptr p)
{
	struct work w;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_graph(g);
	if (r != CUDA_SUCCESS)
		return r;
	r = graph_memory_free_work(p, &w);
	return leave(r == CUDA_SUCCESS ? graph_node_add(g, deps, count, &w, out) : r);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode n, CUDA_MEM_ALLOC_NODE_PARAMS *out)
{
	TRY(enter_node(n, W_ALLOC));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = n->work.memory->params;
	return leave(CUDA_SUCCESS);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode n, CUdeviceptr *out)
{
	TRY(enter_node(n, W_FREE));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = n->work.memory->params.dptr;
	return leave(CUDA_SUCCESS);
}

/* Whether everything that was given to the context has ended. */
static bool idle(CUcontext c)
{
	struct sim_request q = {.call = SIM_SYNC};
	struct sim_answer a;
	server_call(&q, &a, NULL);
	return atomic_load_explicit(&c->channel->tail, memory_order_acquire) >= c->head;
}

/* Begins a call on a device; on success the lock is held. */
static CUresult enter_graph_device(CUdevice d)
{
	CUresult r = enter();
	return r == CUDA_SUCCESS && (d < 0 || (uint32_t)d >= api.devices) ? leave(CUDA_ERROR_INVALID_DEVICE) : r;
}

CUresult cuDeviceGraphMemTrim(CUdevice d)
{
	TRY(enter_graph_device(d));
	for (struct graph_memory *m = memories, *next; m; m = next) {
		next = m->next;
		if (m->device != (uint32_t)d || m->in_use || !m->id || !handle_is(m->context, H_CONTEXT) || !idle(m->context))
			continue;
		let_go(m);
		if (!m->refs)
			memory_end(m);
	}
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice d, CUgraphMem_attribute which, void *out)
{
	TRY(enter_graph_device(d));
	if (!out || (unsigned)which > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return leave(CUDA_ERROR_INVALID_VALUE);
	bool resident = which >= CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, highest = which % 2;
	*(cuuint64_t *)out = highest ? high[d][resident] : sum((uint32_t)d, resident);
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice d, CUgraphMem_attribute which, void *value)
{
	TRY(enter_graph_device(d));
	/* Only the high marks may be set, and only back. */
	bool is_high = which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
	if (!value || !is_high || *(cuuint64_t *)value)
		return leave(CUDA_ERROR_INVALID_VALUE);
	bool resident = which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
	high[d][resident] = sum((uint32_t)d, resident);
	return leave(CUDA_SUCCESS);
}
