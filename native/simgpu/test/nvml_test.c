/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML says of the simulated devices, beside what the driver says. */
#include "simgpu/test/harness.h"

#include "nvml.h"

#define MIB (1ull << 20)

#define NVML(expected, call)                                                        \
	do {                                                                        \
		nvmlReturn_t is_ = (call);                                          \
		if (is_ != (expected))                                              \
			FAIL("%s gave %d, not %s", #call, (int)is_, #expected); \
	} while (0)

static void identity(void)
{
	unsigned int count, index;
	nvmlDevice_t device;
	char name[96], uuid[96], cuda_name[96];
	int version;
	NVML(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&count));
	NVML(NVML_SUCCESS, nvmlInit_v2());
	NVML(NVML_SUCCESS, nvmlDeviceGetCount_v2(&count));
	CHECK(count == 3);
	OK(cuInit(0));
	for (unsigned int i = 0; i < count; i++) {
		CUuuid id;
		char text[64];
		NVML(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(i, &device));
		NVML(NVML_SUCCESS, nvmlDeviceGetName(device, name, sizeof name));
		OK(cuDeviceGetName(cuda_name, sizeof cuda_name, (CUdevice)i));
		CHECK(strcmp(name, cuda_name) == 0);
		NVML(NVML_SUCCESS, nvmlDeviceGetUUID(device, uuid, sizeof uuid));
		OK(cuDeviceGetUuid(&id, (CUdevice)i));
		snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-", (uint8_t)id.bytes[0], (uint8_t)id.bytes[1], (uint8_t)id.bytes[2], (uint8_t)id.bytes[3]);
		CHECK(strncmp(uuid, text, strlen(text)) == 0);
		CHECK(strcmp(uuid, record_now()->device[i].uuid) == 0);
		NVML(NVML_SUCCESS, nvmlDeviceGetHandleByUUID(uuid, &device));
		NVML(NVML_SUCCESS, nvmlDeviceGetIndex(device, &index));
		CHECK(index == i);
	}
	NVML(NVML_SUCCESS, nvmlSystemGetCudaDriverVersion_v2(&version));
	CHECK(version == CUDA_VERSION);
	NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2(3, &device));
	NVML(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetName(device, name, 3));
	NVML(NVML_SUCCESS, nvmlShutdown());
	NVML(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&count));
}

static void use(void)
{
	nvmlDevice_t device;
	nvmlMemory_t memory;
	nvmlUtilization_t rates;
	nvmlProcessInfo_t process[4];
	unsigned int count = 4;
	CUdeviceptr p;
	NVML(NVML_SUCCESS, nvmlInit_v2());
	NVML(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(0, &device));
	NVML(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(device, &count, process));
	CHECK(count == 0);
	NVML(NVML_SUCCESS, nvmlDeviceGetMemoryInfo(device, &memory));
	unsigned long long used = memory.used;
	CHECK(memory.used + memory.free == memory.total);
	struct bench b = bench_open();
	OK(cuMemAlloc(&p, 100 * MIB));
	NVML(NVML_SUCCESS, nvmlDeviceGetMemoryInfo(device, &memory));
	CHECK(memory.used == used + (100 + 256 + 2) * MIB && memory.used + memory.free == memory.total);
	count = 0;
	NVML(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL));
	CHECK(count == 1);
	count = 4;
	NVML(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(device, &count, process));
	CHECK(count == 1 && process[0].pid == (unsigned int)getpid() && process[0].usedGpuMemory == (100 + 256 + 2) * MIB);
	nvmlProcessDetail_v1_t detail[4];
	nvmlProcessDetailList_v1_t details = {.version = NVML_PROCESS_DETAIL_LIST_V1, .numProcArrayEntries = 4, .procArray = detail};
	NVML(NVML_SUCCESS, nvmlDeviceGetRunningProcessDetailList(device, &details));
	CHECK(details.numProcArrayEntries == 1 && detail[0].pid == process[0].pid && detail[0].usedGpuMemory == process[0].usedGpuMemory);
	details.version = 0;
	NVML(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nvmlDeviceGetRunningProcessDetailList(device, &details));
	nvmlProcessUtilizationInfo_v1_t sample[4];
	nvmlProcessesUtilizationInfo_v1_t samples = {.version = NVML_PROCESSES_UTILIZATION_V1, .processSamplesCount = 4, .procUtilArray = sample};
	NVML(NVML_SUCCESS, nvmlDeviceGetProcessesUtilizationInfo(device, &samples));
	CHECK(samples.processSamplesCount == 1 && sample[0].pid == process[0].pid);
	launch_ns(b.timed, 1ull << 62, b.stream); /* without end: the rate comes to 100 */
	do
		NVML(NVML_SUCCESS, nvmlDeviceGetUtilizationRates(device, &rates));
	while (rates.gpu < 99);
	CHECK(rates.gpu <= 100);
}

static void events(void)
{
	nvmlDevice_t device, other;
	nvmlEventSet_t set;
	nvmlEventData_t data;
	NVML(NVML_SUCCESS, nvmlInit_v2());
	NVML(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(0, &device));
	NVML(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(1, &other));
	NVML(NVML_SUCCESS, nvmlEventSetCreate(&set));
	NVML(NVML_SUCCESS, nvmlDeviceRegisterEvents(device, 8, set)); /* XIDs */
	NVML(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &data, 0));
	CHECK(simgpu("inject", "xid", "48", "--device", "1", NULL) == 0); /* nobody listens there */
	CHECK(simgpu("inject", "xid", "31", "--device", "0", NULL) == 0);
	CHECK(simgpu("inject", "xid", "79", "--device", "0", NULL) == 0);
	NVML(NVML_SUCCESS, nvmlEventSetWait_v2(set, &data, 60000));
	CHECK(data.device == device && data.eventType == 8 && data.eventData == 31);
	NVML(NVML_SUCCESS, nvmlEventSetWait_v2(set, &data, 60000));
	CHECK(data.eventData == 79);
	nvmlMemory_t memory;
	NVML(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetMemoryInfo(device, &memory));
	NVML(NVML_SUCCESS, nvmlDeviceGetMemoryInfo(other, &memory));
	NVML(NVML_SUCCESS, nvmlEventSetFree(set));
}

static void absent(void)
{
	NVML(NVML_ERROR_DRIVER_NOT_LOADED, nvmlInit_v2());
	CHECK(strlen(nvmlErrorString(NVML_ERROR_DRIVER_NOT_LOADED)) > 0);
}

/* Of five devices in twos the last is linked with none; with nothing said none are, and no memory node is known. */
static void joined(void)
{
	nvmlDevice_t device[5];
	NVML(NVML_SUCCESS, nvmlInit_v2());
	for (unsigned int i = 0; i < 5; i++)
		NVML(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(i, &device[i]));
	for (unsigned int i = 0; i < 5; i++) {
		unsigned long nodes[2] = {7, 7};
		NVML(NVML_SUCCESS, nvmlDeviceGetMemoryAffinity(device[i], 2, nodes, NVML_AFFINITY_SCOPE_NODE));
		CHECK(nodes[0] == 1ul << i / 3 && nodes[1] == 0);
		for (unsigned int k = 0; k < 5; k++) {
			nvmlGpuP2PStatus_t link, reach;
			if (k == i) {
				NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetP2PStatus(device[i], device[k], NVML_P2P_CAPS_INDEX_NVLINK, &link));
				continue;
			}
			NVML(NVML_SUCCESS, nvmlDeviceGetP2PStatus(device[i], device[k], NVML_P2P_CAPS_INDEX_NVLINK, &link));
			NVML(NVML_SUCCESS, nvmlDeviceGetP2PStatus(device[i], device[k], NVML_P2P_CAPS_INDEX_READ, &reach));
			CHECK(link == (k / 2 == i / 2 ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED) && reach == NVML_P2P_STATUS_OK);
		}
	}
	NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetMemoryAffinity(device[0], 0, NULL, NVML_AFFINITY_SCOPE_NODE));
	NVML(NVML_SUCCESS, nvmlShutdown());
}

static void apart(void)
{
	nvmlDevice_t device[2];
	nvmlGpuP2PStatus_t link;
	unsigned long nodes;
	NVML(NVML_SUCCESS, nvmlInit_v2());
	for (unsigned int i = 0; i < 2; i++)
		NVML(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(i, &device[i]));
	NVML(NVML_SUCCESS, nvmlDeviceGetP2PStatus(device[0], device[1], NVML_P2P_CAPS_INDEX_NVLINK, &link));
	CHECK(link == NVML_P2P_STATUS_NOT_SUPPORTED);
	NVML(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetMemoryAffinity(device[0], 1, &nodes, NVML_AFFINITY_SCOPE_NODE));
	NVML(NVML_SUCCESS, nvmlShutdown());
}

const struct test nvml_tests[] = {{"NVML and the driver agree on devices", "h200,a100,l4", identity},
				  {"NVML says which devices are linked, and at which memory node", "a10x5,linked=2,numa=3", joined},
				  {"NVML says of devices of which nothing is said that they are not linked", "a10x2", apart},
				  {"NVML shows memory, processes and use", "h200", use},
				  {"NVML tells of XIDs and lost devices", "h200x2", events},
				  {"NVML without a server", NULL, absent},
				  {0}};
