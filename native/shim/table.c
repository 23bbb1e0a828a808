/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c: blocks by key. Open addressing, doubled when three quarters full; its memory is its own, so that the program's allocator is never
 * entered from here. Whoever has a table locks it.
 */
#include "table.h"

#include <sys/mman.h>

#define FIRST 1024

static uint64_t home(const struct table *t, uint64_t key)
{
	return (key * 0x9e3779b97f4a7c15ull >> 20) & (t->size - 1);
}

struct block *table_find(const struct table *t, uint64_t key)
{
	if (t->size == 0)
		return NULL;
	for (uint64_t i = home(t, key);; i = (i + 1) & (t->size - 1)) {
		if (t->at[i].key == key)
			return &t->at[i];
		if (t->at[i].key == 0)
			return NULL;
	}
}

static void put_in(struct table *t, const struct block *b)
{
	uint64_t i = home(t, b->key);
	while (t->at[i].key > GONE)
		i = (i + 1) & (t->size - 1);
	t->filled += t->at[i].key == 0;
	t->at[i] = *b;
}

static bool grow(struct table *t)
{
	if (t->size != 0 && t->filled < t->size / 4 * 3)
		return true;
	uint64_t live = 0;
	for (uint64_t i = 0; i < t->size; i++)
		live += t->at[i].key > GONE;
	struct table larger = {.size = FIRST};
	while (larger.size < 2 * live + 1)
		larger.size *= 2;
	larger.at = pages_take(larger.size * sizeof(*larger.at));
	if (larger.at == NULL)
		return t->filled + 1 < t->size; /* slower and slower; what ends a search stays */
	for (uint64_t i = 0; i < t->size; i++) {
		if (t->at[i].key > GONE)
			put_in(&larger, &t->at[i]);
	}
	if (t->at != NULL)
		munmap(t->at, t->size * sizeof(*t->at));
	*t = larger;
	return true;
}

bool table_add(struct table *t, const struct block *b)
{
	if (!grow(t))
		return false;
	struct block *old = table_find(t, b->key);
	if (old != NULL)
		*old = *b;
	else
		put_in(t, b);
	return true;
}

bool table_take(struct table *t, uint64_t key, struct block *out)
{
	struct block *b = table_find(t, key);
	if (b == NULL || key <= GONE)
		return false;
	*out = *b;
	*b = (struct block){.key = GONE};
	return true;
}
