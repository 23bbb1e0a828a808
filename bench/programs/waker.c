/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waker: an owner that sleeps most of the time. It wakes at random, launches one short kernel and waits for it. For each time it prints one
 * line, in ns: how long the launch took (the gate, if there is one, is in it); how long it was until the kernel was done; and what can explain a long
 * one: by how much it slept too long before; how long it was from the launch's call to the lease under which it went, by the arbiter's
 * clock, or -1 without Aliquot; the longest time in which one of the CPUs stood still meanwhile; how long the arbiter waited for a CPU
 * meanwhile; and the longest that a thread of its neighbours or the simulated driver did, up to the next wake-up but no longer than the launch took. So the figures include what it takes to be scheduled on the CPU again; none is left out.
 */
#define _GNU_SOURCE
#include "../../examples/common.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi.h"

static struct option options[] = {
	{"kernel-us", "device time of the kernel, µs", 200, 0},
	{"pause-ms", "mean pause between two launches, ms", 15, 0},
	{"wakes", "how often", 1000, 0},
	{"seed", "of the random numbers", 1, 0},
	{"arbiter", "process whose waits for a CPU are told; 0: none", 0, 0},
	{"neighbour", "another; 0: none", 0, 0},
	{"neighbour-2", "and another; 0: none", 0, 0},
	{"driver", "and the simulated driver; 0: none", 0, 0},
	{NULL, NULL, 0, 0},
};

struct wake {
	int64_t from, gate, done, late, lease, arbiter, neighbours;
};

/* ---- CPUs that stand still: a thread on each looks at the clock every 2 ms, and notes when it came to do so much too late ---- */

#define TICK_NS 2000000
#define STILL_NS 500000 /* less is not noted */
#define CPUS 64
#define STALLS 65536    /* of one CPU; what more there are is not told */

struct cpu {
	pthread_t thread;
	int number;
	size_t stalls;
	struct {
		int64_t from, to;
	} stall[STALLS];
};

static struct cpu *cpu[CPUS];
static int cpus;
static atomic_bool finished;

static void *look(void *arg)
{
	struct cpu *c = arg;
	cpu_set_t only;
	CPU_ZERO(&only);
	CPU_SET(c->number, &only);
	(void)sched_setaffinity(0, sizeof only, &only); /* elsewhere it still says when that CPU stood still */
	for (int64_t due = now_ns(); !finished && c->stalls < STALLS;) {
		due += TICK_NS;
		sleep_until(due);
		int64_t now = now_ns();
		if (now - due < STILL_NS)
			continue;
		c->stall[c->stalls].from = due;
		c->stall[c->stalls++].to = now;
		due = now;
	}
	return NULL;
}

static void start_looking(void)
{
	cpu_set_t mine;
	if (sched_getaffinity(0, sizeof mine, &mine))
		return;
	for (int i = 0; i < CPU_SETSIZE && cpus < CPUS; i++) {
		if (!CPU_ISSET(i, &mine))
			continue;
		struct cpu *c = calloc(1, sizeof *c);
		if (!c)
			return;
		c->number = i;
		if (pthread_create(&c->thread, NULL, look, c)) {
			free(c);
			return;
		}
		cpu[cpus++] = c;
	}
}

static void stop_looking(void)
{
	finished = true;
	for (int i = 0; i < cpus; i++)
		pthread_join(cpu[i]->thread, NULL);
}

/* The longest time that one CPU stood still between two moments. */
static int64_t stood_still(int64_t from, int64_t to)
{
	int64_t longest = 0;
	for (int i = 0; i < cpus; i++)
		for (size_t k = 0; k < cpu[i]->stalls; k++) {
			int64_t begin = cpu[i]->stall[k].from > from ? cpu[i]->stall[k].from : from;
			int64_t end = cpu[i]->stall[k].to < to ? cpu[i]->stall[k].to : to;
			longest = end - begin > longest ? end - begin : longest;
		}
	return longest;
}

/* ---- the lease and the arbiter ---- */

static const struct alq_ctl *open_ctl(void)
{
	const char *task = getenv("ALIQUOT_TASK");
	char path[4096];
	if (!task || snprintf(path, sizeof path, "%s/ctl", task) >= (int)sizeof path)
		return NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const struct alq_ctl *ctl = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *ctl, PROT_READ, MAP_SHARED, fd, 0);
	if (ctl == MAP_FAILED || ctl->header.magic != ALQ_ABI_MAGIC || ctl->header.version != ALQ_ABI_VERSION) {
		fprintf(stderr, "%s: %s is not a task's page of version %u: %s\n", program, path, ALQ_ABI_VERSION, strerror(errno));
		exit(1);
	}
	close(fd);
	return ctl;
}

/* What a process has waited for a CPU so far, ns: the second field of /proc/PID/schedstat, which is open. 0: it does not say. */
static int64_t waited_for_cpu(int schedstat)
{
	char text[128];
	long long ran, waited;
	ssize_t n = schedstat < 0 ? -1 : pread(schedstat, text, sizeof text - 1, 0);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	return sscanf(text, "%lld %lld", &ran, &waited) == 2 ? waited : 0;
}

static int open_schedstat(int pid)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/schedstat", pid);
	return pid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

#define THREADS 64

/* The threads of the neighbours and of the simulated driver, and what each had waited for a CPU when they were last looked at. */
static struct {
	int schedstat;
	int64_t waited;
} thread[THREADS];
static int threads;

static void open_threads(int pid)
{
	char path[320];
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *folder = pid ? opendir(path) : NULL;
	for (struct dirent *e; folder && threads < THREADS && (e = readdir(folder));) {
		snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", pid, e->d_name);
		int fd = e->d_name[0] == '.' ? -1 : open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			thread[threads++].schedstat = fd;
	}
	if (folder)
		closedir(folder);
}

/* The longest that one of them has waited since they were last looked at. */
static int64_t neighbours_waited(void)
{
	int64_t longest = 0;
	for (int i = 0; i < threads; i++) {
		int64_t now = waited_for_cpu(thread[i].schedstat), waited = now - thread[i].waited;
		thread[i].waited = now;
		longest = waited > longest ? waited : longest;
	}
	return longest;
}

static struct wake wake(const struct work *w, const struct alq_ctl *ctl, int schedstat, int64_t due)
{
	struct wake t = {.lease = -1};
	int64_t waited = waited_for_cpu(schedstat);
	t.from = now_ns();
	t.late = t.from - due;
	launch(w);
	t.gate = now_ns() - t.from;
	if (ctl) {
		int64_t lease = (int64_t)__atomic_load_n(&ctl->grant[0].lease_start_ns, __ATOMIC_ACQUIRE) - t.from;
		t.lease = lease < 0 ? 0 : lease < t.gate ? lease : t.gate; /* a next one may have begun since */
	}
	t.arbiter = waited_for_cpu(schedstat) - waited;
	CHECK(cuStreamSynchronize(w->stream));
	t.done = now_ns() - t.from;
	return t;
}

int main(int argc, char **argv)
{
	struct work w;

	parse(argc, argv, options, "an owner that wakes now and then");
	uint64_t random = (uint64_t)option(options, "seed");
	double pause_ns = option(options, "pause-ms") * 1e6;
	int wakes = (int)option(options, "wakes");
	if (option(options, "kernel-us") < 1 || wakes < 1) {
		fprintf(stderr, "%s: --kernel-us and --wakes must be at least 1\n", program);
		return 2;
	}
	struct wake *woke = calloc((size_t)wakes, sizeof *woke);
	if (!woke) {
		fprintf(stderr, "%s: no memory for %d figures\n", program, wakes);
		return 1;
	}
	const struct alq_ctl *ctl = open_ctl();
	int schedstat = open_schedstat((int)option(options, "arbiter"));
	CHECK(cuInit(0));
	open_work(&w, 0, option(options, "kernel-us"));
	open_threads((int)option(options, "neighbour"));
	open_threads((int)option(options, "neighbour-2"));
	open_threads((int)option(options, "driver"));
	start_looking();
	for (int i = 0; i < wakes && !stopped; i++) {
		int64_t due = now_ns() + (int64_t)exponential(&random, pause_ns);
		sleep_until(due);
		/* One that still waits for its CPU is counted when it has it: what it waited is known at the next wake-up. */
		int64_t waited = neighbours_waited();
		if (i > 0)
			woke[i - 1].neighbours = waited < woke[i - 1].gate ? waited : woke[i - 1].gate;
		woke[i] = wake(&w, ctl, schedstat, due);
	}
	stop_looking();
	if (stopped) {
		fprintf(stderr, "%s: stopped before it was done\n", program);
		return 1;
	}
	for (int i = 0; i < wakes; i++)
		printf("%lld %lld %lld %lld %lld %lld %lld\n", (long long)woke[i].gate, (long long)woke[i].done, (long long)woke[i].late,
		       (long long)woke[i].lease, (long long)stood_still(woke[i].from, woke[i].from + woke[i].gate), (long long)woke[i].arbiter,
		       (long long)woke[i].neighbours);
	close_work(&w);
	return 0;
}
