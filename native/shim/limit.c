/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.c: what a context sets aside on the device for its kernels. A driver takes it when a kernel first needs it, where nothing can be
 * refused any more: so it is charged when the limit is raised, until it is lowered or the context ends. The heap and the buffer of printf are as
 * large as said; the stack is said of one thread, and there is one for each that the device can run at a time. What contexts begin with is in
 * what they cost.
 */
#include "driver.h"

static struct lock limits_lock;

_Static_assert(KEY_LIMITS + CU_LIMIT_MALLOC_HEAP_SIZE < KEYS_END, "the last limit that is charged has a key");

/* Bytes on the device for each that the limit says; 0: it sets no memory aside that can be told. */
static uint64_t limit_weight(CUlimit limit)
{
	int processors = 0, threads = 0;
	CUdevice device;
	if (limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE)
		return 1;
	if (limit != CU_LIMIT_STACK_SIZE || driver.cuCtxGetDevice(&device) != CUDA_SUCCESS || driver.cuDeviceGetAttribute == NULL)
		return 0;
	driver.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	driver.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
	return (uint64_t)processors * (uint64_t)threads;
}

/* What is to be charged after a change from one value to another, when so much was. */
static uint64_t limit_bytes(uint64_t charged, uint64_t from, uint64_t to, uint64_t weight)
{
	uint64_t by, size = to > from ? to - from : from - to;
	if (__builtin_mul_overflow(size, weight, &by))
		by = UINT64_MAX;
	if (to < from)
		return charged > by ? memory_round(charged - by) : 0;
	return memory_round(by > UINT64_MAX - charged ? UINT64_MAX : charged + by);
}

static CUresult limit_set(CUlimit limit, size_t value, uint32_t grant, uint64_t weight)
{
	struct block b = {.grant = grant, .kind = BLOCK_LIMIT};
	size_t before = 0;
	driver.cuCtxGetCurrent(&b.context);
	b.key = context_key(b.context, KEY_LIMITS + (uint32_t)limit);
	if (driver.cuCtxGetLimit == NULL || driver.cuCtxGetLimit(&before, limit) != CUDA_SUCCESS)
		return REAL(cuCtxSetLimit, limit, value);
	struct block had = b;
	bool known = blocks_take(b.key, &had);
	b.bytes = limit_bytes(had.bytes, before, value, weight);
	bool more = b.bytes > had.bytes;
	CUresult r = !more || pools_reserve(grant, b.bytes - had.bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	bool reserved = more && r == CUDA_SUCCESS;
	/* Booked first, since a limit that is set is not always undone. */
	if (r == CUDA_SUCCESS && b.bytes != 0 && !blocks_add(&b))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	else if (r == CUDA_SUCCESS && (r = REAL(cuCtxSetLimit, limit, value)) != CUDA_SUCCESS)
		blocks_take(b.key, &b);
	if (r != CUDA_SUCCESS && reserved)
		memory_return(grant, b.bytes - had.bytes);
	if (r == CUDA_SUCCESS && !more)
		memory_return(grant, had.bytes - b.bytes);
	if (r != CUDA_SUCCESS && known)
		blocks_add(&had);
	return r;
}

EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	if (get_acquire(&task.state) == SHIM_FAILED)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	int grant = task_on() ? meter_current_grant() : -1;
	uint64_t weight = grant < 0 ? 0 : limit_weight(limit);
	if (weight == 0)
		return REAL(cuCtxSetLimit, limit, value);
	lock_take(&limits_lock);
	CUresult r = limit_set(limit, value, (uint32_t)grant, weight);
	lock_give(&limits_lock);
	return r;
}

void limits_forget(void)
{
	limits_lock.word = 0;
}
