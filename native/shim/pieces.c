/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c: allocations under 1 MiB. The driver takes a block of 2 MiB from the device and cuts such pieces out of it, so what a share holds
 * is its blocks: a block is charged when a piece in it is seen first, and returned once its last piece is gone and the driver has given it
 * back.
 *
 * Only the driver knows whether a piece needs another block. So a whole block is reserved before each call, and returned after it where the
 * address lies in a block that is charged already: whatever happens in between, what is charged is never less than what the driver
 * holds. The other way round a block's charge is returned after the free that emptied it.
 *
 * A driver may keep an empty block. Until its own books have shown one to be gone with its last piece, an empty block stays charged, and what the
 * driver cuts out of it later costs nothing more. It is known to be gone when the driver takes another for a piece, or the
 * context ends. A module's variables may lie in a block too, and nobody says where: one that was there before a module was loaded is returned
 * only by the books while there are modules.
 */
#include "driver.h"
#include "table.h"

static struct lock pieces_lock;
/* Blocks that are charged, by their address. Of an entry, bytes is how many pieces it holds, kind what `loads` was when it was seen
 * first. */
static struct table open_blocks;
static uint32_t kept;          /* of these, without a piece */
static uint32_t loads, loaded; /* moved on by each module that is being loaded and has been; those that are there */
static uint64_t emptied;       /* blocks so far */
static bool gives;             /* the driver gives a block back with its last piece */

static uint64_t block_of(uint64_t address)
{
	return address & ~(MEMORY_STEP - 1);
}

static bool pinned(const struct block *b)
{
	return loaded != 0 && b->kind != loads;
}

/* Takes out an entry; what it was charged is added to what is owed to its grant. */
static void drop(struct block *b, uint64_t owed[ALQ_MAX_GRANTS])
{
	owed[b->grant] += MEMORY_STEP;
	kept -= b->bytes == 0;
	*b = (struct block){.key = GONE};
}

/* Drops empty blocks, of one context or (NULL) of all, but for those that a module may lie in. */
static void drop_kept(CUcontext context, uint64_t owed[ALQ_MAX_GRANTS])
{
	for (uint64_t i = 0; i < open_blocks.size && kept != 0; i++) {
		struct block *b = &open_blocks.at[i];
		if (b->key > GONE && b->bytes == 0 && (context == NULL || b->context == context) && !pinned(b))
			drop(b, owed);
	}
}

static void pay(const uint64_t owed[ALQ_MAX_GRANTS])
{
	for (uint32_t g = 0; g < ALQ_MAX_GRANTS; g++)
		memory_return(g, owed[g]);
}

void pieces_made(const struct block *piece)
{
	uint64_t owed[ALQ_MAX_GRANTS] = {0};
	struct block made = {.key = block_of(piece->key), .bytes = 1, .context = piece->context, .grant = piece->grant};
	lock_take(&pieces_lock);
	struct block *known = table_find(&open_blocks, made.key);
	if (known != NULL && known->bytes == 0 && known->context != made.context) {
		drop(known, owed); /* the driver took it for another context since */
		known = NULL;
	}
	if (known != NULL) {
		kept -= known->bytes == 0;
		known->bytes++;
		owed[made.grant] += MEMORY_STEP;
	} else {
		drop_kept(made.context, owed);
		made.kind = loads;
		if (!table_add(&open_blocks, &made))
			owed[made.grant] += MEMORY_STEP;
	}
	lock_give(&pieces_lock);
	pay(owed);
}

/* What the driver says that this process holds on the device; where it does not say so of processes, what all hold. False: not known. */
static bool books_read(uint32_t grant, uint64_t *held)
{
	size_t rest, all;
	if (overhead_read(grant, held) && *held != 0)
		return true;
	if (meter_current_grant() != (int)grant || driver.cuMemGetInfo_v2 == NULL || driver.cuMemGetInfo_v2(&rest, &all) != CUDA_SUCCESS)
		return false;
	*held = all - rest;
	return true;
}

void pieces_leaving(const struct block *piece, struct leaving *l)
{
	*l = (struct leaving){0};
	lock_take(&pieces_lock);
	const struct block *known = table_find(&open_blocks, block_of(piece->key));
	/* Reading costs a driver up to a millisecond: done at the first blocks that become empty, then ever more seldom. */
	bool look = known != NULL && known->bytes == 1 && (!gives || pinned(known)) && (emptied & (emptied - 1)) == 0;
	lock_give(&pieces_lock);
	l->looked = look && books_read(piece->grant, &l->held);
}

void pieces_left(const struct block *piece, const struct leaving *l)
{
	uint64_t owed[ALQ_MAX_GRANTS] = {0}, now;
	bool gone = l->looked && books_read(piece->grant, &now) && now + MEMORY_STEP == l->held;
	lock_take(&pieces_lock);
	struct block *known = table_find(&open_blocks, block_of(piece->key));
	if (known != NULL && known->bytes != 0 && --known->bytes == 0) {
		emptied++;
		kept++;
		if (gone || (gives && !pinned(known)))
			drop(known, owed);
		if (gone && !gives) {
			gives = true;
			drop_kept(NULL, owed);
		}
	}
	lock_give(&pieces_lock);
	pay(owed);
}

void pieces_module(int change)
{
	uint64_t owed[ALQ_MAX_GRANTS] = {0};
	lock_take(&pieces_lock);
	loads += change >= 0;
	if (change >= 0 || loaded != 0)
		loaded += (uint32_t)change;
	if (loaded == 0 && gives)
		drop_kept(NULL, owed);
	lock_give(&pieces_lock);
	pay(owed);
}

void pieces_drop_context(CUcontext context)
{
	uint64_t owed[ALQ_MAX_GRANTS] = {0};
	lock_take(&pieces_lock);
	for (uint64_t i = 0; i < open_blocks.size; i++) {
		struct block *b = &open_blocks.at[i];
		if (b->key > GONE && b->context == context)
			drop(b, owed);
	}
	lock_give(&pieces_lock);
	pay(owed);
}

void pieces_forget(void)
{
	pieces_lock.word = 0;
	open_blocks = (struct table){0};
	kept = loads = loaded = 0;
	emptied = 0;
	gives = false;
}
