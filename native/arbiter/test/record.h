/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h: writes down every call of the core with what it is told, what comes out and what the core keeps, so that another statement of the
 * rule can be held to it (divide/lease). The linker hands the calls of a program here first (--wrap, see module.mk); calls that the core
 * makes of itself are not written down.
 *
 * THE FORMAT. Records, each a letter and then numbers: n is unsigned, z signed (zigzag), both LEB128; time is z, from the record's last
 * time to this one's. A letter in brackets repeats.
 *
 *   W  n seed                                    a world begins, time is 0: all that was is forgotten
 *   C  n × 12                                    its core_config, in the order of the struct
 *   Z                                            another arbiter takes over: the core is empty
 *   O  n grant, n bits, n which, [z change]      what a grant's processes say from now on. Bits: waiting, outstanding, coming, several. Which:
 *                                                for each number of core_observation, in its order, a bit if it has changed
 *
 * and calls, each followed by eight bytes, little-endian: a digest of all that the core keeps then (state.h).
 *
 *   D  time, n state | n device                                   core_device_add
 *   T  time, n grants, [n device, policy] | n task, [n grant]     core_task_add; a policy is n floor, n ceiling, n weight, n flags
 *   X  time, n task                                               core_task_del
 *   S  time, n device, n state                                    core_device_state
 *   P  time, n grant, policy                                      core_set_policy
 *   R  n grant, z credit, z bucket, n × 8, rows                   core_restore; core_books in its order, rows are n × 5
 *   B  n device, n since, n updated, n unreserved, n down,
 *      n switches, rows                                           core_device_restore
 *   A  time, n device, [n live]                                   core_away, for the grants of the device in their order
 *   U  time, n task                                               core_touch
 *   L  time, n device                                             core_settle
 *   N  time | z next                                              core_run; next is from now, −1: never
 *   G  n grant, n bits, n lease, z start, z end                   after N, in their order, each gate that core_next_dirty is about to give;
 *                                                                 times are from now. Bits: open, ungated, extended. Without a digest
 */
#ifndef ALIQUOT_TEST_RECORD_H
#define ALIQUOT_TEST_RECORD_H

#include <stdio.h>

#include "../core.h"

/* From now on calls are written to `out`. */
void record_world(FILE *out, uint64_t seed);
/* The core's config is what it says. */
void record_config(struct core *core);
/* Another arbiter takes over: the core is empty, its config as it was. */
void record_restart(struct core *core);
/* While there is no arbiter, calls reach nobody. */
void record_away(bool away);
/* How many calls have been written down in this world. */
uint64_t record_calls(void);
/* After call number `call` of a world what the core keeps is written to `out` as text, a number with its name a line, and the program ends. */
void record_stop(FILE *out, uint64_t call);

#endif
