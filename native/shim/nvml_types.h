/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_types.h: the few types and values of NVML that the shim uses, as the library lays them out. */
#ifndef ALIQUOT_SHIM_NVML_TYPES_H
#define ALIQUOT_SHIM_NVML_TYPES_H

#include <stdint.h>

typedef int nvml_return;
typedef void *nvml_device;

enum {
	NVML_OK = 0,
	NVML_INVALID_ARGUMENT = 2,
	NVML_NOT_SUPPORTED = 3,
	NVML_NOT_FOUND = 6,
	NVML_INSUFFICIENT_SIZE = 7,
	NVML_FUNCTION_NOT_FOUND = 13,
	NVML_UNKNOWN = 999,
};

#define NVML_UNKNOWN_BYTES UINT64_MAX

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

struct nvml_process_v1 {
	unsigned int pid;
	unsigned long long used;
};

struct nvml_process { /* v2 and v3 */
	unsigned int pid;
	unsigned long long used;
	unsigned int gpu_instance, compute_instance;
};

struct nvml_utilization { /* of one process */
	unsigned int pid;
	unsigned long long timestamp;
	unsigned int sm, memory, encoder, decoder;
};

#endif
