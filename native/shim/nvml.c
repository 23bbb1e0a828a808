/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml.c: libnvidia-ml.so.1 as tenants see it: their devices in the order of their grants, the memory of their share, their own
 * processes. It reads the task's pages and registers nothing; whatever it does not stand in for is the driver's, found by the dynamic
 * linker.
 */
#include "nvml.h"
#include "shim.h"

#include <dlfcn.h>
#include <string.h>
#include <strings.h>

#define PROCESSES 1024 /* of a device, all tasks together */

static struct lock starting;
static void *library;

/* Opened once; a page that cannot be read is told by the functions, as "not supported" would hide it. */
static bool covered(void)
{
	enum shim_state state = (enum shim_state)get_acquire(&task.state);
	if (state == SHIM_NEW) {
		lock_take(&starting);
		if (get_acquire(&task.state) == SHIM_NEW) {
			library = dlopen("libnvidia-ml-real.so.1", RTLD_NOLOAD | RTLD_LAZY);
			put_release(&task.state, (int)task_open(false));
		}
		lock_give(&starting);
	}
	return get_acquire(&task.state) == SHIM_ON;
}

/* Calls the driver's function of that name, looked up once, or says that this driver has none. */
#define CALL(name, types, ...)                                                                                                     \
	({                                                                                                                         \
		nvmlReturn_t(*call) types = REAL_TYPED(name, types);                                                                \
		call == NULL ? NVML_ERROR_FUNCTION_NOT_FOUND : call(__VA_ARGS__);                                                        \
	})
#define REAL_TYPED(name, types)                                                                                                    \
	({                                                                                                                         \
		static nvmlReturn_t(*real) types;                                                                                   \
		covered();                                                                                                         \
		if (get_acquire(&real) == NULL && library != NULL)                                                                 \
			put_release(&real, (nvmlReturn_t(*) types)dlsym(library, name));                                            \
		get_acquire(&real);                                                                                                \
	})

/* ------------------------------------------------------------------------------------------------------------- devices */

static int grant_of_uuid(const char *uuid)
{
	for (uint32_t g = 0; g < task.grants; g++) {
		if (strcasecmp(task.ctl->grant[g].device, uuid) == 0)
			return (int)g;
	}
	return -1;
}

/* The grant of a device; -1: none of ours. */
static int grant_of(nvmlDevice_t device)
{
	char uuid[ALQ_UUID_LEN] = "";
	if (CALL("nvmlDeviceGetUUID", (nvmlDevice_t, char *, unsigned int), device, uuid, sizeof(uuid)) != NVML_SUCCESS)
		return -1;
	return grant_of_uuid(uuid);
}

static nvmlReturn_t count(unsigned int *n, const char *name)
{
	if (get_acquire(&task.state) == SHIM_FAILED)
		return NVML_ERROR_UNKNOWN;
	if (!covered())
		return CALL(name, (unsigned int *), n);
	if (n == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = CALL("nvmlDeviceGetCount_v2", (unsigned int *), n);
	if (r == NVML_SUCCESS)
		*n = task.grants;
	return r;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *n)
{
	return count(n, "nvmlDeviceGetCount");
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n)
{
	return count(n, "nvmlDeviceGetCount_v2");
}

static nvmlReturn_t by_index(unsigned int index, nvmlDevice_t *device)
{
	if (index >= task.grants)
		return NVML_ERROR_INVALID_ARGUMENT;
	return CALL("nvmlDeviceGetHandleByUUID", (const char *, nvmlDevice_t *), task.ctl->grant[index].device, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	if (!covered())
		return CALL("nvmlDeviceGetHandleByIndex", (unsigned int, nvmlDevice_t *), index, device);
	return by_index(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	if (!covered())
		return CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned int, nvmlDevice_t *), index, device);
	return by_index(index, device);
}

/* A device that was found, if it is one of ours. */
static nvmlReturn_t only_ours(nvmlReturn_t r, nvmlDevice_t *device)
{
	if (r == NVML_SUCCESS && covered() && grant_of(*device) < 0) {
		*device = NULL;
		return NVML_ERROR_NOT_FOUND;
	}
	return r;
}

#define HANDLE_BY(name)                                                                                                            \
	EXPORT nvmlReturn_t name(const char *key, nvmlDevice_t *device)                                                              \
	{                                                                                                                          \
		return only_ours(CALL(#name, (const char *, nvmlDevice_t *), key, device), device);                                 \
	}
HANDLE_BY(nvmlDeviceGetHandleByUUID)
HANDLE_BY(nvmlDeviceGetHandleBySerial)
HANDLE_BY(nvmlDeviceGetHandleByPciBusId)
HANDLE_BY(nvmlDeviceGetHandleByPciBusId_v2)

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	nvmlReturn_t r = CALL("nvmlDeviceGetIndex", (nvmlDevice_t, unsigned int *), device, index);
	int grant = r == NVML_SUCCESS && covered() ? grant_of(device) : -1;
	if (grant >= 0)
		*index = (unsigned int)grant;
	return r;
}

/* -------------------------------------------------------------------------------------------------------------- memory */

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlReturn_t r = CALL("nvmlDeviceGetMemoryInfo", (nvmlDevice_t, nvmlMemory_t *), device, memory);
	int grant = r == NVML_SUCCESS && covered() ? grant_of(device) : -1;
	uint64_t could, total;
	if (grant < 0)
		return r;
	memory_view((uint32_t)grant, &could, &total);
	memory->total = total < memory->total ? total : memory->total;
	memory->free = could < memory->free ? could : memory->free;
	memory->used = memory->total - memory->free;
	return r;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlReturn_t r = CALL("nvmlDeviceGetMemoryInfo_v2", (nvmlDevice_t, nvmlMemory_v2_t *), device, memory);
	int grant = r == NVML_SUCCESS && covered() ? grant_of(device) : -1;
	uint64_t could, total;
	if (grant < 0)
		return r;
	memory_view((uint32_t)grant, &could, &total);
	memory->total = total < memory->total ? total : memory->total;
	memory->free = could < memory->free ? could : memory->free;
	memory->reserved = 0; /* what the driver keeps for itself is outside of every share */
	memory->used = memory->total - memory->free;
	return r;
}

/* ----------------------------------------------------------------------------------------------------------- processes */

/* The slot of a process of this task, by its pid on the node, which is what NVML tells; NULL: another's. */
static const struct alq_slot *slot_of(unsigned int pid)
{
	for (int i = 0; i < ALQ_MAX_PROCS; i++) {
		const struct alq_slot *s = &task.tel->slot[i];
		if (get_acquire(&s->state) == ALQ_SLOT_LIVE && (unsigned int)get(&s->pid) == pid)
			return s;
	}
	return NULL;
}

/*
 * Reads all the driver's entries, keeps those of our own processes, and hands out as many as there is room for, as the driver
 * would: *n is how many there are, and too little room is an error.
 */
#define LIST(name, entry)                                                                                                          \
	EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *n, entry *out)                                                   \
	{                                                                                                                          \
		if (!covered() || n == NULL)                                                                                       \
			return CALL(#name, (nvmlDevice_t, unsigned int *, entry *), device, n, out);                                \
		int grant = grant_of(device);                                                                                      \
		entry all[PROCESSES];                                                                                              \
		unsigned int room = out == NULL ? 0 : *n, found = PROCESSES, ours = 0;                                             \
		nvmlReturn_t r = CALL(#name, (nvmlDevice_t, unsigned int *, entry *), device, &found, all);                          \
		if (r != NVML_SUCCESS)                                                                                                  \
			return r;                                                                                                  \
		for (unsigned int i = 0; i < found; i++) {                                                                         \
			const struct alq_slot *s = slot_of(all[i].pid);                                                            \
			if (s == NULL)                                                                                             \
				continue;                                                                                          \
			if (grant >= 0)                                                                                            \
				all[i].usedGpuMemory = get(&s->grant[grant].mem_used) + get(&s->grant[grant].mem_overhead);                 \
			if (ours < room)                                                                                           \
				out[ours] = all[i];                                                                                \
			ours++;                                                                                                    \
		}                                                                                                                  \
		*n = ours;                                                                                                         \
		return ours > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;                                                             \
	}
LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned int *n, unsigned long long since)
{
	nvmlReturn_t r = CALL("nvmlDeviceGetProcessUtilization",
			     (nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned int *, unsigned long long), device, out, n, since);
	unsigned int ours = 0;
	if (r != NVML_SUCCESS || !covered() || out == NULL)
		return r;
	for (unsigned int i = 0; i < *n; i++) {
		if (slot_of(out[i].pid) != NULL)
			out[ours++] = out[i];
	}
	*n = ours;
	return ours == 0 ? NVML_ERROR_NOT_FOUND : r;
}

/* The same in structs with a version. One that is not known is not passed on: it would show everybody's. */
EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *list)
{
	if (!covered() || list == NULL)
		return CALL("nvmlDeviceGetRunningProcessDetailList", (nvmlDevice_t, nvmlProcessDetailList_v1_t *), device, list);
	if (list->version != NVML_PROCESS_DETAIL_LIST_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	int grant = grant_of(device);
	nvmlProcessDetail_v1_t all[PROCESSES];
	nvmlProcessDetailList_v1_t found = {.version = list->version, .mode = list->mode, .numProcArrayEntries = PROCESSES, .procArray = all};
	nvmlReturn_t r = CALL("nvmlDeviceGetRunningProcessDetailList", (nvmlDevice_t, nvmlProcessDetailList_v1_t *), device, &found);
	if (r != NVML_SUCCESS)
		return r;
	unsigned int room = list->procArray == NULL ? 0 : list->numProcArrayEntries, ours = 0;
	for (unsigned int i = 0; i < found.numProcArrayEntries; i++) {
		const struct alq_slot *s = slot_of(all[i].pid);
		if (s == NULL)
			continue;
		if (grant >= 0)
			all[i].usedGpuMemory = get(&s->grant[grant].mem_used) + get(&s->grant[grant].mem_overhead);
		if (ours < room)
			list->procArray[ours] = all[i];
		ours++;
	}
	list->numProcArrayEntries = ours;
	return ours > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *info)
{
	if (!covered() || info == NULL)
		return CALL("nvmlDeviceGetProcessesUtilizationInfo", (nvmlDevice_t, nvmlProcessesUtilizationInfo_v1_t *), device, info);
	if (info->version != NVML_PROCESSES_UTILIZATION_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	nvmlProcessUtilizationInfo_v1_t all[PROCESSES];
	nvmlProcessesUtilizationInfo_v1_t found = *info;
	found.processSamplesCount = PROCESSES;
	found.procUtilArray = all;
	nvmlReturn_t r = CALL("nvmlDeviceGetProcessesUtilizationInfo", (nvmlDevice_t, nvmlProcessesUtilizationInfo_v1_t *), device, &found);
	if (r != NVML_SUCCESS)
		return r;
	unsigned int room = info->procUtilArray == NULL ? 0 : info->processSamplesCount, ours = 0;
	for (unsigned int i = 0; i < found.processSamplesCount; i++) {
		if (slot_of(all[i].pid) == NULL)
			continue;
		if (ours < room)
			info->procUtilArray[ours] = all[i];
		ours++;
	}
	info->processSamplesCount = ours;
	return ours > room ? NVML_ERROR_INSUFFICIENT_SIZE : ours == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}
