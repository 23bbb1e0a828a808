/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: made, stacked per thread, primary, destroyed. */
#include "simgpu/cuda/internal.h"

#include <unistd.h>

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define STACK 64

static __thread CUcontext stack[STACK];
static __thread int depth;

CUresult context_check(CUcontext c)
{
	if (!handle_is(c, H_CONTEXT))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return (CUresult)atomic_load_explicit(&c->channel->fault, memory_order_relaxed);
}

CUresult context_current(CUcontext *out)
{
	CUcontext c = depth ? stack[depth - 1] : NULL;
	if (!c)
		return CUDA_ERROR_INVALID_CONTEXT;
	*out = c;
	return context_check(c);
}

/* --------------------------------------------------------------------------------------------------------- make and end */

static CUresult context_make(uint32_t device, unsigned flags, unsigned version, CUcontext *out)
{
	struct sim_request r = {.call = SIM_CONTEXT, .device = device};
	struct sim_answer a;
	int fd;
	CUresult result = server_call(&r, &a, &fd);
	if (result != CUDA_SUCCESS)
		return result;
	void *shared = mmap(NULL, sizeof(struct sim_channel), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	CUcontext c = calloc(1, sizeof *c);
	if (shared == MAP_FAILED || !c) {
		if (shared != MAP_FAILED)
			munmap(shared, sizeof(struct sim_channel));
		free(c);
		r = (struct sim_request){.call = SIM_DESTROY, .arg[0] = a.value[0]};
		server_call(&r, &a, NULL);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	c->channel = shared;
	c->device = device;
	c->flags = flags;
	c->version = version;
	c->id = ++api.ids;
	c->cache = CU_FUNC_CACHE_PREFER_NONE;
	c->limit[CU_LIMIT_STACK_SIZE] = 1024;
	c->limit[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	c->limit[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	c->limit[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
	c->limit[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	c->limit[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
	pthread_mutex_init(&c->act_lock, NULL);
	c->calls_end = &c->calls;
	handle_add(c, H_CONTEXT);
	result = stream_make(c, CU_STREAM_DEFAULT, 0, &c->legacy);
	if (result != CUDA_SUCCESS) {
		context_forget(c);
		return result;
	}
	*out = c;
	return CUDA_SUCCESS;
}

static void context_release(CUcontext c)
{
	munmap(c->channel, sizeof *c->channel);
	pthread_mutex_destroy(&c->act_lock);
	for (int i = 0; i < SIM_RING; i++)
		if (c->act[i].pending)
			work_free(&c->act[i].work);
	while (c->calls) {
		struct host_call *h = c->calls;
		c->calls = h->next;
		free(h);
	}
	free(c->free_streams);
	free(c->free_events);
	free(c);
}

/* Ends a context and all that is in it. What threads wait for in it will not come: they are told. */
void context_forget(CUcontext c)
{
	handle_remove(c);
	c->dead = true;
	c->users++;
	worker_stop(c); /* lets the lock go */
	while (c->modules)
		module_free(c->modules);
	ranges_forget(c);
	while (c->events)
		event_drop(c->events);
	while (c->streams)
		stream_drop(c->streams);
	struct sim_request r = {.call = SIM_DESTROY, .arg[0] = c->channel->id};
	struct sim_answer a;
	server_call(&r, &a, NULL);
	uint32_t none = 0;
	atomic_compare_exchange_strong(&c->channel->fault, &none, CUDA_ERROR_CONTEXT_IS_DESTROYED);
	atomic_fetch_add(&c->channel->notify, 1);
	syscall(SYS_futex, &c->channel->notify, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	context_unuse(c);
}

void context_unuse(CUcontext c)
{
	if (--c->users == 0 && c->dead)
		context_release(c);
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice device, unsigned version)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || (flags & ~0xffu))
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (device < 0 || (uint32_t)device >= api.devices)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	if (depth == STACK)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	r = context_make((uint32_t)device, flags, version, out);
	if (r == CUDA_SUCCESS)
		stack[depth++] = *out;
	return leave(r);
}

CUresult cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice device)
{
	return create(out, flags, device, 3010);
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	return create(out, flags, device, 3020);
}

CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice device)
{
	if (params && count)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(out, flags, device, 3021);
}

CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
	if (params && params->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (params && params->execAffinityParams && params->numExecAffinityParams)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(out, flags, device, 3022);
}

CUresult cuCtxDestroy_v2(CUcontext c)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(c, H_CONTEXT) || c->primary)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	if (depth && stack[depth - 1] == c)
		depth--;
	if (context_check(c) == CUDA_SUCCESS)
		await_context(c);
	if (handle_is(c, H_CONTEXT))
		context_forget(c);
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxDestroy(CUcontext c)
{
	return cuCtxDestroy_v2(c);
}

/* ---------------------------------------------------------------------------------------------------------------- stack */

CUresult cuCtxPushCurrent_v2(CUcontext c)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(c, H_CONTEXT))
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	if (depth == STACK)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	stack[depth++] = c;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent(CUcontext c)
{
	return cuCtxPushCurrent_v2(c);
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!depth)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	depth--;
	if (out)
		*out = stack[depth];
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent(CUcontext *out)
{
	return cuCtxPopCurrent_v2(out);
}

CUresult cuCtxSetCurrent(CUcontext c)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!c) {
		if (depth)
			depth--;
		return leave(CUDA_SUCCESS);
	}
	if (!handle_is(c, H_CONTEXT))
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!depth)
		depth = 1;
	stack[depth - 1] = c;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = depth ? stack[depth - 1] : NULL;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxAttach(CUcontext *out, unsigned int flags)
{
	CUcontext c;
	if (flags || !out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_context(&c);
	if (r != CUDA_SUCCESS)
		return r;
	c->attached++;
	*out = c;
	return leave(CUDA_SUCCESS);
}

/* Ends the context with the last of its uses. */
CUresult cuCtxDetach(CUcontext c)
{
	CUcontext own;
	CUresult r = enter_context(&own);
	if (r != CUDA_SUCCESS)
		return r;
	if (c != own)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	bool last = c->attached == 0;
	c->attached -= !last;
	leave(CUDA_SUCCESS);
	return last ? cuCtxDestroy_v2(c) : CUDA_SUCCESS;
}

/* -------------------------------------------------------------------------------------------------------------- primary */

static CUresult enter_device(CUdevice device)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && (device < 0 || (uint32_t)device >= api.devices))
		return leave(CUDA_ERROR_INVALID_DEVICE);
	return r;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	CUresult r = enter_device(device);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!api.primary[device]) {
		r = context_make((uint32_t)device, api.primary_flags[device], 3020, &api.primary[device]);
		if (r != CUDA_SUCCESS)
			return leave(r);
		api.primary[device]->primary = true;
	}
	api.primary_refs[device]++;
	*out = api.primary[device];
	return leave(CUDA_SUCCESS);
}

static void primary_end(CUdevice device)
{
	CUcontext c = api.primary[device];
	if (!c)
		return;
	if (context_check(c) == CUDA_SUCCESS)
		await_context(c);
	api.primary[device] = NULL;
	if (handle_is(c, H_CONTEXT))
		context_forget(c);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	CUresult r = enter_device(device);
	if (r != CUDA_SUCCESS)
		return r;
	if (!api.primary_refs[device])
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	if (--api.primary_refs[device] == 0)
		primary_end(device);
	return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	CUresult r = enter_device(device);
	if (r != CUDA_SUCCESS)
		return r;
	primary_end(device);
	api.primary_refs[device] = 0;
	return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	CUresult r = enter_device(device);
	if (r != CUDA_SUCCESS)
		return r;
	if (flags & ~0xffu)
		return leave(CUDA_ERROR_INVALID_VALUE);
	api.primary_flags[device] = flags;
	if (api.primary[device])
		api.primary[device]->flags = flags;
	return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	CUresult r = enter_device(device);
	if (r != CUDA_SUCCESS)
		return r;
	if (flags)
		*flags = api.primary_flags[device];
	if (active)
		*active = api.primary[device] != NULL;
	return leave(CUDA_SUCCESS);
}
