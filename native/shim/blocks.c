/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c: what this process holds: by address for allocations, by handle for arrays. Virtual memory is in physical.c. */
#include "table.h"

static struct lock blocks_lock;
static struct table blocks;
static uint64_t added; /* to it, ever */

bool blocks_add(const struct block *b)
{
	struct block old;
	lock_take(&blocks_lock);
	/* The driver gave the same key again, so it knows that the old one is gone. */
	bool had = table_take(&blocks, b->key, &old);
	bool there = table_add(&blocks, b);
	put(&added, added + 1);
	lock_give(&blocks_lock);
	if (had)
		blocks_left(&old, &(struct leaving){0}, CUDA_SUCCESS);
	return there;
}

uint64_t blocks_added(void)
{
	return get_seq(&added);
}

void blocks_sum(uint32_t grant, struct blocks_sum *out)
{
	lock_take(&blocks_lock);
	*out = (struct blocks_sum){.added = added};
	for (uint64_t i = 0; i < blocks.size; i++) {
		const struct block *b = &blocks.at[i];
		if (b->key <= GONE || b->grant != grant)
			continue;
		out->pieces += b->kind == BLOCK_PIECE;
		out->plain += b->kind == BLOCK_PLAIN || b->kind == BLOCK_MODULE ? b->bytes : 0;
	}
	lock_give(&blocks_lock);
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
	ipc_drop_context(context);
}

void blocks_forget(void)
{
	blocks_lock.word = 0;
	blocks = (struct table){0};
}
