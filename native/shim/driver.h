/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h: the driver's own functions, found by name in the library that the shim is linked to. */
#ifndef ALIQUOT_SHIM_DRIVER_H
#define ALIQUOT_SHIM_DRIVER_H

#include "shim.h"

/* What is called but not hooked. */
#define DRIVER_PLAIN(X)                                                                                                            \
	X(cuCtxFromGreenCtx)                                                                                                       \
	X(cuCtxGetCurrent)                                                                                                         \
	X(cuCtxSetCurrent)                                                                                                         \
	X(cuCtxGetLimit)                                                                                                           \
	X(cuDeviceGetAttribute)                                                                                                    \
	X(cuCtxGetDevice)                                                                                                          \
	X(cuDeviceGetUuid)                                                                                                         \
	X(cuDeviceGetUuid_v2)                                                                                                      \
	X(cuDevicePrimaryCtxGetState)                                                                                              \
	X(cuDriverGetVersion)                                                                                                      \
	X(cuEventCreate)                                                                                                           \
	X(cuEventElapsedTime)                                                                                                      \
	X(cuEventQuery)                                                                                                            \
	X(cuEventRecord)                                                                                                           \
	X(cuDeviceGetGraphMemAttribute)                                                                                            \
	X(cuDeviceGetDefaultMemPool)                                                                                               \
	X(cuDeviceGetMemPool)                                                                                                      \
	X(cuDeviceSetMemPool)                                                                                                      \
	X(cuGraphChildGraphNodeGetGraph)                                                                                           \
	X(cuGraphGetNodes)                                                                                                         \
	X(cuGraphMemAllocNodeGetParams)                                                                                            \
	X(cuGraphNodeGetType)                                                                                                      \
	X(cuMemPoolGetAttribute)                                                                                                   \
	X(cuMemPoolSetAttribute)                                                                                                   \
	X(cuStreamGetCtx)                                                                                                          \
	X(cuMemGetAllocationPropertiesFromHandle)                                                                                  \
	X(cuMemGetAddressRange_v2)                                                                                                 \
	X(cuStreamIsCapturing)                                                                                                     \
	X(cuStreamGetFlags)                                                                                                        \
	X(cuThreadExchangeStreamCaptureMode)

struct driver {
#define X(name) __typeof__(name) *name;
	DRIVER_PLAIN(X)
#undef X
#define HOOK(name, base, version, per_thread, kind) __typeof__(name) *name;
#include "paths.def"
};

extern struct driver driver;

/* Looks everything up; the first caller does it, the others wait. False: there is no driver. */
bool driver_load(void);
/* The same, cheap once it is done. */
extern uint32_t driver_loaded;

static inline bool driver_ready(void)
{
	return __builtin_expect(get_acquire(&driver_loaded) == 1, 1) || driver_load();
}

/* Calls the driver's function; a driver that is too old to have it says so itself. */
#define REAL(name, ...) (driver_ready() && driver.name != NULL ? driver.name(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED)

/* r = call, which takes memory before it says how much. Where the driver has none because some of our floor is lent, that comes back first. */
#define WITH_ROOM(r, grant, call)                                                                                                  \
	do {                                                                                                                       \
		uint64_t room_;                                                                                                    \
		r = (call);                                                                                                        \
		if (r == CUDA_ERROR_OUT_OF_MEMORY && memory_room(grant, &room_)) {                                                 \
			r = (call);                                                                                                \
			memory_return_overhead(grant, room_);                                                                      \
		}                                                                                                                  \
	} while (0)

#endif
