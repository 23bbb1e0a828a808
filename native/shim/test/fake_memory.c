/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_memory.c: the fake driver's memory, counted to the byte in a file that all processes of a test share.
 *
 * What is under 1 MiB is cut out of blocks, first fit; the rest is taken in whole blocks. A block of pieces goes back with its last piece, or
 * (fake_keeps) never. The arrays are of addresses, a block each.
 */
#include "fake_driver.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define BLOCKS 8192
#define GRAIN 512u
#define GRAINS (unsigned)(FAKE_BLOCK / GRAIN)
#define BASE 0x7f0000000000ull

static struct fake_block {
	uint32_t blocks;   /* taken whole, from this one on; 0: free, or a block of pieces */
	uint32_t in_use;   /* grains */
	bool open;         /* a block of pieces */
	uint16_t *length;  /* of the piece that begins at a grain, in grains; 0: none */
} blocks[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_memory alone, *memory = &alone;
static bool keeps, books;
static int64_t own;            /* blocks of this process */
static int64_t others_at_free; /* that another tenant takes with the next free */
static uint64_t released;      /* the handle that the next cuMemCreate gives again; 0: a new one */
static void (*at_release)(void);
static bool refuses;

void fake_memory_open(void)
{
	const char *path = getenv("FAKE_MEMORY");
	if (path == NULL || memory != &alone)
		return;
	int fd = open(path, O_RDWR);
	memory = mmap(NULL, sizeof(*memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
}

static bool forked;

void fake_memory_in_child(void)
{
	forked = true;
	pthread_mutex_init(&lock, NULL);
}

EXPORT void fake_keeps(bool on)
{
	pthread_mutex_lock(&lock);
	keeps = on;
	pthread_mutex_unlock(&lock);
}

EXPORT void fake_books(bool on)
{
	pthread_mutex_lock(&lock);
	books = on;
	pthread_mutex_unlock(&lock);
}

static void count_others(int64_t n)
{
	uint64_t held = __atomic_add_fetch(&memory->held, (uint64_t)n * FAKE_BLOCK, __ATOMIC_SEQ_CST);
	uint64_t most = __atomic_load_n(&memory->most, __ATOMIC_SEQ_CST);
	while (held > most && !__atomic_compare_exchange_n(&memory->most, &most, held, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static void count(int64_t n)
{
	own += n;
	count_others(n);
}

EXPORT void fake_others(int64_t now, int64_t at_free)
{
	pthread_mutex_lock(&lock);
	count_others(now);
	others_at_free = at_free;
	pthread_mutex_unlock(&lock);
}

EXPORT uint64_t fake_booked(void)
{
	pthread_mutex_lock(&lock);
	uint64_t held = books ? (uint64_t)own * FAKE_BLOCK : 0;
	pthread_mutex_unlock(&lock);
	return held;
}

/* The first grain of so many free ones in a row; GRAINS: none. */
static unsigned room(const struct fake_block *b, unsigned grains)
{
	for (unsigned i = 0, from = 0; i < GRAINS;) {
		if (b->length[i] != 0)
			from = i += b->length[i];
		else if (++i - from == grains)
			return from;
	}
	return GRAINS;
}

/* Both with the lock. The address, or 0. */
static uint64_t piece_take(unsigned grains)
{
	unsigned at = GRAINS, i;
	for (i = 0; i < BLOCKS; i++) {
		if (blocks[i].open && (at = room(&blocks[i], grains)) != GRAINS)
			break;
	}
	for (i = i == BLOCKS ? 0 : i; at == GRAINS && i < BLOCKS; i++) {
		if (blocks[i].open || blocks[i].blocks != 0)
			continue;
		blocks[i] = (struct fake_block){.open = true, .length = calloc(GRAINS, sizeof(uint16_t))};
		count(1);
		at = 0;
		break;
	}
	if (at == GRAINS)
		return 0;
	blocks[i].length[at] = (uint16_t)grains;
	blocks[i].in_use += grains;
	return BASE + i * FAKE_BLOCK + at * GRAIN;
}

static uint64_t whole_take(uint32_t n)
{
	for (uint32_t at = 0, i = 0; at + n <= BLOCKS; at = i + (blocks[i].open ? 1 : blocks[i].blocks)) {
		for (i = at; i < at + n && !blocks[i].open && blocks[i].blocks == 0; i++)
			;
		if (i < at + n)
			continue;
		blocks[at].blocks = n;
		count(n);
		return BASE + at * FAKE_BLOCK;
	}
	return 0;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	*total = FAKE_CAPACITY;
	*free_bytes = FAKE_CAPACITY - __atomic_load_n(&memory->held, __ATOMIC_SEQ_CST);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
	if (forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (n == FAKE_REFUSED || n > BLOCKS * FAKE_BLOCK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	*p = n < FAKE_BLOCK / 2 ? piece_take((unsigned)((n + GRAIN - 1) / GRAIN)) : whole_take((uint32_t)((n + FAKE_BLOCK - 1) / FAKE_BLOCK));
	pthread_mutex_unlock(&lock);
	return *p == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
	if (forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	unsigned i = (unsigned)((p - BASE) / FAKE_BLOCK), at = (unsigned)(p % FAKE_BLOCK / GRAIN);
	pthread_mutex_lock(&lock);
	count_others(others_at_free);
	others_at_free = 0;
	struct fake_block *b = &blocks[i];
	if (b->open) {
		b->in_use -= b->length[at];
		b->length[at] = 0;
		if (b->in_use == 0 && !keeps) {
			free(b->length);
			*b = (struct fake_block){0};
			count(-1);
		}
	} else {
		count(-(int64_t)b->blocks);
		b->blocks = 0;
	}
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	static uint64_t next = 100;
	(void)size, (void)prop, (void)flags;
	uint64_t again = __atomic_exchange_n(&released, 0, __ATOMIC_SEQ_CST);
	*handle = again != 0 ? again : __atomic_fetch_add(&next, 1, __ATOMIC_SEQ_CST);
	return CUDA_SUCCESS;
}

/* What another thread of the program does right then. */
static void interrupt(void)
{
	void (*call)(void) = at_release;
	at_release = NULL;
	if (call != NULL)
		call();
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	__atomic_store_n(&released, handle, __ATOMIC_SEQ_CST);
	interrupt();
	return refuses ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr at, size_t size)
{
	(void)at, (void)size;
	interrupt();
	return CUDA_SUCCESS;
}

EXPORT void fake_at_release(void (*call)(void), bool refuse)
{
	at_release = call;
	refuses = refuse;
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	static uint64_t next = 0x5000;
	(void)d;
	*handle = (CUarray)(uintptr_t)__atomic_fetch_add(&next, 16, __ATOMIC_SEQ_CST);
	return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------------------------- what takes memory by the way */

static uint64_t graph_bytes;
static int64_t module_blocks;

EXPORT void fake_takes(uint64_t graph, int64_t module)
{
	graph_bytes = graph;
	module_blocks = module;
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	(void)graph;
	*count = graph_bytes != 0;
	if (nodes != NULL && graph_bytes != 0)
		nodes[0] = NULL;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	(void)node;
	*type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	(void)node;
	*p = (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 10}, .bytesize = graph_bytes};
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	(void)image;
	*module = (CUmodule)(uintptr_t)0x6000;
	pthread_mutex_lock(&lock);
	count(module_blocks);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
	(void)module;
	pthread_mutex_lock(&lock);
	count(-module_blocks);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static size_t limits[16];

EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	*value = limits[limit];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	limits[limit] = value;
	return CUDA_SUCCESS;
}
