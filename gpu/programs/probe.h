/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the probes of a driver share. The driver is found by name with dlopen, each call with dlsym, so that a probe runs beside any
 * driver and a call that is missing is one sentence. Each probe prints one line of JSON; when a call fails it prints one with
 * `error` and the probe ends with status 1.
 */
#ifndef ALIQUOT_GPU_PROBE_H
#define ALIQUOT_GPU_PROBE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* The driver's function of this name, as cuda.h declares it. */
#define DRIVER(name) ((__typeof__(&name))find(TEXT(name)))
/* Calls it and ends the probe if it fails. */
#define CALL(name, ...) check(DRIVER(name)(__VA_ARGS__), TEXT(name))

void *find(const char *name);	      /* ends the probe if the driver has none of that name */
void *find_if_any(const char *name);  /* NULL then */
void check(CUresult result, const char *name);
void refuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

int64_t now_ns(void); /* CLOCK_MONOTONIC */

/* The value below which this part (0..1) of the values lies; sorts them. 0 of none. */
double quantile(double *values, int n, double part);

struct device {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction busy; /* (u64 ns, u64 loops): the simulated driver goes by its name, a real one by loops */
	CUstream stream;
};

#define BUSY_US 100

/* Opens device 0 and loads the probes' kernel. */
void open_device(struct device *d);
void launch_busy(const struct device *d, uint64_t loops);

int probe_symbols(void);
int probe_entries(void);
int probe_capture(void);
int probe_vmm(void);
int probe_events(void);
int probe_launch(void);
int probe_alloc(void);
int probe_switch(void);
int probe_processes(void);
int probe_watch(void);
int probe_peak(void);

#endif
