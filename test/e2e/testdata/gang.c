/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gang FILE DEVICES threads|processes US [RANKS]: a rank on each of so many devices, all in a thread or a process of their own, until it is ended. In
 * each round a rank launches a kernel that begins and one of US µs that goes on only once all ranks' kernels of that round have begun on their
 * devices, as a collective's do. Ranks queue rounds ahead of the device. FILE's first eight bytes count what has begun, in all rounds. With RANKS
 * there are so many in all, those on other nodes being other tasks with the same FILE.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

#define MOST_DEVICES 8
#define BEGIN_US 20
#define AHEAD 16 /* rounds that a rank queues before it waits for them */

/* In FILE, of all ranks. Ranks add to `begun` before they move `bell`; who waits reads `bell`, then `begun`. */
struct meeting {
	_Atomic uint64_t begun;
	_Atomic uint32_t bell; /* futex */
};

static struct meeting *meeting;
static int devices, all_ranks;
static double kernel_us;

/* A rank's own: how often its kernels have begun. */
struct rank {
	int device;
	uint64_t rounds;
};

/* Runs in the stream of a rank, after the kernel that begins: the stream goes on when all have begun. */
static void meet(void *data)
{
	struct rank *rank = data;
	uint64_t all = ++rank->rounds * (uint64_t)all_ranks;
	if (atomic_fetch_add(&meeting->begun, 1) + 1 == all) {
		atomic_fetch_add(&meeting->bell, 1);
		syscall(SYS_futex, &meeting->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
		return;
	}
	for (;;) {
		uint32_t seen = atomic_load(&meeting->bell);
		if (atomic_load(&meeting->begun) >= all)
			return;
		syscall(SYS_futex, &meeting->bell, FUTEX_WAIT, seen, NULL, NULL, 0);
	}
}

static void *run(void *data)
{
	struct rank *rank = data;
	struct work begin, rest;
	open_work_of(&begin, rank->device, BEGIN_US, 1);
	open_work_of(&rest, rank->device, kernel_us, 1);
	for (;;) {
		for (int i = 0; i < AHEAD; i++) {
			launch(&begin);
			CHECK(cuLaunchHostFunc(begin.stream, meet, rank));
			CHECK(cuLaunchKernel(rest.function, 1, 1, 1, 1, 1, 1, 0, begin.stream, (void *[]){&rest.ns, &rest.loops}, NULL));
		}
		CHECK(cuStreamSynchronize(begin.stream));
	}
	return NULL;
}

/* Each rank is a process; when one ends, which none should, so does all. */
static int run_processes(struct rank *ranks)
{
	for (int i = 0; i < devices; i++) {
		if (fork() != 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CHECK(cuInit(0));
		run(&ranks[i]);
	}
	wait(NULL);
	return 1;
}

static int run_threads(struct rank *ranks)
{
	pthread_t thread;
	CHECK(cuInit(0));
	for (int i = 1; i < devices; i++)
		if (pthread_create(&thread, NULL, run, &ranks[i]))
			return 1;
	run(&ranks[0]);
	return 1;
}

int main(int argc, char **argv)
{
	struct rank ranks[MOST_DEVICES];
	int fd = argc == 5 || argc == 6 ? open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (fd < 0 || ftruncate(fd, sizeof *meeting)) {
		perror(argc == 5 || argc == 6 ? argv[1] : "usage: gang FILE DEVICES threads|processes US [RANKS]");
		return 2;
	}
	devices = atoi(argv[2]);
	all_ranks = argc == 6 ? atoi(argv[5]) : devices;
	kernel_us = strtod(argv[4], NULL);
	meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (meeting == MAP_FAILED || devices < 1 || devices > MOST_DEVICES || all_ranks < devices || kernel_us < 1) {
		fprintf(stderr, "gang: wants 1 to %d devices and a kernel of 1 µs or more\n", MOST_DEVICES);
		return 2;
	}
	for (int i = 0; i < devices; i++)
		ranks[i] = (struct rank){.device = i};
	return strcmp(argv[3], "processes") ? run_threads(ranks) : run_processes(ranks);
}
