/* SPDX-License-Identifier: Apache-2.0 */
/* probe: asks a driver what its documentation leaves open and Aliquot depends on: `probe NAME` prints one line of JSON. */
#include "probe.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

static void *driver;

void refuse(const char *format, ...)
{
	char text[512];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	for (char *c = text; *c; c++)
		if (*c == '"' || *c == '\\' || *c == '\n')
			*c = '\'';
	printf("{\"error\": \"%s\"}\n", text);
	exit(1);
}

void *find_if_any(const char *name)
{
	if (!driver && !(driver = dlopen("libcuda.so.1", RTLD_NOW)))
		refuse("no driver: %s", dlerror());
	return dlsym(driver, name);
}

void *find(const char *name)
{
	void *found = find_if_any(name);
	if (!found)
		refuse("the driver has no %s", name);
	return found;
}

void check(CUresult result, const char *name)
{
	const char *said = NULL;
	if (result == CUDA_SUCCESS)
		return;
	DRIVER(cuGetErrorName)(result, &said);
	refuse("%s failed: %s (%d)", name, said ? said : "unknown error", (int)result);
}

int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double quantile(double *values, int n, double part)
{
	if (n <= 0)
		return 0;
	qsort(values, (size_t)n, sizeof *values, by_value);
	return values[(int)((double)(n - 1) * part + 0.5)];
}

/* A chain of dependent multiply-adds, as the examples' kernel is; that its end is never stored a compiler cannot know, and keeps the chain. */
static const char ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry alq_busy_" TEXT(BUSY_US) "us(.param .u64 ns, .param .u64 loops)\n{\n"
	" .reg .pred %again, %never; .reg .u64 %left, %at; .reg .f32 %x;\n"
	" ld.param.u64 %left, [loops]; mov.f32 %x, 0f3F800000;\n"
	"more: fma.rn.f32 %x, %x, %x, %x; sub.u64 %left, %left, 1; setp.ne.u64 %again, %left, 0; @%again bra more;\n"
	" ld.param.u64 %at, [ns]; setp.lt.f32 %never, %x, 0f00000000; @%never st.global.f32 [%at], %x; ret;\n}\n";

void open_device(struct device *d)
{
	memset(d, 0, sizeof *d);
	CALL(cuInit, 0);
	CALL(cuDeviceGet, &d->device, 0);
	CALL(cuDevicePrimaryCtxRetain, &d->context, d->device);
	CALL(cuCtxSetCurrent, d->context);
	CALL(cuModuleLoadData, &d->module, ptx);
	CALL(cuModuleGetFunction, &d->busy, d->module, "alq_busy_" TEXT(BUSY_US) "us");
	CALL(cuStreamCreate, &d->stream, CU_STREAM_NON_BLOCKING);
}

void launch_busy(const struct device *d, uint64_t loops)
{
	static __typeof__(&cuLaunchKernel) launch; /* looked up once: its cost is what some probes measure */
	uint64_t ns = BUSY_US * 1000;
	void *args[] = {&ns, &loops};
	if (!launch)
		launch = DRIVER(cuLaunchKernel);
	check(launch(d->busy, 1, 1, 1, 1, 1, 1, 0, d->stream, args, NULL), "cuLaunchKernel");
}

static const struct {
	const char *name;
	int (*run)(void);
} probes[] = {
	{"symbols", probe_symbols}, {"capture", probe_capture}, {"vmm", probe_vmm},	  {"events", probe_events},
	{"launch", probe_launch},   {"alloc", probe_alloc},	{"switch", probe_switch}, {"processes", probe_processes},
	{"watch", probe_watch},	    {"entries", probe_entries}, {"peak", probe_peak},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof probes / sizeof *probes; i++)
		if (!strcmp(argv[1], probes[i].name))
			return probes[i].run();
	fprintf(stderr, "probe: asks a driver one thing and prints a line of JSON; name one of:");
	for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
		fprintf(stderr, " %s", probes[i].name);
	fprintf(stderr, "\n");
	return 2;
}
