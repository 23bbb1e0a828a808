/* SPDX-License-Identifier: Apache-2.0 */
/*
 * harness.h: each test has a server and a process of its own, and both end with it. Nothing here waits for a time to pass: tests wait for
 * conditions, with the alarm of a test that hangs as the only clock.
 */
#ifndef ALIQUOT_SIMGPU_TEST_HARNESS_H
#define ALIQUOT_SIMGPU_TEST_HARNESS_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"
#include "simgpu/record.h"

struct test {
	const char *name;
	const char *devices; /* NULL: no server */
	void (*run)(void);
};

/* The tests of each file, ended by one without a name. */
extern const struct test time_tests[], memory_tests[], graph_tests[], process_tests[], api_tests[], nvml_tests[], shared_tests[];

/* Where this test's server is, and its record. */
extern char test_socket[256], test_control[256], test_record[256];

#define FAIL(...)                                                             \
	do {                                                                  \
		fprintf(stderr, "    %s:%d: ", __FILE__, __LINE__);           \
		fprintf(stderr, __VA_ARGS__);                                 \
		fprintf(stderr, "\n");                                        \
		exit(1);                                                      \
	} while (0)

#define CHECK(condition)                                  \
	do {                                              \
		if (!(condition))                         \
			FAIL("not true: %s", #condition); \
	} while (0)

#define IS(expected, call)                                                                  \
	do {                                                                                \
		CUresult is_ = (call);                                                      \
		if (is_ != (expected))                                                      \
			FAIL("%s gave %d, not %d (%s)", #call, is_, (int)(expected), #expected); \
	} while (0)

#define OK(call) IS(CUDA_SUCCESS, call)

/* What most tests begin with: a context on device 0 and a module with the kernels of kernels_ptx. */
struct bench {
	CUcontext context;
	CUmodule module;
	CUfunction us100, us500, ms5, plain, timed;
	CUstream stream;
};
struct bench bench_open(void);
extern const char kernels_ptx[];

void launch(CUfunction f, CUstream s);
void launch_ns(CUfunction timed, uint64_t ns, CUstream s);

/* Holds a stream at a function on the host until let go: what is issued behind it meanwhile starts at one moment. */
struct gate {
	int pipe[2];
};
struct gate gate_close(CUstream s);
void gate_open(struct gate *g);

/* Runs aliquot-simgpu with the arguments (the socket is added); returns its exit status. */
int simgpu(const char *first, ...);

/* The record as of now, a consistent copy. */
struct sim_record *record_now(void);

#endif
