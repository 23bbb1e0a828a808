/* SPDX-License-Identifier: Apache-2.0 */
/* overhead.c: what this process holds on a device by the driver's own books, through the driver's NVML. */
#include "shim.h"
#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static struct {
	bool tried, there;
	nvmlReturn_t (*by_uuid)(const char *, nvmlDevice_t *);
	nvmlReturn_t (*processes)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *);
} nvml;

/*
 * The driver's NVML calls itself libnvidia-ml.so.1 whatever file it is in. Were it loaded first, a program that opens that name later would get it,
 * and see the machine instead of its share: so ours comes first and stays. It lies beside this library, also where the program found that by
 * a path of its own; else it has its name.
 */
static void ours_first(void)
{
	Dl_info self;
	char path[PATH_MAX];
	const char *slash = dladdr(&nvml, &self) != 0 ? strrchr(self.dli_fname, '/') : NULL;
	if (slash != NULL) {
		int size = snprintf(path, sizeof(path), "%.*s/libnvidia-ml.so.1", (int)(slash - self.dli_fname), self.dli_fname);
		if (size < (int)sizeof(path) && dlopen(path, RTLD_LAZY | RTLD_LOCAL) != NULL)
			return;
	}
	(void)dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
}

static bool nvml_load(void)
{
	if (nvml.tried)
		return nvml.there;
	nvml.tried = true;
	ours_first();
	void *library = dlopen("libnvidia-ml-real.so.1", RTLD_LAZY | RTLD_LOCAL);
	if (library == NULL)
		return false;
	nvmlReturn_t (*init)(void) = (nvmlReturn_t(*)(void))dlsym(library, "nvmlInit_v2");
	nvml.by_uuid = (__typeof__(nvml.by_uuid))dlsym(library, "nvmlDeviceGetHandleByUUID");
	nvml.processes = (__typeof__(nvml.processes))dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
	if (nvml.processes == NULL)
		nvml.processes = (__typeof__(nvml.processes))dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v2");
	nvml.there = init != NULL && nvml.by_uuid != NULL && nvml.processes != NULL && init() == NVML_SUCCESS;
	return nvml.there;
}

bool overhead_read(uint32_t grant, uint64_t *bytes)
{
	nvmlProcessInfo_t list[256];
	unsigned int count = sizeof(list) / sizeof(list[0]);
	nvmlDevice_t device;
	unsigned int pid = (unsigned int)get(&task.tel->slot[get(&task.slot)].pid);
	*bytes = 0;
	if (!nvml_load() || nvml.by_uuid(task.ctl->grant[grant].device, &device) != NVML_SUCCESS ||
	    nvml.processes(device, &count, list) != NVML_SUCCESS)
		return false;
	for (unsigned int i = 0; i < count; i++) {
		if (list[i].pid == pid && list[i].usedGpuMemory != (unsigned long long)NVML_VALUE_NOT_AVAILABLE)
			*bytes = list[i].usedGpuMemory;
		else if (list[i].pid == pid)
			return false;
	}
	return true; /* not in the list: it holds nothing there */
}
