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

/* Physical memory, by number; a handle's number is found in `handles`, a mapping's in `mappings`, both as block.context. */
struct physical {
	uint64_t bytes;
	uint32_t grant, refs, maps;
	bool live;
	bool kept; /* let go of here, and charged because of a descriptor */
	struct mark mark;
};

static struct lock physical_lock;
static struct {
	struct physical *at;
	uint64_t size, used;
} physicals;
static struct table handles, mappings;
static uint32_t kept; /* how many are */

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

/* What is to be returned of one if nothing refers to it any more; called with the lock. */
static uint64_t physical_end(struct physical *p)
{
	if (!p->live || p->refs != 0 || p->maps != 0)
		return 0;
	bool stands = mark_stands(&p->mark);
	if (stands != p->kept)
		put_release(&kept, stands ? kept + 1 : kept - 1);
	p->kept = stands;
	if (stands)
		return 0;
	mark_drop(&p->mark);
	p->live = false;
	return p->bytes;
}

/* Returns the memory of one that nothing refers to any more; called with the lock, which it gives. */
static void physical_settle(uint64_t number)
{
	struct physical *p = &physicals.at[number];
	uint32_t grant = p->grant;
	uint64_t bytes = physical_end(p);
	lock_give(&physical_lock);
	memory_return(grant, bytes);
}

bool physicals_settle(void)
{
	uint64_t bytes[ALQ_MAX_GRANTS] = {0}, all = 0;
	if (get_acquire(&kept) == 0 || !task_on())
		return false;
	lock_take(&physical_lock);
	for (uint64_t i = 0; i < physicals.used; i++) {
		if (physicals.at[i].kept)
			bytes[physicals.at[i].grant] += physical_end(&physicals.at[i]);
	}
	lock_give(&physical_lock);
	for (uint32_t g = 0; g < ALQ_MAX_GRANTS; g++) {
		memory_return(g, bytes[g]);
		all |= bytes[g];
	}
	return all != 0;
}

bool physical_add(uint64_t handle, uint64_t bytes, uint32_t grant)
{
	lock_take(&physical_lock);
	uint64_t number = physical_new();
	struct block b = {.key = handle, .context = (CUcontext)(uintptr_t)number};
	bool added = number != UINT64_MAX && table_add(&handles, &b);
	if (added)
		physicals.at[number] = (struct physical){.bytes = bytes, .grant = grant, .refs = 1, .live = true};
	lock_give(&physical_lock);
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

void physical_release(uint64_t handle)
{
	struct block b;
	lock_take(&physical_lock);
	struct block *found = table_find(&handles, handle);
	if (found == NULL) {
		lock_give(&physical_lock);
		return;
	}
	uint64_t number = number_of(found);
	if (--physicals.at[number].refs == 0)
		table_take(&handles, handle, &b);
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

void physical_map(uint64_t handle, uint64_t address, uint64_t bytes)
{
	lock_take(&physical_lock);
	struct block *found = table_find(&handles, handle);
	if (found != NULL) {
		struct block b = {.key = address, .bytes = bytes, .context = found->context};
		if (table_add(&mappings, &b))
			physicals.at[number_of(found)].maps++;
	}
	lock_give(&physical_lock);
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
	kept = 0;
	marks_forget();
}
