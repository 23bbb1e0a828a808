/* SPDX-License-Identifier: Apache-2.0 */
/* smi: what the driver's management library shows of the devices and who uses them, as nvidia-smi does: within a share, of the share. */
#include "common.h"

#include <dlfcn.h>

#include "nvml.h"

static struct option options[] = {
	{"every", "seconds between two tables, until stopped; 0: one table", 0, 0},
	{NULL, NULL, 0, 0},
};

#define PROCESSES 1024 /* of a device */

static void *library;

static void *function(const char *name)
{
	void *found = dlsym(library, name);
	if (!found) {
		fprintf(stderr, "%s: libnvidia-ml.so.1 has no %s: the driver is too old\n", program, name);
		exit(1);
	}
	return found;
}

/* Calls a function of the library. */
#define NVML(name, ...) (((__typeof__(&(name)))function(#name))(__VA_ARGS__))
#define CHECK_NVML(name, ...) check_nvml(NVML(name, __VA_ARGS__), #name)

static void check_nvml(nvmlReturn_t result, const char *call)
{
	if (result == NVML_SUCCESS)
		return;
	fprintf(stderr, "%s: %s failed: %s (%d)\n", program, call, NVML(nvmlErrorString, result), (int)result);
	exit(1);
}

static void open_library(void)
{
	library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s: %s; start it by `aliquot run`, in a container that has a share, or where the driver is\n", program, dlerror());
		exit(1);
	}
	CHECK_NVML(nvmlInit_v2);
}

/* The newest of a process' samples; NULL: it has none. */
static const nvmlProcessUtilizationSample_t *sample_of(unsigned int pid, const nvmlProcessUtilizationSample_t *all, unsigned int n)
{
	const nvmlProcessUtilizationSample_t *newest = NULL;
	for (unsigned int i = 0; i < n; i++) {
		if (all[i].pid == pid && (!newest || all[i].timeStamp > newest->timeStamp))
			newest = &all[i];
	}
	return newest;
}

/* "12%", or "-" of what is not known. */
static const char *percent(char text[8], int known, unsigned int value)
{
	snprintf(text, 8, known ? "%u%%" : "-", value);
	return text;
}

static void show_device(unsigned int index)
{
	static nvmlProcessInfo_t process[PROCESSES];
	static nvmlProcessUtilizationSample_t sample[PROCESSES];
	nvmlDevice_t device;
	nvmlMemory_t memory;
	char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE], uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE], text[8];
	unsigned int processes = PROCESSES, samples = PROCESSES, busy = 0, known = 0;

	CHECK_NVML(nvmlDeviceGetHandleByIndex_v2, index, &device);
	CHECK_NVML(nvmlDeviceGetName, device, name, sizeof name);
	CHECK_NVML(nvmlDeviceGetUUID, device, uuid, sizeof uuid);
	CHECK_NVML(nvmlDeviceGetMemoryInfo, device, &memory);
	CHECK_NVML(nvmlDeviceGetComputeRunningProcesses_v3, device, &processes, process);
	if (NVML(nvmlDeviceGetProcessUtilization, device, sample, &samples, 0) != NVML_SUCCESS) /* there may be none yet */
		samples = 0;
	for (unsigned int i = 0; i < processes; i++) {
		const nvmlProcessUtilizationSample_t *s = sample_of(process[i].pid, sample, samples);
		known += s != NULL;
		busy += s ? s->smUtil : 0;
	}
	printf("GPU %u  %s  %s\n", index, name, uuid);
	printf("  memory %llu of %llu MiB, compute %s\n", memory.used >> 20, memory.total >> 20, percent(text, processes == 0 || known > 0, busy));
	if (processes > 0)
		printf("  %10s %12s %8s  %s\n", "pid", "memory", "compute", "program");
	for (unsigned int i = 0; i < processes; i++) {
		const nvmlProcessUtilizationSample_t *s = sample_of(process[i].pid, sample, samples);
		char path[256] = "-"; /* in a container numbers of processes are the machine's, and their names not to be had */
		if (NVML(nvmlSystemGetProcessName, process[i].pid, path, sizeof path) != NVML_SUCCESS)
			snprintf(path, sizeof path, "-");
		printf("  %10u %8llu MiB %8s  %s\n", process[i].pid, process[i].usedGpuMemory >> 20, percent(text, s != NULL, s ? s->smUtil : 0), path);
	}
}

static void show(void)
{
	char driver[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
	unsigned int devices = 0;
	int cuda = 0;
	CHECK_NVML(nvmlSystemGetDriverVersion, driver, sizeof driver);
	CHECK_NVML(nvmlSystemGetCudaDriverVersion_v2, &cuda);
	CHECK_NVML(nvmlDeviceGetCount_v2, &devices);
	printf("driver %s, CUDA %d.%d\n", driver, cuda / 1000, cuda % 1000 / 10);
	for (unsigned int i = 0; i < devices; i++)
		show_device(i);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	parse(argc, argv, options, "the devices and who uses them, as the driver's management library shows them");
	open_library();
	int64_t every = (int64_t)(option(options, "every") * 1e9), next = now_ns();
	do {
		show();
		next += every;
		sleep_until(next);
	} while (every > 0 && !stopped);
	return 0;
}
