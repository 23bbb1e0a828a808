/* SPDX-License-Identifier: Apache-2.0 */
/* Who uses a device, as the simulated libnvidia-ml tells it. */
#define _GNU_SOURCE
#include <time.h>

#include "simgpu/nvml/nvml_internal.h"

#define NO_INSTANCE 0xFFFFFFFFu

/* Calls each for every process on the device; *total becomes how many there are. */
static nvmlReturn_t each_process(nvmlDevice_t device, unsigned int *total, void (*each)(void *to, unsigned int i, const struct sim_proc *proc),
				 void *to, unsigned int room)
{
	struct sim_answer answer;
	nvmlReturn_t result = device_alive(device);
	unsigned int seen = 0;
	if (result != NVML_SUCCESS)
		return result;
	do {
		struct sim_request request = {.call = SIM_PROCESSES, .device = device->index, .arg = {seen}};
		result = ask(&request, &answer);
		if (result != NVML_SUCCESS)
			return result;
		for (unsigned int i = 0; i < SIM_PROC_MAX && seen < answer.value[0]; i++, seen++)
			if (seen < room)
				each(to, seen, &answer.proc[i]);
	} while (seen < answer.value[0]);
	*total = seen;
	return NVML_SUCCESS;
}

static nvmlReturn_t list(nvmlDevice_t device, unsigned int *count, void *infos,
			 void (*each)(void *to, unsigned int i, const struct sim_proc *proc))
{
	unsigned int total = 0;
	if (!count || (*count > 0 && !infos))
		return NVML_ERROR_INVALID_ARGUMENT;
	unsigned int room = *count;
	nvmlReturn_t result = each_process(device, &total, each, infos, room);
	if (result != NVML_SUCCESS)
		return result;
	*count = total;
	return total > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static void fill_v1(void *to, unsigned int i, const struct sim_proc *proc)
{
	((nvmlProcessInfo_v1_t *)to)[i] = (nvmlProcessInfo_v1_t){(unsigned int)proc->pid, proc->bytes};
}

static void fill(void *to, unsigned int i, const struct sim_proc *proc)
{
	((nvmlProcessInfo_t *)to)[i] = (nvmlProcessInfo_t){(unsigned int)proc->pid, proc->bytes, NO_INSTANCE, NO_INSTANCE};
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)
{
	return list(device, count, infos, fill_v1);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	return list(device, count, infos, fill);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	return list(device, count, infos, fill);
}

/* Nothing draws on these devices, and there is no MPS: known to be none. */
static nvmlReturn_t none(nvmlDevice_t device, unsigned int *count)
{
	nvmlReturn_t result = device_alive(device);
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (result == NVML_SUCCESS)
		*count = 0;
	return result;
}

#define NONE(name, type)                                                                 \
	EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, type *infos)  \
	{                                                                                \
		(void)infos;                                                             \
		return none(device, count);                                              \
	}

NONE(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
NONE(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

struct samples {
	nvmlProcessUtilizationSample_t *at;
	unsigned long long now_us;
};

static void fill_sample(void *to, unsigned int i, const struct sim_proc *proc)
{
	struct samples *s = to;
	s->at[i] = (nvmlProcessUtilizationSample_t){.pid = (unsigned int)proc->pid, .timeStamp = s->now_us, .smUtil = (proc->load + 5) / 10};
}

/* One sample a process: the second that ends now. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *at, unsigned int *count,
						    unsigned long long since)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	struct samples s = {at, (unsigned long long)t.tv_sec * 1000000 + (unsigned long long)t.tv_nsec / 1000};
	if (since > s.now_us)
		return NVML_ERROR_NOT_FOUND;
	if (count && !at)
		*count = 0;
	return list(device, count, &s, fill_sample);
}

static void fill_detail(void *to, unsigned int i, const struct sim_proc *proc)
{
	((nvmlProcessDetail_v1_t *)to)[i] = (nvmlProcessDetail_v1_t){(unsigned int)proc->pid, proc->bytes, NO_INSTANCE, NO_INSTANCE, 0};
}

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *of)
{
	if (!of)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (of->version != NVML_PROCESS_DETAIL_LIST_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (of->mode != NVML_PROCESS_MODE_COMPUTE)
		return none(device, &of->numProcArrayEntries);
	return list(device, &of->numProcArrayEntries, of->procArray, fill_detail);
}

struct used {
	nvmlProcessUtilizationInfo_v1_t *at;
	unsigned long long now_us;
};

static void fill_used(void *to, unsigned int i, const struct sim_proc *proc)
{
	struct used *u = to;
	u->at[i] = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = u->now_us, .pid = (unsigned int)proc->pid, .smUtil = (proc->load + 5) / 10};
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *info)
{
	struct timespec t;
	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (info->version != NVML_PROCESSES_UTILIZATION_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	clock_gettime(CLOCK_REALTIME, &t);
	struct used u = {info->procUtilArray, (unsigned long long)t.tv_sec * 1000000 + (unsigned long long)t.tv_nsec / 1000};
	if (info->lastSeenTimeStamp > u.now_us)
		return NVML_ERROR_NOT_FOUND;
	if (!info->procUtilArray)
		info->processSamplesCount = 0;
	return list(device, &info->processSamplesCount, &u, fill_used);
}
