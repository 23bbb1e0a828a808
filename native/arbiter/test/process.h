/* SPDX-License-Identifier: Apache-2.0 */
/* process.h: what the tests of the arbiter's process share. */
#ifndef ALIQUOT_ARBITER_TEST_PROCESS_H
#define ALIQUOT_ARBITER_TEST_PROCESS_H

#include "rig.h"

#define load(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define store(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define GIB (1ull << 30)
#define MS 1000000ull

extern const char *program;      /* the arbiter, with named points */
extern const char *const D0[1];  /* a device */

/* A few leases of both tenants, whoever comes first. */
void exchange(struct tenant *a, struct tenant *b, int rounds);

/* The rows of a device, with those of n tasks on it, add up to its time. */
void check_rows(struct rig *rig, const struct alq_device *device, const struct pages *tasks, int n);

/* away.c */
void test_stopped_arbiter(void);
void test_versions(void);
void test_stale_slots(void);
void test_stalls(void);

/* lend.c */
void test_lend(void);
void test_lend_hung_up(void);
void test_lend_away(void);
void test_lend_race(void);

/* hostile.c */
void test_hostile_bell(void);
void test_hostile_page(void);
void test_spoiled_page(void);
void test_given_user(void);
void test_fuzz(void);
void test_crowd(void);

#endif
