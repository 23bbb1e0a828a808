/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: a table of blocks by key. Whoever has one locks it. */
#ifndef ALIQUOT_SHIM_TABLE_H
#define ALIQUOT_SHIM_TABLE_H

#include "shim.h"

#define GONE 1 /* key of an entry that was used; no address and no handle is 1 */

struct table {
	struct block *at;
	uint64_t size, filled; /* filled: with those that were used */
};

/* NULL: not there. What is found stays where it is until the next table_add. */
struct block *table_find(const struct table *t, uint64_t key);
/* In place of what has its key already. False: there is no memory for it. */
bool table_add(struct table *t, const struct block *b);
bool table_take(struct table *t, uint64_t key, struct block *out);

#endif
