/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulated devices are and how they are, asked of the server at each call, so that nothing here can be out of date. What
 * the model does not have (temperature, power drawn, fans) is not supported: never zero for unknown.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "nvml.h"
#include "simgpu/nvml/nvml_internal.h"

/* What a device is; NVML_ERROR_GPU_IS_LOST once it has fallen off the bus. */
static nvmlReturn_t info_of(nvmlDevice_t device, struct sim_answer *answer)
{
	nvmlReturn_t result = check_device(device);
	if (result != NVML_SUCCESS)
		return result;
	struct sim_request request = {.call = SIM_DEVICE, .device = device->index};
	result = ask(&request, answer);
	return result == NVML_SUCCESS && answer->value[0] ? NVML_ERROR_GPU_IS_LOST : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	struct sim_answer answer;
	unsigned int count;
	nvmlReturn_t result = nvmlDeviceGetCount_v2(&count);
	if (result != NVML_SUCCESS)
		return result;
	if (!device || index >= count)
		return NVML_ERROR_INVALID_ARGUMENT;
	result = info_of(library_device(index), &answer);
	if (result == NVML_SUCCESS)
		*device = library_device(index);
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static void pci_of(const struct sim_info *info, nvmlPciInfo_t *pci)
{
	memset(pci, 0, sizeof *pci);
	pci->bus = info->pci_bus;
	pci->pciDeviceId = info->pci_device_id;
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04x:%02X:00.0", 0u, info->pci_bus);
	snprintf(pci->busId, sizeof pci->busId, "%08x:%02X:00.0", 0u, info->pci_bus);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	struct sim_answer answer;
	unsigned int count;
	nvmlReturn_t result = nvmlDeviceGetCount_v2(&count);
	if (result != NVML_SUCCESS)
		return result;
	if (!uuid || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < count; i++) {
		result = info_of(library_device(i), &answer);
		if ((result == NVML_SUCCESS || result == NVML_ERROR_GPU_IS_LOST) && strcmp(answer.info.uuid, uuid) == 0) {
			*device = library_device(i);
			return result;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
	struct sim_answer answer;
	unsigned int count, domain, number, slot, function = 0;
	nvmlReturn_t result = nvmlDeviceGetCount_v2(&count);
	if (result != NVML_SUCCESS)
		return result;
	if (!bus || !device || sscanf(bus, "%x:%x:%x.%x", &domain, &number, &slot, &function) < 3)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < count && domain == 0 && slot == 0 && function == 0; i++) {
		result = info_of(library_device(i), &answer);
		if (result == NVML_SUCCESS && answer.info.pci_bus == number) {
			*device = library_device(i);
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(bus, device);
}

/* Asks what the device is and hands one of its figures out. */
#define FIGURE(name, type, expression)                                   \
	EXPORT nvmlReturn_t name(nvmlDevice_t device, type *figure)      \
	{                                                                \
		struct sim_answer answer;                                \
		if (!figure)                                             \
			return NVML_ERROR_INVALID_ARGUMENT;              \
		nvmlReturn_t result = info_of(device, &answer);          \
		if (result == NVML_SUCCESS)                              \
			*figure = (type)(expression);                    \
		return result;                                           \
	}

FIGURE(nvmlDeviceGetIndex, unsigned int, device->index)
FIGURE(nvmlDeviceGetMinorNumber, unsigned int, device->index)
FIGURE(nvmlDeviceGetBrand, nvmlBrandType_t, answer.info.brand)
FIGURE(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, answer.info.architecture)
FIGURE(nvmlDeviceGetComputeMode, nvmlComputeMode_t, NVML_COMPUTEMODE_DEFAULT)
FIGURE(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
FIGURE(nvmlDeviceIsMigDeviceHandle, unsigned int, 0)
FIGURE(nvmlDeviceGetMultiGpuBoard, unsigned int, 0)
FIGURE(nvmlDeviceGetEnforcedPowerLimit, unsigned int, answer.info.power_limit_mw)
FIGURE(nvmlDeviceGetPowerManagementLimit, unsigned int, answer.info.power_limit_mw)
FIGURE(nvmlDeviceGetSupportedEventTypes, unsigned long long, NVML_EVENT_XID_CRITICAL_ERROR)

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	struct sim_answer answer;
	nvmlReturn_t result = info_of(device, &answer);
	return result == NVML_SUCCESS ? copy_text(uuid, length, answer.info.uuid) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	struct sim_answer answer;
	nvmlReturn_t result = info_of(device, &answer);
	return result == NVML_SUCCESS ? copy_text(name, length, answer.info.name) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	struct sim_answer answer;
	nvmlReturn_t result = info_of(device, &answer);
	if (!major || !minor)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (result == NVML_SUCCESS) {
		*major = (int)answer.info.major;
		*minor = (int)answer.info.minor;
	}
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	struct sim_answer answer;
	nvmlReturn_t result = info_of(device, &answer);
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (result == NVML_SUCCESS)
		pci_of(&answer.info, pci);
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
	struct sim_answer answer;
	nvmlReturn_t result = info_of(device, &answer);
	if (!mhz)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (result != NVML_SUCCESS)
		return result;
	if (type != NVML_CLOCK_GRAPHICS && type != NVML_CLOCK_SM && type != NVML_CLOCK_MEM)
		return NVML_ERROR_NOT_SUPPORTED;
	*mhz = (type == NVML_CLOCK_MEM ? answer.info.memory_clock_khz : answer.info.clock_khz) / 1000;
	return NVML_SUCCESS;
}

/* All can reach each other's memory, as the driver says, over the bus where they are not linked. */
EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t of, nvmlGpuP2PStatus_t *status)
{
	struct sim_answer one, two;
	if (!status || device == other || (unsigned int)of >= NVML_P2P_CAPS_INDEX_UNKNOWN)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t result = info_of(device, &one);
	if (result == NVML_SUCCESS)
		result = info_of(other, &two);
	if (result == NVML_SUCCESS)
		*status = of != NVML_P2P_CAPS_INDEX_NVLINK || (one.value[1] && one.value[1] == two.value[1]) ? NVML_P2P_STATUS_OK
													      : NVML_P2P_STATUS_NOT_SUPPORTED;
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size, unsigned long *nodes, nvmlAffinityScope_t scope)
{
	struct sim_answer answer;
	if (!nodes || !size || scope > NVML_AFFINITY_SCOPE_SOCKET)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t result = info_of(device, &answer);
	if (result != NVML_SUCCESS)
		return result;
	uint64_t node = answer.value[2] - 1, bits = 8 * sizeof *nodes;
	if (!answer.value[2] || node / bits >= size)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(nodes, 0, size * sizeof *nodes);
	nodes[node / bits] = 1ul << node % bits;
	return NVML_SUCCESS;
}

/* The simulated devices have no partitions. */
EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	(void)current;
	(void)pending;
	struct sim_answer answer;
	nvmlReturn_t result = info_of(device, &answer);
	return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result;
}

FIGURE(nvmlDeviceGetMaxMigDeviceCount, unsigned int, 0)

/* ------------------------------------------------------------------------------------------------------- how they are now */

static nvmlReturn_t memory_of(nvmlDevice_t device, struct sim_answer *answer)
{
	nvmlReturn_t result = check_device(device);
	if (result != NVML_SUCCESS)
		return result;
	struct sim_request request = {.call = SIM_MEMORY, .device = device->index};
	result = ask(&request, answer);
	return result == NVML_SUCCESS && answer->value[3] ? NVML_ERROR_GPU_IS_LOST : result;
}

/* The first version counts what the driver keeps as used, the second apart. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct sim_answer a;
	nvmlReturn_t result = memory_of(device, &a);
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (result == NVML_SUCCESS)
		*memory = (nvmlMemory_t){a.value[0] + a.value[2], a.value[1], a.value[0] + a.value[2] - a.value[1]};
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct sim_answer a;
	nvmlReturn_t result = memory_of(device, &a);
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memory->version != NVML_MEMORY_V2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (result == NVML_SUCCESS) {
		memory->total = a.value[0] + a.value[2];
		memory->reserved = a.value[2];
		memory->free = a.value[1];
		memory->used = a.value[0] - a.value[1];
	}
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	struct sim_answer answer;
	nvmlReturn_t result = check_device(device);
	if (result != NVML_SUCCESS)
		return result;
	if (!utilization)
		return NVML_ERROR_INVALID_ARGUMENT;
	struct sim_request request = {.call = SIM_LOAD, .device = device->index};
	result = ask(&request, &answer);
	if (result != NVML_SUCCESS)
		return result;
	if (answer.value[2])
		return NVML_ERROR_GPU_IS_LOST;
	utilization->gpu = (unsigned int)(answer.value[0] + 5) / 10;
	utilization->memory = (unsigned int)(answer.value[1] + 5) / 10;
	return NVML_SUCCESS;
}

nvmlReturn_t device_alive(nvmlDevice_t device)
{
	struct sim_answer answer;
	return info_of(device, &answer);
}

/* Older names for the same thing. */
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }
