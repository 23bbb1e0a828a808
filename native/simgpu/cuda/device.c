/* SPDX-License-Identifier: Apache-2.0 */
/* Devices and their attributes; names of errors. */
#include "simgpu/cuda/internal.h"

#include <stdio.h>

static CUresult enter_device(CUdevice d)
{
	CUresult r = enter();
	if (r == CUDA_SUCCESS && (d < 0 || (uint32_t)d >= api.devices))
		return leave(CUDA_ERROR_INVALID_DEVICE);
	return r;
}

CUresult cuDeviceGetCount(int *count)
{
	TRY(enter());
	if (!count)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*count = (int)api.devices;
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
	TRY(enter_device(ordinal));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = ordinal;
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int room, CUdevice d)
{
	TRY(enter_device(d));
	if (!name || room < 1)
		return leave(CUDA_ERROR_INVALID_VALUE);
	snprintf(name, (size_t)room, "%s", api.info[d].name);
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice d)
{
	TRY(enter_device(d));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	memcpy(out->bytes, api.info[d].uuid_bytes, sizeof out->bytes);
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid(CUuuid *out, CUdevice d)
{
	return cuDeviceGetUuid_v2(out, d);
}

CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice d)
{
	TRY(enter_device(d));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = api.info[d].memory - api.info[d].reserved;
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetPCIBusId(char *out, int room, CUdevice d)
{
	TRY(enter_device(d));
	if (!out || room < 13)
		return leave(CUDA_ERROR_INVALID_VALUE);
	snprintf(out, (size_t)room, "0000:%02x:00.0", api.info[d].pci_bus);
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *id)
{
	unsigned domain = 0, bus, slot, function = 0;
	TRY(enter());
	if (!out || !id || (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3 && sscanf(id, "%x:%x.%x", &bus, &slot, &function) < 2))
		return leave(CUDA_ERROR_INVALID_VALUE);
	for (uint32_t i = 0; i < api.devices; i++)
		if (api.info[i].pci_bus == bus && slot == 0) {
			*out = (CUdevice)i;
			return leave(CUDA_SUCCESS);
		}
	return leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice d)
{
	TRY(enter_device(d));
	if (!major || !minor)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*major = (int)api.info[d].major;
	*minor = (int)api.info[d].minor;
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetProperties(CUdevprop *out, CUdevice d)
{
	TRY(enter_device(d));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = (CUdevprop){.maxThreadsPerBlock = 1024, .maxThreadsDim = {1024, 1024, 64}, .maxGridSize = {0x7fffffff, 65535, 65535},
			   .sharedMemPerBlock = 49152, .totalConstantMemory = 65536, .SIMDWidth = 32, .memPitch = 0x7fffffff,
			   .regsPerBlock = 65536, .clockRate = (int)api.info[d].clock_khz, .textureAlign = 512};
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceCanAccessPeer(int *out, CUdevice d, CUdevice peer)
{
	TRY(enter_device(d));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (peer < 0 || (uint32_t)peer >= api.devices)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	*out = d != peer;
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetP2PAttribute(int *out, CUdevice_P2PAttribute which, CUdevice from, CUdevice to)
{
	int can;
	TRY(cuDeviceCanAccessPeer(&can, from, to));
	if (!out || !can)
		return can ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
	*out = which == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? 0 : 1;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int *out, CUexecAffinityType type, CUdevice d)
{
	(void)type;
	TRY(enter_device(d));
	if (!out)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = 0;
	return leave(CUDA_SUCCESS);
}

/* What differs by model; -1: not one of these. */
static int of_model(const struct sim_info *i, CUdevice_attribute which)
{
	switch (which) {
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
		return (int)i->clock_khz;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return (int)i->multiprocessors;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return (int)i->pci_bus;
	case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
		return (int)i->memory_clock_khz;
	case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
		return (int)i->bus_bits;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
		return (int)i->l2_bytes;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		return (int)i->threads_per_sm;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return (int)i->major;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		return (int)i->minor;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
		return (int)i->shared_per_sm;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		return (int)i->shared_optin;
	case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK:
		return i->unpack_bps ? CU_MEM_DECOMPRESS_ALGORITHM_LZ4 : CU_MEM_DECOMPRESS_UNSUPPORTED;
	case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH:
		return i->unpack_bps ? 1 << 24 : 0;
	case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
		return i->major >= 9;
	case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE:
		return i->major >= 8 ? (int)(i->l2_bytes / 4 * 3) : 0;
	default:
		return -1;
	}
}

/* What is the same on all; what is missing here is 0, which for these attributes means that the device does not have it. */
static const struct {
	CUdevice_attribute which;
	int value;
} common[] = {
	{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
	{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
	{CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
	{CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
	{CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0x7fffffff},
	{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
	{CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
	{CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
	{CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
	{CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
	{CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
	{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
	{CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
	{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
	{CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
	{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
	{CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
	{CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
	{CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
	{CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 0},
	{CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
	{CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0},
};

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute which, CUdevice d)
{
	TRY(enter_device(d));
	if (!out || (int)which < 1 || (int)which > 145)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*out = of_model(&api.info[d], which);
	if (*out < 0) {
		*out = 0;
		for (size_t i = 0; i < sizeof common / sizeof *common; i++)
			if (common[i].which == which)
				*out = common[i].value;
	}
	return leave(CUDA_SUCCESS);
}

/* --------------------------------------------------------------------------------------------------------------- errors */

#define ERRORS(E)                                                                                     \
	E(CUDA_SUCCESS, "no error")                                                                   \
	E(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                               \
	E(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                  \
	E(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                         \
	E(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                           \
	E(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")                                   \
	E(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable")         \
	E(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                 \
	E(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                        \
	E(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                                 \
	E(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                       \
	E(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed")                                   \
	E(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed")                               \
	E(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped")                                       \
	E(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")   \
	E(CUDA_ERROR_NOT_MAPPED, "resource not mapped")                                               \
	E(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")                        \
	E(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture")                \
	E(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices") \
	E(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed")                                     \
	E(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "the provided execution affinity is not supported")   \
	E(CUDA_ERROR_FILE_NOT_FOUND, "file not found")                                                \
	E(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")        \
	E(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                       \
	E(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state")         \
	E(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                             \
	E(CUDA_ERROR_NOT_READY, "device not ready")                                                   \
	E(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                     \
	E(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")              \
	E(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                       \
	E(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")                   \
	E(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled")                     \
	E(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process")     \
	E(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                    \
	E(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped") \
	E(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region") \
	E(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                     \
	E(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch")           \
	E(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                                        \
	E(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                        \
	E(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination") \
	E(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")  \
	E(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture") \
	E(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences") \
	E(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began") \
	E(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work")                   \
	E(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream") \
	E(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream") \
	E(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream") \
	E(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread") \
	E(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph update was not performed because it included changes which violated constraints") \
	E(CUDA_ERROR_UNKNOWN, "unknown error")

CUresult cuGetErrorName(CUresult error, const char **out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	switch (error) {
#define E(code, text) case code: *out = #code; return CUDA_SUCCESS;
		ERRORS(E)
#undef E
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuGetErrorString(CUresult error, const char **out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	switch (error) {
#define E(code, text) case code: *out = text; return CUDA_SUCCESS;
		ERRORS(E)
#undef E
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
