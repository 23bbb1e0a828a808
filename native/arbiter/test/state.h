/* SPDX-License-Identifier: Apache-2.0 */
/* state.h: all that the core keeps and that decides over what comes out, number by number. divide/lease/state_test.go has the same of the rule
 * in Go: names and order are held to each other by its tests. */
#ifndef ALIQUOT_TEST_STATE_H
#define ALIQUOT_TEST_STATE_H

#include "../core.h"

typedef void (*visitor)(const char *of, int index, const char *name, uint64_t value);

void visit_core(const struct core *core, visitor visit);

#endif
