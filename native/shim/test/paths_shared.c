/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paths_shared.c: memory that one process of a share makes and another one opens, by exported handles and by IPC: whoever lets go first and
 * whenever, the devices' record never shows more than the share is charged, and when all have let go nothing is charged.
 */
#include "paths.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define PART (1024 * MI) /* four of them are the whole limit, contexts not counted */
#define PARTS 8

/* ------------------------------------------------------------------------------------------------------ the other process */

enum word { IMPORT = 1, MAP, CLOSE_FD, RELEASE, OPEN, OPEN_OLD, CLOSE, POOL, POINTER, FREE };

struct order {
	enum word word;
	union {
		CUipcMemHandle handle;
		CUmemPoolPtrExportData data;
	};
};

/* What it holds. */
static CUmemGenericAllocationHandle imports[PARTS];
static CUdeviceptr maps[PARTS], opens[PARTS];
static CUmemoryPool pool;
static CUdeviceptr pointer;
static int count, opened, descriptor = -1;

static void order_send(int line, const struct order *o, int fd)
{
	char room[CMSG_SPACE(sizeof(fd))] = {0};
	struct iovec io = {(void *)(uintptr_t)o, sizeof(*o)};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = fd < 0 ? NULL : room, .msg_controllen = fd < 0 ? 0 : sizeof(room)};
	if (fd >= 0) {
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	}
	CHECK(sendmsg(line, &m, 0) == (ssize_t)sizeof(*o));
}

static bool order_hear(int line, struct order *o, int *fd)
{
	char room[CMSG_SPACE(sizeof(*fd))];
	struct iovec io = {o, sizeof(*o)};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	ssize_t n = recvmsg(line, &m, MSG_WAITALL);
	CHECK(n == 0 || n == (ssize_t)sizeof(*o));
	if (n != 0 && CMSG_FIRSTHDR(&m) != NULL)
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(*fd));
	return n != 0;
}

static CUresult obey(const struct order *o)
{
	CUmemPoolPtrExportData data = o->data;
	CUresult r;
	switch (o->word) {
	case IMPORT:
		r = cuMemImportFromShareableHandle(&imports[count], (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
		count += r == CUDA_SUCCESS;
		return r;
	case MAP:
		CHECK_EQ(cuMemAddressReserve(&maps[count - 1], PART, 0, 0, 0), CUDA_SUCCESS);
		return cuMemMap(maps[count - 1], PART, 0, imports[count - 1], 0);
	case CLOSE_FD:
		return close(descriptor) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
	case RELEASE:
		CHECK_EQ(cuMemRelease(imports[--count]), CUDA_SUCCESS);
		return maps[count] == 0 ? CUDA_SUCCESS : cuMemUnmap(maps[count], PART);
	case OPEN:
		r = cuIpcOpenMemHandle_v2(&opens[opened], o->handle, 1);
		opened += r == CUDA_SUCCESS;
		return r;
	case OPEN_OLD:
		r = cuIpcOpenMemHandle(&opens[opened], o->handle, 1);
		opened += r == CUDA_SUCCESS;
		return r;
	case CLOSE:
		return cuIpcCloseMemHandle(opens[--opened]);
	case POOL:
		return cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	case POINTER:
		return cuMemPoolImportPointer(&pointer, pool, &data);
	case FREE:
		return cuMemFree_v2(pointer);
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* Does what it is told, one after the other, until the line ends; says of each what the driver said. */
int role_shares(int in, int out)
{
	struct order o;
	CUcontext ctx;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxCreate_v2(&ctx, 0, 0), CUDA_SUCCESS);
	while (order_hear(in, &o, &descriptor)) {
		CUresult r = obey(&o);
		CHECK(write(out, &r, sizeof(r)) == (ssize_t)sizeof(r));
	}
	return 0;
}

/* --------------------------------------------------------------------------------------------------------------- the tests */

static CUresult told(struct other *o, enum word word, int fd, const CUipcMemHandle *h)
{
	struct order order = {.word = word};
	CUresult r;
	if (h != NULL)
		order.handle = *h;
	order_send(o->to, &order, fd);
	CHECK(read(o->from, &r, sizeof(r)) == (ssize_t)sizeof(r));
	return r;
}

#define TOLD(o, word) CHECK_EQ(told(o, word, -1, NULL), CUDA_SUCCESS)

/* What the device holds for the two is charged to them, and is no more than the share may have. */
static void held_right(const struct other *o)
{
	uint64_t held = bytes_held(getpid()) + bytes_held(o->pid), charged = bytes_charged() + bytes_of_other();
	CHECK(held <= charged);
	CHECK(held <= LIMIT);
}

/* Starts another process, and waits until it is charged for its context. */
static struct other other_begin(void)
{
	struct other o = other_start("shares");
	WAIT(bytes_held(o.pid) != 0 && bytes_of_other() == bytes_held(o.pid));
	return o;
}

static int made(CUmemGenericAllocationHandle *h)
{
	int fd;
	if (cuMemCreate(h, PART, &exported, 0) != CUDA_SUCCESS)
		return -1;
	CHECK_EQ(cuMemExportToShareableHandle(&fd, *h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
	return fd;
}

/* Made here, imported there, released here, again and again: comes to the limit and not past it. */
static void test_imports(void)
{
	struct other o = other_start("shares");
	CUmemGenericAllocationHandle h;
	uint64_t used = bytes_used();
	int given = 0;
	for (int i = 0; i < PARTS; i++) {
		int fd = made(&h);
		if (fd < 0)
			break;
		CUresult r = told(&o, IMPORT, fd, NULL);
		TOLD(&o, CLOSE_FD);
		close(fd);
		name_called("cuMemImportFromShareableHandle");
		if (r == CUDA_SUCCESS && given % 2 == 0)
			TOLD(&o, MAP);
		CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQ(cuMemRelease(h), CUDA_SUCCESS);
		CHECK_EQ(bytes_used(), used); /* nobody has a descriptor any more */
		held_right(&o);
		if (r != CUDA_SUCCESS)
			break;
		given++;
	}
	CHECK(given >= 2 && given < PARTS); /* each is charged twice for a moment */
	CHECK_EQ(bytes_of_other(), bytes_held(o.pid));
	while (given-- > 0)
		TOLD(&o, RELEASE);
	CHECK_EQ(bytes_of_other(), bytes_held(o.pid));
	other_end(&o);
}

/* A descriptor holds the memory, in whatever process it is: it stays charged until the last one is closed. */
static void test_descriptors(void)
{
	struct other o = other_start("shares");
	CUmemGenericAllocationHandle h, second;
	size_t room, all;
	uint64_t used = bytes_used();
	int fd = made(&h), copy = dup(fd), again;
	CHECK(fd >= 0 && copy >= 0);
	CHECK_EQ(cuMemExportToShareableHandle(&again, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
	CHECK_EQ(told(&o, IMPORT, fd, NULL), CUDA_SUCCESS);
	TOLD(&o, RELEASE);
	CHECK_EQ(cuMemRelease(h), CUDA_SUCCESS);
	close(fd);
	close(again);
	CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), used + PART); /* the copy here, and what the other was sent */
	close(copy);
	CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), used + PART);
	TOLD(&o, CLOSE_FD);
	CHECK_EQ(cuMemGetInfo_v2(&room, &all), CUDA_SUCCESS); /* shows what would succeed now */
	CHECK_EQ(bytes_used(), used);
	/* Where there is no room, what nobody has any more makes some. */
	fd = made(&h);
	CHECK_EQ(cuMemRelease(h), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), used + PART);
	close(fd);
	uint64_t rest = (LIMIT - bytes_charged() - bytes_of_other()) / (2 * MI) * (2 * MI);
	CHECK_EQ(cuMemCreate(&second, rest + PART, &exported, 0), CUDA_SUCCESS);
	held_right(&o);
	CHECK_EQ(cuMemRelease(second), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), used);
	other_end(&o);
}

/* A descriptor of a file that was opened anew tells nothing: charged when it is mapped. */
static void test_untold(void)
{
	struct other o = other_start("shares");
	CUmemGenericAllocationHandle h;
	char path[64];
	int fd = made(&h);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int plain = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && plain >= 0);
	CHECK_EQ(told(&o, IMPORT, plain, NULL), CUDA_SUCCESS);
	uint64_t before = bytes_of_other();
	TOLD(&o, MAP);
	CHECK_EQ(bytes_of_other(), before + PART);
	TOLD(&o, RELEASE);
	CHECK_EQ(bytes_of_other(), before);
	TOLD(&o, CLOSE_FD);
	close(fd);
	close(plain);
	CHECK_EQ(cuMemRelease(h), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), 0);
	other_end(&o);
}

/* The same by IPC: what was opened stays charged to who opened it, also once its maker has freed it. */
static void test_ipc(void)
{
	struct other o = other_begin();
	uint64_t used = bytes_used();
	CUipcMemHandle h;
	CUdeviceptr p;
	int given = 0;
	for (int i = 0; i < PARTS && cuMemAlloc_v2(&p, PART) == CUDA_SUCCESS; i++) {
		CHECK_EQ(cuIpcGetMemHandle(&h, p), CUDA_SUCCESS);
		uint64_t before = bytes_of_other();
		CUresult r = told(&o, i % 2 == 0 ? OPEN : OPEN_OLD, -1, &h);
		CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQ(bytes_of_other(), before + (r == CUDA_SUCCESS ? PART : 0));
		CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
		CHECK_EQ(bytes_used(), used);
		held_right(&o);
		if (r != CUDA_SUCCESS)
			break;
		given++;
	}
	CHECK(given >= 2 && given < PARTS);
	name_called("cuIpcOpenMemHandle");
	name_called("cuIpcOpenMemHandle_v2");
	name_called("cuIpcCloseMemHandle");
	while (given-- > 0)
		TOLD(&o, CLOSE);
	CHECK_EQ(bytes_of_other(), bytes_held(o.pid));
	/* What ends with its context is no more charged than what is closed. */
	CHECK_EQ(cuMemAlloc_v2(&p, PART), CUDA_SUCCESS);
	CHECK_EQ(cuIpcGetMemHandle(&h, p), CUDA_SUCCESS);
	CHECK_EQ(told(&o, OPEN, -1, &h), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	other_end(&o);
	WAIT(bytes_held(getpid()) == bytes_charged());
	CHECK_EQ(bytes_used(), used);
}

/* Memory of a pool that another process opens is charged to that one too, for as long as it has it. */
static void test_pool(void)
{
	struct other o = other_begin();
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemPoolPtrExportData data;
	CUdeviceptr p[PARTS];
	CUmemoryPool made;
	int fd, given = 0;
	CHECK_EQ(cuMemPoolCreate(&made, &props), CUDA_SUCCESS);
	CHECK_EQ(cuMemPoolExportToShareableHandle(&fd, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
	CHECK_EQ(told(&o, POOL, fd, NULL), CUDA_SUCCESS);
	uint64_t before = bytes_of_other();
	for (; given < PARTS; given++) {
		CHECK_EQ(cuMemAllocFromPoolAsync(&p[given], PART, made, tenant.stream[0]), CUDA_SUCCESS);
		CHECK_EQ(cuMemPoolExportPointer(&data, p[given]), CUDA_SUCCESS);
		CUresult r = told(&o, POINTER, -1, (const CUipcMemHandle *)(const void *)&data);
		CHECK_EQ(bytes_of_other(), before + (r == CUDA_SUCCESS ? PART : 0));
		held_right(&o);
		if (r == CUDA_ERROR_OUT_OF_MEMORY)
			break; /* two here and one there leave no room */
		CHECK_EQ(r, CUDA_SUCCESS);
		TOLD(&o, FREE);
		CHECK_EQ(bytes_of_other(), before);
	}
	name_called("cuMemPoolImportPointer");
	CHECK_EQ(given, 2);
	for (int i = 0; i <= given; i++)
		CHECK_EQ(cuMemFree_v2(p[i]), CUDA_SUCCESS);
	CHECK_EQ(cuMemPoolDestroy(made), CUDA_SUCCESS);
	CHECK_EQ(bytes_used(), 0);
	close(fd);
	other_end(&o);
}

void test_shared(void)
{
	test_imports();
	test_descriptors();
	test_untold();
	test_ipc();
	test_pool();
	CHECK(bytes_peak(0) <= LIMIT); /* at no moment of all this */
}
