/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the examples share: a kernel that keeps a device busy for a given time, options, errors, clocks.
 *
 * The kernel is PTX text made at run time. Its name says how long it should run (`alq_busy_500us`), which is what the
 * simulated driver goes by; on a real GPU it runs a chain of dependent multiply-adds, and calibrate() finds how many of them take
 * that long. So a kernel is a piece of work, not a wait: when another program gets the device in between, it takes longer.
 */
#ifndef ALIQUOT_EXAMPLES_COMMON_H
#define ALIQUOT_EXAMPLES_COMMON_H

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda.h"

static const char *program = "example";
static volatile sig_atomic_t stopped;

/* Ends the program with one sentence when a driver call failed. */
#define CHECK(call) check((call), #call)

static inline void check(CUresult result, const char *call)
{
	const char *name = NULL;
	if (result == CUDA_SUCCESS)
		return;
	cuGetErrorName(result, &name);
	fprintf(stderr, "%s: %.*s failed: %s (%d)\n", program, (int)strcspn(call, "("), call, name ? name : "unknown error",
		(int)result);
	exit(1);
}

static inline void on_signal(int sig)
{
	(void)sig;
	stopped = 1;
}

static inline int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void sleep_until(int64_t ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	while (!stopped && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

/* ---- options: `--name value` or `--name=value`, all of them numbers, or a flag ---- */

struct option {
	const char *name;
	const char *help;
	double value; /* the default, then what was given */
	int flag;     /* takes no value */
};

static inline void usage(const struct option *options, const char *about, FILE *to)
{
	fprintf(to, "%s: %s\n", program, about);
	for (; options->name; options++)
		fprintf(to, "  --%-12s %s (%g)\n", options->name, options->help, options->value);
}

static inline void parse(int argc, char **argv, struct option *options, const char *about)
{
	program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	for (int i = 1; i < argc; i++) {
		const char *arg = argv[i], *value = strchr(arg, '=');
		size_t length = value ? (size_t)(value - arg) : strlen(arg);
		struct option *o = options;
		char *end = NULL;
		if (!strcmp(arg, "--help")) {
			usage(options, about, stdout);
			exit(0);
		}
		while (o->name && (length < 3 || strncmp(arg, "--", 2) || strlen(o->name) != length - 2 ||
				   strncmp(arg + 2, o->name, length - 2)))
			o++;
		if (!o->name) {
			fprintf(stderr, "%s: no option %s\n", program, arg);
			usage(options, about, stderr);
			exit(2);
		}
		if (o->flag) {
			o->value = 1;
			continue;
		}
		value = value ? value + 1 : i + 1 < argc ? argv[++i] : "";
		o->value = strtod(value, &end);
		if (end == value || *end || !isfinite(o->value) || o->value < 0) {
			fprintf(stderr, "%s: --%s wants a number of 0 or more, not \"%s\"\n", program, o->name, value);
			exit(2);
		}
	}
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

static inline double option(const struct option *options, const char *name)
{
	for (; options->name; options++)
		if (!strcmp(options->name, name))
			return options->value;
	abort();
}

/* ---- the device and the kernel ---- */

struct work {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction function;
	CUstream stream;
	uint64_t ns;    /* device time of one launch */
	uint64_t loops; /* that take so long on a real GPU */
};

static inline void launch_for(const struct work *w, uint64_t ns, uint64_t loops)
{
	void *args[] = {&ns, &loops};
	CHECK(cuLaunchKernel(w->function, 1, 1, 1, 1, 1, 1, 0, w->stream, args, NULL));
}

static inline void launch(const struct work *w) { launch_for(w, w->ns, w->loops); }

/* Finds how many loops take w->ns: the fastest of a few trials, since a neighbour can only make one slower. */
static inline void calibrate(struct work *w)
{
	const uint64_t probe_ns = 1000000, probe_loops = 200000;
	float fastest = INFINITY;
	CUevent from, to;
	CHECK(cuEventCreate(&from, CU_EVENT_DEFAULT));
	CHECK(cuEventCreate(&to, CU_EVENT_DEFAULT));
	for (int i = 0; i < 4; i++) {
		float ms = 0;
		CHECK(cuEventRecord(from, w->stream));
		launch_for(w, probe_ns, probe_loops);
		CHECK(cuEventRecord(to, w->stream));
		CHECK(cuEventSynchronize(to));
		CHECK(cuEventElapsedTime(&ms, from, to));
		if (i > 0 && ms > 0 && ms < fastest) /* the first also loads the code */
			fastest = ms;
	}
	w->loops = (uint64_t)((double)probe_loops * (double)w->ns / (fastest * 1e6));
	if (w->loops == 0)
		w->loops = 1;
	CHECK(cuEventDestroy(from));
	CHECK(cuEventDestroy(to));
}

/* Opens the device with this ordinal and loads a kernel of so many microseconds, or of so many loops on a real GPU; 0: as many as take so long now. */
static inline void open_work_of(struct work *w, int ordinal, double kernel_us, double loops)
{
	char ptx[1024];
	char name[64];
	memset(w, 0, sizeof *w);
	w->ns = (uint64_t)(kernel_us * 1000);
	snprintf(name, sizeof name, "alq_busy_%.0fus", kernel_us);
	snprintf(ptx, sizeof ptx,
		 ".version 6.0\n"
		 ".target sm_50\n"
		 ".address_size 64\n"
		 ".visible .entry %s(.param .u64 ns, .param .u64 loops)\n"
		 "{\n"
		 "	.reg .pred %%again, %%never;\n"
		 "	.reg .u64 %%at;\n"
		 "	.reg .u64 %%left;\n"
		 "	.reg .f32 %%x;\n"
		 "	ld.param.u64 %%left, [loops];\n"
		 "	mov.f32 %%x, 0f3F800000;\n"
		 "more:\n"
		 "	fma.rn.f32 %%x, %%x, %%x, %%x;\n"
		 "	sub.u64 %%left, %%left, 1;\n"
		 "	setp.ne.u64 %%again, %%left, 0;\n"
		 "	@%%again bra more;\n"
		 "	ld.param.u64 %%at, [ns];\n"
		 "	setp.lt.f32 %%never, %%x, 0f00000000;\n" /* it only grows, which a compiler cannot know: else it drops the loop */
		 "	@%%never st.global.f32 [%%at], %%x;\n"
		 "	ret;\n"
		 "}\n",
		 name);
	CHECK(cuDeviceGet(&w->device, ordinal));
	CHECK(cuDevicePrimaryCtxRetain(&w->context, w->device));
	CHECK(cuCtxSetCurrent(w->context));
	CHECK(cuModuleLoadData(&w->module, ptx));
	CHECK(cuModuleGetFunction(&w->function, w->module, name));
	CHECK(cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING));
	w->loops = (uint64_t)loops;
	if (w->loops == 0)
		calibrate(w);
}

static inline void open_work(struct work *w, int ordinal, double kernel_us) { open_work_of(w, ordinal, kernel_us, 0); }

static inline void close_work(struct work *w)
{
	CHECK(cuCtxSetCurrent(w->context));
	CHECK(cuStreamSynchronize(w->stream));
	CHECK(cuStreamDestroy(w->stream));
	CHECK(cuModuleUnload(w->module));
	CHECK(cuDevicePrimaryCtxRelease(w->device));
}

/* ---- random numbers: splitmix64, seeded, so that two runs offer the same load ---- */

static inline double uniform(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* An exponentially distributed time with this mean. */
static inline double exponential(uint64_t *state, double mean) { return -mean * log1p(-uniform(state)); }

#endif
