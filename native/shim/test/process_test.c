/* SPDX-License-Identifier: Apache-2.0 */
/* process_test.c: whole programs with the finished libraries: starting, refusing to start, forking, and what they see of the machine. */
#include "nvml.h"
#include "fake_driver.h"
#include "harness.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define GI (1ull << 30)

static struct arbiter arbiter;
static char *self;
static char said[4096]; /* on standard error by the last child */

/* Runs this program in a role; its standard error is kept. */
static int run(const char *role)
{
	int out[2], status;
	CHECK_EQ(pipe(out), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		dup2(out[1], STDERR_FILENO);
		close(out[0]);
		close(out[1]);
		execl(self, self, role, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	size_t n = 0;
	for (ssize_t got; (got = read(out[0], said + n, sizeof(said) - 1 - n)) > 0;)
		n += (size_t)got;
	said[n] = '\0';
	close(out[0]);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) == 1)
		fprintf(stderr, "%s: %s", role, said);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* --------------------------------------------------------------------------------------------------------------- roles */

/* The exit status tells what cuInit said, above 10 so that it is no other failure. */
static int role_init(void)
{
	CUresult r = cuInit(0);
	return r == CUDA_SUCCESS ? 10 : r == CUDA_ERROR_SYSTEM_NOT_READY ? 11 : 12;
}

/* Outside of a task: the whole machine, and nothing in between. */
static int role_outside(void)
{
	static uint64_t kernel = 1;
	int count;
	size_t bytes;
	CUcontext ctx;
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	CHECK_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
	CHECK_EQ(count, FAKE_DEVICES);
	CHECK_EQ(cuDeviceTotalMem_v2(&bytes, 10), CUDA_SUCCESS);
	CHECK_EQ(bytes, FAKE_CAPACITY);
	CHECK_EQ(cuCtxCreate_v2(&ctx, 0, 10), CUDA_SUCCESS);
	CHECK_EQ(cuLaunchKernel((CUfunction)&kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
	return 10;
}

/* A child that was forked has no driver; one that was executed registers anew. */
static int role_forks(void)
{
	int status;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	pid_t forked = fork();
	if (forked == 0)
		_exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 10 : 1);
	CHECK_EQ(waitpid(forked, &status, 0), forked);
	CHECK_EQ(WEXITSTATUS(status), 10);
	CHECK_EQ(run("init"), 10);
	CUcontext ctx;
	CUdeviceptr p;
	CHECK_EQ(cuCtxCreate_v2(&ctx, 0, 10), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, 1), CUDA_SUCCESS); /* the parent's line is whole */
	return 10;
}

/* Lists in structs with a version: one's own processes, and none at all in a version that is not known. */
static void check_versioned(void *nvml, nvmlDevice_t d)
{
	nvmlProcessDetail_v1_t details[8];
	nvmlProcessUtilizationInfo_v1_t used[8];
	nvmlProcessDetailList_v1_t list = {.version = NVML_PROCESS_DETAIL_LIST_V1, .numProcArrayEntries = 8, .procArray = details};
	nvmlProcessesUtilizationInfo_v1_t info = {.version = NVML_PROCESSES_UTILIZATION_V1, .processSamplesCount = 8, .procUtilArray = used};
	__typeof__(nvmlDeviceGetRunningProcessDetailList) *get_list =
		(__typeof__(nvmlDeviceGetRunningProcessDetailList) *)dlsym(nvml, "nvmlDeviceGetRunningProcessDetailList");
	__typeof__(nvmlDeviceGetProcessesUtilizationInfo) *get_used =
		(__typeof__(nvmlDeviceGetProcessesUtilizationInfo) *)dlsym(nvml, "nvmlDeviceGetProcessesUtilizationInfo");
	CHECK_EQ(get_list(d, &list), NVML_SUCCESS);
	CHECK_EQ(list.numProcArrayEntries, 1);
	CHECK_EQ(details[0].pid, getpid());
	CHECK_EQ(details[0].usedGpuMemory, GI);
	list.numProcArrayEntries = 0;
	CHECK_EQ(get_list(d, &list), NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQ(list.numProcArrayEntries, 1);
	list.version++;
	CHECK_EQ(get_list(d, &list), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	CHECK_EQ(get_used(d, &info), NVML_SUCCESS);
	CHECK_EQ(info.processSamplesCount, 1);
	CHECK_EQ(used[0].pid, getpid());
	CHECK_EQ(used[0].smUtil, 20);
	info.version++;
	CHECK_EQ(get_used(d, &info), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

/* What a program sees: its devices in the order of its grants, the memory of its share, its own processes; both libraries agree. */
static int role_sees(void)
{
	int count;
	CUdevice device;
	CUcontext ctx;
	CUdeviceptr p;
	size_t free_bytes, total, device_total;
	struct fake_stats s;
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	fake_read(&s);
	CHECK(strcmp(s.visible, "GPU-11111111-1111-1111-1111-111111111111,GPU-22222222-2222-2222-2222-222222222222") == 0);
	CHECK(getenv("CUDA_VISIBLE_DEVICES") == NULL);
	CHECK_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
	CHECK_EQ(count, 2);
	CHECK_EQ(cuDeviceGet(&device, 1), CUDA_SUCCESS);
	CHECK_EQ(device, 11);
	CHECK_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQ(cuDeviceGetByPCIBusId(&device, "1"), CUDA_SUCCESS);
	CHECK_EQ(cuDeviceGetByPCIBusId(&device, "3"), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQ(cuCtxCreate_v2(&ctx, 0, 11), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, GI), CUDA_SUCCESS);
	CHECK_EQ(cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
	CHECK_EQ(cuDeviceTotalMem_v2(&device_total, 11), CUDA_SUCCESS);
	CHECK_EQ(total, 4 * GI);
	CHECK_EQ(device_total, total);
	CHECK_EQ(free_bytes, 1 * GI); /* 2 granted, 1 held; nothing to be lent */

	void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	CHECK(nvml != NULL);
	nvmlReturn_t (*get_count)(unsigned *) = (nvmlReturn_t(*)(unsigned *))dlsym(nvml, "nvmlDeviceGetCount_v2");
	nvmlReturn_t (*by_index)(unsigned, nvmlDevice_t *) = (nvmlReturn_t(*)(unsigned, nvmlDevice_t *))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
	nvmlReturn_t (*by_uuid)(const char *, nvmlDevice_t *) =
		(nvmlReturn_t(*)(const char *, nvmlDevice_t *))dlsym(nvml, "nvmlDeviceGetHandleByUUID");
	nvmlReturn_t (*info)(nvmlDevice_t, nvmlMemory_t *) =
		(nvmlReturn_t(*)(nvmlDevice_t, nvmlMemory_t *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
	nvmlReturn_t (*list)(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *) =
		(nvmlReturn_t(*)(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *))dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses_v3");
	unsigned n;
	nvmlDevice_t d, other;
	nvmlMemory_t memory;
	nvmlProcessInfo_t processes[8];
	CHECK_EQ(get_count(&n), NVML_SUCCESS);
	CHECK_EQ(n, 2);
	CHECK_EQ(by_index(1, &d), NVML_SUCCESS);
	CHECK_EQ(by_index(2, &other), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQ(by_uuid("GPU-33333333-3333-3333-3333-333333333333", &other), NVML_ERROR_NOT_FOUND);
	CHECK_EQ(by_uuid("GPU-22222222-2222-2222-2222-222222222222", &other), NVML_SUCCESS);
	CHECK(other == d);
	CHECK_EQ(info(d, &memory), NVML_SUCCESS);
	CHECK_EQ(memory.total, total);
	CHECK_EQ(memory.free, free_bytes);
	CHECK_EQ(memory.used, total - free_bytes);
	n = 8;
	CHECK_EQ(list(d, &n, processes), NVML_SUCCESS);
	CHECK_EQ(n, 1);
	CHECK_EQ(processes[0].pid, getpid());
	CHECK_EQ(processes[0].usedGpuMemory, GI);
	n = 0;
	CHECK_EQ(list(d, &n, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQ(n, 1);
	check_versioned(nvml, d);
	CHECK(dlsym(nvml, "nvmlSystemGetDriverVersion") != NULL);
	return 10;
}

/* CUDA_VISIBLE_DEVICES=1,0 counts within the task's devices. */
static int role_visible(void)
{
	struct fake_stats s;
	CUdevice device;
	int count;
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	fake_read(&s);
	CHECK(strcmp(s.visible, "GPU-22222222-2222-2222-2222-222222222222,GPU-11111111-1111-1111-1111-111111111111") == 0);
	CHECK(strcmp(getenv("CUDA_VISIBLE_DEVICES"), "1,0") == 0);
	CHECK_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
	CHECK_EQ(count, 2);
	CHECK_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
	CHECK_EQ(device, 11);
	return 10;
}

/* --------------------------------------------------------------------------------------------------------------- tests */

static void test_pages(void)
{
	setenv("ALIQUOT_TASK", "/nonexistent/aliquot", 1);
	CHECK_EQ(run("init"), 11);
	CHECK(strstr(said, "/nonexistent/aliquot/ctl cannot be opened") != NULL);
	setenv("ALIQUOT_TASK", arbiter.folder, 1);
	arbiter.ctl->header.version = 7;
	CHECK_EQ(run("init"), 11);
	CHECK(strstr(said, "is of version 7 and this library reads version 1") != NULL);
	arbiter.ctl->header.version = ALQ_ABI_VERSION;
	arbiter.tel->header.magic = 0;
	CHECK_EQ(run("init"), 11);
	CHECK(strstr(said, "is damaged") != NULL);
	arbiter.tel->header.magic = ALQ_ABI_MAGIC;
	char path[300];
	snprintf(path, sizeof(path), "%s/tel", arbiter.folder);
	CHECK_EQ(truncate(path, 4096), 0);
	CHECK_EQ(run("init"), 11);
	CHECK(strstr(said, "bytes where") != NULL);
	CHECK_EQ(truncate(path, sizeof(struct alq_tel)), 0);
	CHECK_EQ(run("init"), 10);
	CHECK(said[0] == '\0');
}

/* Beside the driver, where a task's mount namespace has its folder. */
static const char *task_place(void)
{
	static char place[300];
	snprintf(place, sizeof(place), "%.*s/driver/task", (int)(strrchr(self, '/') - self), self);
	return place;
}

/* A program that has thrown its environment away is held to the share whose folder lies there, refused where that share is over, and left
 * alone where there is none. */
static void test_cleared(void)
{
	unsetenv("ALIQUOT_TASK");
	CHECK_EQ(run("outside"), 10);
	CHECK_EQ(symlink(arbiter.folder, task_place()), 0);
	CHECK_EQ(run("sees"), 10);
	CHECK_EQ(remove(task_place()), 0);
	CHECK_EQ(mkdir(task_place(), 0755), 0);
	CHECK_EQ(run("init"), 11);
	CHECK(strstr(said, "/driver/task/ctl cannot be opened") != NULL);
	CHECK_EQ(remove(task_place()), 0);
	setenv("ALIQUOT_TASK", arbiter.folder, 1);
}

/* The end of a process frees its slot and its memory. */
static void test_end(void)
{
	CHECK_EQ(run("forks"), 10);
	WAIT(get_acquire(&arbiter.tel->slot[0].state) == ALQ_SLOT_FREE && get_acquire(&arbiter.tel->slot[1].state) == ALQ_SLOT_FREE);
	CHECK_EQ(arbiter.tel->slot[0].grant[0].mem_used, 0);
}

int main(int argc, char **argv)
{
	self = argv[0];
	const struct {
		const char *name;
		int (*body)(void);
	} roles[] = {{"init", role_init}, {"outside", role_outside}, {"forks", role_forks}, {"sees", role_sees}, {"visible", role_visible}};
	for (size_t i = 0; argc > 1 && i < sizeof(roles) / sizeof(roles[0]); i++) {
		if (strcmp(argv[1], roles[i].name) == 0)
			return roles[i].body();
	}
	remove(task_place()); /* what a test that failed left */
	unsetenv("ALIQUOT_TASK");
	unsetenv("CUDA_VISIBLE_DEVICES");
	CHECK_EQ(run("outside"), 10);
	arbiter_make(&arbiter, 2, 2 * GI, 4 * GI);
	arbiter_serve(&arbiter);
	test_pages();
	test_end();
	CHECK_EQ(run("sees"), 10);
	test_cleared();
	setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	CHECK_EQ(run("visible"), 10);
	arbiter_remove(&arbiter);
	printf("processes: ok\n");
	return 0;
}
