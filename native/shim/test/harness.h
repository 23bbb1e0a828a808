/* SPDX-License-Identifier: Apache-2.0 */
/*
 * harness.h: a task's folder with its pages and an arbiter that does what the test says, in a thread of the test. What waits, waits for a
 * condition; a condition that does not come within a minute fails the test.
 */
#ifndef ALIQUOT_SHIM_HARNESS_H
#define ALIQUOT_SHIM_HARNESS_H

#include "../shim.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                                           \
	do {                                                                                                                       \
		if (!(condition)) {                                                                                                \
			fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, __func__, #condition);                    \
			exit(1);                                                                                                   \
		}                                                                                                                  \
	} while (0)
#define CHECK_EQ(got, want)                                                                                                        \
	do {                                                                                                                       \
		long long got_ = (long long)(got), want_ = (long long)(want);                                                      \
		if (got_ != want_) {                                                                                               \
			fprintf(stderr, "%s:%d: %s: %s is %lld, not %s (%lld)\n", __FILE__, __LINE__, __func__, #got, got_, #want,  \
				want_);                                                                                            \
			exit(1);                                                                                                   \
		}                                                                                                                  \
	} while (0)
/* Looks again until it is true. */
#define WAIT(condition)                                                                                                            \
	do {                                                                                                                       \
		uint64_t until_ = clock_now() + 60 * NS_PER_S;                                                                     \
		while (!(condition)) {                                                                                             \
			uint32_t never_ = 0;                                                                                       \
			CHECK(clock_now() < until_ && #condition);                                                                 \
			futex_wait_until(&never_, 0, clock_now() + NS_PER_MS, false);                                              \
		}                                                                                                                  \
	} while (0)

struct arbiter {
	char folder[256];
	struct alq_ctl *ctl;
	struct alq_tel *tel;
	uint64_t lendable;  /* above mem_granted, while asks are answered */
	uint32_t rings;     /* of all bells */
	uint32_t asks, hellos;
	bool patient;       /* an ask that it has nothing for is kept until it has */
	uint32_t kept;      /* such asks */
	int32_t last_slot_asked;
	bool silent;        /* it serves, and its heart does not beat */
	uint64_t ahead_ns;  /* its heartbeat says that it is so much later: it counts as away only so much later than it would */
};

/* Makes a task with grants on the first devices of the fake driver, each with so much memory granted and as ceiling, gate closed. */
void arbiter_make(struct arbiter *a, uint32_t grants, uint64_t granted, uint64_t ceiling);
/* Begins and ends to serve; the heartbeat goes on only while it serves, its last stays. */
void arbiter_serve(struct arbiter *a);
void arbiter_die(struct arbiter *a);
void arbiter_remove(struct arbiter *a);

void gate_open(struct arbiter *a, uint32_t grant, uint64_t lease_end);
void gate_ungate(struct arbiter *a, uint32_t grant);
void gate_close(struct arbiter *a, uint32_t grant);
/* A lease moved without changing the word, then, if it is later, the word bumped. */
void lease_move(struct arbiter *a, uint32_t grant, uint64_t lease_end);

/* This process as the tenant: sets ALIQUOT_TASK and initialises; makes a context on the first device. */
void tenant_start(struct arbiter *a);

#endif
