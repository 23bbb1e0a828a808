/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c: initialisation, contexts, streams and captures: passed on, and followed. A context costs memory that the program did not
 * ask for; what the driver's own books say that it cost is charged to the share.
 */
#include "driver.h"

static struct lock contexts_lock; /* creation is charged by difference: one at a time */
static struct charged {
	struct charged *next;
	CUcontext context;  /* NULL: free */
	uint32_t grant;
	uint64_t bytes;
	uint32_t uses;      /* the call that made it, and each that retained or attached it */
	bool primary;
	CUdevice device;
} *all_charged;

static struct lock once;
static bool initialised; /* in this process or one that it was forked from */

void contexts_forget(void)
{
	initialised |= once.word != 0; /* forked while another thread initialised: the driver will have nothing to do with this process */
	contexts_lock.word = once.word = 0;
	for (struct charged *c = all_charged; c != NULL; c = c->next)
		*c = (struct charged){.next = c->next};
}

EXPORT CUresult cuInit(unsigned int flags)
{
	if (!driver_ready())
		return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
	if (initialised) {
		CUresult r = driver.cuInit(flags);
		if (r != CUDA_SUCCESS || get_acquire(&task.state) != SHIM_NEW)
			return r != CUDA_SUCCESS || get_acquire(&task.state) != SHIM_FAILED ? r : CUDA_ERROR_SYSTEM_NOT_READY;
	}
	enum shim_state state = task_start();
	if (state == SHIM_OFF)
		return driver.cuInit(flags);
	if (state == SHIM_FAILED)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	lock_take(&once);
	CUresult r = CUDA_SUCCESS;
	if (!initialised) {
		view_visible_begin();
		r = driver.cuInit(flags);
		view_visible_end();
		initialised = r == CUDA_SUCCESS;
		if (initialised)
			view_start();
	}
	lock_give(&once);
	return r;
}

static struct charged *charged_find(CUcontext context)
{
	struct charged *c = all_charged;
	while (c != NULL && c->context != context)
		c = c->next;
	return c;
}

/* A free place; NULL: there is no memory for more. */
static struct charged *charged_new(void)
{
	struct charged *c = charged_find(NULL);
	if (c != NULL)
		return c;
	const size_t bytes = 4096;
	struct charged *more = pages_take(bytes);
	for (size_t i = 0; more != NULL && i < bytes / sizeof(*more); i++) {
		more[i].next = all_charged;
		all_charged = &more[i];
	}
	return more;
}

/* Charges a context just made. False: the share has no room for it, and it must go. */
static bool context_charge(CUcontext context, CUdevice device, uint32_t grant, bool known, uint64_t before, bool primary)
{
	const uint64_t most = 2ull << 30; /* more than any context takes: somebody else's allocation got into the difference */
	uint64_t after = 0, cost = 0;
	if (known && overhead_read(grant, &after) && after > before)
		cost = after - before < most ? after - before : most;
	if (!memory_reserve_overhead(grant, cost)) {
		say("a context takes %llu MiB on the device and the share has no room for it; ask for more memory with --mem",
		    (unsigned long long)(cost >> 20));
		return false;
	}
	struct charged *c = charged_new();
	if (c == NULL) {
		memory_return_overhead(grant, cost);
		return false;
	}
	*c = (struct charged){.next = c->next, .context = context, .grant = grant, .bytes = cost, .uses = 1, .primary = primary, .device = device};
	return true;
}

static void context_discharge(struct charged *c)
{
	memory_return_overhead(c->grant, c->bytes);
	*c = (struct charged){.next = c->next};
}

/* A new context of a device of ours, made by call. */
#define CREATE(name, device, ...)                                                                                                  \
	do {                                                                                                                       \
		int grant = task_on() ? view_grant(device) : -1;                                                                   \
		uint64_t before = 0;                                                                                               \
		if (get_acquire(&task.state) == SHIM_FAILED)                                                                       \
			return CUDA_ERROR_SYSTEM_NOT_READY;                                                                        \
		if (grant < 0)                                                                                                     \
			return REAL(name, __VA_ARGS__);                                                                            \
		lock_take(&contexts_lock);                                                                                         \
		bool known = overhead_read((uint32_t)grant, &before);                                                              \
		CUresult r;                                                                                                        \
		WITH_ROOM(r, (uint32_t)grant, REAL(name, __VA_ARGS__));                                                            \
		if (r == CUDA_SUCCESS && !context_charge(*pctx, device, (uint32_t)grant, known, before, false)) {                  \
			REAL(cuCtxDestroy_v2, *pctx);                                                                              \
			r = CUDA_ERROR_OUT_OF_MEMORY;                                                                              \
		}                                                                                                                  \
		lock_give(&contexts_lock);                                                                                         \
		return r;                                                                                                          \
	} while (0)

EXPORT CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	CREATE(cuCtxCreate, dev, pctx, flags, dev);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	CREATE(cuCtxCreate_v2, dev, pctx, flags, dev);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice dev)
{
	CREATE(cuCtxCreate_v3, dev, pctx, params, count, flags, dev);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
	CREATE(cuCtxCreate_v4, dev, pctx, params, flags, dev);
}

bool contexts_hold(void)
{
	return lock_try(&contexts_lock);
}

void contexts_let_go(void)
{
	lock_give(&contexts_lock);
}

/* What hangs on a context that has been destroyed goes with it. */
static void context_gone(CUcontext context)
{
	blocks_drop_context(context);
	pools_settle();
	lock_take(&contexts_lock);
	struct charged *c = charged_find(context);
	if (c != NULL)
		context_discharge(c);
	lock_give(&contexts_lock);
}

#define DESTROY(name, ctx)                                                                                                         \
	do {                                                                                                                       \
		meter_context_gone(ctx);                                                                                           \
		pieces_ending(1);                                                                                                  \
		CUresult r = REAL(name, ctx);                                                                                      \
		if (r == CUDA_SUCCESS && task_on() && (ctx) != NULL)                                                               \
			context_gone(ctx);                                                                                         \
		pieces_ending(-1);                                                                                                 \
		return r;                                                                                                          \
	} while (0)

EXPORT CUresult cuCtxDestroy(CUcontext ctx)
{
	DESTROY(cuCtxDestroy, ctx);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	DESTROY(cuCtxDestroy_v2, ctx);
}

EXPORT CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	CUresult r = REAL(cuCtxAttach, pctx, flags);
	if (r != CUDA_SUCCESS || !task_on())
		return r;
	lock_take(&contexts_lock);
	struct charged *c = charged_find(*pctx);
	if (c != NULL)
		c->uses++;
	lock_give(&contexts_lock);
	return r;
}

/* Drops one use of the calling thread's context, which ends with its last. */
EXPORT CUresult cuCtxDetach(CUcontext ctx)
{
	CUcontext current = NULL;
	lock_take(&contexts_lock);
	struct charged *c = task_on() && ctx != NULL ? charged_find(ctx) : NULL;
	bool last = c == NULL || c->uses == 1;
	if (driver_ready())
		driver.cuCtxGetCurrent(&current);
	if (!last && current == ctx)
		c->uses--;
	lock_give(&contexts_lock);
	if (!last || current != ctx)
		return REAL(cuCtxDetach, ctx);
	DESTROY(cuCtxDetach, ctx);
}

/*
 * A green context goes, with its streams; its memory is its device's primary context's, and stays. The context that stands for it is the one that
 * launches are booked in.
 */
EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
	CUcontext context = NULL;
	if (task_on() && driver_ready() && driver.cuCtxFromGreenCtx != NULL && driver.cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS)
		meter_context_gone(context);
	return REAL(cuGreenCtxDestroy, green);
}

/* ---------------------------------------------------------------------------------------------------- primary contexts */

static struct charged *primary_find(CUdevice device)
{
	struct charged *c = all_charged;
	while (c != NULL && (c->context == NULL || !c->primary || c->device != device))
		c = c->next;
	return c;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	int grant = task_on() ? view_grant(dev) : -1;
	uint64_t before = 0;
	if (get_acquire(&task.state) == SHIM_FAILED)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	if (grant < 0)
		return REAL(cuDevicePrimaryCtxRetain, pctx, dev);
	lock_take(&contexts_lock);
	struct charged *had = primary_find(dev);
	bool known = had == NULL && overhead_read((uint32_t)grant, &before);
	CUresult r;
	WITH_ROOM(r, (uint32_t)grant, REAL(cuDevicePrimaryCtxRetain, pctx, dev));
	if (r == CUDA_SUCCESS && had != NULL) {
		had->uses++;
	} else if (r == CUDA_SUCCESS && !context_charge(*pctx, dev, (uint32_t)grant, known, before, true)) {
		REAL(cuDevicePrimaryCtxRelease_v2, dev);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	lock_give(&contexts_lock);
	return r;
}

/* The device's primary context, if this call is its end; NULL: it stays. */
static CUcontext primary_ending(CUdevice device, bool reset)
{
	lock_take(&contexts_lock);
	struct charged *c = task_on() ? primary_find(device) : NULL;
	CUcontext context = c != NULL && (reset || c->uses == 1) ? c->context : NULL;
	if (c != NULL && context == NULL)
		c->uses--;
	lock_give(&contexts_lock);
	return context;
}

#define PRIMARY_END(name, dev, reset)                                                                                              \
	do {                                                                                                                       \
		CUcontext context = primary_ending(dev, reset);                                                                    \
		meter_context_gone(context);                                                                                       \
		pieces_ending(1);                                                                                                  \
		CUresult r = REAL(name, dev);                                                                                      \
		if (r == CUDA_SUCCESS && context != NULL)                                                                          \
			context_gone(context);                                                                                     \
		pieces_ending(-1);                                                                                                 \
		return r;                                                                                                          \
	} while (0)

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	PRIMARY_END(cuDevicePrimaryCtxRelease, dev, false);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	PRIMARY_END(cuDevicePrimaryCtxRelease_v2, dev, false);
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	PRIMARY_END(cuDevicePrimaryCtxReset, dev, true);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	PRIMARY_END(cuDevicePrimaryCtxReset_v2, dev, true);
}
