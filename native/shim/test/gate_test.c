/* SPDX-License-Identifier: Apache-2.0 */
/* gate_test.c: who may launch when, judged by what reaches the driver. */
#include "clock.h"
#include "fake_driver.h"
#include "harness.h"
#include "launcher.h"
#include "meter.h"

#include <string.h>

static struct arbiter arbiter;

static const struct alq_tel_grant *tel(void)
{
	return &arbiter.tel->slot[get(&task.slot)].grant[0];
}

/* Lets everything that was let through end. */
static void drain(void)
{
	fake_run(true);
	WAIT(get_acquire(&tel()->completed) == get_acquire(&tel()->launched));
}

static void test_closed_and_open(void)
{
	static uint64_t kernel = 100 * NS_PER_US;
	struct launcher l;
	uint64_t before = launches();
	uint32_t rings = get(&arbiter.rings);
	gate_close(&arbiter, 0);
	launcher_start(&l, &kernel, 1);
	WAIT(get_seq(&tel()->wait_since_ns) != 0);
	WAIT(get(&arbiter.rings) > rings);
	CHECK_EQ(launches(), before);
	gate_open(&arbiter, 0, clock_now() + 600 * NS_PER_S);
	pthread_join(l.thread, NULL);
	CHECK_EQ(l.last, CUDA_SUCCESS);
	CHECK_EQ(launches(), before + 1);
	CHECK_EQ(get_seq(&tel()->wait_since_ns), 0);
	drain();
	CHECK(tel()->gate_waits >= 1 && tel()->gate_wait_ns > 0);
}

/* A lease over its deadline is closed whatever the word says; a revocation does not change the word. */
static void test_deadline_and_extension(void)
{
	static uint64_t kernel = 100 * NS_PER_US;
	struct launcher l;
	uint64_t before = launches();
	gate_open(&arbiter, 0, clock_now() + 600 * NS_PER_S);
	lease_move(&arbiter, 0, clock_now() - 1);
	launcher_start(&l, &kernel, 1);
	WAIT(get_seq(&tel()->wait_since_ns) != 0);
	CHECK_EQ(launches(), before);
	lease_move(&arbiter, 0, clock_now() + 600 * NS_PER_S);
	pthread_join(l.thread, NULL);
	CHECK_EQ(launches(), before + 1);
	drain();
}

/* Leases come and go as fast as they can while a tenant launches: none of its launches is lost, none goes twice. */
static void test_races(void)
{
	static uint64_t kernel = 1 * NS_PER_US;
	struct launcher l;
	uint64_t before = launches();
	fake_run(true);
	launcher_start(&l, &kernel, 3000);
	for (uint32_t i = 0; get(&l.done) < l.wanted; i++) {
		uint64_t now = clock_now();
		gate_open(&arbiter, 0, now + 50 * NS_PER_US);
		lease_move(&arbiter, 0, now + 200 * NS_PER_US);
		if (i % 3 == 0)
			lease_move(&arbiter, 0, now);
		if (i % 2 == 0)
			gate_close(&arbiter, 0);
	}
	pthread_join(l.thread, NULL);
	CHECK_EQ(launches(), before + 3000);
	drain();
}

/* However many launches a program makes, no more device time is queued than the run-ahead says. */
static void test_run_ahead(void)
{
	static uint64_t kernel = 130 * NS_PER_US;
	struct fake_stats s;
	struct launcher l;
	fake_run(true);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	launcher_start(&l, &kernel, 20); /* learns what the kernel takes */
	pthread_join(l.thread, NULL);
	drain();
	fake_run(false);
	fake_read(&s);
	uint64_t first = s.launches, busy = s.busy_ns;
	launcher_start(&l, &kernel, 300);
	for (uint64_t moved = 0; get(&l.done) < l.wanted; moved += 10 * NS_PER_US) {
		fake_read(&s);
		/* What was let through since is at most what the device has done, the run-ahead and one launch. */
		CHECK(s.busy_ns - busy <= moved + NS_PER_MS + kernel);
		fake_advance(10 * NS_PER_US);
	}
	pthread_join(l.thread, NULL);
	CHECK_EQ(launches(), first + 300);
	drain();
}

/* Of a kernel never measured one is let through, of different ones as many as may be unknown. */
static void test_unmeasured(void)
{
	static uint64_t kernels[12];
	struct launcher l;
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	drain();
	fake_run(false);
	uint64_t before = launches();
	for (int i = 0; i < 12; i++)
		kernels[i] = 20 * NS_PER_MS;
	launcher_start(&l, &kernels[0], 2);
	WAIT(launches() == before + 1);
	for (int i = 1; i < 9; i++)
		CHECK_EQ(launch(&kernels[i], NULL), CUDA_SUCCESS);
	WAIT(get(&l.done) == 1); /* the second of the same kernel waits until the first was measured */
	CHECK_EQ(launches(), before + 9);
	fake_advance(400 * NS_PER_MS);
	pthread_join(l.thread, NULL);
	drain();
	CHECK(tel()->longest_ns > 15 * NS_PER_MS);
}

/* What is measured on the device is what the device did. */
static void test_measured(void)
{
	static uint64_t kernel = 200 * NS_PER_US;
	drain();
	fake_run(false);
	uint64_t ns = tel()->device_ns, n = tel()->device_launches;
	for (int launched = 0; launched < 40;) {
		int together = launched == 0 ? 1 : 3; /* the first measures it; then as many as the run-ahead holds */
		for (int i = 0; i < together; i++)
			CHECK_EQ(launch(&kernel, NULL), CUDA_SUCCESS);
		launched += together;
		fake_advance(10 * NS_PER_MS);
		WAIT(get_acquire(&tel()->completed) == get_acquire(&tel()->launched));
	}
	CHECK_EQ(tel()->device_launches - n, 40);
	uint64_t got = tel()->device_ns - ns, want = 40 * kernel;
	CHECK(got >= want - want / 100 && got <= want + want / 100);
}

/* One launch to its end. Returns its estimate; *measured is what it measured. */
static uint64_t launch_alone(uint64_t *kernel, uint64_t *measured)
{
	uint64_t launched_ns = tel()->launched_ns, device_ns = tel()->device_ns, launched = tel()->device_launches;
	CHECK_EQ(launch(kernel, NULL), CUDA_SUCCESS);
	fake_advance(NS_PER_S);
	WAIT(get_acquire(&tel()->completed) == get_acquire(&tel()->launched));
	CHECK_EQ(tel()->device_launches, launched + 1);
	*measured = tel()->device_ns - device_ns;
	return tel()->launched_ns - launched_ns;
}

/* The first launch of a lease may wait on the device for the work of the lease before: what it seems to take longer is neither believed nor
 * learned. A kernel that has become longer is, soon. */
static void test_first_of_a_lease(void)
{
	static uint64_t kernel = 2 * NS_PER_MS;
	uint64_t measured;
	drain();
	fake_run(false);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	for (int i = 0; i < 4; i++)
		launch_alone(&kernel, &measured);
	for (int lease = 0; lease < 8; lease++) {
		gate_open(&arbiter, 0, UINT64_MAX - 1);
		kernel = 3 * NS_PER_MS;
		CHECK_EQ(tens_us(launch_alone(&kernel, &measured)), 200);
		CHECK_EQ(tens_us(measured), 200);
		kernel = 2 * NS_PER_MS;
		CHECK_EQ(tens_us(launch_alone(&kernel, &measured)), 200);
	}
	kernel = 6 * NS_PER_MS;
	for (int i = 0; i < 4; i++)
		launch_alone(&kernel, &measured);
	CHECK_EQ(tens_us(launch_alone(&kernel, &measured)), 600);
	CHECK_EQ(tens_us(measured), 600);
	fake_run(true);
}

/* Launches longer than half of what a share may queue go one behind the other over all its processes: this one waits until another's should
 * end soon, or has ended sooner, and does not take the wait on the device for its own time. */
static void test_turns(void)
{
	static uint64_t kernel = 2 * NS_PER_MS;
	uint64_t *schedule = &arbiter.tel->schedule_ns[0], measured;
	struct launcher l;
	drain();
	fake_run(false);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	put_seq(schedule, 0);
	for (int i = 0; i < 4; i++)
		launch_alone(&kernel, &measured);
	CHECK(get_seq(schedule) <= clock_now()); /* what has ended is not waited for */

	uint64_t end = (clock_now() + 500 * NS_PER_MS) & ~ALQ_SCHEDULE_FLOOR, before = launches();
	put_seq(schedule, end);
	launcher_start(&l, &kernel, 1);
	WAIT(get(&tel()->coming) == 1);
	CHECK_EQ(launches(), before);
	CHECK_EQ(get(&arbiter.tel->slot[get(&task.slot)].grant[0].wait_since_ns), 0);
	put_seq(schedule, clock_now());
	pthread_join(l.thread, NULL);
	CHECK(clock_now() < end);
	CHECK_EQ(launches(), before + 1);
	fake_advance(10 * NS_PER_MS);
	WAIT(get_acquire(&tel()->completed) == get_acquire(&tel()->launched));

	put(&arbiter.ctl->grant[0].run_ahead_share_ns, 400 * NS_PER_MS);
	kernel = 300 * NS_PER_MS;
	for (int i = 0; i < 4; i++)
		launch_alone(&kernel, &measured);
	kernel += 150 * NS_PER_MS; /* in which it waits for the other */
	put_seq(schedule, (clock_now() + 150 * NS_PER_MS) & ~ALQ_SCHEDULE_FLOOR);
	launch_alone(&kernel, &measured);
	CHECK(measured >= 300 * NS_PER_MS && measured < 450 * NS_PER_MS);
	put(&arbiter.ctl->grant[0].run_ahead_share_ns, NS_PER_MS);
	put_seq(schedule, 0);
	fake_run(true);
}

static uint64_t learn(struct cost *c, uint64_t measured_us, bool doubted, int times)
{
	for (int i = 0; i < times; i++)
		cost_learn(c, measured_us * NS_PER_US, doubted);
	return c->est_ns / NS_PER_US;
}

static void test_learning(void)
{
	struct cost c = {0};
	CHECK_EQ(learn(&c, 1000, true, 1), 1000);   /* anything is better than nothing */
	CHECK_EQ(learn(&c, 800, true, 1), 950);     /* it takes no longer than that */
	CHECK_EQ(learn(&c, 800, false, 60), 800);
	CHECK_EQ(learn(&c, 900, true, 3), 800);     /* in doubt */
	CHECK_EQ(learn(&c, 840, false, 1), 810);
	CHECK_EQ(learn(&c, 810, false, 60), 810);
	CHECK_EQ(learn(&c, 900, true, 60), 899);    /* nothing else is ever seen */
	CHECK_EQ(learn(&c, 30000, true, 3), 899);   /* may still be others */
	CHECK_EQ(learn(&c, 20000, true, 1), 20000); /* the least of four */
	CHECK_EQ(learn(&c, 50000, false, 3), 20000);
	CHECK_EQ(learn(&c, 20000, false, 1), 20000); /* no more in a row */
	CHECK_EQ(learn(&c, 50000, false, 3), 20000);
	CHECK_EQ(learn(&c, 50000, false, 1), 50000);
	CHECK_EQ(learn(&c, 0, false, 200), 1);
}

/* The end of the work is told when a lease is over, also while no thread of the program is there to tell it. */
static void test_drained_bell(void)
{
	static uint64_t kernel = NS_PER_MS;
	drain();
	fake_run(false);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	CHECK_EQ(launch(&kernel, NULL), CUDA_SUCCESS);
	gate_close(&arbiter, 0);
	uint32_t rings = get(&arbiter.rings);
	CHECK(get(&tel()->completed) < get(&tel()->launched));
	fake_advance(10 * NS_PER_MS);
	WAIT(get_acquire(&tel()->completed) == get_acquire(&tel()->launched));
	WAIT(get(&arbiter.rings) > rings);
	CHECK_EQ(get(&tel()->busy_until_ns), 0);
	fake_run(true);
}

/* A capture runs nothing: it passes a closed gate, and nothing of ours is put into it. */
static void test_capture(void)
{
	static uint64_t kernel = 100 * NS_PER_US;
	struct fake_stats before, after;
	CUstream stream;
	CUgraph graph;
	CHECK_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	drain();
	fake_read(&before);
	gate_close(&arbiter, 0);
	CHECK_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	for (int i = 0; i < 5; i++)
		CHECK_EQ(launch(&kernel, stream), CUDA_SUCCESS);
	CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	fake_read(&after);
	CHECK_EQ(after.captured - before.captured, 5);
	CHECK_EQ(after.launches, before.launches);
	CHECK_EQ(after.events_captured, 0);
	/* The graph itself is a launch like any other. */
	struct launcher l;
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	CHECK_EQ(cuGraphLaunch((CUgraphExec)&kernel, stream), CUDA_SUCCESS);
	CHECK_EQ(launches(), before.launches + 1);
	drain();
	CHECK_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
	(void)l;
}

/* Small copies pass a closed gate, large ones do not. */
static void test_copies(void)
{
	struct fake_stats before, after;
	gate_close(&arbiter, 0);
	fake_read(&before);
	CHECK_EQ(cuMemcpyHtoDAsync_v2(1, NULL, 4096, NULL), CUDA_SUCCESS);
	fake_read(&after);
	CHECK_EQ(after.launches, before.launches + 1);
	uint64_t launched = get(&tel()->launched);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	CHECK_EQ(cuMemcpyHtoDAsync_v2(1, NULL, 8 << 20, NULL), CUDA_SUCCESS);
	CHECK_EQ(get(&tel()->launched), launched + 1);
	drain();
}

/* The sole grant of a device runs ungated and is metered all the same. */
static void test_ungated(void)
{
	static uint64_t kernel = 50 * NS_PER_US;
	drain();
	fake_run(false);
	uint64_t launched = get(&tel()->launched);
	gate_ungate(&arbiter, 0);
	for (int i = 0; i < 500; i++)
		CHECK_EQ(launch(&kernel, NULL), CUDA_SUCCESS);
	CHECK_EQ(get(&tel()->launched), launched + 500);
	fake_advance(NS_PER_S);
	drain();
	gate_close(&arbiter, 0);
}

/* A task that is being ended launches nothing more. */
static void test_stopped(void)
{
	static uint64_t kernel = 50 * NS_PER_US;
	uint64_t before = launches();
	put(&arbiter.ctl->grant[0].policy_flags, ALQ_POLICY_STOPPED);
	CHECK_EQ(launch(&kernel, NULL), CUDA_ERROR_NOT_PERMITTED);
	CHECK(!memory_reserve(0, 512));
	CHECK_EQ(launches(), before);
	put(&arbiter.ctl->grant[0].policy_flags, 0);
}

/* Contexts come and go, with work in them; nothing stays outstanding, and no destroyed one is used. */
static void test_contexts(void)
{
	static uint64_t kernel = 300 * NS_PER_US;
	CUcontext keep, ctx;
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	CHECK_EQ(cuCtxGetCurrent(&keep), CUDA_SUCCESS);
	for (int i = 0; i < 50; i++) {
		CHECK_EQ(cuCtxCreate_v2(&ctx, 0, 10), CUDA_SUCCESS);
		CHECK_EQ(launch(&kernel, NULL), CUDA_SUCCESS);
		CHECK_EQ(launch(&kernel, NULL), CUDA_SUCCESS);
		CHECK_EQ(cuCtxDestroy_v2(ctx), CUDA_SUCCESS);
	}
	CHECK_EQ(cuCtxSetCurrent(keep), CUDA_SUCCESS);
	drain();
}

/* Streams that have nothing to do keep no batch from the others, however many there are: all that is launched is measured. */
static void test_streams(void)
{
	static uint64_t kernel = 100 * NS_PER_US;
	CUstream stream[2 * BATCHES];
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	drain();
	uint64_t measured = tel()->device_launches;
	for (int i = 0; i < 2 * BATCHES; i++) {
		CHECK_EQ(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
		CHECK_EQ(launch(&kernel, stream[i]), CUDA_SUCCESS);
		drain();
	}
	CHECK_EQ(tel()->device_launches, measured + 2 * BATCHES);
	for (int i = 0; i < 2 * BATCHES; i++)
		CHECK_EQ(cuStreamDestroy_v2(stream[i]), CUDA_SUCCESS);
}

/* The quick clock says what the clock says, also after the counter that it goes by has jumped, and goes on with the counter. */
static void test_quick_clock(void)
{
	struct quick_clock q = {0};
	const uint64_t near = 20 * NS_PER_US;
	uint64_t until = clock_now() + 20 * NS_PER_MS, late = until + 20 * NS_PER_S, jumps = 0;
	/* Where others take the processor the counter is given up before it was ever trusted: then it is tried anew. */
	for (uint64_t i = 0; clock_now() < until || (jumps == 0 && clock_now() < late); i++) {
		if (jumps == 0 && q.strikes >= CLOCK_STRIKES)
			q = (struct quick_clock){0};
		if (i % 10000 == 9999 && q.strikes == 0 && ++jumps < CLOCK_STRIKES)
			q.ticks += i % 20000 == 9999 ? 1ull << 30 : -(1ull << 30);
		uint64_t before = clock_now(), quick = clock_quick(&q), after = clock_now();
		CHECK(quick + near >= before && quick <= after + near);
	}
	CHECK(jumps != 0);
}

/* What the shim has never heard of is counted for the agent to see; what it lets pass knowingly is not. */
static void test_unknown(void)
{
	void *f;
	uint64_t before = get(&tel_of(0)->unknown_calls);
	CHECK_EQ(cuGetProcAddress("cuLaunchKernel", &f, 12060, 0), CUDA_SUCCESS);
	CHECK_EQ(cuGetProcAddress("cuOccupancyMaxActiveClusters", &f, 12060, 0), CUDA_SUCCESS);
	CHECK_EQ(get(&tel_of(0)->unknown_calls), before);
	CHECK_EQ(cuGetProcAddress("cuFromAFutureDriver", &f, 12060, 0), CUDA_SUCCESS);
	CHECK_EQ(get(&tel_of(0)->unknown_calls), before + 1);
}

int main(void)
{
	test_quick_clock();
	arbiter_make(&arbiter, 1, 1ull << 30, 2ull << 30);
	arbiter_serve(&arbiter);
	tenant_start(&arbiter);
	fake_run(true);
	test_closed_and_open();
	test_deadline_and_extension();
	test_races();
	test_run_ahead();
	test_unmeasured();
	test_measured();
	test_learning();
	test_first_of_a_lease();
	test_turns();
	test_drained_bell();
	test_capture();
	test_copies();
	test_ungated();
	test_unknown();
	test_stopped();
	test_contexts();
	test_streams();
	arbiter_remove(&arbiter);
	printf("gate: ok\n");
	return 0;
}
