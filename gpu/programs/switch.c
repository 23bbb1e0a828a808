/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver's own time-slicing does: two processes each run one long kernel that notes when the device's clock jumped, which
 * is when the other had the device. Where one's note ends and the other's begins is the length of a turn and the cost of a switch,
 * in device time.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

enum { MOST = 4096 };
#define LASTS_NS 1000000000ull
#define OVER_NS 20000ull

/* A module of its own, so that a driver that does not take it fails this probe alone. */
static const char ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry alq_gaps(.param .u64 to, .param .u64 most, .param .u64 lasts, .param .u64 over)\n{\n"
	" .reg .pred %p; .reg .u64 %to, %most, %until, %over, %now, %last, %gap, %n, %at;\n"
	" ld.param.u64 %to, [to]; cvta.to.global.u64 %to, %to;\n"
	" ld.param.u64 %most, [most]; ld.param.u64 %until, [lasts]; ld.param.u64 %over, [over];\n"
	" mov.u64 %n, 0; mov.u64 %last, %globaltimer; st.global.u64 [%to+8], %last; add.u64 %until, %until, %last;\n"
	"again: mov.u64 %now, %globaltimer; sub.u64 %gap, %now, %last;\n"
	" setp.lt.u64 %p, %gap, %over; @%p bra next; setp.ge.u64 %p, %n, %most; @%p bra next;\n"
	" shl.b64 %at, %n, 4; add.u64 %at, %at, %to;\n"
	" st.global.u64 [%at+16], %last; st.global.u64 [%at+24], %now; add.u64 %n, %n, 1;\n"
	"next: mov.u64 %last, %now; setp.lt.u64 %p, %now, %until; @%p bra again;\n"
	" st.global.u64 [%to], %n; ret;\n}\n";

struct notes { /* as the kernel writes them */
	uint64_t count, began;
	struct {
		uint64_t from, to;
	} gap[MOST];
};

struct shared {
	int failed[2];
	int ready[2];
	struct notes notes[2];
};

/* One side: says that it is ready, waits for the other, runs the kernel. Ends the process. */
static void side(struct shared *s, int me)
{
	struct device d;
	CUmodule module;
	CUfunction gaps;
	CUdeviceptr at;
	uint64_t most = MOST, lasts = LASTS_NS, over = OVER_NS;
	void *args[] = {&at, &most, &lasts, &over};

	__atomic_store_n(&s->failed[me], 1, __ATOMIC_RELEASE); /* until it has ended well */
	open_device(&d);
	CALL(cuModuleLoadData, &module, ptx);
	CALL(cuModuleGetFunction, &gaps, module, "alq_gaps");
	CALL(cuMemAlloc, &at, sizeof(struct notes));
	CALL(cuMemsetD8, at, 0, sizeof(struct notes));
	CALL(cuCtxSynchronize);
	__atomic_store_n(&s->ready[me], 1, __ATOMIC_RELEASE);
	for (int64_t until = now_ns() + 20000000000; !__atomic_load_n(&s->ready[!me], __ATOMIC_ACQUIRE);)
		if (now_ns() > until)
			_exit(1);
	CALL(cuLaunchKernel, gaps, 1, 1, 1, 1, 1, 1, 0, d.stream, args, NULL);
	CALL(cuStreamSynchronize, d.stream);
	CALL(cuMemcpyDtoH, &s->notes[me], at, sizeof(struct notes));
	__atomic_store_n(&s->failed[me], 0, __ATOMIC_RELEASE);
	_exit(0);
}

/* For each gap of one side: from its beginning to the other's next return is one switch. Returns how many were found. */
static int switches(const struct notes *mine, const struct notes *other, double *us, int n)
{
	uint64_t next = 0;
	for (uint64_t i = 0; i < mine->count; i++) {
		while (next < other->count && other->gap[next].to < mine->gap[i].from)
			next++;
		if (next < other->count && other->gap[next].to < mine->gap[i].to)
			us[n++] = (double)(other->gap[next].to - mine->gap[i].from) / 1e3;
	}
	return n;
}

int probe_switch(void)
{
	static double cost[2 * MOST], turn[2 * MOST];
	int costs = 0, turns = 0;
	if (getenv("ALIQUOT_SIMGPU")) {
		printf("{\"not_run\": \"simulated devices run no code; their switch cost is set in native/simgpu/costs.h\"}\n");
		return 0;
	}
	struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED)
		refuse("no memory to share between two processes");
	for (int me = 0; me < 2; me++) {
		pid_t child = fork(); /* before any call of the driver */
		if (child < 0)
			refuse("no second process could be started");
		if (child == 0)
			side(s, me);
	}
	while (wait(NULL) > 0)
		;
	if (s->failed[0] || s->failed[1])
		refuse("one of the two processes failed");
	for (int me = 0; me < 2; me++) {
		const struct notes *mine = &s->notes[me];
		costs = switches(mine, &s->notes[!me], cost, costs);
		for (uint64_t i = 1; i < mine->count; i++)
			turn[turns++] = (double)(mine->gap[i].from - mine->gap[i - 1].to) / 1e3;
	}
	printf("{\"gaps\": %d, \"switches\": %d, \"switch_p50_us\": %.1f, \"switch_p90_us\": %.1f, \"turn_p50_us\": %.1f, "
	       "\"turn_p90_us\": %.1f, \"gaps_over_us\": %.0f}\n",
	       (int)(s->notes[0].count + s->notes[1].count), costs, quantile(cost, costs, 0.5), quantile(cost, costs, 0.9),
	       quantile(turn, turns, 0.5), quantile(turn, turns, 0.9), OVER_NS / 1e3);
	return 0;
}
