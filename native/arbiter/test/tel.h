/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tel.h: modelled tenants that write `tel` pages, truly or not. The core hears of them through the arbiter's own reading of these pages
 * (observe.c), so that a lie meets all that stands between it and the books. Liars obey their gates: what is tested is what words can do.
 */
#ifndef ALIQUOT_TEST_TEL_H
#define ALIQUOT_TEST_TEL_H

#include "world.h"

enum lie {
	TRUTH,
	LESS,      /* half of the time that it used */
	NOTHING,   /* no time at all */
	MORE,      /* twice the time that it used */
	HUGE_TIME, /* as much as fits the counters */
	BACKWARD,  /* counters that go back at every other reading */
	WRAP,      /* counters that begin just below 2^64 */
	OTHERS,    /* the time that its neighbour used */
	RETRACT,   /* now 40 ms more than it used, now 40 ms less */
	IDLE,      /* all time that goes by, also while it holds nothing */
	LEARNING,  /* twice the measured time: then what it says by its estimates is neither admission nor complaint */
	SOON,      /* its work should have ended long ago */
	LATE,      /* its work will end in a quarter of an hour */
	RESTLESS,  /* a launch waits behind its work, always */
	WAITING,   /* it waits at the gate since ever, also while it holds the device */
	UNDONE,    /* nothing that it launched has ended */
	SCRIBBLE,  /* random bytes in all fields */
	DONE,      /* all that it launched has ended */
	LIES,
};

extern const char *const lie_names[LIES];

struct tel;

/* From now on the core hears what is written to pages; the world's lanes are to be joined before it runs. */
struct tel *tel_new(struct world *world);
void tel_free(struct tel *tel);
/* The task of `lanes` lanes from `first` on, which says what `lie` says. */
void tel_join(struct tel *tel, struct lane *first, int lanes, enum lie lie);

#endif
