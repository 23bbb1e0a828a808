/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c: the table of what this process holds: by address for allocations, by handle for arrays, and for virtual memory the physical
 * handles with their mappings. Open addressing, doubled when three quarters full; its memory is its own, so that the program's allocator
 * is never entered from here.
 */
#include "shim.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST 1024
#define GONE 1 /* key of an entry that was used; no address and no handle is 1 */

struct table {
	struct block *at;
	uint64_t size, filled; /* filled: with those that were used */
};

static struct lock blocks_lock;
static struct table blocks;

/* Physical memory, by number; a handle's number is found in `handles`, a mapping's in `mappings`, both as block.context. */
struct physical {
	uint64_t bytes;
	uint32_t grant, refs, maps;
	bool live;
};

static struct {
	struct physical *at;
	uint64_t size, used;
} physicals;
static struct table handles, mappings;

static uint64_t home(const struct table *t, uint64_t key)
{
	return (key * 0x9e3779b97f4a7c15ull >> 20) & (t->size - 1);
}

static struct block *find(const struct table *t, uint64_t key)
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
		return false;
	for (uint64_t i = 0; i < t->size; i++) {
		if (t->at[i].key > GONE)
			put_in(&larger, &t->at[i]);
	}
	if (t->at != NULL)
		munmap(t->at, t->size * sizeof(*t->at));
	*t = larger;
	return true;
}

static bool add(struct table *t, const struct block *b)
{
	if (!grow(t))
		return false;
	struct block *old = find(t, b->key);
	if (old != NULL)
		*old = *b;
	else
		put_in(t, b);
	return true;
}

static bool take(struct table *t, uint64_t key, struct block *out)
{
	struct block *b = find(t, key);
	if (b == NULL || key <= GONE)
		return false;
	*out = *b;
	*b = (struct block){.key = GONE};
	return true;
}

bool blocks_add(const struct block *b)
{
	struct block old;
	lock_take(&blocks_lock);
	/* The driver gave the same key again, so it knows that the old one is gone. */
	bool had = take(&blocks, b->key, &old);
	bool added = add(&blocks, b);
	lock_give(&blocks_lock);
	if (had)
		memory_return(old.grant, old.bytes);
	return added;
}

bool blocks_take(uint64_t key, struct block *out)
{
	lock_take(&blocks_lock);
	bool taken = take(&blocks, key, out);
	lock_give(&blocks_lock);
	return taken;
}

void blocks_drop_context(CUcontext context)
{
	uint64_t bytes[ALQ_MAX_GRANTS] = {0};
	lock_take(&blocks_lock);
	for (uint64_t i = 0; i < blocks.size; i++) {
		struct block *b = &blocks.at[i];
		if (b->key > GONE && b->context == context) {
			bytes[b->grant] += b->bytes;
			*b = (struct block){.key = GONE};
		}
	}
	lock_give(&blocks_lock);
	for (uint32_t g = 0; g < ALQ_MAX_GRANTS; g++)
		memory_return(g, bytes[g]);
}

/* ------------------------------------------------------------------------------------------------------- virtual memory */

static uint64_t number_of(const struct block *b)
{
	return (uint64_t)(uintptr_t)b->context;
}

/* A free number, or UINT64_MAX. */
static uint64_t physical_new(void)
{
	for (uint64_t i = 0; i < physicals.used; i++) {
		if (!physicals.at[i].live)
			return i;
	}
	if (physicals.used == physicals.size) {
		uint64_t size = physicals.size == 0 ? FIRST : 2 * physicals.size;
		struct physical *at = pages_take(size * sizeof(*at));
		if (at == NULL)
			return UINT64_MAX;
		if (physicals.at != NULL) {
			memcpy(at, physicals.at, physicals.size * sizeof(*at));
			munmap(physicals.at, physicals.size * sizeof(*at));
		}
		physicals.at = at;
		physicals.size = size;
	}
	return physicals.used++;
}

/* Returns the memory of one that nothing refers to any more; called with the lock, which it gives. */
static void physical_settle(uint64_t number)
{
	struct physical *p = &physicals.at[number];
	uint64_t bytes = 0;
	uint32_t grant = p->grant;
	if (p->live && p->refs == 0 && p->maps == 0) {
		bytes = p->bytes;
		p->live = false;
	}
	lock_give(&blocks_lock);
	memory_return(grant, bytes);
}

bool physical_add(uint64_t handle, uint64_t bytes, uint32_t grant)
{
	lock_take(&blocks_lock);
	uint64_t number = physical_new();
	struct block b = {.key = handle, .context = (CUcontext)(uintptr_t)number};
	bool added = number != UINT64_MAX && add(&handles, &b);
	if (added)
		physicals.at[number] = (struct physical){.bytes = bytes, .grant = grant, .refs = 1, .live = true};
	lock_give(&blocks_lock);
	return added;
}

void physical_retain(uint64_t handle)
{
	lock_take(&blocks_lock);
	struct block *b = find(&handles, handle);
	if (b != NULL)
		physicals.at[number_of(b)].refs++;
	lock_give(&blocks_lock);
}

void physical_release(uint64_t handle)
{
	struct block b;
	lock_take(&blocks_lock);
	struct block *found = find(&handles, handle);
	if (found == NULL) {
		lock_give(&blocks_lock);
		return;
	}
	uint64_t number = number_of(found);
	if (--physicals.at[number].refs == 0)
		take(&handles, handle, &b);
	physical_settle(number);
}

void physical_map(uint64_t handle, uint64_t address, uint64_t bytes)
{
	lock_take(&blocks_lock);
	struct block *found = find(&handles, handle);
	if (found != NULL) {
		struct block b = {.key = address, .bytes = bytes, .context = found->context};
		if (add(&mappings, &b))
			physicals.at[number_of(found)].maps++;
	}
	lock_give(&blocks_lock);
}

/* A range covers whole mappings, one after the other; what is not in the table (imported memory) is looked over in steps of the least
 * granularity that drivers have. */
void physical_unmap(uint64_t address, uint64_t bytes)
{
	const uint64_t step = 64u << 10;
	for (uint64_t at = address; at < address + bytes;) {
		struct block b;
		lock_take(&blocks_lock);
		if (!take(&mappings, at, &b)) {
			lock_give(&blocks_lock);
			at += step;
			continue;
		}
		uint64_t number = number_of(&b);
		physicals.at[number].maps--;
		physical_settle(number);
		at += b.bytes < step ? step : b.bytes;
	}
}

void blocks_forget(void)
{
	blocks_lock.word = 0;
	blocks = handles = mappings = (struct table){0};
	physicals.at = NULL;
	physicals.size = physicals.used = 0;
}
