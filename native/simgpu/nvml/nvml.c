/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated libnvidia-ml.so.1 itself: its line to the server, who uses it, its errors and versions, how many devices there are. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"
#include "nvml.h"
#include "simgpu/nvml/nvml_internal.h"
#include "simgpu/wire.h"

static struct {
	pthread_mutex_t lock;
	int users;  /* nvmlInit less nvmlShutdown */
	pid_t pid;  /* that connected: a forked child connects anew */
	int socket;
	unsigned int devices;
	struct nvmlDevice_st device[SIM_MAX_DEVICES];
} library = {.lock = PTHREAD_MUTEX_INITIALIZER, .socket = -1};

int library_path(char *path, size_t size) { return wire_find((const void *)&nvmlInit_v2, path, size); }

static nvmlReturn_t connect_locked(void)
{
	char path[4096];
	struct sim_request request = {.call = SIM_HELLO, .arg = {SIM_VERSION}};
	struct sim_answer answer;
	int kick;

	if (library.socket >= 0)
		close(library.socket); /* inherited: the parent's */
	library.pid = getpid();
	library.socket = library_path(path, sizeof path) < 0 ? -1 : wire_connect(path);
	if (library.socket < 0)
		return NVML_ERROR_DRIVER_NOT_LOADED;
	int status = wire_call(library.socket, &request, &answer, &kick);
	if (kick >= 0)
		close(kick); /* for those who submit work */
	if (status != 0) {
		close(library.socket);
		library.socket = -1;
		return status < 0 ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	}
	library.devices = (unsigned int)answer.value[0];
	for (unsigned int i = 0; i < SIM_MAX_DEVICES; i++)
		library.device[i].index = i;
	return NVML_SUCCESS;
}

static nvmlReturn_t call_locked(struct sim_request *request, struct sim_answer *answer)
{
	if (library.users == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (library.pid != getpid()) {
		nvmlReturn_t result = connect_locked();
		if (result != NVML_SUCCESS)
			return result;
	}
	/* A server that is gone is a driver that was unloaded under us: no device answers any more. */
	int status = library.socket < 0 ? -1 : wire_call(library.socket, request, answer, NULL);
	return status < 0 ? NVML_ERROR_GPU_IS_LOST : status == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

struct nvmlDevice_st *library_device(unsigned int index) { return index < library.devices ? &library.device[index] : NULL; }

nvmlReturn_t ask(struct sim_request *request, struct sim_answer *answer)
{
	pthread_mutex_lock(&library.lock);
	nvmlReturn_t result = call_locked(request, answer);
	pthread_mutex_unlock(&library.lock);
	return result;
}

nvmlReturn_t check_device(nvmlDevice_t device)
{
	pthread_mutex_lock(&library.lock);
	nvmlReturn_t result = library.users == 0 ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; library.users > 0 && i < library.devices; i++)
		if (device == &library.device[i])
			result = NVML_SUCCESS;
	pthread_mutex_unlock(&library.lock);
	return result;
}

nvmlReturn_t copy_text(char *to, unsigned int length, const char *text)
{
	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(to, text, strlen(text) + 1);
	return NVML_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------------ the library */

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	nvmlReturn_t result = NVML_SUCCESS;
	pthread_mutex_lock(&library.lock);
	if (library.users == 0 || library.pid != getpid())
		result = connect_locked();
	if (result == NVML_SUCCESS)
		library.users++;
	pthread_mutex_unlock(&library.lock);
	return result;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
	pthread_mutex_lock(&library.lock);
	if (library.users > 0) {
		result = NVML_SUCCESS;
		if (--library.users == 0 && library.socket >= 0) {
			close(library.socket);
			library.socket = -1;
		}
	}
	pthread_mutex_unlock(&library.lock);
	return result;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case NVML_SUCCESS: return "The operation was successful";
	case NVML_ERROR_UNINITIALIZED: return "NVML was not first initialized with nvmlInit()";
	case NVML_ERROR_INVALID_ARGUMENT: return "A supplied argument is invalid";
	case NVML_ERROR_NOT_SUPPORTED: return "The simulated device does not support this";
	case NVML_ERROR_NOT_FOUND: return "Nothing was found";
	case NVML_ERROR_INSUFFICIENT_SIZE: return "The space given is too small";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "No simulated driver runs: aliquot-simgpu does not answer";
	case NVML_ERROR_TIMEOUT: return "The time given has passed";
	case NVML_ERROR_GPU_IS_LOST: return "The GPU has fallen off the bus or is otherwise inaccessible";
	case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "The library and aliquot-simgpu are of different versions";
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "A struct has a version that is not known";
	default: return "Unknown error";
	}
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	return copy_text(version, length, "560.0-simgpu");
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	return copy_text(version, length, "13.560.0-simgpu");
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	*version = CUDA_VERSION;
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[64];
	if (!name || length == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(path, sizeof path, "/proc/%u/exe", pid);
	ssize_t n = readlink(path, name, length - 1);
	if (n < 0)
		return NVML_ERROR_NOT_FOUND;
	name[n] = '\0';
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&library.lock);
	nvmlReturn_t result = library.users == 0 ? NVML_ERROR_UNINITIALIZED : NVML_SUCCESS;
	if (result == NVML_SUCCESS)
		*count = library.devices;
	pthread_mutex_unlock(&library.lock);
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }
