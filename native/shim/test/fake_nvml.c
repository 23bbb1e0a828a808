/* SPDX-License-Identifier: Apache-2.0 */
/* fake_nvml.c: an NVML with four devices and three processes on each: pid 1, the caller, and pid 2. */
#include "nvml.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define DEVICES 4

static char devices[DEVICES];

/* The driver's, where the program has it. */
uint64_t fake_booked(void) __attribute__((weak));

static int index_of(nvmlDevice_t d)
{
	return (int)((char *)d - devices);
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n)
{
	*n = DEVICES;
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *text, unsigned int size)
{
	char byte[3];
	int n = snprintf(text, size, "GPU-");
	snprintf(byte, sizeof(byte), "%02x", 0x11 * (index_of(d) + 1));
	for (int i = 0; i < 16; i++)
		n += snprintf(text + n, size - (unsigned)n, "%s%s", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", byte);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
	for (int i = 0; i < DEVICES; i++) {
		char text[96];
		nvmlDeviceGetUUID((nvmlDevice_t)&devices[i], text, sizeof(text));
		if (strcmp(text, uuid) == 0) {
			*out = (nvmlDevice_t)&devices[i];
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t d, unsigned int *index)
{
	*index = (unsigned)index_of(d);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m)
{
	(void)d;
	*m = (nvmlMemory_t){.total = 64ull << 30, .free = 60ull << 30, .used = 4ull << 30};
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_t *out)
{
	(void)d;
	if (*n < 3) {
		*n = 3;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	*n = 3;
	out[0] = (nvmlProcessInfo_t){.pid = 1, .usedGpuMemory = 1 << 20};
	out[1] = (nvmlProcessInfo_t){.pid = (unsigned)getpid(), .usedGpuMemory = fake_booked == NULL ? 0 : fake_booked()};
	out[2] = (nvmlProcessInfo_t){.pid = 2, .usedGpuMemory = 1 << 20};
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t d, nvmlProcessDetailList_v1_t *list)
{
	nvmlProcessInfo_t all[3];
	unsigned int n = 3, room = list->numProcArrayEntries;
	nvmlReturn_t r = nvmlDeviceGetComputeRunningProcesses_v3(d, &n, all);
	list->numProcArrayEntries = n;
	for (unsigned int i = 0; i < n && i < room; i++)
		list->procArray[i] = (nvmlProcessDetail_v1_t){.pid = all[i].pid, .usedGpuMemory = all[i].usedGpuMemory};
	return room < n ? NVML_ERROR_INSUFFICIENT_SIZE : r;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t d, nvmlProcessesUtilizationInfo_v1_t *info)
{
	nvmlProcessInfo_t all[3];
	unsigned int n = 3, room = info->processSamplesCount;
	nvmlReturn_t r = nvmlDeviceGetComputeRunningProcesses_v3(d, &n, all);
	info->processSamplesCount = n;
	for (unsigned int i = 0; i < n && i < room; i++)
		info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){.pid = all[i].pid, .smUtil = 10 * (i + 1)};
	return room < n ? NVML_ERROR_INSUFFICIENT_SIZE : r;
}

/* Not known to the shim. */
EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned int size)
{
	snprintf(text, size, "560.00");
	return NVML_SUCCESS;
}
