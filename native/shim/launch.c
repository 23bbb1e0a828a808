/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c: kernels and graphs through the gate. */
#include "driver.h"

static uint64_t grid(uint64_t x, uint64_t y, uint64_t z)
{
	return x * y * z;
}

#define THROUGH(key, stream, per_thread, call)                                                                                     \
	do {                                                                                                                       \
		struct pass pass;                                                                                                  \
		CUresult result = gate_enter(&pass, stream, per_thread, key);                                                      \
		if (result != CUDA_SUCCESS)                                                                                        \
			return result;                                                                                             \
		result = call;                                                                                                     \
		gate_leave(&pass, result);                                                                                         \
		return result;                                                                                                     \
	} while (0)

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
			       unsigned int bz, unsigned int shared, CUstream stream, void **params, void **extra)
{
	THROUGH(cost_key(f, grid(gx, gy, gz)), stream, false,
		REAL(cuLaunchKernel, f, gx, gy, gz, bx, by, bz, shared, stream, params, extra));
}

EXPORT CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
				    unsigned int bz, unsigned int shared, CUstream stream, void **params, void **extra)
{
	THROUGH(cost_key(f, grid(gx, gy, gz)), stream, true,
		REAL(cuLaunchKernel_ptsz, f, gx, gy, gz, bx, by, bz, shared, stream, params, extra));
}

static uint64_t config_key(const CUlaunchConfig *config, CUfunction f)
{
	return config == NULL ? cost_key(f, 0) : cost_key(f, grid(config->gridDimX, config->gridDimY, config->gridDimZ));
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	THROUGH(config_key(config, f), config == NULL ? NULL : config->hStream, false, REAL(cuLaunchKernelEx, config, f, params, extra));
}

EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	THROUGH(config_key(config, f), config == NULL ? NULL : config->hStream, true,
		REAL(cuLaunchKernelEx_ptsz, config, f, params, extra));
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
					  unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params)
{
	THROUGH(cost_key(f, grid(gx, gy, gz)), stream, false,
		REAL(cuLaunchCooperativeKernel, f, gx, gy, gz, bx, by, bz, shared, stream, params));
}

EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
					       unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params)
{
	THROUGH(cost_key(f, grid(gx, gy, gz)), stream, true,
		REAL(cuLaunchCooperativeKernel_ptsz, f, gx, gy, gz, bx, by, bz, shared, stream, params));
}

EXPORT CUresult cuLaunch(CUfunction f)
{
	THROUGH(cost_key(f, 1), NULL, false, REAL(cuLaunch, f));
}

EXPORT CUresult cuLaunchGrid(CUfunction f, int width, int height)
{
	THROUGH(cost_key(f, grid((unsigned)width, (unsigned)height, 1)), NULL, false, REAL(cuLaunchGrid, f, width, height));
}

EXPORT CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream)
{
	THROUGH(cost_key(f, grid((unsigned)width, (unsigned)height, 1)), stream, false, REAL(cuLaunchGridAsync, f, width, height, stream));
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	THROUGH(cost_key(exec, 0), stream, false, REAL(cuGraphLaunch, exec, stream));
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	THROUGH(cost_key(exec, 0), stream, true, REAL(cuGraphLaunch_ptsz, exec, stream));
}

/* Carries the graph to the device ahead of its launch; learned apart from that. */
EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	THROUGH(cost_key(exec, 1), stream, false, REAL(cuGraphUpload, exec, stream));
}

EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	THROUGH(cost_key(exec, 1), stream, true, REAL(cuGraphUpload_ptsz, exec, stream));
}

/* ------------------------------------------------------------------------------------------- one kernel on several devices */

#define DEVICES_AT_ONCE ALQ_MAX_GRANTS

/* Makes the context of a stream current; streams of such a launch are never default streams. */
static bool enter_context_of(CUstream stream)
{
	CUcontext context = NULL;
	return driver.cuStreamGetCtx != NULL && driver.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS &&
	       driver.cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

/*
 * Each device's part passes the gate of its own device; the leases of one task are granted together over all its devices, so that
 * nobody holds one and waits for another for long. What the driver refuses it refuses by itself.
 */
EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int devices, unsigned int flags)
{
	struct pass pass[DEVICES_AT_ONCE];
	unsigned int passed = 0;
	CUcontext before = NULL;
	if (!task_on() || list == NULL || devices > DEVICES_AT_ONCE || !driver_ready())
		return get_acquire(&task.state) == SHIM_FAILED ? CUDA_ERROR_SYSTEM_NOT_READY
							       : REAL(cuLaunchCooperativeKernelMultiDevice, list, devices, flags);
	CUresult r = CUDA_SUCCESS;
	driver.cuCtxGetCurrent(&before);
	while (passed < devices && r == CUDA_SUCCESS) {
		const CUDA_LAUNCH_PARAMS *p = &list[passed];
		if (!enter_context_of(p->hStream))
			break;
		r = gate_enter(&pass[passed], p->hStream, false, cost_key(p->function, grid(p->gridDimX, p->gridDimY, p->gridDimZ)));
		passed += r == CUDA_SUCCESS;
	}
	driver.cuCtxSetCurrent(before);
	if (r == CUDA_SUCCESS)
		r = REAL(cuLaunchCooperativeKernelMultiDevice, list, devices, flags);
	for (unsigned int i = 0; i < passed; i++)
		gate_leave(&pass[i], r);
	return r;
}
