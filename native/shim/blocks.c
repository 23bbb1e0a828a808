/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c: what this process holds: by address for allocations, by handle for arrays, and for virtual memory the physical handles with
 * their mappings.
 */
#include "table.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST 1024

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

bool blocks_add(const struct block *b)
{
	struct block old;
	lock_take(&blocks_lock);
	/* The driver gave the same key again, so it knows that the old one is gone. */
	bool had = table_take(&blocks, b->key, &old);
	bool added = table_add(&blocks, b);
	lock_give(&blocks_lock);
	if (had)
		blocks_left(&old, &(struct leaving){0}, CUDA_SUCCESS);
	return added;
}

void blocks_leaving(const struct block *b, struct leaving *l)
{
	if (b->kind == BLOCK_PIECE)
		pieces_leaving(b, l);
}

void blocks_left(const struct block *b, const struct leaving *l, CUresult result)
{
	if (result != CUDA_SUCCESS)
		blocks_add(b);
	else if (b->kind == BLOCK_PIECE)
		pieces_left(b, l);
	else
		memory_return(b->grant, b->bytes);
}

bool blocks_take(uint64_t key, struct block *out)
{
	lock_take(&blocks_lock);
	bool taken = table_take(&blocks, key, out);
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
	pieces_drop_context(context);
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
	bool added = number != UINT64_MAX && table_add(&handles, &b);
	if (added)
		physicals.at[number] = (struct physical){.bytes = bytes, .grant = grant, .refs = 1, .live = true};
	lock_give(&blocks_lock);
	return added;
}

void physical_retain(uint64_t handle)
{
	lock_take(&blocks_lock);
	struct block *b = table_find(&handles, handle);
	if (b != NULL)
		physicals.at[number_of(b)].refs++;
	lock_give(&blocks_lock);
}

void physical_release(uint64_t handle)
{
	struct block b;
	lock_take(&blocks_lock);
	struct block *found = table_find(&handles, handle);
	if (found == NULL) {
		lock_give(&blocks_lock);
		return;
	}
	uint64_t number = number_of(found);
	if (--physicals.at[number].refs == 0)
		table_take(&handles, handle, &b);
	physical_settle(number);
}

void physical_map(uint64_t handle, uint64_t address, uint64_t bytes)
{
	lock_take(&blocks_lock);
	struct block *found = table_find(&handles, handle);
	if (found != NULL) {
		struct block b = {.key = address, .bytes = bytes, .context = found->context};
		if (table_add(&mappings, &b))
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
		if (!table_take(&mappings, at, &b)) {
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
