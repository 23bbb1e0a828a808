/* SPDX-License-Identifier: Apache-2.0 */
/* trainer: a steady load, as of a training job: kernels of one length, back to back or up to a declared rate. */
#include "common.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_AHEAD 16

static struct option options[] = {
	{"kernel-us", "device time of one kernel, µs", 500, 0},
	{"seconds", "how long to run; 0: until stopped", 10, 0},
	{"demand", "part of a device wanted, 0..1; 1: all there is", 1, 0},
	{"loops", "of one kernel on a real GPU; 0: find out now", 0, 0},
	{"batch", "kernels between two waits; 1: wait after every launch", 16, 0},
	{"ahead", "batches queued before the oldest is waited for; 0: 2, or 1 where a batch is one kernel", 0, 0},
	{"graph", "launch each batch as one CUDA graph", 0, 1},
	{"processes", "processes that do all this beside each other", 1, 0},
	{"mem-mib", "device memory to hold, MiB", 0, 0},
	{"progress", "seconds between two lines on how far it is; 0: none", 5, 0},
	{"asked-ms", "ms between two lines `asked T D`: by T ns of the monotonic clock it had asked for D ns of the device; 0: none", 0, 0},
	{"done-ms", "ms between two lines `T N`: by T ns of the monotonic clock N kernels were completed; 0: none", 0, 0},
	{NULL, NULL, 0, 0},
};

static CUgraphExec capture(const struct work *w, int batch)
{
	CUgraph graph;
	CUgraphExec exec;
	CHECK(cuStreamBeginCapture(w->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < batch; i++)
		launch(w);
	CHECK(cuStreamEndCapture(w->stream, &graph));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cuGraphDestroy(graph));
	return exec;
}

#define PROCESSES 64

static pid_t child[PROCESSES];

/* Goes on in so many processes, none of which outlives the first. Before the driver is first called: it does not survive a fork. */
static void fork_to(int processes)
{
	pid_t first = getpid();
	for (int i = 1; i < processes; i++) {
		pid_t pid = fork();
		if (pid < 0) {
			fprintf(stderr, "%s: process %d of %d: %s\n", program, i + 1, processes, strerror(errno));
			exit(1);
		}
		if (pid > 0) {
			child[i] = pid;
			continue;
		}
		memset(child, 0, sizeof child);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != first)
			exit(1);
		return;
	}
}

/* Waits for the processes made above, which end with the first. Returns 1 if one of them failed. */
static int join_all(void)
{
	int failed = 0;
	for (int i = 1; i < PROCESSES; i++) {
		int status = 0;
		if (child[i] == 0)
			continue;
		if (stopped)
			kill(child[i], SIGTERM);
		failed |= waitpid(child[i], &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	}
	return failed;
}

/*
 * With a demand below 1 each batch has its time; one that is late is followed at once, but lost time is not made up for. Of the time that is
 * lost so, what it was held up by the device is asked for all the same, and what it slept too long is not: that is the machine's doing.
 */
struct pace {
	double demand;  /* of a device */
	int64_t period; /* of a batch, ns; 0: it asks for all there is */
	int64_t due;    /* the time of the last batch */
	int64_t slept;  /* by how much it was late for that because it slept too long */
	double asked;   /* device time asked for so far, ns */
	int64_t every;  /* ns between two words on that; 0: none */
	int64_t told;
};

/* Waits until the next batch, which takes so much of the device, is due. */
static void pace_next(struct pace *p, double device_ns)
{
	if (p->period) {
		int64_t now = now_ns(), next = p->due + p->period;
		if (now > next) {
			int64_t lost = now - next;
			p->asked += (double)(lost - (p->slept < lost ? p->slept : lost)) * p->demand;
			next = now;
		}
		p->due = next;
		sleep_until(next);
		p->slept = now_ns() - next;
	}
	p->asked += device_ns;
}

static void pace_tell(struct pace *p)
{
	int64_t now = now_ns();
	if (!p->every || now - p->told < p->every)
		return;
	p->told = now;
	printf("asked %lld %.0f\n", (long long)now, p->asked);
	fflush(stdout);
}

/* What is completed, for those who judge by it. */
struct done {
	int64_t every, told; /* ns between two words on that, 0: none; and when the last was */
};

static void done_tell(struct done *d, uint64_t kernels)
{
	int64_t now = now_ns();
	if (!d->every || now - d->told < d->every)
		return;
	d->told = now;
	printf("%lld %llu\n", (long long)now, (unsigned long long)kernels);
	fflush(stdout);
}

/* Launches batches until it is time to end, and says in the end how many kernels that were. */
static void train(const struct work *w, CUgraphExec graph, int batch)
{
	double demand = option(options, "demand"), seconds = option(options, "seconds"), progress = option(options, "progress");
	int64_t start = now_ns(), said = start;
	struct pace pace = {.demand = demand, .due = start, .every = (int64_t)(option(options, "asked-ms") * 1e6)};
	struct done told = {.every = (int64_t)(option(options, "done-ms") * 1e6)};
	uint64_t batches = 0;
	CUevent done[MOST_AHEAD];
	uint64_t ahead = (uint64_t)option(options, "ahead");

	if (ahead == 0)
		ahead = batch == 1 ? 1 : 2;
	for (int i = 0; i < (int)ahead; i++)
		CHECK(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
	pace.period = demand < 1 ? (int64_t)((double)w->ns * batch / demand) : 0;
	while (!stopped && (seconds == 0 || (double)(now_ns() - start) < seconds * 1e9)) {
		pace_next(&pace, (double)w->ns * batch);
		pace_tell(&pace);
		CUevent slot = done[batches % ahead];
		if (batches >= ahead && ahead > 1) {
			CHECK(cuEventSynchronize(slot));
			done_tell(&told, (batches - ahead + 1) * (unsigned)batch);
		}
		if (graph)
			CHECK(cuGraphLaunch(graph, w->stream));
		else
			for (int i = 0; i < batch; i++)
				launch(w);
		CHECK(cuEventRecord(slot, w->stream));
		batches++;
		if (ahead == 1) {
			CHECK(cuEventSynchronize(slot));
			done_tell(&told, batches * (unsigned)batch);
		}
		if (progress > 0 && (double)(now_ns() - said) >= progress * 1e9) {
			said = now_ns();
			printf("trainer: %llu kernels queued after %.1f s\n", (unsigned long long)batches * (unsigned)batch,
			       (double)(said - start) / 1e9);
			fflush(stdout); /* into a log it would stay in the buffer */
		}
	}
	CHECK(cuStreamSynchronize(w->stream));
	double elapsed = (double)(now_ns() - start) / 1e9;
	double device = (double)batches * batch * (double)w->ns / 1e9;
	printf("trainer: %llu kernels of %.0f µs in %.2f s: %.3f of a device\n", (unsigned long long)batches * (unsigned)batch,
	       (double)w->ns / 1e3, elapsed, device / elapsed);
	for (int i = 0; i < (int)ahead; i++)
		CHECK(cuEventDestroy(done[i]));
}

int main(int argc, char **argv)
{
	struct work w;
	CUdeviceptr memory = 0;
	CUgraphExec graph = NULL;

	parse(argc, argv, options, "a steady load of equal kernels");
	int batch = (int)option(options, "batch"), processes = (int)option(options, "processes");
	if (processes < 1 || processes > PROCESSES) {
		fprintf(stderr, "%s: --processes must be 1 to %d\n", program, PROCESSES);
		return 2;
	}
	if (option(options, "ahead") > MOST_AHEAD) {
		fprintf(stderr, "%s: --ahead must be at most %d\n", program, MOST_AHEAD);
		return 2;
	}
	if (batch < 1 || option(options, "demand") <= 0 || option(options, "kernel-us") < 1) {
		fprintf(stderr, "%s: --batch and --kernel-us must be at least 1, --demand over 0\n", program);
		return 2;
	}
	fork_to(processes);
	CHECK(cuInit(0));
	open_work_of(&w, 0, option(options, "kernel-us"), option(options, "loops"));
	if (option(options, "done-ms") > 0) {
		printf("loops %llu\n", (unsigned long long)w.loops);
		fflush(stdout);
	}
	if (option(options, "mem-mib") > 0)
		CHECK(cuMemAlloc(&memory, (size_t)option(options, "mem-mib") << 20));
	if (option(options, "graph") > 0)
		graph = capture(&w, batch);
	train(&w, graph, batch);
	if (graph)
		CHECK(cuGraphExecDestroy(graph));
	if (memory)
		CHECK(cuMemFree(memory));
	close_work(&w);
	return join_all();
}
