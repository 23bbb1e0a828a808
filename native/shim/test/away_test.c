/* SPDX-License-Identifier: Apache-2.0 */
/* away_test.c: what a program does while nobody grants leases: it goes on at its floor, at once, and goes by leases again as soon as there are any. */
#include "fake_driver.h"
#include "harness.h"
#include "launcher.h"

static struct arbiter arbiter;

static const struct alq_tel_grant *tel(void)
{
	return &arbiter.tel->slot[get(&task.slot)].grant[0];
}

static void drain(void)
{
	fake_run(true);
	WAIT(get_acquire(&tel()->completed) == get_acquire(&tel()->launched));
}

/* The next arbiter serves, and this process is registered with it. */
static void serve_again(uint32_t hellos)
{
	arbiter_serve(&arbiter);
	WAIT(get(&arbiter.hellos) == hellos + 1 && get_acquire(&task.alone_ns) == 0);
}

/* One launch that waits at a closed gate. */
static void wait_at_gate(struct launcher *l, uint64_t *kernel)
{
	gate_close(&arbiter, 0);
	launcher_start(l, kernel, 1);
	WAIT(get_seq(&tel()->wait_since_ns) != 0);
}

/* Where its arbiter dies it does not wait for the heartbeat to be missed: whoever waits at the gate goes on at once. */
static void test_line_breaks(void)
{
	static uint64_t kernel = 100 * NS_PER_US;
	struct launcher l;
	uint64_t soonest = UINT64_MAX;
	for (int i = 0; i < 10; i++) { /* this machine may be busy */
		uint32_t hellos = get(&arbiter.hellos);
		uint64_t before = launches();
		wait_at_gate(&l, &kernel);
		CHECK_EQ(launches(), before);
		arbiter_die(&arbiter);
		pthread_join(l.thread, NULL);
		uint64_t took = clock_now() - get(&arbiter.ctl->heartbeat_ns);
		soonest = took < soonest ? took : soonest;
		CHECK_EQ(launches(), before + 1);
		serve_again(hellos);
	}
	CHECK(soonest < ALQ_ARBITER_LOST_NS / 4);
	drain();
}

/* It goes on within its floor, and registers again in its old slot, with its memory. */
static void test_floor(void)
{
	static uint64_t kernel = 100 * NS_PER_US;
	const uint32_t times = 400, floor = 250;
	struct launcher l;
	uint32_t hellos = get(&arbiter.hellos), slot = get(&task.slot);
	gate_close(&arbiter, 0);
	CHECK(memory_reserve(0, 1024));
	uint64_t held = get(&tel()->mem_used), before = launches(), started = clock_now();
	arbiter_die(&arbiter);
	launcher_start(&l, &kernel, times);
	pthread_join(l.thread, NULL);
	CHECK_EQ(launches(), before + times);
	/* Of a floor's schedule 20 ms may be made up for and 5 ms used ahead. */
	CHECK(clock_now() - started >= times * kernel * ALQ_MILLI / floor * 9 / 10 - 26 * NS_PER_MS);
	serve_again(hellos);
	CHECK_EQ(get(&arbiter.last_slot_asked), slot);
	CHECK_EQ(get(&task.slot), slot);
	CHECK_EQ(get(&tel()->mem_used), held);
	memory_return(0, 1024);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	CHECK_EQ(launch(&kernel, NULL), CUDA_SUCCESS);
	drain();
}

/* An arbiter that is there and says nothing is taken for lost, too. */
static void test_silent(void)
{
	static uint64_t kernel = 100 * NS_PER_US;
	struct launcher l;
	uint32_t hellos = get(&arbiter.hellos);
	uint64_t before = launches();
	wait_at_gate(&l, &kernel);
	put(&arbiter.silent, true);
	WAIT(clock_now() > get(&arbiter.ctl->heartbeat_ns) + ALQ_ARBITER_LOST_NS);
	pthread_join(l.thread, NULL);
	CHECK_EQ(launches(), before + 1);
	CHECK_EQ(get(&arbiter.hellos), hellos);
	put(&arbiter.silent, false);
	drain();
}

/* The next arbiter has adopted the task, but this process has not reached it yet: it goes by the gate, also where it waits for its floor. */
static void test_adopted(void)
{
	static uint64_t kernel = 10 * NS_PER_MS;
	struct launcher l;
	struct alq_ctl_grant *c = &arbiter.ctl->grant[0];
	uint32_t hellos = get(&arbiter.hellos);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	for (int i = 0; i < 3; i++) { /* learns what it takes */
		CHECK_EQ(launch(&kernel, NULL), CUDA_SUCCESS);
		drain();
	}
	gate_close(&arbiter, 0);
	put(&c->compute_floor, 1); /* one kernel each 10 s */
	arbiter_die(&arbiter);
	WAIT(get_acquire(&task.alone_ns) != 0);
	uint64_t before = launches(), began = clock_now();
	launcher_start(&l, &kernel, 2);
	WAIT(launches() == before + 1); /* the first of its floor; the second waits for long */
	WAIT(get_seq(&tel()->wait_since_ns) != 0);
	put_release(&arbiter.ctl->heartbeat_ns, clock_now());
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	pthread_join(l.thread, NULL);
	CHECK(clock_now() < began + 9 * NS_PER_S);
	CHECK_EQ(launches(), before + 2);
	put(&c->compute_floor, 250);
	put_seq(&arbiter.tel->schedule_ns[0], 0);
	serve_again(hellos);
	drain();
}

/* Without leases the device is shared by time slices, and what a launch seems to take longer is others' work: believed, it would slow the
 * pace of all until nobody has its floor. */
static void test_measured_beside_others(void)
{
	static uint64_t kernel = NS_PER_MS;
	uint32_t hellos = get(&arbiter.hellos);
	drain();
	fake_run(false);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	for (int i = 0; i < 8; i++) {
		CHECK_EQ(launch(&kernel, NULL), CUDA_SUCCESS);
		fake_advance(NS_PER_S);
		WAIT(get_acquire(&tel()->completed) == get_acquire(&tel()->launched));
	}
	gate_close(&arbiter, 0);
	arbiter_die(&arbiter);
	kernel = 4 * NS_PER_MS;
	for (int i = 0; i < 12; i++) {
		uint64_t before = tel()->launched_ns;
		CHECK_EQ(launch(&kernel, NULL), CUDA_SUCCESS);
		CHECK_EQ(tens_us(tel()->launched_ns - before), 100);
		fake_advance(NS_PER_S);
		WAIT(get_acquire(&tel()->completed) == get_acquire(&tel()->launched));
	}
	fake_run(true);
	serve_again(hellos);
}

int main(void)
{
	arbiter_make(&arbiter, 1, 1ull << 30, 2ull << 30);
	arbiter_serve(&arbiter);
	tenant_start(&arbiter);
	fake_run(true);
	test_line_breaks();
	test_floor();
	test_silent();
	test_adopted();
	test_measured_beside_others();
	arbiter_remove(&arbiter);
	printf("away: ok\n");
	return 0;
}
