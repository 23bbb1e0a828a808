/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenant: a saturating load that counts its own work. Every kernel does the same number of loops, whoever has the device in between,
 * so that the rate of one tenant among others over its rate alone is the part of the device that it got. It prints lines of two
 * numbers, the monotonic clock in ns and the kernels that have been completed by then, and first `loops N`.
 */
#include "../../examples/common.h"

#define AHEAD 2 /* batches queued before the oldest is waited for */

static struct option options[] = {
	{"kernel-us", "device time of one kernel, µs", 500, 0},
	{"loops", "of one kernel on a real GPU; 0: find out now", 0, 0},
	{"batch", "kernels between two waits", 8, 0},
	{"graph", "launch each batch as one CUDA graph", 0, 1},
	{"seconds", "how long to run; 0: until stopped", 10, 0},
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

int main(int argc, char **argv)
{
	struct work w;
	CUevent done[AHEAD];
	CUgraphExec graph = NULL;
	uint64_t queued = 0;

	parse(argc, argv, options, "a saturating load that counts its own work");
	int batch = (int)option(options, "batch");
	double seconds = option(options, "seconds");
	if (batch < 1 || option(options, "kernel-us") < 1) {
		fprintf(stderr, "%s: --batch and --kernel-us must be at least 1\n", program);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(cuInit(0));
	open_work(&w, 0, option(options, "kernel-us"));
	if (option(options, "loops") > 0)
		w.loops = (uint64_t)option(options, "loops");
	printf("loops %llu\n", (unsigned long long)w.loops);
	for (int i = 0; i < AHEAD; i++)
		CHECK(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
	if (option(options, "graph") > 0)
		graph = capture(&w, batch);

	int64_t start = now_ns(), said = 0;
	while (!stopped && (seconds == 0 || (double)(now_ns() - start) < seconds * 1e9)) {
		CUevent slot = done[queued % AHEAD];
		if (queued >= AHEAD) {
			CHECK(cuEventSynchronize(slot));
			int64_t now = now_ns();
			if (now - said >= 50000000) {
				said = now;
				printf("%lld %llu\n", (long long)now, (unsigned long long)(queued - AHEAD + 1) * (unsigned)batch);
			}
		}
		if (graph)
			CHECK(cuGraphLaunch(graph, w.stream));
		else
			for (int i = 0; i < batch; i++)
				launch(&w);
		CHECK(cuEventRecord(slot, w.stream));
		queued++;
	}
	CHECK(cuStreamSynchronize(w.stream));
	if (graph)
		CHECK(cuGraphExecDestroy(graph));
	for (int i = 0; i < AHEAD; i++)
		CHECK(cuEventDestroy(done[i]));
	close_work(&w);
	return 0;
}
