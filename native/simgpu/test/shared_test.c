/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that several processes hold, that comes from outside, and that graphs allocate; and launches of old. */
#include "simgpu/test/harness.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)
#define CONTEXT (256 * MIB) /* what a context takes, see costs.h */

static uint64_t free_now(void)
{
	size_t free_bytes, total;
	OK(cuMemGetInfo(&free_bytes, &total));
	return free_bytes;
}

/* A process of its own, and a line to it. Made before this one touches the driver. */
struct other {
	pid_t pid;
	int line;
};

static struct other other_make(void (*body)(int line))
{
	int ends[2];
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
	fflush(NULL);
	struct other o = {.pid = fork(), .line = ends[0]};
	if (o.pid == 0) {
		close(ends[0]);
		body(ends[1]);
		exit(0);
	}
	close(ends[1]);
	return o;
}

static void tell(int line, const void *what, size_t n)
{
	CHECK(send(line, what, n, 0) == (ssize_t)n);
}

static void hear(int line, void *what, size_t n)
{
	CHECK(recv(line, what, n, 0) == (ssize_t)n);
}

static void other_end(struct other *o)
{
	int status;
	CHECK(waitpid(o->pid, &status, 0) == o->pid && status == 0);
}

static void send_fd(int line, int fd)
{
	char byte = 0, room[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	CHECK(sendmsg(line, &m, 0) == 1);
}

static int hear_fd(int line)
{
	int fd;
	char byte, room[CMSG_SPACE(sizeof fd)];
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	CHECK(recvmsg(line, &m, 0) == 1 && CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

/* ---------------------------------------------------------------------------------------------------------- IPC handles */

static void opens(int line)
{
	CUipcMemHandle h;
	CUdeviceptr p;
	char text[16] = "";
	hear(line, &h, sizeof h);
	bench_open();
	uint64_t before = free_now();
	OK(cuIpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(free_now() == before); /* counted where it was allocated */
	OK(cuMemcpyDtoH(text, p, sizeof text));
	CHECK(strcmp(text, "from here") == 0);
	OK(cuMemcpyHtoD(p, "from there", 11));
	IS(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
	tell(line, "", 1);
	hear(line, text, 1); /* until the other has freed it */
	CHECK(free_now() == before);
	OK(cuIpcCloseMemHandle(p));
	CHECK(free_now() == before + 64 * MIB);
	IS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(p));
	tell(line, "", 1);
}

static void ipc(void)
{
	struct other o = other_make(opens);
	CUipcMemHandle h;
	CUdeviceptr p, again;
	char text[16];
	bench_open();
	OK(cuMemAlloc(&p, 64 * MIB));
	OK(cuMemcpyHtoD(p, "from here", 10));
	OK(cuIpcGetMemHandle(&h, p));
	IS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&again, h, 1));
	uint64_t before = free_now();
	tell(o.line, &h, sizeof h);
	hear(o.line, text, 1);
	CHECK(free_now() == before - CONTEXT - 2 * MIB); /* the other's context and module, and not its view of this */
	OK(cuMemcpyDtoH(text, p, sizeof text));
	CHECK(strcmp(text, "from there") == 0);
	OK(cuMemFree(p));
	CHECK(free_now() == before - CONTEXT - 2 * MIB); /* somebody still holds it */
	tell(o.line, "", 1);
	hear(o.line, text, 1);
	other_end(&o);
}

/* ---------------------------------------------------------------------------------------------- handles and descriptors */

static const CUmemAllocationProp exported_prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
						  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc all_access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUdeviceptr map(CUmemGenericAllocationHandle h, size_t size)
{
	CUdeviceptr at;
	OK(cuMemAddressReserve(&at, size, 0, 0, 0));
	OK(cuMemMap(at, size, 0, h, 0));
	OK(cuMemSetAccess(at, size, &all_access, 1));
	return at;
}

static void imports(int line)
{
	CUmemGenericAllocationHandle h;
	char text[16] = "";
	int fd = hear_fd(line);
	bench_open();
	uint64_t before = free_now();
	OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CUdeviceptr at = map(h, 8 * MIB);
	CHECK(free_now() == before);
	OK(cuMemcpyDtoH(text, at, sizeof text));
	CHECK(strcmp(text, "exported") == 0);
	tell(line, "", 1);
	hear(line, text, 1);
	OK(cuMemUnmap(at, 8 * MIB));
	CHECK(free_now() == before);
	OK(cuMemRelease(h));
	CHECK(free_now() == before + 8 * MIB);
}

static void exported(void)
{
	struct other o = other_make(imports);
	CUmemGenericAllocationHandle h, plain;
	CUmemAllocationProp prop = exported_prop;
	char byte;
	int fd;
	bench_open();
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	OK(cuMemCreate(&plain, 2 * MIB, &prop, 0));
	IS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemCreate(&h, 8 * MIB, &exported_prop, 0));
	CUdeviceptr at = map(h, 8 * MIB);
	OK(cuMemcpyHtoD(at, "exported", 9));
	OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_fd(o.line, fd);
	hear(o.line, &byte, 1);
	uint64_t before = free_now();
	OK(cuMemUnmap(at, 8 * MIB));
	OK(cuMemRelease(h));
	CHECK(free_now() == before); /* the importer holds it */
	tell(o.line, "", 1);
	other_end(&o);
}

static void external(void)
{
	CUexternalMemory m;
	CUdeviceptr p;
	char text[16] = "";
	bench_open();
	uint64_t before = free_now();
	int fd = (int)syscall(SYS_memfd_create, "elsewhere", 1u);
	CHECK(fd >= 0 && ftruncate(fd, 16 * (off_t)MIB) == 0 && pwrite(fd, "drawn", 6, 4096) == 6);
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC d = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = 16 * MIB};
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC b = {.offset = 4096, .size = MIB};
	OK(cuImportExternalMemory(&m, &d));
	CHECK(before - free_now() == 16 * MIB);
	OK(cuExternalMemoryGetMappedBuffer(&p, m, &b));
	OK(cuMemcpyDtoH(text, p, sizeof text));
	CHECK(strcmp(text, "drawn") == 0);
	b.size = 16 * MIB;
	IS(CUDA_ERROR_INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&p, m, &b));
	OK(cuMemFree(p));
	OK(cuDestroyExternalMemory(m));
	CHECK(free_now() == before);
	IS(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory(m));
}

/* -------------------------------------------------------------------------------------------------------------- in graphs */

static void graph_memory(void)
{
	struct bench b = bench_open();
	CUgraph g;
	CUgraphExec x;
	CUgraphNode alloc, set, release;
	cuuint64_t is;
	CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
					.bytesize = 10 * MIB};
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddMemAllocNode(&alloc, g, NULL, 0, &p));
	CUDA_MEMSET_NODE_PARAMS fill = {.dst = p.dptr, .elementSize = 1, .value = 7, .width = 10 * MIB, .height = 1};
	OK(cuGraphAddMemsetNode(&set, g, &alloc, 1, &fill, b.context));
	OK(cuGraphAddMemFreeNode(&release, g, &set, 1, p.dptr));
	IS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&(CUgraph){0}, g));
	uint64_t before = free_now();
	OK(cuGraphInstantiate(&x, g, 0));
	CHECK(free_now() == before);
	OK(cuGraphLaunch(x, b.stream));
	OK(cuGraphLaunch(x, b.stream));
	OK(cuStreamSynchronize(b.stream));
	CHECK(before - free_now() == 10 * MIB); /* kept for the next launch */
	OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &is));
	CHECK(is == 10 * MIB);
	OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &is));
	CHECK(is == 10 * MIB);
	OK(cuDeviceGraphMemTrim(0));
	CHECK(free_now() == before);
	OK(cuGraphLaunch(x, b.stream));
	OK(cuGraphExecDestroy(x));
	OK(cuGraphDestroy(g));
	OK(cuStreamSynchronize(b.stream));
	CHECK(before - free_now() == 10 * MIB);
	OK(cuDeviceGraphMemTrim(0));
	CHECK(free_now() == before);
}

static void captured_memory(void)
{
	struct bench b = bench_open();
	CUgraph g;
	CUgraphExec x;
	CUdeviceptr p;
	uint64_t before = free_now();
	OK(cuStreamBeginCapture(b.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemAllocAsync(&p, 5 * MIB, b.stream));
	launch(b.us100, b.stream);
	OK(cuStreamEndCapture(b.stream, &g));
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphLaunch(x, b.stream));
	IS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(x, b.stream)); /* what it allocated is not freed yet */
	CHECK(before - free_now() == 6 * MIB);
	OK(cuMemsetD8Async(p, 1, 5 * MIB, b.stream));
	OK(cuMemFreeAsync(p, b.stream));
	OK(cuStreamSynchronize(b.stream));
	OK(cuDeviceGraphMemTrim(0));
	CHECK(free_now() == before);
}

/* -------------------------------------------------------------------------------------------------------------- launches */

static void old_launches(void)
{
	struct bench b = bench_open();
	uint64_t ns = 300000;
	OK(cuFuncSetBlockShape(b.us100, 32, 1, 1));
	OK(cuFuncSetBlockShape(b.timed, 32, 1, 1));
	OK(cuFuncSetSharedSize(b.timed, 1024));
	OK(cuParamSetSize(b.timed, 16));
	OK(cuParamSeti(b.timed, 0, 1));
	OK(cuParamSetv(b.timed, 8, &ns, sizeof ns));
	uint64_t before = record_now()->device[0].busy_ns;
	OK(cuLaunch(b.us100));
	OK(cuLaunchGrid(b.us100, 2, 2));
	OK(cuLaunchGridAsync(b.timed, 4, 1, b.stream));
	OK(cuCtxSynchronize());
	CHECK(record_now()->device[0].busy_ns - before == 500000);
	IS(CUDA_ERROR_INVALID_VALUE, cuLaunchGrid(b.us100, 0, 1));
	IS(CUDA_ERROR_INVALID_VALUE, cuParamSetSize(b.timed, 5000));
}

static void together(void)
{
	CUDA_LAUNCH_PARAMS list[2] = {{0}};
	OK(cuInit(0));
	for (int i = 0; i < 2; i++) {
		CUcontext c;
		CUmodule m;
		OK(cuCtxCreate(&c, 0, i));
		OK(cuModuleLoadData(&m, kernels_ptx));
		OK(cuModuleGetFunction(&list[i].function, m, "busy_500us"));
		OK(cuStreamCreate(&list[i].hStream, CU_STREAM_NON_BLOCKING));
		list[i].gridDimX = list[i].gridDimY = list[i].gridDimZ = list[i].blockDimX = list[i].blockDimY = list[i].blockDimZ = 1;
	}
	OK(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
	OK(cuStreamSynchronize(list[0].hStream));
	OK(cuStreamSynchronize(list[1].hStream));
	CHECK(record_now()->device[0].busy_ns == 500000 && record_now()->device[1].busy_ns == 500000);
	list[1] = list[0];
	IS(CUDA_ERROR_INVALID_DEVICE, cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
}

const struct test shared_tests[] = {{"memory opened by another process", "a100", ipc},
				    {"memory exported as a descriptor", "a100", exported},
				    {"external memory", "h200", external},
				    {"memory of graphs", "h200", graph_memory},
				    {"memory allocated in a capture", "h200", captured_memory},
				    {"launches of before CUDA 4", "a10", old_launches},
				    {"one kernel on several devices", "a10x2", together},
				    {0}};
