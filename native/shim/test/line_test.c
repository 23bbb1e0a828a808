/* SPDX-License-Identifier: Apache-2.0 */
/*
 * line_test.c: what a program does to the descriptors, threads and processes that the shim is in: it closes all that it did not open and opens its own
 * files by the same numbers, cancels threads, forks in the middle of anything. The arbiter is another process, its state shared with this one.
 */
#include "fake_driver.h"
#include "harness.h"
#include "launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MI (1ull << 20)
#define OWN 24

static struct arbiter *arbiter;
static int own[OWN];

/* ------------------------------------------------------------------------------------------------- descriptors closed */

/* Closes all from 3 on, as daemons do, and fills their numbers with eventfds and sockets of the program's own. A thread sanitizer would see that
 * they are others'. */
static void close_all(void)
{
	for (int fd = 3; fd < 256; fd++)
		syscall(SYS_close, fd);
	for (int i = 0; i < OWN; i += 3) {
		own[i] = eventfd(0, EFD_NONBLOCK);
		CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, &own[i + 1]), 0);
	}
}

/* Nobody has written into any of these files, or closed one. */
static void check_own(void)
{
	char byte;
	for (int i = 0; i < OWN; i++) {
		CHECK(fcntl(own[i], F_GETFD) != -1);
		CHECK(read(own[i], &byte, i % 3 == 0 ? 8 : 1) == -1 && errno == EAGAIN);
	}
	for (int i = 0; i < OWN; i++)
		close(own[i]);
}

/* The line comes to be there anew: once, or more often where a thread of the shim had it anew while files were still being closed. */
static void wait_again(uint32_t hellos)
{
	WAIT(get(&arbiter->hellos) != hellos);
	CHECK(get(&arbiter->hellos) - hellos <= 3);
}

/* Takes so many bytes beyond what is granted, by asking for them. */
static bool take_beyond(uint64_t bytes)
{
	uint64_t want = arbiter->ctl->grant[0].mem_granted - memory_own(0) + bytes;
	bool taken = memory_reserve(0, want);
	if (taken)
		memory_return(0, want);
	return taken;
}

static void test_bell(void)
{
	static uint64_t kernel = NS_PER_US;
	struct launcher l;
	uint32_t hellos = get(&arbiter->hellos), rings;
	close_all();
	gate_close(arbiter, 0);
	rings = get(&arbiter->rings);
	launcher_start(&l, &kernel, 1);
	wait_again(hellos);
	WAIT(get(&arbiter->rings) > rings);
	gate_open(arbiter, 0, UINT64_MAX - 1);
	pthread_join(l.thread, NULL);
	CHECK_EQ(l.last, CUDA_SUCCESS);
	check_own();
}

static void test_ask(void)
{
	uint32_t hellos = get(&arbiter->hellos), slot = get(&task.slot);
	close_all();
	put(&arbiter->lendable, 64 * MI);
	CHECK(take_beyond(64 * MI));
	wait_again(hellos);
	CHECK_EQ(get(&task.slot), slot);
	check_own();
}

/* --------------------------------------------------------------------------------------------------- threads cancelled */

static void *asker(void *unused)
{
	take_beyond(8 * MI);
	pthread_testcancel();
	return unused;
}

/* A thread that is cancelled while it waits for an answer does not take the line with it. */
static void test_cancelled(void)
{
	pthread_t thread;
	void *result;
	uint32_t kept = get(&arbiter->kept);
	put(&arbiter->lendable, 0);
	put(&arbiter->patient, true);
	CHECK_EQ(pthread_create(&thread, NULL, asker, NULL), 0);
	WAIT(get(&arbiter->kept) == kept + 1);
	CHECK_EQ(pthread_cancel(thread), 0);
	put(&arbiter->lendable, 8 * MI);
	CHECK_EQ(pthread_join(thread, &result), 0);
	CHECK(result == PTHREAD_CANCELED);
	put(&arbiter->patient, false);
	put(&arbiter->lendable, 8 * MI);
	CHECK(take_beyond(8 * MI));
}

/* ------------------------------------------------------------------------------------------------------------- forks */

/* A child says what a call of its own is answered with; one that hangs is ended. */
static void check_child(CUresult (*call)(void), CUresult want)
{
	int status;
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(30);
		_exit(call() == want ? 10 : 11);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 10 << 8); /* else it was ended by a signal, or answered otherwise */
}

static CUresult call_init(void)
{
	return cuInit(0);
}

/* Everything that takes a lock of ours, with no driver behind it. */
static CUresult call_all(void)
{
	static uint64_t kernel = 1;
	CUcontext ctx;
	CUdeviceptr p = 0;
	size_t a, b;
	CUresult r = cuInit(0);
	cuCtxSetCurrent(NULL);
	cuCtxCreate_v2(&ctx, 0, 10);
	cuMemAlloc_v2(&p, 4096);
	cuMemAlloc_v2(&p, 4 * MI);
	cuMemFree_v2(p);
	cuMemGetInfo_v2(&a, &b);
	launch(&kernel, NULL);
	return r;
}

static uint32_t over; /* the threads beside are to end */

static void *launches_on(void *context)
{
	static uint64_t kernel = NS_PER_US;
	CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
	while (get(&over) == 0)
		CHECK_EQ(launch(&kernel, NULL), CUDA_SUCCESS);
	return NULL;
}

static void *allocates_on(void *context)
{
	CUdeviceptr a, b;
	CUcontext other;
	CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
	while (get(&over) == 0) {
		CHECK_EQ(cuMemAlloc_v2(&a, 4096), CUDA_SUCCESS);
		CHECK_EQ(cuMemAlloc_v2(&b, 4 * MI), CUDA_SUCCESS);
		CHECK_EQ(cuMemFree_v2(a), CUDA_SUCCESS);
		CHECK_EQ(cuMemFree_v2(b), CUDA_SUCCESS);
		CHECK_EQ(cuCtxCreate_v2(&other, 0, 10), CUDA_SUCCESS);
		CHECK_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
		CHECK_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
	}
	return NULL;
}

/* Children are forked while other threads launch, allocate and make contexts: none hangs, and none touches what is the parent's. */
static void test_forks(void)
{
	pthread_t thread[2];
	CUcontext context;
	gate_open(arbiter, 0, UINT64_MAX - 1);
	CHECK_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	put(&over, 0);
	CHECK_EQ(pthread_create(&thread[0], NULL, launches_on, context), 0);
	CHECK_EQ(pthread_create(&thread[1], NULL, allocates_on, context), 0);
	for (int i = 0; i < 60; i++)
		check_child(call_all, CUDA_ERROR_NOT_INITIALIZED);
	put(&over, 1);
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	CHECK(memory_own(0) <= MEMORY_STEP); /* of pieces the last block stays, until the books say that it is gone */
}

static void *initialises(void *unused)
{
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	return unused;
}

/* A child is forked while another thread is in the process' first cuInit. Functions were looked up before that: one that is not known is counted
 * once there is a page. */
static void test_first_init(void)
{
	pthread_t thread;
	void *f;
	CHECK_EQ(cuGetProcAddress("cuFromAFutureDriver", &f, 12060, 0), CUDA_SUCCESS);
	CHECK_EQ(cuGetProcAddress("cuLaunchKernel", &f, 12060, 0), CUDA_SUCCESS);
	setenv("ALIQUOT_TASK", arbiter->folder, 1);
	fake_hold_init(true);
	CHECK_EQ(pthread_create(&thread, NULL, initialises, NULL), 0);
	WAIT(fake_inits() == 1);
	check_child(call_init, CUDA_ERROR_NOT_INITIALIZED);
	fake_hold_init(false);
	pthread_join(thread, NULL);
	CHECK_EQ(get(&tel_of(0)->unknown_calls), 1);
}

static void tenant(void)
{
	test_first_init();
	tenant_start(arbiter);
	fake_run(true);
	test_forks();
	test_bell();
	test_ask();
	test_cancelled();
}

int main(void)
{
	int status;
	arbiter = mmap(NULL, sizeof(*arbiter), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(arbiter != MAP_FAILED);
	arbiter_make(arbiter, 1, 256 * MI, 1024 * MI);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		tenant();
		exit(0);
	}
	arbiter_serve(arbiter);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	arbiter_remove(arbiter);
	printf("line: ok\n");
	return 0;
}
