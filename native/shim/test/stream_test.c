/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_test.c: launches go by the context of their stream, on two devices; streams, captures and contexts that end, seen and unseen. Judged by what
 * reaches the driver, which counts whoever names what is gone.
 */
#include "fake_driver.h"
#include "harness.h"
#include "launcher.h"
#include "meter.h"

static struct arbiter arbiter;
static CUcontext context[2];
static CUstream stream[2];

static const struct alq_tel_grant *tel(uint32_t grant)
{
	return &arbiter.tel->slot[get(&task.slot)].grant[grant];
}

static struct fake_stats stats(void)
{
	struct fake_stats s;
	fake_read(&s);
	return s;
}

static bool at_rest(void)
{
	return get_acquire(&tel(0)->completed) == get_acquire(&tel(0)->launched) && get_acquire(&tel(1)->completed) == get_acquire(&tel(1)->launched);
}

static void drain(void)
{
	fake_run(true);
	WAIT(at_rest());
}

static void begin(void)
{
	for (uint32_t g = 0; g < 2; g++)
		gate_open(&arbiter, g, UINT64_MAX - 1);
	CHECK_EQ(cuCtxSetCurrent(context[0]), CUDA_SUCCESS);
	drain();
}

static CUstream stream_on(uint32_t device)
{
	CUcontext before;
	CUstream s;
	CHECK_EQ(cuCtxGetCurrent(&before), CUDA_SUCCESS);
	CHECK_EQ(cuCtxSetCurrent(context[device]), CUDA_SUCCESS);
	CHECK_EQ(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	CHECK_EQ(cuCtxSetCurrent(before), CUDA_SUCCESS);
	return s;
}

static void *copy_body(void *s)
{
	CHECK_EQ(cuCtxSetCurrent(context[0]), CUDA_SUCCESS);
	CHECK_EQ(cuMemcpyHtoDAsync_v2(1, NULL, 8 << 20, s), CUDA_SUCCESS);
	return NULL;
}

/* A copy into another device's stream waits at that device's gate, is charged to that device's grant, and is measured. */
static void test_other_device(void)
{
	pthread_t thread;
	begin();
	uint64_t here = tel(0)->launched, there = tel(1)->launched, on = stats().on_device[1];
	gate_close(&arbiter, 1);
	CHECK_EQ(pthread_create(&thread, NULL, copy_body, stream[1]), 0);
	WAIT(get_seq(&tel(1)->wait_since_ns) != 0 || stats().on_device[1] != on);
	CHECK_EQ(stats().on_device[1], on);
	gate_open(&arbiter, 1, UINT64_MAX - 1);
	pthread_join(thread, NULL);
	CHECK_EQ(stats().on_device[1], on + 1);
	CHECK_EQ(tel(1)->launched, there + 1);
	CHECK_EQ(tel(0)->launched, here);
	drain();

	fake_run(false);
	uint64_t measured = tel(1)->device_launches, ns = tel(1)->device_ns;
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(cuMemcpyHtoDAsync_v2(1, NULL, 8 << 20, stream[1]), CUDA_SUCCESS);
		fake_advance(10 * NS_PER_MS);
		WAIT(at_rest());
	}
	CHECK_EQ(tel(1)->device_launches, measured + 10);
	uint64_t is = 10 * ((8 << 20) / 10), got = tel(1)->device_ns - ns;
	CHECK(got >= is - is / 100 && got <= is + is / 100);
}

static uint64_t kernel_ns = 100 * NS_PER_US;

static void *without_context(void *s)
{
	CHECK_EQ(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	CHECK_EQ(launch(&kernel_ns, s), CUDA_SUCCESS);
	return NULL;
}

/* A library's kernel may be launched into a stream by a thread that has no context. */
static void test_no_context(void)
{
	pthread_t thread;
	begin();
	for (int again = 0; again < 2; again++) {
		uint64_t on = stats().on_device[1], launched = tel(1)->launched, measured = tel(1)->device_launches;
		gate_close(&arbiter, 1);
		CHECK_EQ(pthread_create(&thread, NULL, without_context, stream[1]), 0);
		WAIT(get_seq(&tel(1)->wait_since_ns) != 0 || stats().on_device[1] != on);
		CHECK_EQ(stats().on_device[1], on);
		gate_open(&arbiter, 1, UINT64_MAX - 1);
		pthread_join(thread, NULL);
		CHECK_EQ(tel(1)->launched, launched + 1);
		drain();
		CHECK_EQ(tel(1)->device_launches, measured + 1);
	}
}

/* More streams than are found at once, on both devices in turns: each launch reaches its own device's books. */
static void test_many(void)
{
	static CUstream many[4 * ROUTES];
	begin();
	for (uint32_t i = 0; i < 4 * ROUTES; i++)
		many[i] = stream_on(i % 2);
	for (int round = 0; round < 2; round++) {
		uint64_t a = tel(0)->launched, b = tel(1)->launched;
		for (uint32_t i = 0; i < 4 * ROUTES; i++)
			CHECK_EQ(launch(&kernel_ns, many[i]), CUDA_SUCCESS);
		CHECK_EQ(tel(0)->launched - a, 2 * ROUTES);
		CHECK_EQ(tel(1)->launched - b, 2 * ROUTES);
	}
	for (uint32_t i = 0; i < 4 * ROUTES; i++)
		CHECK_EQ(cuStreamDestroy_v2(many[i]), CUDA_SUCCESS);
	drain();
}

/* A stream of a device that is not the current one is destroyed with a batch open in it. */
static void test_destroyed(void)
{
	begin();
	CHECK_EQ(launch(&kernel_ns, stream[1]), CUDA_SUCCESS); /* measured, so that batches stay open */
	drain();
	for (int i = 0; i < 20; i++) {
		CUstream s = stream_on(1);
		CHECK_EQ(cuCtxSetCurrent(context[1]), CUDA_SUCCESS);
		CHECK_EQ(launch(&kernel_ns, s), CUDA_SUCCESS);
		CHECK_EQ(launch(&kernel_ns, s), CUDA_SUCCESS);
		CHECK_EQ(cuCtxSetCurrent(context[0]), CUDA_SUCCESS);
		CHECK_EQ(cuStreamDestroy_v2(s), CUDA_SUCCESS);
	}
	drain();
	CHECK_EQ(stats().misused, 0);
}

/* A capture on a device that is not the current one: what is open there gets its event before it begins. */
static void test_captured(void)
{
	CUgraph graph;
	begin();
	CHECK_EQ(launch(&kernel_ns, stream[1]), CUDA_SUCCESS);
	drain();
	CHECK_EQ(launch(&kernel_ns, stream[1]), CUDA_SUCCESS); /* measured by now, so its batch stays open */
	uint64_t events = stats().events_captured;
	CHECK_EQ(cuStreamBeginCapture_v2(stream[1], CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	CHECK_EQ(get(&captures), 1);
	CHECK_EQ(get(&tel(1)->captures), 1);
	CHECK_EQ(launch(&kernel_ns, stream[1]), CUDA_SUCCESS);
	drain();
	CHECK_EQ(cuStreamEndCapture(stream[1], &graph), CUDA_SUCCESS);
	CHECK_EQ(stats().events_captured, events);
	CHECK_EQ(get(&captures), 0);
	CHECK_EQ(cuStreamEndCapture(stream[1], &graph), CUDA_ERROR_ILLEGAL_STATE);
	CHECK_EQ(get(&captures), 0);
}

/* A capture ends with its stream, and with its context. */
static void test_capture_destroyed(void)
{
	CUcontext other;
	CUstream s;
	begin();
	s = stream_on(1);
	CHECK_EQ(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	CHECK_EQ(get(&captures), 1);
	CHECK_EQ(cuStreamDestroy_v2(s), CUDA_SUCCESS);
	CHECK_EQ(get(&captures), 0);
	CHECK_EQ(cuCtxCreate_v2(&other, 0, 11), CUDA_SUCCESS);
	CHECK_EQ(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	CHECK_EQ(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	CHECK_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
	CHECK_EQ(get(&captures), 0);
}

static void *own_stream(void *unused)
{
	CHECK_EQ(cuCtxSetCurrent(context[0]), CUDA_SUCCESS);
	CHECK_EQ(launch(&kernel_ns, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
	return unused;
}

/* The streams that are kept of a meter's contexts. */
static uint32_t kept(uint32_t grant)
{
	struct meter *m = meters[grant];
	uint32_t n = 0;
	lock_take(&m->lock);
	for (struct context *c = m->contexts; c != NULL; c = c->next) {
		for (int i = 0; i < STREAM_BUCKETS; i++) {
			for (struct stream *s = c->bucket[i]; s != NULL; s = s->next)
				n++;
		}
	}
	lock_give(&m->lock);
	return n;
}

/* Of threads that come and go, each with a stream of its own, nothing is kept. */
static void test_threads(void)
{
	pthread_t thread;
	begin();
	CHECK_EQ(launch(&kernel_ns, stream[0]), CUDA_SUCCESS);
	drain();
	uint32_t before = kept(0);
	for (int i = 0; i < 500; i++) {
		CHECK_EQ(pthread_create(&thread, NULL, own_stream, NULL), 0);
		pthread_join(thread, NULL);
	}
	drain();
	WAIT(kept(0) <= before);
}

/* A context that ends in whatever way, with more in it than the run-ahead: others go on. */
static void end_with_work(CUresult (*end)(CUcontext))
{
	static uint64_t kernel = 5 * NS_PER_MS, unmeasured[16]; /* each is a kernel of its own: the context may go only after it has been measured */
	static int used;
	CUcontext other;
	struct launcher l;
	begin();
	CHECK_EQ(cuCtxCreate_v2(&other, 0, 10), CUDA_SUCCESS);
	fake_run(false);
	for (int i = 0; i < 2; i++, used++) {
		unmeasured[used] = 5 * NS_PER_MS;
		CHECK_EQ(launch(&unmeasured[used], NULL), CUDA_SUCCESS);
	}
	CHECK_EQ(end(other), CUDA_SUCCESS);
	fake_advance(NS_PER_S); /* who waits in it is let go */
	CHECK_EQ(cuCtxSetCurrent(context[0]), CUDA_SUCCESS);
	launcher_start(&l, &kernel, 3);
	fake_run(true);
	pthread_join(l.thread, NULL);
	CHECK_EQ(l.last, CUDA_SUCCESS);
	drain();
}

/* In the place of a context that ended unseen there may be another: what is launched in that is measured. */
static void test_same_place(void)
{
	static uint64_t unmeasured[2] = {5 * NS_PER_MS, 5 * NS_PER_MS};
	CUcontext other;
	CUstream s;
	begin();
	CHECK_EQ(cuCtxCreate_v2(&other, 0, 10), CUDA_SUCCESS);
	CHECK_EQ(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	fake_run(false);
	CHECK_EQ(launch(&unmeasured[0], NULL), CUDA_SUCCESS);
	CHECK_EQ(launch(&unmeasured[1], s), CUDA_SUCCESS);
	fake_end(other);
	fake_advance(NS_PER_MS); /* who waits in it looks again */
	WAIT(at_rest());
	fake_begin_again(other);
	CHECK_EQ(cuCtxSetCurrent(other), CUDA_SUCCESS);
	fake_run(true);
	uint64_t measured = tel(0)->device_launches;
	CHECK_EQ(launch(&kernel_ns, NULL), CUDA_SUCCESS);
	drain();
	CHECK_EQ(tel(0)->device_launches, measured + 1);
	CHECK_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
}

static CUresult unseen(CUcontext c)
{
	fake_end(c);
	return CUDA_SUCCESS;
}

static CUresult detached(CUcontext c)
{
	CUcontext same;
	CHECK_EQ(cuCtxAttach(&same, 0), CUDA_SUCCESS);
	CHECK(same == c);
	CHECK_EQ(cuCtxDetach(c), CUDA_SUCCESS);
	CHECK_EQ(launch(&kernel_ns, NULL), CUDA_SUCCESS); /* it is there still */
	return cuCtxDetach(c);
}

/* Ends a context beside a thread that moves the device on, as it waits for its work. */
static void *mover(void *ended)
{
	while (get((uint32_t *)ended) == 0)
		fake_advance(NS_PER_MS);
	return NULL;
}

static CUresult while_moved(CUresult (*end)(CUcontext), CUcontext c)
{
	uint32_t ended = 0;
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, mover, &ended), 0);
	CUresult r = end(c);
	put(&ended, 1);
	pthread_join(thread, NULL);
	return r;
}

static CUresult detach_moved(CUcontext c)
{
	return while_moved(detached, c);
}

static CUresult green(CUcontext c)
{
	return cuGreenCtxDestroy((CUgreenCtx)c);
}

static CUresult green_moved(CUcontext c)
{
	return while_moved(green, c);
}

static CUresult destroy_moved(CUcontext c)
{
	return while_moved(cuCtxDestroy_v2, c);
}

static CUresult released(CUcontext primary)
{
	(void)primary;
	return cuDevicePrimaryCtxRelease_v2(10);
}

/* A primary context ends with work in it, beside more contexts than anybody has. */
static void end_primary(void)
{
	static CUcontext many[200];
	static uint64_t unmeasured[2] = {5 * NS_PER_MS, 5 * NS_PER_MS};
	CUcontext primary;
	begin();
	for (int i = 0; i < 200; i++)
		CHECK_EQ(cuCtxCreate_v2(&many[i], 0, 11), CUDA_SUCCESS);
	CHECK_EQ(cuDevicePrimaryCtxRetain(&primary, 10), CUDA_SUCCESS);
	CHECK_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
	fake_run(false);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(launch(&unmeasured[i], NULL), CUDA_SUCCESS);
	CHECK_EQ(while_moved(released, primary), CUDA_SUCCESS);
	CHECK_EQ(stats().misused, 0);
	for (int i = 0; i < 200; i++)
		CHECK_EQ(cuCtxDestroy_v2(many[i]), CUDA_SUCCESS);
	CHECK_EQ(cuCtxSetCurrent(context[0]), CUDA_SUCCESS);
	drain();
}

static void test_contexts(void)
{
	end_primary();
	end_with_work(destroy_moved);
	end_with_work(detach_moved);
	end_with_work(green_moved);
	CHECK_EQ(stats().misused, 0);
	end_with_work(unseen);
}

static void *destroyer(void *c)
{
	CHECK_EQ(cuCtxDestroy_v2(c), CUDA_SUCCESS);
	return NULL;
}

/* Launches in the current context, other, until the watcher waits there in the driver for a kernel to end. Where it comes too late,
 * it only asks now and then; so that kernel ends, and the next one is launched. */
static void launch_watched(CUcontext other)
{
	static uint64_t kernel = 5 * NS_PER_MS;
	for (int i = 0; i < 500 && fake_waiting(other) == 0; i++) {
		if (i > 0)
			drain();
		fake_run(false);
		CHECK_EQ(launch(&kernel, NULL), CUDA_SUCCESS);
		uint64_t late = clock_now() + 100 * NS_PER_MS;
		WAIT(fake_waiting(other) != 0 || clock_now() >= late);
	}
	CHECK(fake_waiting(other) != 0);
}

/* A context goes only when the watcher has come out of it, however long what it waits for takes. */
static void test_watched(void)
{
	CUcontext other;
	pthread_t thread;
	begin();
	uint64_t misused = stats().misused;
	CHECK_EQ(cuCtxCreate_v2(&other, 0, 10), CUDA_SUCCESS);
	launch_watched(other);
	CHECK_EQ(cuCtxSetCurrent(context[0]), CUDA_SUCCESS);
	CHECK_EQ(pthread_create(&thread, NULL, destroyer, other), 0);
	uint64_t until = clock_now() + 2500 * NS_PER_MS;
	WAIT(clock_now() >= until || stats().misused != misused);
	fake_advance(NS_PER_S);
	pthread_join(thread, NULL);
	CHECK_EQ(stats().misused, misused);
	drain();
}

int main(void)
{
	arbiter_make(&arbiter, 2, 1ull << 30, 2ull << 30);
	arbiter_serve(&arbiter);
	tenant_start(&arbiter);
	CHECK_EQ(cuCtxGetCurrent(&context[0]), CUDA_SUCCESS);
	CHECK_EQ(cuCtxCreate_v2(&context[1], 0, 11), CUDA_SUCCESS);
	for (uint32_t g = 0; g < 2; g++)
		stream[g] = stream_on(g);
	test_other_device();
	test_no_context();
	test_many();
	test_destroyed();
	test_captured();
	test_capture_destroyed();
	test_threads();
	test_watched();
	test_contexts();
	test_same_place();
	arbiter_remove(&arbiter);
	printf("streams: ok\n");
	return 0;
}
