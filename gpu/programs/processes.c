/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML tells of single processes, while this one and perhaps others use the device. It asks only; it sets nothing. */
#include <dlfcn.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "nvml.h"
#include "probe.h"

static void *library;

static void *nvml(const char *name)
{
	void *found = dlsym(library, name);
	if (!found)
		refuse("NVML has no %s", name);
	return found;
}

#define NVML(name) ((__typeof__(&name))nvml(#name))

/* Opens NVML's view of device 0. */
static nvmlDevice_t open_nvml(void)
{
	nvmlDevice_t device;
	library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (!library)
		refuse("no NVML: %s", dlerror());
	nvmlReturn_t began = NVML(nvmlInit_v2)();
	if (began != 0)
		refuse("nvmlInit_v2 failed: %d", (int)began);
	nvmlReturn_t found = NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device);
	if (found != 0)
		refuse("nvmlDeviceGetHandleByIndex_v2 failed: %d", (int)found);
	return device;
}

/* Prints which processes NVML knows on the device, and the samples that it has of their use of it. */
static void tell(nvmlDevice_t device)
{
	enum { MOST = 128 };
	static nvmlProcessInfo_t infos[MOST];
	static nvmlProcessUtilizationSample_t samples[MOST];
	nvmlMemory_t memory = {0};
	unsigned int count = MOST, sampled = MOST;

	nvmlReturn_t listed = NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, infos);
	nvmlReturn_t used = NVML(nvmlDeviceGetProcessUtilization)(device, samples, &sampled, 0);
	nvmlReturn_t told = NVML(nvmlDeviceGetMemoryInfo)(device, &memory);
	printf("{\"own_pid\": %d, \"processes_result\": %d, \"processes\": [", (int)getpid(), (int)listed);
	for (unsigned int i = 0; listed == 0 && i < count && i < MOST; i++)
		printf("%s{\"pid\": %u, \"bytes\": %llu}", i ? ", " : "", infos[i].pid, infos[i].usedGpuMemory);
	printf("], \"utilization_result\": %d, \"utilization\": [", (int)used);
	for (unsigned int i = 0; used == 0 && i < sampled && i < MOST; i++)
		printf("%s{\"pid\": %u, \"sm\": %u}", i ? ", " : "", samples[i].pid, samples[i].smUtil);
	printf("], \"memory_result\": %d, \"memory_total\": %llu, \"memory_used\": %llu}\n", (int)told, memory.total, memory.used);
	NVML(nvmlShutdown)();
}

int probe_processes(void)
{
	struct device d;
	open_device(&d);
	for (int64_t until = now_ns() + 1500000000; now_ns() < until;) { /* longer than one of NVML's sampling periods */
		launch_busy(&d, 20000);
		CALL(cuStreamSynchronize, d.stream);
	}
	tell(open_nvml());
	return 0;
}

/* The same from outside: this process uses the device not at all. */
int probe_watch(void)
{
	tell(open_nvml());
	return 0;
}

static volatile sig_atomic_t told_to_end;

static void on_end(int sig)
{
	(void)sig;
	told_to_end = 1;
}

/*
 * The memory that the device holds, looked at every half millisecond until this is told to end. It prints `T N` now and then, the clock in ns
 * and how often it has looked, so that who waits for it knows that it does; in the end what was held at first and the most.
 */
int probe_peak(void)
{
	struct sigaction action = {.sa_handler = on_end};
	const struct timespec pause = {.tv_nsec = 500000};
	unsigned long long first = 0, most = 0, looks = 0;
	int64_t told = 0;
	nvmlDevice_t device = open_nvml();

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	while (!told_to_end) {
		nvmlMemory_t memory = {0};
		nvmlReturn_t result = NVML(nvmlDeviceGetMemoryInfo)(device, &memory);
		if (result != 0)
			refuse("nvmlDeviceGetMemoryInfo failed: %d", (int)result);
		if (looks++ == 0)
			first = memory.used;
		most = memory.used > most ? memory.used : most;
		if (now_ns() - told > 100000000) {
			told = now_ns();
			printf("%lld %llu\n", (long long)told, looks);
			fflush(stdout);
		}
		nanosleep(&pause, NULL);
	}
	printf("{\"first_bytes\": %llu, \"most_bytes\": %llu, \"looks\": %llu}\n", first, most, looks);
	NVML(nvmlShutdown)();
	return 0;
}
