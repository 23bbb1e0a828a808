/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h: the part of internal.h about memory: what addresses the driver knows, and the pieces of the device behind them. */
#ifndef ALIQUOT_SIMGPU_CUDA_MEMORY_H
#define ALIQUOT_SIMGPU_CUDA_MEMORY_H

enum range_kind { R_DEVICE, R_MANAGED, R_HOST, R_REGISTERED, R_MAPPED, R_SHARED, R_GRAPH };

struct range { /* addresses that the driver knows */
	uintptr_t start;
	size_t size;
	enum range_kind kind;
	unsigned flags;
	uint64_t id;
	uint32_t device;
	CUcontext context;
	struct chunk *chunk; /* it is a part of; NULL for host memory and mappings */
	CUmemoryPool pool;
	void *owner;         /* mapping: its struct physical; graph: its struct graph_memory; host: NULL */
	uint64_t shared_id;  /* shared: what the server calls this hold of it; 0: its external memory has one */
	bool sync_memops;
};

/* One piece of device memory as charged by the server; small allocations share one. */
struct chunk {
	char *base;
	size_t size;
	uint64_t id;
	CUcontext context;
	uint32_t device;
	uint32_t in_use; /* grains given out; for a chunk of one allocation, 1 or 0 */
	bool shared;
	CUmemoryPool pool;
	CUstream stream; /* pools: freed in the order of this stream */
	CUcontext freed_in;
	uint32_t freed_slot;
	uint64_t freed_seq;
	uint64_t *map; /* shared: a bit a grain */
	int fd;        /* of its bytes once other processes may open them; -1 */
	struct chunk *next;
};
#define GRAIN 512u
#define SMALL (1u << 20)

struct range *range_find(uintptr_t p); /* the one that holds p; NULL: none */
struct range *range_add(struct range r);
bool range_overlaps(uintptr_t p, size_t bytes);
void range_remove(uintptr_t start);
void ranges_forget(CUcontext c); /* all that belong to the context, memory too */
CUresult chunk_new(CUcontext c, size_t size, struct chunk **out);
void chunk_release(struct chunk *k); /* gives the bytes back and tells the server */
CUresult memory_alloc(CUcontext c, CUmemoryPool pool, CUstream s, size_t bytes, enum range_kind kind, CUdeviceptr *out);
CUresult memory_free(struct range *r, CUstream s);
CUmemoryPool pool_default(uint32_t device);
void pools_forget(CUcontext c);
void pools_trim(void); /* down to their release thresholds, at a synchronisation */
/* Checks that [p, p+bytes) is one piece of known device memory; NULL: it is not. */
struct range *device_range(CUdeviceptr p, size_t bytes);
uint64_t copy_ns(uint32_t device, const struct region *r);
uint64_t fill_ns(uint32_t device, const struct fill *f);
CUresult region_from_3d(const CUDA_MEMCPY3D *c, struct region *r);

/* Memory that several processes hold, by the number of its memfd. */
uint64_t shared_number(int fd);
void shared_note(uint64_t id, int fd);                                          /* an allocation of ours may be opened by others */
CUresult shared_hold(CUcontext c, int fd, uint64_t bytes, uint64_t *id);        /* bytes: to be taken if nobody holds it yet; 0: an error then */
void shared_let_go(uint64_t id);
void shared_unmap(struct range *r);

struct CUarray_st {
	CUcontext context;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	size_t element, pitch, slice, bytes;
	CUdeviceptr data;
	bool part_of_mipmap;
};

#endif
