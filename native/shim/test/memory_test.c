/* SPDX-License-Identifier: Apache-2.0 */
/* memory_test.c: floors and ceilings of memory, in one process and over many at once. */
#include "fake_driver.h"
#include "harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define MI (1ull << 20)

static struct arbiter arbiter;
static char *self;

static uint64_t used(void)
{
	return get_seq(&tel_of(0)->mem_used);
}

static void test_rounding(void)
{
	CHECK_EQ(memory_round(0), 0);
	CHECK_EQ(memory_round(1), 2 * MI);
	CHECK_EQ(memory_round(2 * MI), 2 * MI);
	CHECK_EQ(memory_round(2 * MI + 1), 4 * MI);
	CHECK(memory_round(UINT64_MAX) == UINT64_MAX);
}

/* To the byte: what fits fits, one block more does not, and a refusal leaves nothing behind. */
static void test_ceiling(void)
{
	CUdeviceptr p[40];
	int n = 0;
	uint64_t refused = get(&tel_of(0)->mem_refused);
	while (cuMemAlloc_v2(&p[n], 2 * MI) == CUDA_SUCCESS)
		n++;
	CHECK_EQ(n, 32); /* 64 MiB granted, nothing to be lent */
	CHECK_EQ(used(), 64 * MI);
	CHECK_EQ(get(&tel_of(0)->mem_refused), refused + 1);
	CUdeviceptr tiny;
	CHECK_EQ(cuMemAlloc_v2(&tiny, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(cuMemAlloc_v2(&tiny, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(used(), 64 * MI);
	for (int i = 0; i < n; i++)
		CHECK_EQ(cuMemFree_v2(p[i]), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
}

static void test_driver_refuses(void)
{
	CUdeviceptr p;
	CHECK_EQ(cuMemAlloc_v2(&p, FAKE_REFUSED), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(used(), 0);
}

/* Above what is granted the arbiter is asked; never above the ceiling. */
static void test_lent(void)
{
	CUdeviceptr p;
	put(&arbiter.lendable, 1024 * MI);
	CHECK_EQ(cuMemAlloc_v2(&p, 100 * MI), CUDA_SUCCESS);
	CHECK_EQ(get(&arbiter.ctl->grant[0].mem_granted), 100 * MI);
	uint32_t asks = get(&arbiter.asks);
	CUdeviceptr q;
	CHECK_EQ(cuMemAlloc_v2(&q, 30 * MI), CUDA_ERROR_OUT_OF_MEMORY); /* the ceiling is 128 MiB */
	CHECK_EQ(get(&arbiter.asks), asks);
	CHECK_EQ(cuMemAlloc_v2(&q, 28 * MI), CUDA_SUCCESS);
	size_t free_bytes, total;
	CHECK_EQ(cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
	CHECK_EQ(total, 128 * MI);
	CHECK_EQ(free_bytes, 0);
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(q), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
	put(&arbiter.lendable, 0);
	put_seq(&arbiter.ctl->grant[0].mem_granted, 64 * MI);
}

static CUcontext ours; /* for threads */

static void *takes(void *result)
{
	CUdeviceptr p = 0;
	CHECK_EQ(cuCtxSetCurrent(ours), CUDA_SUCCESS);
	*(CUresult *)result = cuMemAlloc_v2(&p, 40 * MI);
	CHECK(p == 0 || (used() == 40 * MI && cuMemFree_v2(p) == CUDA_SUCCESS));
	return NULL;
}

/* Within the floor, of which nothing is granted now. */
static pthread_t take_lent(CUresult *result)
{
	pthread_t thread;
	put_seq(&arbiter.ctl->grant[0].mem_granted, 0);
	put(&arbiter.lendable, 0);
	CHECK_EQ(pthread_create(&thread, NULL, takes, result), 0);
	return thread;
}

/* What is lent of a floor is waited for, also over the arbiter's death; above the floor nothing is. */
static void test_own(void)
{
	CUresult result = CUDA_ERROR_UNKNOWN;
	CUdeviceptr p;
	size_t free_bytes, total;
	CHECK_EQ(cuCtxGetCurrent(&ours), CUDA_SUCCESS);
	put(&arbiter.patient, true);
	pthread_t thread = take_lent(&result);
	WAIT(get(&arbiter.kept) == 1);
	CHECK_EQ(cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
	CHECK_EQ(free_bytes, 64 * MI); /* its own all the same */
	put(&arbiter.lendable, 64 * MI);
	pthread_join(thread, NULL);
	CHECK_EQ(result, CUDA_SUCCESS);

	thread = take_lent(&result);
	WAIT(get(&arbiter.kept) == 2);
	arbiter_die(&arbiter);
	put(&arbiter.lendable, 64 * MI);
	arbiter_serve(&arbiter);
	pthread_join(thread, NULL);
	CHECK_EQ(result, CUDA_SUCCESS);

	thread = take_lent(&result);
	WAIT(get(&arbiter.kept) == 3);
	arbiter_die(&arbiter);
	CHECK_EQ(cuMemAlloc_v2(&p, 66 * MI), CUDA_ERROR_OUT_OF_MEMORY); /* the floor is 64 MiB */
	put(&arbiter.ctl->grant[0].policy_flags, ALQ_POLICY_STOPPED);
	pthread_join(thread, NULL);
	CHECK_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(used(), 0);
	put(&arbiter.ctl->grant[0].policy_flags, 0);
	put(&arbiter.patient, false);
	put_seq(&arbiter.ctl->grant[0].mem_granted, 64 * MI);
	arbiter_serve(&arbiter);
	WAIT(get_acquire(&task.alone_ns) == 0);
}

/* A resize works in place: what is held stays, what is new is judged by the new limits. */
static void test_resize(void)
{
	CUdeviceptr p, q;
	CHECK_EQ(cuMemAlloc_v2(&p, 60 * MI), CUDA_SUCCESS);
	put(&arbiter.ctl->grant[0].mem_ceiling, 40 * MI);
	CHECK_EQ(cuMemAlloc_v2(&q, 2 * MI), CUDA_ERROR_OUT_OF_MEMORY);
	size_t free_bytes, total;
	CHECK_EQ(cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
	CHECK_EQ(total, 40 * MI);
	CHECK_EQ(free_bytes, 0);
	CHECK_EQ(cuDeviceTotalMem_v2(&total, 10), CUDA_SUCCESS);
	CHECK_EQ(total, 40 * MI);
	put(&arbiter.ctl->grant[0].mem_ceiling, 128 * MI);
	CHECK_EQ(cuMemAlloc_v2(&q, 2 * MI), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(q), CUDA_SUCCESS);
}

/* Physical memory is held until it is released and mapped nowhere. */
static void test_virtual(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 10}};
	CUmemGenericAllocationHandle h, again;
	CHECK_EQ(cuMemCreate(&h, 4 * MI, &prop, 0), CUDA_SUCCESS);
	CHECK_EQ(used(), 4 * MI);
	CHECK_EQ(cuMemMap(0x100000000, 4 * MI, 0, h, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemMap(0x100000000 + 4 * MI, 4 * MI, 0, h, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemRelease(h), CUDA_SUCCESS);
	CHECK_EQ(used(), 4 * MI);
	CHECK_EQ(cuMemUnmap(0x100000000, 8 * MI), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
	CHECK_EQ(cuMemCreate(&again, 4 * MI, &prop, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemMap(0x100000000, 4 * MI, 0, again, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemUnmap(0x100000000, 4 * MI), CUDA_SUCCESS);
	CHECK_EQ(used(), 4 * MI);
	CHECK_EQ(cuMemRelease(again), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
	prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
	CHECK_EQ(cuMemCreate(&h, 4 * MI, &prop, 0), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
}

static CUmemGenericAllocationHandle second;

static void second_made(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 10}};
	CHECK_EQ(cuMemCreate(&second, 6 * MI, &prop, 0), CUDA_SUCCESS);
}

/* Another thread is given a handle again before its release is over, or the unmapping by which its memory went: each has its own charge. */
static void test_handle_again(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 10}};
	CUmemGenericAllocationHandle h;
	for (int mapped = 0; mapped < 2; mapped++) {
		CHECK_EQ(cuMemCreate(&h, 4 * MI, &prop, 0), CUDA_SUCCESS);
		if (mapped != 0) {
			CHECK_EQ(cuMemMap(0x100000000, 4 * MI, 0, h, 0), CUDA_SUCCESS);
			CHECK_EQ(cuMemRelease(h), CUDA_SUCCESS);
		}
		fake_at_release(second_made, false);
		CHECK_EQ(mapped != 0 ? cuMemUnmap(0x100000000, 4 * MI) : cuMemRelease(h), CUDA_SUCCESS);
		CHECK_EQ(second, h);
		CHECK_EQ(used(), 6 * MI);
		CHECK_EQ(cuMemRelease(second), CUDA_SUCCESS);
		CHECK_EQ(used(), 0);
	}
	/* What the driver does not release stays charged. */
	CHECK_EQ(cuMemCreate(&h, 4 * MI, &prop, 0), CUDA_SUCCESS);
	fake_at_release(NULL, true);
	CHECK_EQ(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(used(), 4 * MI);
	fake_at_release(NULL, false);
	CHECK_EQ(cuMemRelease(h), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
}

static void test_arrays(void)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 1024, .Height = 1024, .Depth = 2, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};
	CUarray array;
	CHECK_EQ(cuArray3DCreate_v2(&array, &d), CUDA_SUCCESS);
	CHECK_EQ(used(), 16 * MI);
	CHECK_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
}

/* Memory of a destroyed context is given back with it. */
static void test_context(void)
{
	CUcontext keep, ctx;
	CUdeviceptr p;
	CHECK_EQ(cuCtxGetCurrent(&keep), CUDA_SUCCESS);
	CHECK_EQ(cuCtxCreate_v2(&ctx, 0, 10), CUDA_SUCCESS);
	for (int i = 0; i < 5; i++)
		CHECK_EQ(cuMemAlloc_v2(&p, 2 * MI), CUDA_SUCCESS);
	CHECK_EQ(used(), 10 * MI);
	CHECK_EQ(cuCtxDestroy_v2(ctx), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
	CHECK_EQ(cuCtxSetCurrent(keep), CUDA_SUCCESS);
}

/* Many addresses: the table grows and forgets. */
static void test_table(void)
{
	static CUdeviceptr p[5000];
	uint64_t random = 1;
	for (int i = 0; i < 5000; i++)
		CHECK_EQ(cuMemAlloc_v2(&p[i], 512), CUDA_SUCCESS);
	CHECK_EQ(used(), 4 * MI); /* 4096 in a block */
	for (int round = 0; round < 20000; round++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		int i = (int)(random >> 33) % 5000;
		CHECK_EQ(cuMemFree_v2(p[i]), CUDA_SUCCESS);
		CHECK_EQ(cuMemAlloc_v2(&p[i], 512), CUDA_SUCCESS);
	}
	CHECK_EQ(used(), 4 * MI);
	for (int i = 0; i < 5000; i++)
		CHECK_EQ(cuMemFree_v2(p[i]), CUDA_SUCCESS);
	CHECK_EQ(used(), 0);
}

/* ------------------------------------------------------------------------------------------------------ many processes */

#define WORKERS 6
#define TRIES 100000 /* of all together */

/* A piece or a block or two. */
static size_t draw(uint64_t *random)
{
	*random = *random * 6364136223846793005ull + 1442695040888963407ull;
	uint64_t r = *random >> 33;
	return (r & 1) != 0 ? 512 + (r >> 1) % (MI - 512) : FAKE_BLOCK * (1 + (r >> 1 & 1));
}

/* One of many: takes and gives back as fast as it can. */
static int worker(void)
{
	CUdeviceptr p[16];
	CUcontext ctx;
	int held = 0, modules = 0;
	uint64_t random = (uint64_t)getpid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxCreate_v2(&ctx, 0, 10), CUDA_SUCCESS);
	int fd = open(getenv("FAKE_MEMORY"), O_RDWR);
	struct fake_memory *all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(all != MAP_FAILED);
	__atomic_fetch_add(&all->arrived, 1, __ATOMIC_SEQ_CST);
	WAIT(get(&all->arrived) >= WORKERS);
	for (int i = 0; i < TRIES / WORKERS + 1; i++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		if (held < 16 && (random >> 62) != 0) {
			CUresult r = cuMemAlloc_v2(&p[held], draw(&random));
			CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
			held += r == CUDA_SUCCESS;
		} else if (held > 0) {
			CHECK_EQ(cuMemFree_v2(p[--held]), CUDA_SUCCESS);
		}
		if (i % 256 == 0) { /* what blocks hold now is returned by the driver's books */
			pieces_module(1);
			pieces_module(0);
			modules++;
		}
	}
	/* In the end all press against the limit together: nobody gives back until everybody has been refused or has its fill. */
	__atomic_fetch_add(&all->arrived, 1, __ATOMIC_SEQ_CST);
	WAIT(get(&all->arrived) >= 2 * WORKERS);
	while (held < 16 && cuMemAlloc_v2(&p[held], FAKE_BLOCK) == CUDA_SUCCESS)
		held++;
	__atomic_fetch_add(&all->arrived, 1, __ATOMIC_SEQ_CST);
	WAIT(get(&all->arrived) >= 3 * WORKERS);
	while (held > 0)
		CHECK_EQ(cuMemFree_v2(p[--held]), CUDA_SUCCESS);
	while (modules-- > 0)
		pieces_module(-1);
	CHECK_EQ(used(), 0);
	return 0;
}

static pid_t worker_start(const char *role)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		execl(self, self, role, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void shared_memory(void)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/memory", arbiter.folder);
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	struct fake_memory empty = {0};
	CHECK(fd >= 0 && write(fd, &empty, sizeof(empty)) == (ssize_t)sizeof(empty));
	setenv("FAKE_MEMORY", path, 1);
	close(fd);
}

static struct fake_memory shared_now(void)
{
	struct fake_memory now;
	int fd = open(getenv("FAKE_MEMORY"), O_RDONLY);
	CHECK(fd >= 0 && read(fd, &now, sizeof(now)) == (ssize_t)sizeof(now));
	close(fd);
	return now;
}

/* All processes together never hold a byte more than is granted, by the driver's own count of the blocks that it has taken. */
static void test_race(void)
{
	pid_t pids[WORKERS];
	int status;
	shared_memory();
	setenv("ALIQUOT_TASK", arbiter.folder, 1);
	for (int i = 0; i < WORKERS; i++)
		pids[i] = worker_start("worker");
	for (int i = 0; i < WORKERS; i++) {
		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		CHECK_EQ(status, 0);
	}
	struct fake_memory m = shared_now();
	CHECK_EQ(m.held, 0);
	CHECK_EQ(m.most, 64 * MI); /* the limit, and it was really pressed against */
}

/* A process that dies while it holds the lock of the sums, or memory, stops nobody. */
static int dies_locked(void)
{
	CUcontext ctx;
	CUdeviceptr p;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxCreate_v2(&ctx, 0, 10), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, 32 * MI), CUDA_SUCCESS);
	uint32_t slot = get(&task.slot);
	uint32_t word = ((uint32_t)get(&task.tel->slot[slot].pid) << 6 | slot) & 0x3fffffffu;
	put_seq(&task.tel->mem_lock, word);
	raise(SIGKILL);
	return 1;
}

static void test_dead_owner(void)
{
	int status;
	for (int round = 0; round < 2; round++) { /* the second takes the first one's slot */
		pid_t pid = worker_start("dies-locked");
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		CHECK(get(&arbiter.tel->mem_lock) != 0);
		CUdeviceptr p;
		WAIT(cuMemAlloc_v2(&p, 40 * MI) == CUDA_SUCCESS); /* fits once the dead one's memory is nobody's */
		CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
		CHECK_EQ(get(&arbiter.tel->mem_lock), 0);
	}
}

/* Takes memory in every way until the point named in its environment ends it. */
static int dies_at_point(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 10}};
	CUmemGenericAllocationHandle handle;
	static uint64_t kernel = 1;
	CUcontext ctx;
	CUdeviceptr p;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxCreate_v2(&ctx, 0, 10), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&p, 32 * MI), CUDA_SUCCESS);
	CHECK_EQ(cuMemCreate(&handle, 2 * MI, &prop, 0), CUDA_SUCCESS);
	cuLaunchKernel((CUfunction)&kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); /* waits at the closed gate, or goes */
	return 0;
}

/* Wherever a process dies, the others go on and its memory is nobody's. */
static void test_points(void)
{
	const char *points[] = {"shim.memory.locked",  "shim.memory.reserved", "shim.memory.allocated",
				"shim.memory.created", "shim.gate.waiting",    "shim.gate.passed"};
	char log[300], line[64];
	snprintf(log, sizeof(log), "%s/memory", arbiter.folder);
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		int status;
		CUdeviceptr p;
		unlink(log);
		setenv("ALIQUOT_KILL_AT", points[i], 1);
		setenv("ALIQUOT_KILL_LOG", log, 1);
		if (strcmp(points[i], "shim.gate.passed") == 0)
			gate_open(&arbiter, 0, UINT64_MAX - 1);
		pid_t pid = worker_start("dies-at-point");
		unsetenv("ALIQUOT_KILL_AT");
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		FILE *reached = fopen(log, "r");
		CHECK(reached != NULL && fgets(line, sizeof(line), reached) != NULL);
		CHECK(strncmp(line, points[i], strlen(points[i])) == 0);
		fclose(reached);
		WAIT(cuMemAlloc_v2(&p, 64 * MI) == CUDA_SUCCESS);
		CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
		CHECK_EQ(used(), 0);
	}
	gate_close(&arbiter, 0);
}

int main(int argc, char **argv)
{
	self = argv[0];
	fake_books(true);
	if (argc > 1)
		return strcmp(argv[1], "worker") == 0	     ? worker()
		       : strcmp(argv[1], "dies-locked") == 0 ? dies_locked()
							     : dies_at_point();
	arbiter_make(&arbiter, 1, 64 * MI, 128 * MI);
	arbiter_serve(&arbiter);
	test_race();
	unsetenv("FAKE_MEMORY");
	tenant_start(&arbiter);
	test_rounding();
	test_ceiling();
	test_driver_refuses();
	test_lent();
	test_own();
	test_resize();
	test_virtual();
	test_handle_again();
	test_arrays();
	test_context();
	test_table();
	test_dead_owner();
	test_points();
	arbiter_remove(&arbiter);
	printf("memory: ok\n");
	return 0;
}
