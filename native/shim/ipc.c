/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc.c: memory of another process that this one opens by a handle of its: charged to this one too for as long as it has it open, because the
 * device keeps it for whoever lets go last, and nobody tells the one of the other. How much it is only the driver knows, once it
 * is open.
 */
#include "driver.h"
#include "table.h"

static struct lock ipc_lock;
static struct table opened; /* by address; of an entry, kind is how often it is open */

/* Counts one more use of what is open already, by change; *out is it, taken out with its last. False: it is not there. */
static bool opened_change(CUdeviceptr at, int change, struct block *out)
{
	lock_take(&ipc_lock);
	struct block *b = table_find(&opened, at);
	if (b != NULL) {
		*out = *b;
		out->kind = b->kind = b->kind + (uint32_t)change;
		if (b->kind == 0)
			table_take(&opened, at, out);
	}
	lock_give(&ipc_lock);
	return b != NULL;
}

/* Reserves what was opened at an address, as the driver says how much it is. False: there is no room. */
static bool reserve_opened(CUdeviceptr at, struct block *b)
{
	CUdeviceptr base;
	size_t size = 0;
	int grant = meter_current_grant();
	*b = (struct block){.key = at, .kind = 1};
	if (grant < 0 || driver.cuMemGetAddressRange_v2 == NULL || driver.cuMemGetAddressRange_v2(&base, &size, at) != CUDA_SUCCESS)
		return true;
	b->bytes = memory_round(size);
	b->grant = (uint32_t)grant;
	driver.cuCtxGetCurrent(&b->context);
	return pools_reserve(b->grant, b->bytes);
}

static CUresult ipc_opened(CUdeviceptr at)
{
	struct block b;
	if (opened_change(at, 1, &b))
		return CUDA_SUCCESS; /* the driver counts too, and gives the same address */
	bool reserved = reserve_opened(at, &b);
	lock_take(&ipc_lock);
	bool added = reserved && table_add(&opened, &b);
	lock_give(&ipc_lock);
	if (added)
		return CUDA_SUCCESS;
	REAL(cuIpcCloseMemHandle, at);
	if (reserved)
		memory_return(b.grant, b.bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

#define OPEN(name)                                                                                                                 \
	EXPORT CUresult name(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned int flags)                                         \
	{                                                                                                                          \
		CUresult r = REAL(name, dptr, handle, flags);                                                                      \
		return r == CUDA_SUCCESS && task_on() ? ipc_opened(*dptr) : r;                                                     \
	}
OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct block b;
	/* Taken out before the driver may hand the same address out again; put back if it does not close. */
	bool ours = task_on() && opened_change(dptr, -1, &b);
	CUresult r = REAL(cuIpcCloseMemHandle, dptr);
	if (ours && r == CUDA_SUCCESS && b.kind == 0) {
		memory_return(b.grant, b.bytes);
	} else if (ours && r != CUDA_SUCCESS) {
		b.kind++;
		lock_take(&ipc_lock);
		table_add(&opened, &b);
		lock_give(&ipc_lock);
	}
	return r;
}

/* Freed like an allocation of one's own. */
EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *dptr, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	struct block b;
	CUresult r = REAL(cuMemPoolImportPointer, dptr, pool, data);
	if (r != CUDA_SUCCESS || !task_on())
		return r;
	bool reserved = reserve_opened(*dptr, &b);
	b.kind = BLOCK_EXTERNAL;
	if (reserved && blocks_add(&b))
		return r;
	REAL(cuMemFree_v2, *dptr);
	if (reserved)
		memory_return(b.grant, b.bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void ipc_drop_context(CUcontext context)
{
	uint64_t bytes[ALQ_MAX_GRANTS] = {0};
	lock_take(&ipc_lock);
	for (uint64_t i = 0; i < opened.size; i++) {
		struct block *b = &opened.at[i];
		if (b->key > GONE && b->context == context) {
			bytes[b->grant] += b->bytes;
			*b = (struct block){.key = GONE};
		}
	}
	lock_give(&ipc_lock);
	for (uint32_t g = 0; g < ALQ_MAX_GRANTS; g++)
		memory_return(g, bytes[g]);
}

void ipc_forget(void)
{
	ipc_lock.word = 0;
	opened = (struct table){0};
}
