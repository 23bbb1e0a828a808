/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_driver.c: a driver whose device clock the test moves (or lets run), so that what the shim does can be judged exactly: kernels take
 * the time that their function says, one after the other in a stream; events know when they happen. Its contexts are in
 * fake_context.c, its memory in fake_memory.c.
 */
#include "fake_parts.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static uint64_t now_manual, real_then; /* the device clock where it stood, and the real one when it began to run */
static bool runs;
static CUresult (*at_launch)(void);
static bool at_launch_after;
struct fake_stats fake_now;
__thread CUcontext fake_current;
bool fake_forked;

struct CUevent_st {
	CUcontext context;
	uint64_t at;
	bool recorded;
};

static void in_child(void)
{
	fake_forked = true;
	pthread_mutex_init(&fake_lock, NULL);
	fake_memory_in_child();
}

void *fake_forever(size_t size)
{
	static struct kept {
		struct kept *next;
		_Alignas(16) char body[];
	} *all;
	struct kept *k = calloc(1, sizeof(*k) + size);
	k->next = __atomic_load_n(&all, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&all, &k->next, k, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	return k->body;
}

static uint64_t real_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t device_now(void)
{
	return runs ? now_manual + (real_now() - real_then) : now_manual;
}

EXPORT void fake_run(bool on)
{
	pthread_mutex_lock(&fake_lock);
	now_manual = device_now();
	real_then = real_now();
	runs = on;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&fake_lock);
}

EXPORT void fake_advance(uint64_t ns)
{
	pthread_mutex_lock(&fake_lock);
	now_manual += ns;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&fake_lock);
}

EXPORT void fake_read(struct fake_stats *out)
{
	pthread_mutex_lock(&fake_lock);
	*out = fake_now;
	pthread_mutex_unlock(&fake_lock);
}

/* Default streams are the thread's context's. NULL: there is none, and *error says so. What is gone may not be named any more: that is counted. */
static struct CUstream_st *stream(CUstream s, CUresult *error)
{
	bool is_default = s == NULL || s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD;
	*error = CUDA_SUCCESS;
	if (is_default && fake_current == NULL) {
		*error = CUDA_ERROR_INVALID_CONTEXT;
		return NULL;
	}
	s = is_default ? &fake_current->legacy : s;
	if (__atomic_load_n(&s->gone, __ATOMIC_SEQ_CST) || __atomic_load_n(&s->context->gone, __ATOMIC_SEQ_CST)) {
		__atomic_fetch_add(&fake_now.misused, 1, __ATOMIC_SEQ_CST);
		*error = CUDA_ERROR_INVALID_HANDLE;
		return NULL;
	}
	return s;
}

/* Puts work of so long into a stream, of whatever context: as with copies, and kernels that a library holds. */
static CUresult work(CUstream handle, uint64_t ns)
{
	CUresult error;
	pthread_mutex_lock(&fake_lock);
	struct CUstream_st *s = stream(handle, &error);
	uint64_t now = device_now();
	if (s == NULL) {
		pthread_mutex_unlock(&fake_lock);
		return error;
	}
	if (s->capturing) {
		fake_now.captured++;
	} else {
		fake_now.on_device[s->context->device - 10]++;
		uint64_t queued = s->busy_until > now ? s->busy_until - now : 0;
		fake_now.launches++;
		if (queued > fake_now.queued_most)
			fake_now.queued_most = queued;
		s->busy_until = (s->busy_until > now ? s->busy_until : now) + ns;
		fake_now.busy_ns += ns;
	}
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}

static uint32_t held, inits;

EXPORT void fake_hold_init(bool on)
{
	__atomic_store_n(&held, on, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &held, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

EXPORT uint32_t fake_inits(void)
{
	return __atomic_load_n(&inits, __ATOMIC_SEQ_CST);
}

EXPORT CUresult cuInit(unsigned int flags)
{
	static pid_t owner;
	(void)flags;
	if (owner != 0 && owner != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (owner == 0)
		pthread_atfork(NULL, NULL, in_child);
	owner = getpid();
	__atomic_fetch_add(&inits, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&held, __ATOMIC_SEQ_CST) != 0)
		syscall(SYS_futex, &held, FUTEX_WAIT, 1, NULL, NULL, 0);
	fake_memory_open();
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	strncpy(fake_now.visible, visible == NULL ? "" : visible, sizeof(fake_now.visible) - 1);
	return CUDA_SUCCESS;
}

int fake_lookup(const char *symbol, void **pfn, int version, uint64_t flags);

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	return (CUresult)fake_lookup(symbol, pfn, version, flags);
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	CUresult r = (CUresult)fake_lookup(symbol, pfn, version, flags);
	if (status != NULL)
		*status = r == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return r;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	*version = 12060;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	*count = FAKE_DEVICES;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = 10 + ordinal;
	return ordinal < FAKE_DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
	return cuDeviceGet(device, atoi(id));
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	memset(uuid, 0x11 * (device - 10 + 1), sizeof(*uuid));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	(void)device;
	*bytes = FAKE_CAPACITY;
	return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------------- streams */

EXPORT CUresult cuStreamCreate(CUstream *s, unsigned int flags)
{
	(void)flags;
	if (fake_forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (fake_current == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	*s = fake_forever(sizeof(**s));
	(*s)->context = fake_current;
	return CUDA_SUCCESS;
}

/* A capture in it ends with it. */
EXPORT CUresult cuStreamDestroy_v2(CUstream s)
{
	pthread_mutex_lock(&fake_lock);
	__atomic_store_n(&s->gone, true, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *ctx)
{
	CUresult error;
	struct CUstream_st *s = stream(handle, &error);
	if (s != NULL)
		*ctx = s->context;
	return error;
}

EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	CUresult error;
	struct CUstream_st *s = stream(handle, &error);
	if (s != NULL)
		*status = s->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return error;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
	CUresult error;
	struct CUstream_st *s = stream(handle, &error);
	(void)mode;
	if (s != NULL)
		s->capturing = true;
	return error;
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
	CUresult error;
	struct CUstream_st *s = stream(handle, &error);
	*graph = NULL;
	if (s != NULL && !s->capturing)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (s != NULL)
		s->capturing = false;
	return error;
}

EXPORT CUresult cuEventCreate(CUevent *e, unsigned int flags)
{
	(void)flags;
	if (fake_forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (fake_current == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	*e = fake_forever(sizeof(**e));
	(*e)->context = fake_current;
	return CUDA_SUCCESS;
}

/* Event and stream must be of one context, and the thread must have some. */
EXPORT CUresult cuEventRecord(CUevent e, CUstream handle)
{
	CUresult error;
	pthread_mutex_lock(&fake_lock);
	uint64_t now = device_now();
	struct CUstream_st *s = stream(handle, &error);
	if (s != NULL)
		error = fake_current == NULL ? CUDA_ERROR_INVALID_CONTEXT : s->context != e->context ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
	if (error == CUDA_SUCCESS) {
		fake_now.events++;
		if (s->capturing)
			fake_now.events_captured++;
		e->at = s->busy_until > now ? s->busy_until : now;
		e->recorded = true;
	}
	pthread_mutex_unlock(&fake_lock);
	return error;
}

EXPORT CUresult cuEventQuery(CUevent e)
{
	pthread_mutex_lock(&fake_lock);
	bool over = !e->recorded || device_now() >= e->at;
	pthread_mutex_unlock(&fake_lock);
	return over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuEventSynchronize(CUevent e)
{
	pthread_mutex_lock(&fake_lock);
	e->context->waiting++;
	while (device_now() < e->at && !__atomic_load_n(&e->context->gone, __ATOMIC_SEQ_CST)) {
		struct timespec t;
		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_nsec += 100000;
		if (t.tv_nsec >= 1000000000) {
			t.tv_nsec -= 1000000000;
			t.tv_sec++;
		}
		if (runs)
			pthread_cond_timedwait(&moved, &fake_lock, &t);
		else
			pthread_cond_wait(&moved, &fake_lock);
	}
	e->context->waiting--;
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
	if (!a->recorded || !b->recorded || cuEventQuery(a) != CUDA_SUCCESS || cuEventQuery(b) != CUDA_SUCCESS)
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)((int64_t)b->at - (int64_t)a->at) / 1e6);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
			       unsigned int bz, unsigned int shared, CUstream s, void **params, void **extra)
{
	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)params, (void)extra;
	CUresult (*call)(void) = __atomic_load_n(&at_launch, __ATOMIC_ACQUIRE);
	bool after = __atomic_load_n(&at_launch_after, __ATOMIC_ACQUIRE);
	CUresult r = call == NULL || after ? CUDA_SUCCESS : call();
	if (r == CUDA_SUCCESS)
		r = work(s, *(const uint64_t *)f);
	return r == CUDA_SUCCESS && call != NULL && after ? call() : r;
}

EXPORT void fake_at_launch(CUresult (*call)(void), bool after)
{
	__atomic_store_n(&at_launch_after, after, __ATOMIC_RELEASE);
	__atomic_store_n(&at_launch, call, __ATOMIC_RELEASE);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
	(void)dst, (void)src;
	return work(s, n / 10);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream s)
{
	return work(s, *(const uint64_t *)exec);
}

/* The functions above, of fake_context.c and of fake_memory.c, each between spaces. */
EXPORT const char *fake_named(void)
{
	return " cuInit cuGetProcAddress cuGetProcAddress_v2 cuDriverGetVersion cuDeviceGetCount "
	       "cuDeviceGet cuDeviceGetByPCIBusId cuDeviceGetUuid_v2 cuDeviceTotalMem_v2 cuCtxCreate_v2 "
	       "cuCtxDestroy_v2 cuCtxFromGreenCtx cuGreenCtxDestroy cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuCtxAttach cuCtxDetach cuCtxGetCurrent cuCtxSetCurrent cuCtxGetDevice cuStreamCreate cuStreamGetCtx "
	       "cuStreamDestroy_v2 cuStreamIsCapturing cuStreamBeginCapture_v2 cuStreamEndCapture cuEventCreate "
	       "cuEventRecord cuEventQuery cuEventSynchronize cuEventElapsedTime cuLaunchKernel "
	       "cuMemcpyHtoDAsync_v2 cuGraphLaunch cuMemGetInfo_v2 cuMemAlloc_v2 cuMemFree_v2 "
	       "cuMemCreate cuArray3DCreate_v2 cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool "
	       "cuMemPoolCreate cuMemPoolDestroy cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemPoolTrimTo "
	       "cuMemAllocFromPoolAsync cuMemAllocAsync cuMemFreeAsync cuMemRelease cuMemUnmap "
	       "cuModuleLoadData cuModuleUnload cuCtxSetLimit ";
}
