/* SPDX-License-Identifier: Apache-2.0 */
/*
 * racer: processes that allocate and free pieces of device memory beside each other, at random and as fast as they can, and ask for more than
 * there is. Each says how often it tried and was refused. What they hold together is for the driver's record to say; where there is none, this
 * counts it from below: a piece from when its allocation has returned until its free is called.
 */
#include "../../examples/common.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 64
#define PIECES 32           /* that a process holds at most */
#define SMALL (1ull << 20)  /* pieces under it share chunks */
#define LEAST 512           /* bytes of the smallest */

static struct option options[] = {
	{"processes", "that race", 8, 0},
	{"tries", "allocations tried by all together", 20000, 0},
	{"most-mib", "largest piece, MiB", 64, 0},
	{"small", "part of the pieces that is under 1 MiB, 0..1", 0.5, 0},
	{"seconds", "after which they end all the same; 0: none", 0, 0},
	{"seed", "of the random numbers", 1, 0},
	{NULL, NULL, 0, 0},
};

struct told {
	uint64_t tries, refused;
};

/* What all hold together, and the most that was, bytes. */
struct all {
	uint64_t held, most;
	struct told of[PROCESSES];
};

static void hold(struct all *all, uint64_t bytes)
{
	uint64_t now = __atomic_add_fetch(&all->held, bytes, __ATOMIC_SEQ_CST), most = __atomic_load_n(&all->most, __ATOMIC_RELAXED);
	while (now > most && !__atomic_compare_exchange_n(&all->most, &most, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static size_t draw(uint64_t *random)
{
	double most = option(options, "most-mib") * (double)SMALL;
	if (uniform(random) < option(options, "small"))
		return (size_t)(LEAST * pow((double)SMALL / LEAST, uniform(random)));
	return (size_t)((double)SMALL + uniform(random) * (most - (double)SMALL));
}

/* One of the processes: opens the device, says so on `ready`, begins when `go` ends. */
static int race(int index, uint64_t tries, int ready, int go, struct all *all)
{
	struct told *told = &all->of[index];
	uint64_t random = (uint64_t)option(options, "seed") * 1000003u + (uint64_t)index;
	CUdeviceptr held[PIECES] = {0};
	size_t bytes[PIECES] = {0};
	CUdevice device;
	CUcontext context;
	char byte = 0;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	if (write(ready, &byte, 1) != 1)
		return 1;
	close(ready);
	if (read(go, &byte, 1) != 0)
		return 1;
	int64_t end = option(options, "seconds") > 0 ? now_ns() + (int64_t)(option(options, "seconds") * 1e9) : INT64_MAX;
	while (told->tries < tries && !stopped && now_ns() < end) {
		int i = (int)(uniform(&random) * PIECES);
		CUdeviceptr *p = &held[i];
		if (*p) {
			__atomic_sub_fetch(&all->held, bytes[i], __ATOMIC_SEQ_CST);
			CHECK(cuMemFree(*p));
			*p = 0;
			continue;
		}
		bytes[i] = draw(&random);
		CUresult r = cuMemAlloc(p, bytes[i]);
		told->tries++;
		if (r == CUDA_ERROR_OUT_OF_MEMORY) {
			told->refused++;
			*p = 0;
		} else {
			CHECK(r);
			hold(all, bytes[i]);
		}
	}
	for (int i = 0; i < PIECES; i++)
		if (held[i]) {
			__atomic_sub_fetch(&all->held, bytes[i], __ATOMIC_SEQ_CST); /* the others go on */
			CHECK(cuMemFree(held[i]));
		}
	CHECK(cuDevicePrimaryCtxRelease(device));
	return stopped ? 1 : 0;
}

/* Starts one process and waits until it has opened the device; 0, or -1 if it could not. */
static pid_t start(int index, uint64_t tries, const int *go, struct all *all)
{
	int ready[2];
	char byte;
	if (pipe(ready))
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		close(ready[0]);
		close(go[1]);
		exit(race(index, tries, ready[1], go[0], all));
	}
	close(ready[1]);
	ssize_t n = pid < 0 ? -1 : read(ready[0], &byte, 1);
	close(ready[0]);
	return n == 1 ? pid : -1;
}

int main(int argc, char **argv)
{
	int go[2], status, failed = 0;
	uint64_t tried = 0, refused = 0;

	parse(argc, argv, options, "processes that race for device memory");
	int processes = (int)option(options, "processes");
	if (processes < 1 || processes > PROCESSES || option(options, "tries") < processes || option(options, "most-mib") < 1 ||
	    option(options, "small") > 1) {
		fprintf(stderr, "%s: --processes must be 1 to %d, --tries at least as many, --most-mib at least 1, --small at most 1\n", program, PROCESSES);
		return 2;
	}
	struct all *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED || pipe(go)) {
		fprintf(stderr, "%s: %s\n", program, strerror(errno));
		return 1;
	}
	/* Contexts one after the other: what they cost is charged once they are there, so only pieces race. */
	uint64_t each = ((uint64_t)option(options, "tries") + (uint64_t)processes - 1) / (uint64_t)processes;
	for (int i = 0; i < processes; i++)
		if (start(i, each, go, all) < 0) {
			fprintf(stderr, "%s: process %d of %d did not start\n", program, i + 1, processes);
			return 1;
		}
	close(go[0]);
	close(go[1]);
	for (int i = 0; i < processes; i++)
		failed |= wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	for (int i = 0; i < processes; i++) {
		tried += all->of[i].tries;
		refused += all->of[i].refused;
	}
	printf("racer: %llu tries by %d processes, %llu refused, at most %llu bytes at once\n", (unsigned long long)tried, processes,
	       (unsigned long long)refused, (unsigned long long)all->most);
	return failed;
}
