/* SPDX-License-Identifier: Apache-2.0 */
/* paths.h: what the files of paths_test share. */
#ifndef ALIQUOT_SHIM_PATHS_H
#define ALIQUOT_SHIM_PATHS_H

#include "harness.h"

#include "simgpu/record.h"

#include <pthread.h>

#define MI (1ull << 20)
#define GRANTS 2
#define LIMIT (4096 * MI) /* of each grant */

/* The program whose calls are judged: a context, a module, a kernel of 2 ms and a stream on each device. */
struct tenant {
	CUcontext context[GRANTS];
	CUmodule module[GRANTS];
	CUfunction kernel[GRANTS];
	CUstream stream[GRANTS];
};

extern struct arbiter arbiter;
extern struct tenant tenant;
extern const char tenant_ptx[];

struct said { /* over all grants */
	uint64_t launched, measured, device_ns; /* by the task's page */
	uint64_t busy_ns;                       /* by the devices' record */
};

struct said said_now(void);
void come_to_rest(void);
/* Whether so many launches were counted and measured as the device recorded them since; ends the test if the count is wrong, or at the
 * last try. host_ns: of these, spent in the host between the events that measure. */
bool charged_right(const char *symbol, const struct said *before, uint64_t launches, uint64_t host_ns, int tries);
void name_called(const char *symbol);

/* Bytes on the first device: charged to the tenant as asked for, with overhead too, and what the device holds for a process. */
uint64_t bytes_used(void);
uint64_t bytes_charged(void);
uint64_t bytes_held(pid_t pid);
/* Charged to the one other process that there is, with overhead. */
uint64_t bytes_of_other(void);
/* The most that a device ever held. */
uint64_t bytes_peak(int device);

/* Another process of the task, in a role of this program. to: a socket, so that it takes descriptors. */
struct other {
	pid_t pid;
	int to, from;
};
struct other other_start(const char *role);
void other_end(struct other *o);

/*
 * Calls a function with the gate of one grant closed, from _begin to _end, in between: what it gives the device must wait there until another
 * thread opens the gate, which it does once the call waits and the devices, having ended all that they were given, have done nothing for it.
 */
struct held {
	pthread_t opener;
	struct said before;
	uint64_t busy_ns;  /* that the devices were busy while it waited */
	uint32_t grant, returned;
	bool waited;
};
void held_begin(struct held *h, uint32_t grant);
/* works: it keeps a device busy, once it is let through. Ends the test if it did not wait, or was not let through as so many launches. */
void held_end(struct held *h, const char *symbol, uint64_t launches, bool works);

/* On each of its devices, of which there is one a launch. */
#define HELD(name, launches, works, result, ...)                                                                                   \
	do {                                                                                                                       \
		for (uint32_t grant_ = 0; grant_ < (launches); grant_++) {                                                         \
			struct held held_;                                                                                         \
			held_begin(&held_, grant_);                                                                                \
			CHECK_EQ(name(__VA_ARGS__), result);                                                                       \
			held_end(&held_, #name, launches, works);                                                                  \
		}                                                                                                                  \
	} while (0)

/* Calls a function that is gated, until one call is charged as it should be; then with the gate closed. */
#define GATED(name, launches, ...) GATED_FOR(name, launches, false, __VA_ARGS__)
/* The same; waits: the call returns when its work is done, so that the end of it is marked late by what the host does in it. */
#define GATED_FOR(name, launches, waits, ...)                                                                                      \
	do {                                                                                                                       \
		bool works = false;                                                                                                \
		for (int tries = 0;; tries++) {                                                                                    \
			uint64_t begin = clock_now();                                                                              \
			struct said before = said_now();                                                                           \
			CHECK_EQ(name(__VA_ARGS__), CUDA_SUCCESS);                                                                 \
			come_to_rest();                                                                                            \
			works |= said_now().busy_ns != before.busy_ns;                                                             \
			if (charged_right(#name, &before, launches, (waits) ? clock_now() - begin : 0, tries))                     \
				break;                                                                                             \
		}                                                                                                                  \
		HELD(name, launches, works, CUDA_SUCCESS, __VA_ARGS__);                                                            \
	} while (0)

/* Calls a function that is accounted: so many bytes more are charged, and the device holds so many more, or less. */
#define ACCOUNTED(name, bytes, ...)                                                                                                \
	do {                                                                                                                       \
		int64_t used = (int64_t)bytes_used(), held = (int64_t)bytes_held(getpid());                                        \
		name_called(#name);                                                                                                \
		CHECK_EQ(name(__VA_ARGS__), CUDA_SUCCESS);                                                                         \
		CHECK_EQ((int64_t)bytes_used() - used, (int64_t)(bytes));                                                          \
		CHECK_EQ((int64_t)bytes_held(getpid()) - held, (int64_t)(bytes));                                                  \
	} while (0)

/* One that opens what the test makes, at its word. */
int role_shares(int in, int out);
/* One whose driver puts off what modules take. */
int role_late(int in, int out);

extern const CUmemAllocationProp exported; /* memory that can be exported */

void test_memory(void);
void test_pools(void);
void test_shared(void);
void test_late(void);
void test_launches(void);
void test_copies(void);
void test_changes(void);
void test_refused(void);

#endif
