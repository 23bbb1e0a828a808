/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory: addresses reserved, physical memory made, the one mapped to the other. A piece of physical memory is a memfd, so what is in
 * it stays when it is unmapped and comes back wherever it is mapped next.
 */
#include "simgpu/cuda/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct physical {
	int fd;
	size_t size;
	uint32_t device;
	CUmemAllocationProp prop;
	CUcontext context; /* whose channel the memory is charged to */
	uint64_t id;
	unsigned refs; /* handles retained, and mappings */
	unsigned handles;
};

static struct reservation {
	uintptr_t start;
	size_t size;
	struct reservation *next;
} *reservations;

static struct reservation *reserved(uintptr_t start, size_t size)
{
	for (struct reservation *v = reservations; v; v = v->next)
		if (start >= v->start && size <= v->size && start - v->start <= v->size - size)
			return v;
	return NULL;
}

static void physical_unref(struct physical *p)
{
	if (--p->refs)
		return;
	struct sim_request q = {.call = SIM_FREE, .arg[0] = p->id};
	struct sim_answer a;
	server_call(&q, &a, NULL); /* unknown there if the context is gone: freed with it */
	handle_remove(p);
	close(p->fd);
	free(p);
}

static CUresult check_prop(const CUmemAllocationProp *p)
{
	if (!p || p->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (p->location.id < 0 || (uint32_t)p->location.id >= api.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
	if (!out || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	*out = SIM_GRANULE;
	return leave(check_prop(prop));
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wanted, unsigned long long flags)
{
	if (!out || !size || size % SIM_GRANULE || (alignment & (alignment - 1)) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	size_t align = alignment > SIM_GRANULE ? alignment : SIM_GRANULE;
	struct reservation *v = calloc(1, sizeof *v);
	char *p = MAP_FAILED;
	const int flags_plain = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	if (wanted && wanted % align == 0) /* a wish: elsewhere if something is there */
		p = mmap((void *)(uintptr_t)wanted, size, PROT_NONE, flags_plain | MAP_FIXED_NOREPLACE, -1, 0);
	if (p == MAP_FAILED) {
		char *room = mmap(NULL, size + align, PROT_NONE, flags_plain, -1, 0);
		if (room != MAP_FAILED) {
			p = (char *)(((uintptr_t)room + align - 1) & ~(uintptr_t)(align - 1));
			if (p > room)
				munmap(room, (size_t)(p - room));
			if (p - room < (ptrdiff_t)align)
				munmap(p + size, align - (size_t)(p - room));
		}
	}
	if (!v || p == MAP_FAILED) {
		free(v);
		if (p != MAP_FAILED)
			munmap(p, size);
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*v = (struct reservation){.start = (uintptr_t)p, .size = size, .next = reservations};
	reservations = v;
	*out = (CUdeviceptr)(uintptr_t)p;
	return leave(CUDA_SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t size)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	for (struct reservation **at = &reservations; *at; at = &(*at)->next) {
		struct reservation *v = *at;
		if (v->start != p || v->size != size)
			continue;
		for (size_t i = 0; i < size; i += SIM_GRANULE)
			if (range_find(v->start + i))
				return leave(CUDA_ERROR_INVALID_VALUE); /* something is still mapped there */
		munmap((void *)v->start, size);
		*at = v->next;
		free(v);
		return leave(CUDA_SUCCESS);
	}
	return leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	if (!out || !size || size % SIM_GRANULE || flags)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = check_prop(prop);
	if (r != CUDA_SUCCESS)
		return leave(r);
	if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return leave(CUDA_ERROR_NOT_SUPPORTED);
	CUcontext c = context_on((uint32_t)prop->location.id);
	if (!c)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	struct physical *p = calloc(1, sizeof *p);
	int fd = (int)syscall(SYS_memfd_create, "simgpu-memory", 1u /* MFD_CLOEXEC */);
	struct sim_request q = {.call = SIM_ALLOC, .arg = {c->channel->id, size}};
	struct sim_answer a;
	if (!p || fd < 0 || ftruncate(fd, (off_t)size) < 0)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	else
		r = server_call(&q, &a, NULL);
	if (r != CUDA_SUCCESS) {
		if (fd >= 0)
			close(fd);
		free(p);
		return leave(r);
	}
	*p = (struct physical){.fd = fd, .size = size, .device = c->device, .prop = *prop, .context = c, .id = a.value[0], .refs = 1, .handles = 1};
	handle_add(p, H_PHYSICAL);
	*out = (CUmemGenericAllocationHandle)(uintptr_t)p;
	return leave(CUDA_SUCCESS);
}

/* Begins a call on a handle; on success the lock is held. */
static CUresult enter_physical(CUmemGenericAllocationHandle h, struct physical **p)
{
	CUresult r = enter();
	*p = (struct physical *)(uintptr_t)h;
	if (r == CUDA_SUCCESS && (!handle_is(*p, H_PHYSICAL) || !(*p)->handles))
		return leave(CUDA_ERROR_INVALID_VALUE);
	return r;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
	struct physical *p;
	CUresult r = enter_physical(h, &p);
	if (r != CUDA_SUCCESS)
		return r;
	p->handles--;
	physical_unref(p);
	return leave(CUDA_SUCCESS);
}

CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags)
{
	struct physical *p;
	CUresult r = enter_physical(h, &p);
	if (r != CUDA_SUCCESS)
		return r;
	if (!size || size % SIM_GRANULE || at % SIM_GRANULE || offset || size > p->size || flags || !reserved((uintptr_t)at, size))
		return leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < size; i += SIM_GRANULE)
		if (range_find((uintptr_t)at + i))
			return leave(CUDA_ERROR_INVALID_VALUE);
	if (mmap((void *)(uintptr_t)at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, 0) == MAP_FAILED)
		return leave(CUDA_ERROR_MAP_FAILED);
	struct range range = {.start = (uintptr_t)at, .size = size, .kind = R_MAPPED, .device = p->device, .context = p->context, .owner = p};
	if (!range_add(range))
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	p->refs++;
	return leave(CUDA_SUCCESS);
}

/* Whether [at, at+size) is made of whole mappings, and which; with `act`, does it to each. */
static bool each_mapping(uintptr_t at, size_t size, void (*act)(struct range *, int), int how)
{
	for (uintptr_t p = at; p < at + size;) {
		struct range *r = range_find(p);
		if (!r || r->kind != R_MAPPED || r->start != p || p - at + r->size > size)
			return false;
		p += r->size;
		if (act)
			act(r, how);
	}
	return true;
}

static void protect(struct range *r, int how)
{
	mprotect((void *)r->start, r->size, how);
	r->flags = how == PROT_NONE ? 0 : how == PROT_READ ? 1 : 3;
}

static void unmap(struct range *r, int how)
{
	struct physical *p = r->owner;
	(void)how;
	mmap((void *)r->start, r->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0); /* stays reserved */
	range_remove(r->start);
	physical_unref(p);
}

CUresult cuMemUnmap(CUdeviceptr at, size_t size)
{
	CUcontext c;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!size || !each_mapping((uintptr_t)at, size, NULL, 0))
		return leave(CUDA_ERROR_INVALID_VALUE);
	/* What was issued before must find the memory still there. */
	if (context_current(&c) == CUDA_SUCCESS)
		await_context(c);
	if (!each_mapping((uintptr_t)at, size, NULL, 0))
		return leave(CUDA_ERROR_INVALID_VALUE);
	each_mapping((uintptr_t)at, size, unmap, 0);
	return leave(CUDA_SUCCESS);
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	if (!desc || !count)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	int how = PROT_NONE; /* one address space on the host: the widest access that any device gets */
	for (size_t i = 0; i < count; i++) {
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || desc[i].location.id < 0 || (uint32_t)desc[i].location.id >= api.devices)
			return leave(CUDA_ERROR_INVALID_VALUE);
		if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			how = PROT_READ | PROT_WRITE;
		else if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ && how == PROT_NONE)
			how = PROT_READ;
		else if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ)
			return leave(CUDA_ERROR_INVALID_VALUE);
	}
	if (!size || !each_mapping((uintptr_t)at, size, NULL, 0))
		return leave(CUDA_ERROR_INVALID_VALUE);
	each_mapping((uintptr_t)at, size, protect, how);
	return leave(CUDA_SUCCESS);
}

CUresult cuMemGetAccess(unsigned long long *out, const CUmemLocation *location, CUdeviceptr p)
{
	if (!out || !location)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	struct range *range = range_find((uintptr_t)p);
	if (!range)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = range->kind == R_MAPPED ? range->flags : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return leave(CUDA_SUCCESS);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *at)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	struct range *range = range_find((uintptr_t)at);
	if (!range || range->kind != R_MAPPED)
		return leave(CUDA_ERROR_INVALID_VALUE);
	struct physical *p = range->owner;
	p->refs++;
	p->handles++;
	*out = (CUmemGenericAllocationHandle)(uintptr_t)p;
	return leave(CUDA_SUCCESS);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle h)
{
	struct physical *p;
	CUresult r = enter_physical(h, &p);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = p->prop;
	return leave(CUDA_SUCCESS);
}

/* --------------------------------------------------------------------------------------------------- to other processes */

/* A descriptor of its own of the same file: the driver's is not the program's. */
static int reopen(int fd)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type, unsigned long long flags)
{
	struct physical *p;
	CUresult r = enter_physical(h, &p);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(p->prop.requestedHandleTypes & type))
		return leave(CUDA_ERROR_INVALID_VALUE);
	int fd = reopen(p->fd);
	if (fd < 0)
		return leave(CUDA_ERROR_OPERATING_SYSTEM);
	shared_note(p->id, fd);
	*(int *)out = fd;
	return leave(CUDA_SUCCESS);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle, CUmemAllocationHandleType type)
{
	CUcontext c;
	uint64_t id;
	struct stat st;
	if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	int fd = reopen((int)(intptr_t)handle);
	if (fd < 0 || fstat(fd, &st) < 0) {
		if (fd >= 0)
			close(fd);
		return leave(CUDA_ERROR_INVALID_VALUE);
	}
	struct physical *p = calloc(1, sizeof *p);
	r = p ? shared_hold(c, fd, 0, &id) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		close(fd);
		free(p);
		return leave(r);
	}
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)c->device}};
	*p = (struct physical){.fd = fd, .size = (size_t)st.st_size, .device = c->device, .prop = prop, .context = c, .id = id, .refs = 1, .handles = 1};
	handle_add(p, H_PHYSICAL);
	*out = (CUmemGenericAllocationHandle)(uintptr_t)p;
	return leave(CUDA_SUCCESS);
}
