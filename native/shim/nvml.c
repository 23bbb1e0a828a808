/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml.c: libnvidia-ml.so.1 as tenants see it: their devices in the order of their grants, the memory of their share, their own
 * processes. It reads the task's pages and registers nothing; whatever it does not stand in for is the driver's, found by the dynamic
 * linker.
 */
#include "nvml_types.h"
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
		nvml_return(*call) types = REAL_TYPED(name, types);                                                                \
		call == NULL ? NVML_FUNCTION_NOT_FOUND : call(__VA_ARGS__);                                                        \
	})
#define REAL_TYPED(name, types)                                                                                                    \
	({                                                                                                                         \
		static nvml_return(*real) types;                                                                                   \
		covered();                                                                                                         \
		if (get_acquire(&real) == NULL && library != NULL)                                                                 \
			put_release(&real, (nvml_return(*) types)dlsym(library, name));                                            \
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
static int grant_of(nvml_device device)
{
	char uuid[ALQ_UUID_LEN] = "";
	if (CALL("nvmlDeviceGetUUID", (nvml_device, char *, unsigned int), device, uuid, sizeof(uuid)) != NVML_OK)
		return -1;
	return grant_of_uuid(uuid);
}

static nvml_return count(unsigned int *n, const char *name)
{
	if (get_acquire(&task.state) == SHIM_FAILED)
		return NVML_UNKNOWN;
	if (!covered())
		return CALL(name, (unsigned int *), n);
	if (n == NULL)
		return NVML_INVALID_ARGUMENT;
	nvml_return r = CALL("nvmlDeviceGetCount_v2", (unsigned int *), n);
	if (r == NVML_OK)
		*n = task.grants;
	return r;
}

EXPORT nvml_return nvmlDeviceGetCount(unsigned int *n)
{
	return count(n, "nvmlDeviceGetCount");
}

EXPORT nvml_return nvmlDeviceGetCount_v2(unsigned int *n)
{
	return count(n, "nvmlDeviceGetCount_v2");
}

static nvml_return by_index(unsigned int index, nvml_device *device)
{
	if (index >= task.grants)
		return NVML_INVALID_ARGUMENT;
	return CALL("nvmlDeviceGetHandleByUUID", (const char *, nvml_device *), task.ctl->grant[index].device, device);
}

EXPORT nvml_return nvmlDeviceGetHandleByIndex(unsigned int index, nvml_device *device)
{
	if (!covered())
		return CALL("nvmlDeviceGetHandleByIndex", (unsigned int, nvml_device *), index, device);
	return by_index(index, device);
}

EXPORT nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvml_device *device)
{
	if (!covered())
		return CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned int, nvml_device *), index, device);
	return by_index(index, device);
}

/* A device that was found, if it is one of ours. */
static nvml_return only_ours(nvml_return r, nvml_device *device)
{
	if (r == NVML_OK && covered() && grant_of(*device) < 0) {
		*device = NULL;
		return NVML_NOT_FOUND;
	}
	return r;
}

#define HANDLE_BY(name)                                                                                                            \
	EXPORT nvml_return name(const char *key, nvml_device *device)                                                              \
	{                                                                                                                          \
		return only_ours(CALL(#name, (const char *, nvml_device *), key, device), device);                                 \
	}
HANDLE_BY(nvmlDeviceGetHandleByUUID)
HANDLE_BY(nvmlDeviceGetHandleBySerial)
HANDLE_BY(nvmlDeviceGetHandleByPciBusId)
HANDLE_BY(nvmlDeviceGetHandleByPciBusId_v2)

EXPORT nvml_return nvmlDeviceGetIndex(nvml_device device, unsigned int *index)
{
	nvml_return r = CALL("nvmlDeviceGetIndex", (nvml_device, unsigned int *), device, index);
	int grant = r == NVML_OK && covered() ? grant_of(device) : -1;
	if (grant >= 0)
		*index = (unsigned int)grant;
	return r;
}

/* -------------------------------------------------------------------------------------------------------------- memory */

EXPORT nvml_return nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory)
{
	nvml_return r = CALL("nvmlDeviceGetMemoryInfo", (nvml_device, struct nvml_memory *), device, memory);
	int grant = r == NVML_OK && covered() ? grant_of(device) : -1;
	uint64_t could, total;
	if (grant < 0)
		return r;
	memory_view((uint32_t)grant, &could, &total);
	memory->total = total < memory->total ? total : memory->total;
	memory->free = could < memory->free ? could : memory->free;
	memory->used = memory->total - memory->free;
	return r;
}

EXPORT nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory)
{
	nvml_return r = CALL("nvmlDeviceGetMemoryInfo_v2", (nvml_device, struct nvml_memory_v2 *), device, memory);
	int grant = r == NVML_OK && covered() ? grant_of(device) : -1;
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
	EXPORT nvml_return name(nvml_device device, unsigned int *n, entry *out)                                                   \
	{                                                                                                                          \
		if (!covered() || n == NULL)                                                                                       \
			return CALL(#name, (nvml_device, unsigned int *, entry *), device, n, out);                                \
		int grant = grant_of(device);                                                                                      \
		entry all[PROCESSES];                                                                                              \
		unsigned int room = out == NULL ? 0 : *n, found = PROCESSES, ours = 0;                                             \
		nvml_return r = CALL(#name, (nvml_device, unsigned int *, entry *), device, &found, all);                          \
		if (r != NVML_OK)                                                                                                  \
			return r;                                                                                                  \
		for (unsigned int i = 0; i < found; i++) {                                                                         \
			const struct alq_slot *s = slot_of(all[i].pid);                                                            \
			if (s == NULL)                                                                                             \
				continue;                                                                                          \
			if (grant >= 0)                                                                                            \
				all[i].used = get(&s->grant[grant].mem_used) + get(&s->grant[grant].mem_overhead);                 \
			if (ours < room)                                                                                           \
				out[ours] = all[i];                                                                                \
			ours++;                                                                                                    \
		}                                                                                                                  \
		*n = ours;                                                                                                         \
		return ours > room ? NVML_INSUFFICIENT_SIZE : NVML_OK;                                                             \
	}
LIST(nvmlDeviceGetComputeRunningProcesses, struct nvml_process_v1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, struct nvml_process)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, struct nvml_process)
LIST(nvmlDeviceGetGraphicsRunningProcesses, struct nvml_process_v1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, struct nvml_process)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, struct nvml_process)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, struct nvml_process_v1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, struct nvml_process)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, struct nvml_process)

EXPORT nvml_return nvmlDeviceGetProcessUtilization(nvml_device device, struct nvml_utilization *out, unsigned int *n, unsigned long long since)
{
	nvml_return r = CALL("nvmlDeviceGetProcessUtilization",
			     (nvml_device, struct nvml_utilization *, unsigned int *, unsigned long long), device, out, n, since);
	unsigned int ours = 0;
	if (r != NVML_OK || !covered() || out == NULL)
		return r;
	for (unsigned int i = 0; i < *n; i++) {
		if (slot_of(out[i].pid) != NULL)
			out[ours++] = out[i];
	}
	*n = ours;
	return ours == 0 ? NVML_NOT_FOUND : r;
}
