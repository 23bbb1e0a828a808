/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stall.h: whether work that does not end takes others' floors. A kernel without end is run beside by the driver's time slicing (core.h,
 * "overlapped"), and what that leaves may be less than the floors of the others: nothing that the rule does could mend it, so the device is
 * said to be sick, with whose work it is. Pure, as the core: it reads the core, decides nothing about leases and is asked
 * every heartbeat, and between them while it wants to be.
 *
 * A device is sick while, at each look,
 *
 *   a process' work is late: none of it has ended between two looks, and for STALL_LATE_NS beyond twice the time that it announced, since the
 *     others run beside it; that is believed for STALL_WORD_NS;
 *   and an owner on the device, of another task, is behind, or was within STALL_LATELY_NS: what its floor brought since that work stands, less
 *     what switching takes of it (admit.c), is STALL_BEHIND_NS of its floor more than what it was charged; it has credit for that, and for
 *     two idle caps, which no idle one keeps; and it wants the device: it waits, and launched when it last had it, or has work under its lease.
 *     Where a program is stopped and does not say that its work has ended, admissions (admit.c) keep the others' charges right.
 *
 * Where work of several processes is late nobody knows whose is at fault, and none of them is named alone.
 */
#ifndef ALIQUOT_ARBITER_STALL_H
#define ALIQUOT_ARBITER_STALL_H

#include "core.h"

#define STALL_LOOK_NS 20000000ull /* from look to look where several share a device and one of them has work on it */
#define STALL_LATE_NS 80000000ull
#define STALL_WORD_NS 1000000000ull
#define STALL_BEHIND_NS 50000000ull
#define STALL_LATELY_NS 500000000ull

/* One process' work on one device, from look to look. */
struct stall {
	uint64_t completed; /* launches, when last seen to grow */
	uint64_t since;     /* when that was, or when work was first seen; 0: nothing outstanding */
};

/* Work that is late: whose it is, and since when none of it has ended. */
struct stall_work {
	uint64_t since;     /* of the one that is late for longest; 0: none is */
	int grant;          /* whose it is; −1: of several tasks */
	int pid;            /* 0: not known, or several processes */
};

struct stall_device {
	struct stall_work sick; /* what it is sick of; since 0: it is well */
	struct stall_work late; /* as of the look under way */
	uint64_t oldest;        /* as of the look under way: since when none of any process' work has ended; 0: nobody has any */
	uint64_t from;          /* of the last look: who is behind is reckoned from then on */
	uint64_t behind_at;     /* when an owner was last behind for it; 0: none was */
};

/* What an owner has fallen behind by, as far as it is reckoned. */
struct stall_mark {
	uint64_t at, held_ns; /* reckoned up to then, when it had been charged so much; at 0: not yet */
	int64_t owed;         /* thousandths of a ns */
};

struct stalls {
	struct stall_device device[CORE_DEVICES];
	struct stall_mark mark[CORE_GRANTS];
};

/* A look: first what each process has, of `until`, the end that it announced (0: none); then for each device stalls_judge, which says whether
 * what it is sick of has changed. The core has observed all grants just before, or as of
 * its last run, which is not a lease ago where several want a device. */
void stalls_note(struct stalls *stalls, const struct core *core, int grant, int pid, struct stall *stall, bool outstanding, uint64_t completed,
	uint64_t until);
bool stalls_judge(struct stalls *stalls, const struct core *core, int device);

/* Whether to look again in STALL_LOOK_NS, after a look; else when there is one anyway. */
bool stalls_watch(const struct stalls *stalls, const struct core *core);

/* Forgets a grant that is no more: its place is given to another. */
void stalls_forget(struct stalls *stalls, const struct core *core, int grant);

#endif
