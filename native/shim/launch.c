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

/* One kernel on several devices: it goes once the current context's device is free; leases of one task are granted together over all its
 * devices, so the others are too. */
EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int devices, unsigned int flags)
{
	CUfunction f = list == NULL || devices == 0 ? NULL : list[0].function;
	CUstream stream = list == NULL || devices == 0 ? NULL : list[0].hStream;
	THROUGH(cost_key(f, devices), stream, false, REAL(cuLaunchCooperativeKernelMultiDevice, list, devices, flags));
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
