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

#define STILLS 8192

/* What is watched of the memory of a device, in bytes; looks count those that NVML answered. */
struct peak {
	nvmlDevice_t device;
	__typeof__(&nvmlDeviceGetMemoryInfo) info;
	__typeof__(&nvmlDeviceGetComputeRunningProcesses_v3) list;

	unsigned long long first, used, most, looks; /* of the whole device: at first, now, and the most */
	int64_t looked_ns;			     /* how long all these looks took */

	unsigned long long sum_first, sum_most, sum_looks; /* of its processes, all together */
	int64_t summed_ns;
	nvmlReturn_t listed; /* what came of the last list of processes */

	/* Of looks that nothing seems to have changed in, the latest: what the device held, and what of it no process had. */
	int stills;
	struct still {
		unsigned long long used;
		double nobody;
	} still[STILLS];
};

static void look_at_device(struct peak *p)
{
	nvmlMemory_t memory = {0};
	int64_t began = now_ns();
	nvmlReturn_t result = p->info(p->device, &memory);
	if (result != 0)
		refuse("nvmlDeviceGetMemoryInfo failed: %d", (int)result);
	p->looked_ns += now_ns() - began;
	p->used = memory.used;
	if (p->looks++ == 0)
		p->first = memory.used;
	p->most = memory.used > p->most ? memory.used : p->most;
}

/* The processes take longer to list. What they have is held against what the device holds where that is the same before and after. */
static void look_at_processes(struct peak *p)
{
	enum { MOST = 128 };
	static nvmlProcessInfo_t infos[MOST];
	unsigned int count = MOST;
	unsigned long long sum = 0, before = p->used;
	int64_t began = now_ns();

	p->listed = p->list(p->device, &count, infos);
	p->summed_ns += now_ns() - began;
	for (unsigned int i = 0; p->listed == 0 && i < count && i < MOST; i++) {
		if (infos[i].usedGpuMemory == (unsigned long long)NVML_VALUE_NOT_AVAILABLE)
			p->listed = NVML_ERROR_NOT_SUPPORTED;
		sum += infos[i].usedGpuMemory;
	}
	if (p->listed != 0)
		return;
	if (p->sum_looks++ == 0)
		p->sum_first = sum;
	p->sum_most = sum > p->sum_most ? sum : p->sum_most;
	look_at_device(p);
	if (p->used == before)
		p->still[p->stills++ % STILLS] = (struct still){before, (double)before - (double)p->first - ((double)sum - (double)p->sum_first)};
}

/* The middle of what no process had while the device held over half of the most: it may have changed and changed back in a look. */
static double held_by_nobody(const struct peak *p, int *looks)
{
	static double nobody[STILLS];
	const int kept = p->stills < STILLS ? p->stills : STILLS;
	unsigned long long most = 0;

	*looks = 0;
	for (int i = 0; i < kept; i++)
		most = p->still[i].used > most ? p->still[i].used : most;
	for (int i = 0; i < kept; i++)
		if (p->still[i].used >= p->first && p->still[i].used - p->first >= (most - p->first) / 2)
			nobody[(*looks)++] = p->still[i].nobody;
	return quantile(nobody, *looks, 0.5);
}

/*
 * The memory that the device holds, looked at every half millisecond until this is told to end, and what its processes hold of it, as often as no
 * more than a third of the time goes into that. It prints `T N` now and then, the clock in ns and how often it has looked, so that who waits for it
 * knows that it does; in the end what was held at first and the most.
 */
int probe_peak(void)
{
	struct sigaction action = {.sa_handler = on_end};
	const struct timespec pause = {.tv_nsec = 500000};
	int64_t told = 0, next = 0;
	static struct peak p;
	int looks = 0;

	p.device = open_nvml();
	p.info = NVML(nvmlDeviceGetMemoryInfo);
	p.list = NVML(nvmlDeviceGetComputeRunningProcesses_v3);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	do {
		look_at_device(&p);
		int64_t began = now_ns();
		if (began >= next) {
			look_at_processes(&p);
			next = now_ns() + 2 * (now_ns() - began);
		}
		if (now_ns() - told > 100000000) {
			told = now_ns();
			printf("%lld %llu\n", (long long)told, p.looks);
			fflush(stdout);
		}
		nanosleep(&pause, NULL);
	} while (!told_to_end);
	printf("{\"first_bytes\": %llu, \"most_bytes\": %llu, \"looks\": %llu, \"look_us\": %.1f, \"processes_result\": %d, \"processes_looks\": %llu",
	       p.first, p.most, p.looks, (double)p.looked_ns / 1e3 / (double)p.looks, (int)p.listed, p.sum_looks);
	if (p.sum_looks > 0)
		printf(", \"processes_first_bytes\": %llu, \"processes_most_bytes\": %llu, \"processes_look_us\": %.1f", p.sum_first, p.sum_most,
		       (double)p.summed_ns / 1e3 / (double)p.sum_looks);
	double nobody = held_by_nobody(&p, &looks);
	if (looks > 0)
		printf(", \"nobody_bytes\": %.0f, \"nobody_looks\": %d", nobody, looks);
	printf("}\n");
	NVML(nvmlShutdown)();
	return 0;
}
