/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one process that another one opens (IPC handles), and memory that comes as a file descriptor (external memory). Shared memory is a
 * memfd, found by its number there; a handle names it by the file descriptor of the process that made it, which therefore has to be the
 * same user's and in the same pid namespace. The server counts it once, for who allocated it, and for another holder when that is gone.
 */
#include "simgpu/cuda/pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct ipc_handle { /* what a CUipcMemHandle holds */
	uint32_t magic, device;
	int32_t pid, fd;
	uint64_t number, size, offset;
};
_Static_assert(sizeof(struct ipc_handle) <= sizeof(CUipcMemHandle), "a handle has 64 bytes");
#define IPC_MAGIC 0x31495053u

uint64_t shared_number(int fd)
{
	struct stat st;
	return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

void shared_note(uint64_t id, int fd)
{
	struct sim_request q = {.call = SIM_SHARE, .arg = {id, shared_number(fd)}};
	struct sim_answer a;
	server_call(&q, &a, NULL);
}

CUresult shared_hold(CUcontext c, int fd, uint64_t bytes, uint64_t *id)
{
	struct sim_request q = {.call = SIM_IMPORT, .arg = {c->channel->id, shared_number(fd), bytes}};
	struct sim_answer a;
	CUresult r = server_call(&q, &a, NULL);
	*id = a.value[0];
	return r;
}

void shared_let_go(uint64_t id)
{
	struct sim_request q = {.call = SIM_FREE, .arg[0] = id};
	struct sim_answer a;
	server_call(&q, &a, NULL); /* unknown there if its context is gone */
}

/* Puts a chunk's bytes into a memfd at the same addresses. Only pages that were ever written are carried over. */
static CUresult chunk_share(struct chunk *k)
{
	enum { PAGE = 4096 };
	unsigned char there[SIM_GRANULE / PAGE];
	int fd = (int)syscall(SYS_memfd_create, "simgpu-memory", 1u /* MFD_CLOEXEC */);
	bool kept = fd >= 0 && ftruncate(fd, (off_t)k->size) == 0;
	for (size_t at = 0; at < k->size && kept; at += SIM_GRANULE) {
		kept = mincore(k->base + at, SIM_GRANULE, there) == 0;
		for (size_t i = 0; i < sizeof there && kept; i++)
			if (there[i] & 1)
				kept = pwrite(fd, k->base + at + i * PAGE, PAGE, (off_t)(at + i * PAGE)) == PAGE;
	}
	if (!kept || mmap(k->base, k->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	k->fd = fd;
	shared_note(k->id, fd);
	return CUDA_SUCCESS;
}

/* A handle of the memory of an allocation, by which other processes open it. */
static CUresult handle_of(struct range *range, struct ipc_handle *h)
{
	uintptr_t p = range->start;
	struct chunk *k = range->chunk;
	if (k->fd < 0) {
		CUresult r = await_context(range->context); /* nothing may write there while it moves */
		range = range_find(p);
		if (r == CUDA_SUCCESS && (!range || range->chunk != k))
			r = CUDA_ERROR_INVALID_VALUE;
		if (r == CUDA_SUCCESS)
			r = chunk_share(k);
		if (r != CUDA_SUCCESS)
			return r;
	}
	*h = (struct ipc_handle){.magic = IPC_MAGIC, .device = k->device, .pid = getpid(), .fd = k->fd, .number = shared_number(k->fd), .size = k->size,
				 .offset = p - (uintptr_t)k->base};
	return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
	CUcontext c;
	struct ipc_handle h;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct range *range = range_find((uintptr_t)p);
	if (!out || !range || range->kind != R_DEVICE || !range->chunk || range->pool)
		return leave(CUDA_ERROR_INVALID_VALUE);
	r = handle_of(range, &h);
	if (r == CUDA_SUCCESS) {
		memset(out, 0, sizeof *out);
		memcpy(out, &h, sizeof h);
	}
	return leave(r);
}

/* Maps size bytes of a file at a granule's boundary. */
static char *map_shared(int fd, size_t size, size_t offset)
{
	char *room = mmap(NULL, size + SIM_GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return NULL;
	char *at = (char *)(((uintptr_t)room + SIM_GRANULE - 1) & ~(uintptr_t)(SIM_GRANULE - 1));
	if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) == MAP_FAILED)
		at = NULL;
	if (!at || at > room)
		munmap(room, at ? (size_t)(at - room) : size + SIM_GRANULE);
	if (at && at + size < room + size + SIM_GRANULE)
		munmap(at + size, (size_t)(room + SIM_GRANULE - at));
	return at;
}

/* pool: that it is imported from; NULL: none. */
static CUresult ipc_open(CUcontext c, const struct ipc_handle *h, CUmemoryPool pool, CUdeviceptr *out)
{
	char path[64];
	uint64_t id;
	if (h->magic != IPC_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (h->pid == getpid()) /* as the real driver: only another process */
		return CUDA_ERROR_INVALID_CONTEXT;
	if (h->device != c->device)
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", h->pid, h->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || shared_number(fd) != h->number) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_MAP_FAILED;
	}
	CUresult r = shared_hold(c, fd, 0, &id);
	char *at = r == CUDA_SUCCESS ? map_shared(fd, h->size, 0) : NULL;
	close(fd);
	if (!at) {
		if (r == CUDA_SUCCESS)
			shared_let_go(id);
		return r == CUDA_SUCCESS ? CUDA_ERROR_MAP_FAILED : r;
	}
	struct range range = {.start = (uintptr_t)at, .size = h->size, .kind = R_SHARED, .device = c->device, .context = c, .pool = pool, .shared_id = id};
	if (!range_add(range)) {
		munmap(at, h->size);
		shared_let_go(id);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = (CUdeviceptr)(uintptr_t)at + h->offset;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	CUcontext c;
	struct ipc_handle h;
	if (!out || flags > CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	memcpy(&h, &handle, sizeof h);
	return leave(ipc_open(c, &h, NULL, out));
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	return cuIpcOpenMemHandle_v2(out, handle, flags);
}

void shared_unmap(struct range *r)
{
	munmap((void *)r->start, r->size);
	if (r->shared_id)
		shared_let_go(r->shared_id);
	range_remove(r->start);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
	CUcontext c;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct range *range = range_find((uintptr_t)p);
	if (!range || range->kind != R_SHARED || !range->shared_id || range->pool)
		return leave(CUDA_ERROR_INVALID_VALUE);
	r = await_context(range->context);
	range = range_find((uintptr_t)p);
	if (r == CUDA_SUCCESS && range)
		shared_unmap(range);
	return leave(r);
}

/* ---------------------------------------------------------------------------------------------- pools of other processes */

struct pool_handle { /* what the file says by whose descriptor a pool is exported */
	uint32_t magic, device;
};
#define POOL_MAGIC 0x314c5053u

CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool p, CUmemAllocationHandleType type, unsigned long long flags)
{
	TRY(enter_pool(p));
	if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !p->shareable)
		return leave(CUDA_ERROR_INVALID_VALUE);
	struct pool_handle h = {.magic = POOL_MAGIC, .device = p->device};
	int fd = (int)syscall(SYS_memfd_create, "simgpu-pool", 1u /* MFD_CLOEXEC */);
	if (fd < 0 || write(fd, &h, sizeof h) != (ssize_t)sizeof h) {
		if (fd >= 0)
			close(fd);
		return leave(CUDA_ERROR_OPERATING_SYSTEM);
	}
	*(int *)out = fd;
	return leave(CUDA_SUCCESS);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle, CUmemAllocationHandleType type, unsigned long long flags)
{
	struct pool_handle h;
	TRY(enter());
	if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (pread((int)(intptr_t)handle, &h, sizeof h, 0) != (ssize_t)sizeof h || h.magic != POOL_MAGIC || h.device >= api.devices)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = pool_new(h.device);
	if (!*out)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	(*out)->imported = true;
	return leave(CUDA_SUCCESS);
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr p)
{
	struct ipc_handle h;
	TRY(enter());
	struct range *range = range_find((uintptr_t)p);
	if (!out || !range || range->kind != R_DEVICE || !range->pool || !range->pool->shareable)
		return leave(CUDA_ERROR_INVALID_VALUE);
	CUresult r = handle_of(range, &h);
	if (r == CUDA_SUCCESS) {
		memset(out, 0, sizeof *out);
		memcpy(out, &h, sizeof h);
	}
	return leave(r);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool p, CUmemPoolPtrExportData *data)
{
	CUcontext c;
	struct ipc_handle h;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !data || !handle_is(p, H_POOL) || !p->imported)
		return leave(CUDA_ERROR_INVALID_VALUE);
	memcpy(&h, data, sizeof h);
	return leave(ipc_open(c, &h, p, out));
}

/* ------------------------------------------------------------------------------------------------------ external memory */

struct CUextMemory_st {
	int fd;
	uint64_t id, size;
	CUcontext context;
};

/* A descriptor that no exported handle stands behind is taken for memory that another interface allocated: then the device holds it from now
 * on. The descriptor becomes the driver's. */
CUresult cuImportExternalMemory(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *d)
{
	CUcontext c;
	uint64_t id;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !d || !d->size)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (d->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
		return leave(CUDA_ERROR_NOT_SUPPORTED);
	uint64_t whole = (d->size + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
	struct stat st;
	if (whole < d->size || fstat(d->handle.fd, &st) < 0 || (uint64_t)st.st_size < d->size)
		return leave(CUDA_ERROR_INVALID_VALUE);
	struct CUextMemory_st *m = calloc(1, sizeof *m);
	r = m ? shared_hold(c, d->handle.fd, whole, &id) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		free(m);
		return leave(r);
	}
	*m = (struct CUextMemory_st){.fd = d->handle.fd, .id = id, .size = d->size, .context = c};
	handle_add(m, H_EXTERNAL);
	*out = m;
	return leave(CUDA_SUCCESS);
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, CUexternalMemory m, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *d)
{
	CUcontext c;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(m, H_EXTERNAL))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (!out || !d || !d->size || d->flags || d->offset > m->size || d->size > m->size - d->offset)
		return leave(CUDA_ERROR_INVALID_VALUE);
	uint64_t before = d->offset % 4096;
	char *at = map_shared(m->fd, d->size + before, d->offset - before);
	if (!at)
		return leave(CUDA_ERROR_MAP_FAILED);
	struct range range = {.start = (uintptr_t)at, .size = d->size + before, .kind = R_SHARED, .device = c->device, .context = c};
	if (!range_add(range)) {
		munmap(at, d->size + before);
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*out = (CUdeviceptr)(uintptr_t)at + before;
	return leave(CUDA_SUCCESS);
}

CUresult cuDestroyExternalMemory(CUexternalMemory m)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(m, H_EXTERNAL))
		return leave(CUDA_ERROR_INVALID_HANDLE);
	handle_remove(m);
	shared_let_go(m->id);
	close(m->fd);
	free(m);
	return leave(CUDA_SUCCESS);
}
