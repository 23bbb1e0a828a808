/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for events of the simulated devices. An event set has a connection of its own, on which notices come as they happen. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/socket.h>

#include "simgpu/nvml/nvml_internal.h"
#include "simgpu/wire.h"

#define PENDING 64 /* notices that came while a registration waited for its answer */

struct nvmlEventSet_st {
	int socket;
	unsigned int first, count;
	struct sim_notice pending[PENDING];
};

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	char path[4096];
	unsigned int devices;
	nvmlReturn_t result = nvmlDeviceGetCount_v2(&devices);
	if (result != NVML_SUCCESS)
		return result;
	struct nvmlEventSet_st *s = calloc(1, sizeof *s);
	if (!set || !s) {
		free(s);
		return set ? NVML_ERROR_MEMORY : NVML_ERROR_INVALID_ARGUMENT;
	}
	s->socket = library_path(path, sizeof path) < 0 ? -1 : wire_connect(path);
	if (s->socket < 0) {
		free(s);
		return NVML_ERROR_GPU_IS_LOST;
	}
	*set = s;
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	close(set->socket);
	free(set);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	nvmlReturn_t result = device_alive(device);
	if (result != NVML_SUCCESS)
		return result;
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (types & ~NVML_EVENT_XID_CRITICAL_ERROR)
		return NVML_ERROR_NOT_SUPPORTED;
	struct sim_request request = {.call = SIM_LISTEN, .device = device->index, .arg = {types}};
	if (send(set->socket, &request, sizeof request, MSG_NOSIGNAL) != sizeof request)
		return NVML_ERROR_GPU_IS_LOST;
	for (;;) {
		union {
			struct sim_answer answer;
			struct sim_notice notice;
		} got;
		ssize_t n = recv(set->socket, &got, sizeof got, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == sizeof got.answer)
			return got.answer.status == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
		if (n != sizeof got.notice)
			return NVML_ERROR_GPU_IS_LOST;
		if (set->count < PENDING)
			set->pending[(set->first + set->count++) % PENDING] = got.notice;
	}
}

static long long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static nvmlReturn_t next_notice(nvmlEventSet_t set, struct sim_notice *notice, unsigned int timeout_ms)
{
	if (set->count > 0) {
		*notice = set->pending[set->first];
		set->first = (set->first + 1) % PENDING;
		set->count--;
		return NVML_SUCCESS;
	}
	long long deadline = now_ms() + timeout_ms;
	for (;;) {
		long long left = deadline - now_ms();
		struct pollfd p = {.fd = set->socket, .events = POLLIN};
		int n = poll(&p, 1, left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return NVML_ERROR_OPERATING_SYSTEM;
		if (n == 0 && now_ms() >= deadline)
			return NVML_ERROR_TIMEOUT;
		if (n == 0)
			continue;
		ssize_t got = recv(set->socket, notice, sizeof *notice, 0);
		if (got == sizeof *notice)
			return NVML_SUCCESS;
		if (!(got < 0 && errno == EINTR))
			return NVML_ERROR_GPU_IS_LOST; /* the server is gone, and the devices with it */
	}
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	struct sim_notice notice;
	if (!set || !data)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t result = next_notice(set, &notice, timeout_ms);
	if (result == NVML_SUCCESS)
		*data = (nvmlEventData_t){library_device(notice.device), notice.type, notice.data, 0xFFFFFFFFu, 0xFFFFFFFFu};
	return result;
}

EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_v1_t *data, unsigned int timeout_ms)
{
	nvmlEventData_t full;
	if (!data)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t result = nvmlEventSetWait_v2(set, &full, timeout_ms);
	if (result == NVML_SUCCESS)
		*data = (nvmlEventData_v1_t){full.device, full.eventType, full.eventData};
	return result;
}
