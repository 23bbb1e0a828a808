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
 * driver cuts out of it later costs nothing more. It is known to be gone when the driver takes another for a piece, gives its addresses to
 * something else, or the context ends. A module's variables may lie in a block too, and nobody says where: one that was there before a module was
 * loaded is returned only by the books while there are modules. They are read at the first blocks that become empty, and where there would be no
 * room otherwise (pieces_trim).
 *
 * Books of this process (NVML) say what a driver does when they agree once. Books of all processes agree by chance too, when another one frees as
 * much: there it takes two looks in a row, over different numbers of blocks.
 */
#include "driver.h"
#include "table.h"

static struct lock pieces_lock;
/* Blocks that are charged, by their address. Of an entry, bytes is how many pieces it holds, kind what `loads` was when it was seen
 * first. */
static struct table open_blocks;
/* Set in the key of an empty block that stands for any one of its grant: the books have said how many there are, not which. */
#define NAMELESS 2ull
static uint32_t kept[ALQ_MAX_GRANTS];     /* of these, without a piece; read without the lock too */
static uint32_t nameless[ALQ_MAX_GRANTS]; /* of these */
static bool unread[ALQ_MAX_GRANTS];       /* some may be gone since pieces_trim read the books; the same */
static uint32_t loads, loaded; /* moved on by each module that is being loaded and has been; those that are there */
static uint32_t ending;        /* contexts that the driver is destroying */
static uint64_t emptied;       /* blocks so far */
static uint32_t gives;         /* grants, by bit, on whose device the driver gives a block back with its last piece */

/* A look into the books of all processes: from before the first of `span` blocks becomes empty until after the last. */
static struct look {
	uint32_t span, seen; /* span 0: none under way */
	uint32_t agreed;     /* the span of the last one, if it said that the blocks are gone; else 0 */
	uint64_t held, own;
} looks[ALQ_MAX_GRANTS];

static uint64_t block_of(uint64_t address)
{
	return address & ~(MEMORY_STEP - 1);
}

static bool pinned(const struct block *b)
{
	return loaded != 0 && (b->kind != loads || (b->key & NAMELESS) != 0);
}

/* Takes out an entry; what it was charged is added to what is owed to its grant. */
static void drop(struct block *b, uint64_t owed[ALQ_MAX_GRANTS])
{
	owed[b->grant] += MEMORY_STEP;
	put(&kept[b->grant], kept[b->grant] - (b->bytes == 0));
	nameless[b->grant] -= (b->key & NAMELESS) != 0;
	*b = (struct block){.key = GONE};
}

/* Drops a grant's empty blocks, of one context or (NULL) of all, but for those that a module may lie in. */
static void drop_kept(uint32_t grant, CUcontext context, uint64_t owed[ALQ_MAX_GRANTS])
{
	for (uint64_t i = 0; i < open_blocks.size && kept[grant] != 0; i++) {
		struct block *b = &open_blocks.at[i];
		if (b->key > GONE && b->bytes == 0 && b->grant == grant && (context == NULL || b->context == context) && !pinned(b))
			drop(b, owed);
	}
}

static void pay(const uint64_t owed[ALQ_MAX_GRANTS])
{
	for (uint32_t g = 0; g < task.grants; g++) {
		if (owed[g] != 0)
			memory_return(g, owed[g]);
	}
}

bool pieces_made(const struct block *piece)
{
	bool booked = true;
	uint64_t owed[ALQ_MAX_GRANTS] = {0};
	struct block made = {.key = block_of(piece->key), .bytes = 1, .context = piece->context, .grant = piece->grant};
	lock_take(&pieces_lock);
	struct block *known = table_find(&open_blocks, made.key);
	if (known != NULL && known->bytes == 0 && known->context != made.context) {
		drop(known, owed); /* the driver took it for another context since */
		known = NULL;
	}
	if (known != NULL) {
		put(&kept[known->grant], kept[known->grant] - (known->bytes == 0));
		known->bytes++;
		owed[made.grant] += MEMORY_STEP;
	} else {
		/* Where there are nameless ones it may be an old one. */
		if (nameless[made.grant] == 0)
			drop_kept(made.grant, made.context, owed);
		made.kind = loads;
		booked = table_add(&open_blocks, &made);
	}
	lock_give(&pieces_lock);
	pay(owed);
	return booked;
}

void pieces_covered(uint64_t address, uint64_t bytes)
{
	uint64_t owed[ALQ_MAX_GRANTS] = {0};
	uint32_t any = 0;
	for (uint32_t g = 0; g < task.grants; g++)
		any |= get(&kept[g]);
	if (any == 0)
		return;
	lock_take(&pieces_lock);
	for (uint64_t at = block_of(address + MEMORY_STEP - 1); at + MEMORY_STEP <= address + bytes; at += MEMORY_STEP) {
		struct block *b = table_find(&open_blocks, at);
		if (b != NULL && b->bytes == 0)
			drop(b, owed);
	}
	lock_give(&pieces_lock);
	pay(owed);
}

/* ---------------------------------------------------------------------------------------------------- the driver's books */

/* What the driver says that this process holds on the device; where it does not say so of processes, what all hold. False: not known. */
static bool books_read(uint32_t grant, struct leaving *l)
{
	size_t rest, all;
	l->own = memory_own(grant);
	l->all = !overhead_read(grant, &l->held) || l->held == 0;
	if (!l->all)
		return true;
	if (meter_current_grant() != (int)grant || driver.cuMemGetInfo_v2 == NULL || driver.cuMemGetInfo_v2(&rest, &all) != CUDA_SUCCESS)
		return false;
	l->held = all - rest;
	return true;
}

/* Whether the books say that so many blocks are gone since, and this process took and returned nothing meanwhile. */
static bool books_agree(uint32_t grant, const struct leaving *before, uint32_t blocks)
{
	struct leaving now = {0};
	return books_read(grant, &now) && now.all == before->all && now.own == before->own && now.held + blocks * MEMORY_STEP == before->held;
}

void pieces_leaving(const struct block *piece, struct leaving *l)
{
	*l = (struct leaving){0};
	uint32_t g = piece->grant;
	lock_take(&pieces_lock);
	struct look *k = &looks[g];
	const struct block *known = table_find(&open_blocks, block_of(piece->key));
	/* Reading costs a driver up to a millisecond: done at the first blocks that become empty, then ever more seldom; and to be sure. */
	bool given = (gives >> g & 1) != 0, pin = known != NULL && pinned(known);
	bool look = known != NULL && known->bytes == 1 && (!given || pin) && k->span == 0 &&
		    ((emptied & (emptied - 1)) == 0 || (k->agreed != 0 && !given));
	lock_give(&pieces_lock);
	if (!look)
		return;
	l->looked = books_read(g, l);
	if (!l->looked || !l->all)
		return;
	l->looked = false;
	lock_take(&pieces_lock);
	if (k->span == 0 && !given && !pin)
		*k = (struct look){.span = k->agreed == 1 ? 2 : 1, .agreed = k->agreed, .held = l->held, .own = l->own};
	lock_give(&pieces_lock);
}

/* Ends a look over blocks. True: this one and the one before agree. */
static bool look_ended(uint32_t grant, const struct look *k)
{
	struct leaving before = {.all = true, .held = k->held, .own = k->own};
	bool agree = books_agree(grant, &before, k->span);
	lock_take(&pieces_lock);
	looks[grant].agreed = agree ? k->span : 0;
	lock_give(&pieces_lock);
	return agree && k->agreed != 0 && k->agreed != k->span;
}

void pieces_left(const struct block *piece, const struct leaving *l)
{
	uint64_t owed[ALQ_MAX_GRANTS] = {0};
	uint32_t g = piece->grant;
	struct look done = {0};
	bool gone = l->looked && books_agree(g, l, 1);
	lock_take(&pieces_lock);
	struct block *known = table_find(&open_blocks, block_of(piece->key));
	if (known != NULL && known->bytes != 0 && --known->bytes == 0) {
		emptied++;
		put(&kept[g], kept[g] + 1);
		put(&unread[g], true);
		if (gone || ((gives >> g & 1) != 0 && !pinned(known)))
			drop(known, owed);
		if (looks[g].span != 0 && ++looks[g].seen == looks[g].span) {
			done = looks[g];
			looks[g].span = 0;
		}
	}
	lock_give(&pieces_lock);
	gone = gone || (done.span != 0 && look_ended(g, &done));
	if (gone) {
		lock_take(&pieces_lock);
		if ((gives >> g & 1) == 0)
			drop_kept(g, NULL, owed);
		gives |= 1u << g;
		lock_give(&pieces_lock);
	}
	pay(owed);
}

/*
 * How many of a grant's empty blocks are gone for sure, when the books said just now that this process holds so much. It holds at least its
 * contexts and modules, its plain allocations and the blocks with pieces; what is beyond that may be empty blocks, or something that is charged
 * before the driver takes it or moved by it (graphs, managed memory), or virtual memory and pools. With the lock. 0 also where something was made
 * or freed meanwhile. *contexts: that the empty ones are of, up to 2.
 */
static uint32_t gone_of(uint32_t grant, uint64_t held, uint64_t added, uint32_t *contexts)
{
	struct blocks_sum sum;
	uint64_t pieces = 0, least;
	const struct block *one = NULL;
	*contexts = 0;
	blocks_sum(grant, &sum);
	least = sum.plain + get(&tel_of(grant)->mem_overhead);
	for (uint64_t i = 0; i < open_blocks.size; i++) {
		const struct block *b = &open_blocks.at[i];
		if (b->key <= GONE || b->grant != grant)
			continue;
		pieces += b->bytes;
		least += b->bytes != 0 ? MEMORY_STEP : 0;
		if (b->bytes == 0 && (one == NULL || (*contexts == 1 && one->context != b->context))) {
			one = b;
			++*contexts;
		}
	}
	if (sum.added != added || sum.pieces != pieces || get_seq(&ending) != 0)
		return 0;
	uint64_t most = held > least ? (held - least + MEMORY_STEP - 1) / MEMORY_STEP : 0;
	return kept[grant] > most ? kept[grant] - (uint32_t)most : 0;
}

bool pieces_trim(uint32_t grant, bool again)
{
	uint64_t owed[ALQ_MAX_GRANTS] = {0}, held;
	uint32_t contexts;
	if (get(&kept[grant]) == 0 || (!again && !get(&unread[grant])))
		return false;
	put(&unread[grant], false);
	uint64_t added = blocks_added();
	if (!overhead_read(grant, &held) || held == 0)
		return false;
	lock_take(&pieces_lock);
	uint32_t gone = gone_of(grant, held, added, &contexts);
	/* Which ones is known only when it is all of them: what is left stands for any of its context. */
	if (gone < kept[grant] && contexts > 1)
		gone = 0;
	uint32_t left = kept[grant] - gone;
	for (uint64_t i = 0; i < open_blocks.size && gone != 0 && kept[grant] != 0; i++) {
		struct block *b = &open_blocks.at[i];
		if (b->key <= GONE || b->bytes != 0 || b->grant != grant)
			continue;
		if (kept[grant] > left) {
			drop(b, owed);
		} else if ((b->key & NAMELESS) == 0) {
			b->key |= NAMELESS; /* where it is: nobody looks for that key */
			nameless[grant]++;
		}
	}
	lock_give(&pieces_lock);
	pay(owed);
	return owed[grant] != 0;
}

void pieces_module(int change)
{
	uint64_t owed[ALQ_MAX_GRANTS] = {0};
	lock_take(&pieces_lock);
	loads += change >= 0;
	if (change >= 0 || loaded != 0)
		loaded += (uint32_t)change;
	for (uint32_t g = 0; g < task.grants; g++) {
		if (change < 0)
			put(&unread[g], true);
		if (loaded == 0 && (gives >> g & 1) != 0)
			drop_kept(g, NULL, owed);
	}
	lock_give(&pieces_lock);
	pay(owed);
}

void pieces_ending(int change)
{
	__atomic_fetch_add(&ending, (uint32_t)change, __ATOMIC_SEQ_CST);
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
	loads = loaded = ending = gives = 0;
	emptied = 0;
	for (int g = 0; g < ALQ_MAX_GRANTS; g++) {
		kept[g] = nameless[g] = 0;
		unread[g] = false;
		looks[g] = (struct look){0};
	}
}
