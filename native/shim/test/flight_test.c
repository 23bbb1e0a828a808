/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight_test.c: what happens to a batch while launches of it are in the driver: all that reached it is measured, once, and nothing stays outstanding.
 */
#include "fake_driver.h"
#include "harness.h"
#include "launcher.h"
#include "meter.h"

static struct arbiter arbiter;
static uint64_t kernel = 20 * NS_PER_MS; /* on a device whose clock stands, but for one that runs: batches stay open until a launch, or a wait, closes them */
static uint64_t small = 5 * NS_PER_MS;
static CUstream stream, other;
static CUcontext keep, doomed;

static const struct alq_tel_grant *tel(void)
{
	return &arbiter.tel->slot[get(&task.slot)].grant[0];
}

static uint64_t events(void)
{
	struct fake_stats s;
	fake_read(&s);
	return s.events;
}

/* Closes all batches, as whoever makes a stream that waits for the default stream does. */
static void close_all(void)
{
	CUstream waits;
	CHECK_EQ(cuStreamCreate(&waits, CU_STREAM_DEFAULT), CUDA_SUCCESS);
	CHECK_EQ(cuStreamDestroy_v2(waits), CUDA_SUCCESS);
}

/* Lets everything end. Nothing is outstanding then, in launches or in time. */
static void drain(void)
{
	close_all();
	fake_advance(60 * NS_PER_S);
	WAIT(get_acquire(&tel()->completed) == get_acquire(&tel()->launched));
	CHECK_EQ(tel()->completed_ns, tel()->launched_ns);
}

/* Launches once, with that happening before or after the driver takes it. */
static CUresult launch_while(CUresult (*call)(void), bool after, CUstream into)
{
	fake_at_launch(call, after);
	CUresult r = launch(&kernel, into);
	fake_at_launch(NULL, false);
	return r;
}

/* Kernels that were measured: batches of them stay open. */
static void learn(void)
{
	CHECK_EQ(launch(&kernel, stream), CUDA_SUCCESS);
	drain();
	CHECK_EQ(launch(&small, stream), CUDA_SUCCESS);
	drain();
}

static CUresult capture(void)
{
	CHECK_EQ(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	return CUDA_SUCCESS;
}

/* A batch that is to be closed while a launch is in the driver is closed by that: nothing is put into its stream once a capture goes on. */
static void test_closed_by_the_last(void)
{
	struct fake_stats s;
	CUgraph graph;
	for (int i = 0; i < 20; i++) { /* also in batches that are measured exactly, and close by themselves */
		uint64_t measured = tel()->device_launches;
		CHECK_EQ(launch(&kernel, stream), CUDA_SUCCESS);
		CHECK_EQ(launch_while(capture, i % 2 == 0, stream), CUDA_SUCCESS);
		uint64_t then = events();
		drain();
		CHECK_EQ(events(), then);
		CHECK_EQ(tel()->device_launches, measured + 2);
		CHECK_EQ(cuStreamEndCapture(other, &graph), CUDA_SUCCESS);
	}
	fake_read(&s);
	CHECK_EQ(s.events_captured, 0);
}

static void launch_times(int times)
{
	for (int i = 0; i < times; i++)
		CHECK_EQ(launch(&small, stream), CUDA_SUCCESS);
}

/* A batch is closed by the launch that fills it, and by the watcher when it should have ended, which what is launched wakes. */
static void test_full(void)
{
	uint64_t before = events();
	launch_times(3 * BATCH_LAUNCHES + 1);
	CHECK(events() >= before + 3);
	drain();
	for (int i = 0; i < 3; i++) {
		launch_times(1);
		fake_advance(NS_PER_S);
		WAIT(get_acquire(&tel()->completed) == get_acquire(&tel()->launched));
	}
}

static CUresult fill(void)
{
	fake_at_launch(NULL, false);
	launch_times(BATCH_LAUNCHES - 2);
	return CUDA_SUCCESS;
}

/* A batch that others fill meanwhile stays open until it has left, too: its work is measured. */
static void test_filled_meanwhile(void)
{
	for (int i = 0; i < 9; i++) { /* at least one of them is not closed right after its first */
		uint64_t measured = tel()->device_launches, ns = tel()->device_ns;
		CHECK_EQ(launch(&small, stream), CUDA_SUCCESS);
		fake_at_launch(fill, false);
		CHECK_EQ(launch(&small, stream), CUDA_SUCCESS);
		drain();
		CHECK_EQ(tel()->device_launches - measured, BATCH_LAUNCHES);
		CHECK_EQ((tel()->device_ns - ns + small / 2) / small, BATCH_LAUNCHES);
	}
}

static CUresult fail(void)
{
	return CUDA_ERROR_INVALID_VALUE;
}

/* What the driver refuses is taken out of its batch: the rest is measured, and by itself. */
static void test_refused(void)
{
	uint64_t measured = tel()->device_launches, ns = tel()->device_ns, before = events();
	CHECK_EQ(launch_while(fail, false, stream), CUDA_ERROR_INVALID_VALUE);
	drain();
	CHECK_EQ(events(), before + 1); /* a start, and no end of nothing */
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(launch(&kernel, stream), CUDA_SUCCESS);
		CHECK_EQ(launch_while(fail, false, stream), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQ(launch(&kernel, stream), CUDA_SUCCESS);
		drain();
	}
	CHECK_EQ(tel()->device_launches - measured, 20);
	CHECK_EQ((tel()->device_ns - ns + kernel / 2) / kernel, 20);
}

static CUresult destroy(void)
{
	CHECK_EQ(cuCtxDestroy_v2(doomed), CUDA_SUCCESS);
	CHECK_EQ(cuCtxSetCurrent(keep), CUDA_SUCCESS);
	return CUDA_SUCCESS;
}

/* A context that ends while a launch of it is in the driver: all of its batch is booked, once, whether the driver took the launch or not. */
static void test_destroyed(void)
{
	for (int i = 0; i < 8; i++) {
		CUstream its;
		bool taken = i % 2 == 0;
		CHECK_EQ(cuCtxCreate_v2(&doomed, 0, 10), CUDA_SUCCESS);
		CHECK_EQ(cuStreamCreate(&its, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
		for (int n = 0; n < i / 2; n++)
			CHECK_EQ(launch(&kernel, its), CUDA_SUCCESS);
		CHECK_EQ(launch_while(destroy, taken, its) == CUDA_SUCCESS, taken);
		drain();
	}
	uint64_t measured = tel()->device_launches;
	CHECK_EQ(launch(&kernel, stream), CUDA_SUCCESS);
	drain();
	CHECK_EQ(tel()->device_launches, measured + 1);
}

/* A batch that is full, and waits for who left it last to close it, takes no launch more: the next closes it. */
static void test_full_and_left(void)
{
	static uint64_t longer = 900 * NS_PER_MS; /* so that the watcher does not come between */
	CHECK_EQ(launch(&longer, stream), CUDA_SUCCESS);
	drain();
	for (int i = 0; i < 9; i++) { /* at least one of them is not closed right after its first */
		struct stream *s = stream_known(stream);
		CHECK_EQ(launch(&longer, stream), CUDA_SUCCESS);
		struct batch *had = s->open;
		if (had != NULL)
			__atomic_fetch_or(&had->left, BATCH_FULL, __ATOMIC_SEQ_CST);
		uint64_t before = events();
		CHECK_EQ(launch(&longer, stream), CUDA_SUCCESS);
		CHECK(had == NULL || (s->open != NULL && s->open != had && events() == before + 1));
		drain();
	}
}

#define ROUNDS 40
#define THREADS 4
#define LAUNCHES 100 /* of a thread in a round, so that there are batches for all */
#define CLOSED 10    /* times in a round */

/* Threads that launch into one stream while batches are closed all the time, and now and then the driver refuses. */
static void *launch_into_one(void *unused)
{
	(void)unused;
	CHECK_EQ(cuCtxSetCurrent(keep), CUDA_SUCCESS);
	for (int i = 0; i < LAUNCHES; i++)
		(void)launch(&small, stream);
	return NULL;
}

static CUresult fail_at_times(void)
{
	static uint32_t calls;
	uint32_t n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
	return n % 7 == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static void test_together(void)
{
	pthread_t t[THREADS];
	struct fake_stats before, after;
	fake_at_launch(fail_at_times, false);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t measured = tel()->device_launches;
		fake_read(&before);
		for (int i = 0; i < THREADS; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, launch_into_one, NULL), 0);
		for (int i = 0; i < CLOSED; i++)
			close_all();
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
		drain();
		fake_read(&after);
		CHECK_EQ(tel()->device_launches - measured, after.launches - before.launches);
	}
	fake_at_launch(NULL, false);
}

int main(void)
{
	arbiter_make(&arbiter, 1, 1ull << 40, 1ull << 40);
	arbiter_serve(&arbiter);
	tenant_start(&arbiter);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	arbiter.ctl->grant[0].run_ahead_ns = arbiter.ctl->grant[0].run_ahead_share_ns = 4 * NS_PER_S;
	CHECK_EQ(cuCtxGetCurrent(&keep), CUDA_SUCCESS);
	CHECK_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	CHECK_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	fake_run(false);
	learn();
	test_closed_by_the_last();
	test_full();
	test_filled_meanwhile();
	test_refused();
	test_destroyed();
	test_full_and_left();
	test_together();
	arbiter_remove(&arbiter);
	printf("flight: ok\n");
	return 0;
}
