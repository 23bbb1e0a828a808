/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_cost.c: what a launch costs with an open gate, and an allocation with its free, through the finished library, against the same call into
 * the same driver without it. The two sides take turns. A few calls in a row are timed together, so that the clock costs little; what stands is
 * the median of all of these, and beside it their mean, in which is what happens once in many calls. No launch waits: the run-ahead is far larger
 * than all of them; between turns all that was launched ends, so that there is always a batch to measure the next in. A driver that does nothing
 * stands in, so the difference is all ours.
 *
 * A real driver runs and reads more than the caches nearest to a core hold, so our code and data have left them when it answers and when the next
 * launch comes. That is measured, too, call by call, with a driver that fills these caches in each launch, less the time that this takes; what stands
 * is the mean of the middle half.
 *
 * Where somebody else works on the core's other hyperthread, which a virtual machine cannot see, all but the reading of the clock takes up to
 * twice as long. The driver's launch here is mostly that; its allocation is not, and shows it.
 */
#include "fake_driver.h"
#include "harness.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define ROUNDS 51
#define GROUPS 200 /* in a round */
#define CALLS 10   /* in a group */

struct costs {
	double ns[ROUNDS * GROUPS]; /* of one call */
	int count;
	double median, mean;
	double middle; /* the mean of the middle half: of single calls, which some clocks tell in steps of 10 ns */
};

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void reckon(struct costs *c)
{
	qsort(c->ns, (size_t)c->count, sizeof *c->ns, by_size);
	c->median = c->ns[c->count / 2];
	for (int i = 0; i < c->count; i++)
		c->mean += c->ns[i] / c->count;
	for (int i = c->count / 4; i < c->count * 3 / 4; i++)
		c->middle += c->ns[i] / (c->count * 3 / 4 - c->count / 4);
}

#define LINE 64              /* bytes of a cache line */
#define COOL_CODE (96 << 10) /* bytes of code and of data: more than the caches next to a core hold */
#define COOL_DATA (96 << 10)

/* Code of COOL_CODE that jumps from each of its lines to another; NULL: there is no memory that may be run. */
static void (*cool_code(void))(void)
{
	enum { LINES = COOL_CODE / LINE, STEP = 277 }; /* no two in a row beside each other; STEP and LINES have no common factor */
	uint8_t *code = mmap(NULL, COOL_CODE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		return NULL;
	for (int i = 0, at = 0; i < LINES; i++, at = (at + STEP) % LINES) {
		int32_t jump = (int32_t)((at + STEP) % LINES - at) * LINE - 5;
		code[at * LINE] = i == LINES - 1 ? 0xc3 : 0xe9; /* ret; jmp rel32 */
		memcpy(&code[at * LINE + 1], &jump, sizeof(jump));
	}
	void (*run)(void) = NULL;
	if (mprotect(code, COOL_CODE, PROT_READ | PROT_EXEC) == 0)
		memcpy(&run, &code, sizeof(run));
	return run;
}

static void (*code)(void);
static uint64_t cooling_ns;

/* Fills the nearest caches. */
static CUresult cool(void)
{
	static volatile uint8_t data[COOL_DATA];
	uint64_t begin = clock_now();
	for (int i = 0; i < COOL_DATA; i += LINE)
		data[i]++;
	code();
	cooling_ns = clock_now() - begin;
	return CUDA_SUCCESS;
}

static void launches(struct costs *c, __typeof__(cuLaunchKernel) *launch, uint64_t *kernel, CUstream stream)
{
	for (int group = 0; group < GROUPS; group++) {
		uint64_t begin = clock_now();
		for (int i = 0; i < CALLS; i++)
			CHECK_EQ(launch((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_SUCCESS);
		c->ns[c->count++] = (double)(clock_now() - begin) / CALLS;
	}
}

/* Single launches by a driver that fills the nearest caches with other things in each. */
static void cold_launches(struct costs *c, __typeof__(cuLaunchKernel) *launch, uint64_t *kernel, CUstream stream)
{
	fake_at_launch(cool, false);
	for (int i = 0; i < GROUPS; i++) {
		uint64_t begin = clock_now();
		CUresult r = launch((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
		c->ns[c->count++] = (double)(clock_now() - begin - cooling_ns);
		CHECK_EQ(r, CUDA_SUCCESS);
	}
	fake_at_launch(NULL, false);
}

/* Launches of another thread meanwhile, into a stream of its own. */
static bool beside;
static uint64_t beside_kernel = 1;
static CUstream beside_stream;

static void *launch_beside(void *launch)
{
	for (int i = 0; i < GROUPS * CALLS && __atomic_load_n(&beside, __ATOMIC_ACQUIRE); i++)
		CHECK_EQ((*(__typeof__(cuLaunchKernel) **)launch)((CUfunction)&beside_kernel, 1, 1, 1, 1, 1, 1, 0, beside_stream, NULL, NULL), CUDA_SUCCESS);
	return NULL;
}

static void launches_beside(struct costs *c, __typeof__(cuLaunchKernel) *launch, uint64_t *kernel, CUstream stream)
{
	pthread_t t;
	beside = true;
	pthread_create(&t, NULL, launch_beside, &launch);
	launches(c, launch, kernel, stream);
	__atomic_store_n(&beside, false, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
}

/* Waits until all that was launched is known to have ended. */
static void drain(const struct alq_tel_grant *t)
{
	WAIT(get_acquire(&t->completed) == get_acquire(&t->launched));
}

/* The same for memory: an allocation with its free. */
static void pairs(struct costs *c, size_t bytes, __typeof__(cuMemAlloc_v2) *allocate, __typeof__(cuMemFree_v2) *release)
{
	CUdeviceptr p;
	for (int group = 0; group < GROUPS; group++) {
		uint64_t begin = clock_now();
		for (int i = 0; i < CALLS; i++) {
			CHECK_EQ(allocate(&p, bytes), CUDA_SUCCESS);
			CHECK_EQ(release(p), CUDA_SUCCESS);
		}
		c->ns[c->count++] = (double)(clock_now() - begin) / CALLS;
	}
}

#define HANDLES 40000 /* of 2 MiB: a device of 80 GB */

/* Handles of virtual memory, each with its release. */
static void handles(struct costs *c, __typeof__(cuMemCreate) *create, __typeof__(cuMemRelease) *release)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 10}};
	CUmemGenericAllocationHandle h;
	for (int group = 0; group < GROUPS; group++) {
		uint64_t begin = clock_now();
		for (int i = 0; i < CALLS; i++) {
			CHECK_EQ(create(&h, 2u << 20, &prop, 0), CUDA_SUCCESS);
			CHECK_EQ(release(h), CUDA_SUCCESS);
		}
		c->ns[c->count++] = (double)(clock_now() - begin) / CALLS;
	}
}

/* With no other handle, and among many. */
static void handles_among(struct costs *plain, struct costs *alone, struct costs *among, void *driver)
{
	static CUmemGenericAllocationHandle all[HANDLES];
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 10}};
	handles(plain, (__typeof__(cuMemCreate) *)dlsym(driver, "cuMemCreate"), (__typeof__(cuMemRelease) *)dlsym(driver, "cuMemRelease"));
	handles(alone, cuMemCreate, cuMemRelease);
	for (int i = 0; i < HANDLES; i++)
		CHECK_EQ(cuMemCreate(&all[i], 2u << 20, &prop, 0), CUDA_SUCCESS);
	handles(among, cuMemCreate, cuMemRelease);
	for (int i = 0; i < HANDLES; i++)
		CHECK_EQ(cuMemRelease(all[i]), CUDA_SUCCESS);
	reckon(plain), reckon(alone), reckon(among);
	printf("a handle of virtual memory with its release: %.1f ns without the shim, %+.1f ns with it, %+.1f ns among %d others\n", plain->median,
	       alone->median - plain->median, among->median - plain->median, HANDLES);
}

int main(void)
{
	static struct arbiter arbiter;
	static uint64_t kernel = 1, longer = 40000; /* ns: the longer one is always at work when the next comes */
	static struct costs plain, gated, ungated, streamed, pair, counted, piece, piece_counted, handle, alone, among, cold, cold_gated, two, two_gated;
	CUdeviceptr held;
	CUstream stream;
	void *driver = dlopen("libcuda-real.so.1", RTLD_NOW | RTLD_NOLOAD);
	CHECK(driver != NULL);
	__typeof__(cuLaunchKernel) *launch = (__typeof__(cuLaunchKernel) *)dlsym(driver, "cuLaunchKernel");
	__typeof__(cuMemAlloc_v2) *allocate = (__typeof__(cuMemAlloc_v2) *)dlsym(driver, "cuMemAlloc_v2");
	__typeof__(cuMemFree_v2) *release = (__typeof__(cuMemFree_v2) *)dlsym(driver, "cuMemFree_v2");
	code = cool_code();
	CHECK(code != NULL);
	arbiter_make(&arbiter, 1, 1ull << 40, 1ull << 40);
	arbiter.ctl->grant[0].run_ahead_ns = 4000000000u;
	arbiter_serve(&arbiter);
	tenant_start(&arbiter);
	CHECK_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	CHECK_EQ(cuStreamCreate(&beside_stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	fake_run(true);
	const struct alq_tel_grant *t = &arbiter.tel->slot[0].grant[0];
	CHECK_EQ(cuMemAlloc_v2(&held, 512), CUDA_SUCCESS); /* so that pieces come out of a block that is there */
	for (int i = 0; i < ROUNDS; i++) {
		launches(&plain, launch, &kernel, NULL);
		gate_open(&arbiter, 0, UINT64_MAX - 1);
		launches(&gated, cuLaunchKernel, &kernel, NULL);
		drain(t);
		launches(&streamed, cuLaunchKernel, &kernel, stream);
		drain(t);
		cold_launches(&cold, launch, &longer, stream);
		cold_launches(&cold_gated, cuLaunchKernel, &longer, stream);
		drain(t);
		gate_ungate(&arbiter, 0);
		launches(&ungated, cuLaunchKernel, &kernel, NULL);
		drain(t);
		pairs(&pair, 2u << 20, allocate, release);
		pairs(&counted, 2u << 20, cuMemAlloc_v2, cuMemFree_v2);
		pairs(&piece, 512, allocate, release);
		pairs(&piece_counted, 512, cuMemAlloc_v2, cuMemFree_v2);
	}
	CHECK_EQ(t->device_launches, t->launched); /* each was measured, as a program's are */
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	for (int i = 0; i < ROUNDS; i++) { /* where two threads leave no processor to the one that measures, some are not */
		launches_beside(&two, launch, &kernel, stream);
		launches_beside(&two_gated, cuLaunchKernel, &kernel, stream);
		drain(t);
	}
	reckon(&plain), reckon(&gated), reckon(&ungated), reckon(&streamed), reckon(&pair), reckon(&counted), reckon(&piece), reckon(&piece_counted), reckon(&cold), reckon(&cold_gated), reckon(&two), reckon(&two_gated);
	printf("a launch: %.1f ns without the shim, %+.1f ns with the gate open, %+.1f ns ungated (on average %.1f, %+.1f, %+.1f)\n", plain.median,
	       gated.median - plain.median, ungated.median - plain.median, plain.mean, gated.mean - plain.mean, ungated.mean - plain.mean);
	printf("a launch into a stream: %+.1f ns with the gate open (on average %+.1f)\n", streamed.median - plain.median, streamed.mean - plain.mean);
	printf("a launch by a driver that fills the nearest caches with other things: %.1f ns without the shim, %+.1f ns with it\n", cold.middle,
	       cold_gated.middle - cold.middle);
	printf("a launch beside those of another thread: on average %.1f ns without the shim, %+.1f ns with it\n", two.mean, two_gated.mean - two.mean);
	printf("an allocation with its free: %.1f ns without the shim, %+.1f ns with it (on average %.1f, %+.1f)\n", pair.median,
	       counted.median - pair.median, pair.mean, counted.mean - pair.mean);
	printf("the same under 1 MiB: %.1f ns without the shim, %+.1f ns with it (on average %.1f, %+.1f)\n", piece.median,
	       piece_counted.median - piece.median, piece.mean, piece_counted.mean - piece.mean);
	handles_among(&handle, &alone, &among, driver);
	printf("medians of %d times %d calls, in turns, but where the caches are full: there of the middle half of %d calls\n", ROUNDS * GROUPS, CALLS, ROUNDS * GROUPS);
	arbiter_remove(&arbiter);
	return 0;
}
