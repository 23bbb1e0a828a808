/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stall.h: whether work that does not end takes others' floors. A kernel without end is run beside by the driver's time slicing (core.h,
 * "overlapped"), and what that leaves may be less than the floors of the others: nothing that the rule does could mend it, so the device is
 * said to be sick, with whose work it is. Pure, as the core: it reads the core, decides nothing about leases and is asked every heartbeat.
 *
 * A device is sick from when, at one look,
 *
 *   a process' work is late: none of it has ended between two looks, and for STALL_LATE_NS beyond twice the time that it announced, since the
 *     others run beside it; that is believed for STALL_WORD_NS;
 *   and an owner on the device, of another task, is STALL_BEHIND_NS of its floor behind by its credit, and by two idle caps, which no idle one
 *     keeps. Where a program is stopped and does not say that its work has ended, admissions (admit.c) keep the others' credit right;
 *
 * until some of that work has ended, or its process has.
 */
#ifndef ALIQUOT_ARBITER_STALL_H
#define ALIQUOT_ARBITER_STALL_H

#include "core.h"

#define STALL_LATE_NS 80000000ull
#define STALL_WORD_NS 1000000000ull
#define STALL_BEHIND_NS 100000000ull

/* One process' work on one device, from look to look. */
struct stall {
	uint64_t completed; /* launches, when last seen to grow */
	uint64_t since;     /* when that was, or when work was first seen; 0: nothing outstanding */
};

struct stall_device {
	uint64_t since; /* of the work that it is sick of; 0: it is well */
	int grant, pid; /* whose that is */

	/* Of the look under way: the work that is late for longest; and whether there still is what it is sick of. */
	uint64_t late_since;
	int late_grant, late_pid;
	bool still;
};

struct stalls {
	struct stall_device device[CORE_DEVICES];
};

/* A look: first what each process has, of `until`, the end that it announced (0: none); then for each device stalls_judge, which says whether
 * it has become sick or well. The core has observed all grants just before. */
void stalls_note(struct stalls *stalls, const struct core *core, int grant, int pid, struct stall *stall, bool outstanding, uint64_t completed,
	uint64_t until);
bool stalls_judge(struct stalls *stalls, const struct core *core, int device);

#endif
