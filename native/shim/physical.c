/* SPDX-License-Identifier: Apache-2.0 */
/*
 * physical.c: virtual memory: physical handles with their mappings. One that was made here is charged until it is released, mapped nowhere,
 * and no descriptor is left by which it was exported: who has one has the memory, whatever its maker released. One that was imported is
 * charged to who imports it as well, beside its maker, because either may let go first.
 */
#include "exports.h"
#include "table.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST 1024

#define NONE UINT64_MAX

/*
 * Physical memory, by number; a handle's number is found in `handles`, a mapping's in `mappings`, both as block.context. A handle is found for as
 * long as the driver does not give it to something else: a mapping keeps it, too, and can be turned into a handle again.
 */
struct physical {
	uint64_t handle; /* 0: it has none any more */
	uint64_t bytes;
	uint64_t next;   /* of one that is free or kept: the next of these */
	uint32_t grant, refs, maps;
	uint32_t leaving; /* of refs, that the driver is releasing */
	struct mark mark;
};

static struct lock physical_lock;
static struct {
	struct physical *at;
	uint64_t size, used;
	uint64_t spare, kept; /* the first of those below `used` that are free, and of those let go of here, and charged because of a descriptor */
} physicals = {.spare = NONE, .kept = NONE};
static struct table handles, mappings;

static uint64_t number_of(const struct block *b)
{
	return (uint64_t)(uintptr_t)b->context;
}

/* A free number, or NONE. */
static uint64_t physical_new(void)
{
	uint64_t number = physicals.spare;
	if (number != NONE) {
		physicals.spare = physicals.at[number].next;
		return number;
	}
	if (physicals.used == physicals.size) {
		uint64_t size = physicals.size == 0 ? FIRST : 2 * physicals.size;
		struct physical *at = pages_take(size * sizeof(*at));
		if (at == NULL)
			return NONE;
		if (physicals.at != NULL) {
			memcpy(at, physicals.at, physicals.size * sizeof(*at));
			munmap(physicals.at, physicals.size * sizeof(*at));
		}
		physicals.at = at;
		physicals.size = size;
	}
	return physicals.used++;
}

/* Gives a number back; what is to be returned of it. */
static uint64_t physical_free(uint64_t number)
{
	struct physical *p = &physicals.at[number];
	uint64_t bytes = p->bytes;
	mark_drop(&p->mark);
	*p = (struct physical){.next = physicals.spare};
	physicals.spare = number;
	return bytes;
}

/* What is to be returned of one if nothing refers to it any more; called with the lock. */
static uint64_t physical_end(uint64_t number)
{
	struct physical *p = &physicals.at[number];
	struct block name;
	if (p->refs != 0 || p->maps != 0 || p->leaving != 0)
		return 0;
	if (p->handle != 0)
		table_take(&handles, p->handle, &name);
	p->handle = 0;
	if (!mark_stands(&p->mark))
		return physical_free(number);
	p->next = physicals.kept;
	put_release(&physicals.kept, number);
	return 0;
}

/* Returns the memory of one that nothing refers to any more; called with the lock, which it gives. */
static void physical_settle(uint64_t number)
{
	uint32_t grant = physicals.at[number].grant;
	uint64_t bytes = physical_end(number);
	lock_give(&physical_lock);
	memory_return(grant, bytes);
}

bool physicals_settle(void)
{
	uint64_t bytes[ALQ_MAX_GRANTS] = {0}, all = 0;
	if (get_acquire(&physicals.kept) == NONE || !task_on())
		return false;
	lock_take(&physical_lock);
	for (uint64_t *at = &physicals.kept; *at != NONE;) {
		struct physical *p = &physicals.at[*at];
		uint64_t number = *at;
		if (mark_stands(&p->mark)) {
			at = &p->next;
			continue;
		}
		put_release(at, p->next);
		uint32_t grant = p->grant;
		bytes[grant] += physical_free(number);
	}
	lock_give(&physical_lock);
	for (uint32_t g = 0; g < ALQ_MAX_GRANTS; g++) {
		memory_return(g, bytes[g]);
		all |= bytes[g];
	}
	return all != 0;
}

/* The driver has given a handle again, so what had it is gone, or is just being booked as gone by another thread. */
static void name_lost(uint64_t handle, uint64_t owed[ALQ_MAX_GRANTS])
{
	struct block b;
	if (!table_take(&handles, handle, &b))
		return;
	struct physical *p = &physicals.at[number_of(&b)];
	uint32_t grant = p->grant;
	p->handle = 0;
	p->refs = p->leaving;
	owed[grant] += physical_end(number_of(&b));
}

bool physical_add(uint64_t handle, uint64_t bytes, uint32_t grant)
{
	uint64_t owed[ALQ_MAX_GRANTS] = {0};
	lock_take(&physical_lock);
	name_lost(handle, owed);
	uint64_t number = physical_new();
	struct block b = {.key = handle, .context = (CUcontext)(uintptr_t)number};
	bool added = number != NONE && table_add(&handles, &b);
	if (number != NONE)
		physicals.at[number] = (struct physical){.handle = handle, .bytes = bytes, .grant = grant, .refs = 1};
	if (number != NONE && !added)
		physical_free(number);
	lock_give(&physical_lock);
	for (uint32_t g = 0; g < task.grants; g++)
		memory_return(g, owed[g]);
	return added;
}

bool physical_retain(uint64_t handle)
{
	lock_take(&physical_lock);
	struct block *b = table_find(&handles, handle);
	if (b != NULL)
		physicals.at[number_of(b)].refs++;
	lock_give(&physical_lock);
	return b != NULL;
}

uint64_t physical_leaving(uint64_t handle)
{
	lock_take(&physical_lock);
	struct block *b = table_find(&handles, handle);
	uint64_t number = b == NULL ? NONE : number_of(b);
	if (b != NULL)
		physicals.at[number].leaving++;
	lock_give(&physical_lock);
	return number;
}

void physical_left(uint64_t number, CUresult result)
{
	if (number == NONE)
		return;
	lock_take(&physical_lock);
	struct physical *p = &physicals.at[number];
	p->leaving--;
	p->refs -= result == CUDA_SUCCESS;
	physical_settle(number);
}

void physical_export(uint64_t handle, int fd)
{
	lock_take(&physical_lock);
	struct block *b = table_find(&handles, handle);
	if (b != NULL) {
		struct physical *p = &physicals.at[number_of(b)];
		mark_put(&p->mark, fd, p->bytes);
	}
	lock_give(&physical_lock);
}

/* How much of a mapping its handle is not charged for, and to whom it would be; called with the lock. */
static uint64_t uncharged(uint64_t handle, uint64_t bytes, struct physical **p)
{
	struct block *b = table_find(&handles, handle);
	*p = b == NULL ? NULL : &physicals.at[number_of(b)];
	return *p != NULL && bytes > (*p)->bytes ? bytes - (*p)->bytes : 0;
}

bool physical_claim(uint64_t handle, uint64_t bytes)
{
	struct physical *p;
	lock_take(&physical_lock);
	uint64_t more = uncharged(handle, memory_round(bytes), &p);
	uint32_t grant = p == NULL ? 0 : p->grant;
	lock_give(&physical_lock);
	if (more == 0)
		return true;
	if (!pools_reserve(grant, more))
		return false;
	lock_take(&physical_lock);
	bool taken = uncharged(handle, memory_round(bytes), &p) == more;
	if (taken)
		p->bytes += more;
	lock_give(&physical_lock);
	if (!taken)
		memory_return(grant, more);
	return true;
}

bool physical_map(uint64_t handle, uint64_t address, uint64_t bytes)
{
	lock_take(&physical_lock);
	struct block *found = table_find(&handles, handle);
	struct block b = {.key = address, .bytes = bytes, .context = found == NULL ? NULL : found->context};
	bool booked = found == NULL || table_add(&mappings, &b);
	if (found != NULL && booked)
		physicals.at[number_of(&b)].maps++;
	lock_give(&physical_lock);
	return booked;
}

/* A range covers whole mappings, one after the other; what is not in the table is looked over in steps of the least granularity that
 * drivers have. */
void physical_unmap(uint64_t address, uint64_t bytes)
{
	const uint64_t step = 64u << 10;
	for (uint64_t at = address; at < address + bytes;) {
		struct block b;
		lock_take(&physical_lock);
		if (!table_take(&mappings, at, &b)) {
			lock_give(&physical_lock);
			at += step;
			continue;
		}
		uint64_t number = number_of(&b);
		physicals.at[number].maps--;
		physical_settle(number);
		at += b.bytes < step ? step : b.bytes;
	}
}

void physical_forget(void)
{
	physical_lock.word = 0;
	handles = mappings = (struct table){0};
	physicals.at = NULL;
	physicals.size = physicals.used = 0;
	physicals.spare = physicals.kept = NONE;
	marks_forget();
}
