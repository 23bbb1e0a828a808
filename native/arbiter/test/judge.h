/* SPDX-License-Identifier: Apache-2.0 */
/* judge.h: what a run under virtual time is held against: water-filling computed in another way than the core does, and the ledger's sum. */
#ifndef ALIQUOT_TEST_JUDGE_H
#define ALIQUOT_TEST_JUDGE_H

#include "world.h"

struct limits {
	uint32_t floor, ceiling, weight;
	double demand; /* as a part of the device; 1: saturating */
};

/* What each lane should get of a device, in parts of it: floors first, the rest by weight up to ceilings, by bisection of the level. */
void oracle(int n, const struct limits *limits, double *out);

/* The rows of each device add up to its time to the nanosecond, and what is lent is what is borrowed. Settles the books up to now. */
void check_rows(struct world *w, const char *name);

#endif
