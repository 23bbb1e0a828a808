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

/*
 * Two kernels. The first is a chain of dependent multiply-adds, as the examples' is. The second reads the device's clock until a time
 * has passed and writes down each pause between two readings that was longer than `over`: there another program had the device.
 */
static const char ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry alq_busy_" TEXT(BUSY_US) "us(.param .u64 ns, .param .u64 loops)\n{\n"
	" .reg .pred %again; .reg .u64 %left; .reg .f32 %x;\n"
	" ld.param.u64 %left, [loops]; mov.f32 %x, 0f3F800000;\n"
	"more: fma.rn.f32 %x, %x, %x, %x; sub.u64 %left, %left, 1; setp.ne.u64 %again, %left, 0; @%again bra more; ret;\n}\n"
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

void open_device(struct device *d)
{
	char name[128] = "";
	memset(d, 0, sizeof *d);
	d->simulated = getenv("ALIQUOT_SIMGPU") != NULL;
	CALL(cuInit, 0);
	CALL(cuDeviceGet, &d->device, 0);
	CALL(cuDeviceGetName, name, sizeof name, d->device);
	CALL(cuDevicePrimaryCtxRetain, &d->context, d->device);
	CALL(cuCtxSetCurrent, d->context);
	CALL(cuModuleLoadData, &d->module, ptx);
	CALL(cuModuleGetFunction, &d->busy, d->module, "alq_busy_" TEXT(BUSY_US) "us");
	if (!d->simulated)
		CALL(cuModuleGetFunction, &d->gaps, d->module, "alq_gaps");
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
	{"watch", probe_watch},
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
