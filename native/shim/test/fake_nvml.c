/* SPDX-License-Identifier: Apache-2.0 */
/* fake_nvml.c: an NVML with four devices and three processes on each: pid 1, the caller, and pid 2. */
#include "../nvml_types.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define DEVICES 4

static char devices[DEVICES];

static int index_of(nvml_device d)
{
	return (int)((char *)d - devices);
}

EXPORT nvml_return nvmlInit_v2(void)
{
	return NVML_OK;
}

EXPORT nvml_return nvmlDeviceGetCount_v2(unsigned int *n)
{
	*n = DEVICES;
	return NVML_OK;
}

EXPORT nvml_return nvmlDeviceGetUUID(nvml_device d, char *text, unsigned int size)
{
	char byte[3];
	int n = snprintf(text, size, "GPU-");
	snprintf(byte, sizeof(byte), "%02x", 0x11 * (index_of(d) + 1));
	for (int i = 0; i < 16; i++)
		n += snprintf(text + n, size - (unsigned)n, "%s%s", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", byte);
	return NVML_OK;
}

EXPORT nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *out)
{
	for (int i = 0; i < DEVICES; i++) {
		char text[96];
		nvmlDeviceGetUUID(&devices[i], text, sizeof(text));
		if (strcmp(text, uuid) == 0) {
			*out = &devices[i];
			return NVML_OK;
		}
	}
	return NVML_NOT_FOUND;
}

EXPORT nvml_return nvmlDeviceGetIndex(nvml_device d, unsigned int *index)
{
	*index = (unsigned)index_of(d);
	return NVML_OK;
}

EXPORT nvml_return nvmlDeviceGetMemoryInfo(nvml_device d, struct nvml_memory *m)
{
	(void)d;
	*m = (struct nvml_memory){.total = 64ull << 30, .free = 60ull << 30, .used = 4ull << 30};
	return NVML_OK;
}

EXPORT nvml_return nvmlDeviceGetComputeRunningProcesses_v3(nvml_device d, unsigned int *n, struct nvml_process *out)
{
	(void)d;
	if (*n < 3) {
		*n = 3;
		return NVML_INSUFFICIENT_SIZE;
	}
	*n = 3;
	out[0] = (struct nvml_process){.pid = 1, .used = 1 << 20};
	out[1] = (struct nvml_process){.pid = (unsigned)getpid(), .used = 0};
	out[2] = (struct nvml_process){.pid = 2, .used = 1 << 20};
	return NVML_OK;
}

/* Not known to the shim. */
EXPORT nvml_return nvmlSystemGetDriverVersion(char *text, unsigned int size)
{
	snprintf(text, size, "560.00");
	return NVML_OK;
}
