/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c: memory is reserved before it is allocated, over all processes of the task at once, so that the sum never passes what is
 * granted by a byte, and a refusal leaves nothing behind.
 *
 * The lock (tel.mem_lock) is robust in its own way: the C library owns the kernel's list of robust futexes, and thread ids mean
 * different things in different pid namespaces. The word holds the slot and the node's pid of its owner, both written into
 * the slot by the arbiter: pid << 6 | slot, with FUTEX_WAITERS on top. Threads of one process exclude each other by a lock of their own.
 * An owner is dead when its slot is free or another's; while the arbiter is away, when its pid is gone from our own namespace. Whoever
 * finds a dead owner takes the lock over: each process only ever writes its own slot's sums, so nothing can be half done.
 *
 * What a request may take from the device: the next 2 MiB, for that is what the driver takes at once. Small ones share; see pieces.c.
 */
#include "shim.h"

#include <signal.h>
#include <string.h>

#define SLOT_BITS 6
#define OWNER_MASK 0x3fffffffu
#define LOOK_NS (50 * NS_PER_MS) /* a waiter looks so often whether the owner lives */
#define ASK_TRIES 3              /* others may take what was granted to us in between */
#define OWN_WAIT_NS (ALQ_FLOOR_WAIT_NS + 2 * NS_PER_S) /* the arbiter is to refuse first */
#define ROOM (2ull << 30)         /* more than any context or module takes */
#define LOST_NS (5 * NS_PER_MS)  /* the next arbiter is looked for so often, as long as there is none */

_Static_assert(ALQ_MAX_PROCS <= 1 << SLOT_BITS, "a slot fits the lock word");

static struct lock mine;

enum sum { USED, OVERHEAD, SUMS };
static uint64_t sums[ALQ_MAX_GRANTS][SUMS];

static uint32_t owner_word(uint32_t slot)
{
	return (((uint32_t)get(&task.tel->slot[slot].pid) << SLOT_BITS) | slot) & OWNER_MASK;
}

static bool owner_dead(uint32_t word)
{
	uint32_t slot = word & (ALQ_MAX_PROCS - 1);
	const struct alq_slot *s = &task.tel->slot[slot];
	uint32_t own = get(&task.slot);
	if (get_acquire(&s->state) != ALQ_SLOT_LIVE || owner_word(slot) != (word & OWNER_MASK))
		return true;
	if (slot == own)
		return true; /* our threads exclude each other: an earlier life of this slot */
	bool same_namespace = get(&task.tel->slot[own].pid) == (int32_t)getpid();
	return same_namespace && kill(get(&s->pid), 0) != 0 && errno == ESRCH;
}

static void sums_lock(void)
{
	uint32_t *word = &task.tel->mem_lock;
	lock_take(&mine);
	uint32_t me = owner_word(get(&task.slot));
	for (;;) {
		uint32_t seen = 0;
		if (__atomic_compare_exchange_n(word, &seen, me, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return;
		if (owner_dead(seen)) {
			if (__atomic_compare_exchange_n(word, &seen, me | FUTEX_WAITERS, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
				return;
			continue;
		}
		uint32_t waited = seen | FUTEX_WAITERS;
		if (seen == waited || __atomic_compare_exchange_n(word, &seen, waited, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			futex_wait_until(word, waited, clock_now() + LOOK_NS, true);
	}
}

static void sums_unlock(void)
{
	uint32_t *word = &task.tel->mem_lock;
	if ((__atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST) & FUTEX_WAITERS) != 0)
		futex_wake(word, INT_MAX, true); /* all: only the first sets the bit again */
	lock_give(&mine);
}

/* Where the others see a sum of this process. */
static uint64_t *shown(uint32_t grant, enum sum sum)
{
	struct alq_tel_grant *t = tel_of(grant);
	return sum == USED ? &t->mem_used : &t->mem_overhead;
}

/* Takes bytes if they fit what is granted. *want is what the task would hold with them. */
static bool take(uint32_t grant, enum sum sum, uint64_t bytes, uint64_t *want)
{
	const struct alq_ctl_grant *c = &task.ctl->grant[grant];
	sums_lock();
	ALQ_POINT("shim.memory.locked");
	*want = memory_sum(grant) + bytes;
	bool fits = *want >= bytes && *want <= get_seq(&c->mem_granted) && *want <= get(&c->mem_ceiling);
	if (fits) {
		put_seq(shown(grant, sum), sums[grant][sum] += bytes);
		ALQ_POINT("shim.memory.reserved");
		/* The arbiter takes unused memory back by lowering the grant and then looking at the sums: one of us sees the other. */
		if (*want > get_seq(&c->mem_granted)) {
			put_release(shown(grant, sum), sums[grant][sum] -= bytes);
			fits = false;
		}
	}
	sums_unlock();
	return fits;
}

/*
 * The slow way: what does not fit is asked for. What the task would hold no more than its floor with is its own, also where that is lent: it is
 * waited for, and asked for again of the next arbiter where one goes meanwhile.
 */
static __attribute__((noinline, cold)) bool ask(uint32_t grant, enum sum sum, uint64_t bytes, uint64_t want)
{
	const struct alq_ctl_grant *c = &task.ctl->grant[grant];
	uint64_t until = 0;
	for (int asks = 0; (get(&c->policy_flags) & ALQ_POLICY_STOPPED) == 0; asks++) {
		bool own = want >= bytes && want <= get(&c->mem_floor);
		if (want < bytes || want > get(&c->mem_ceiling) || (!own && asks >= ASK_TRIES))
			break;
		if (own && until == 0)
			until = clock_now() + OWN_WAIT_NS;
		enum asked asked = line_ask_memory(grant, want, own ? until : 0);
		if ((asked != ASK_GRANTED && (asked == ASK_REFUSED || !own)) || (own && clock_now() >= until))
			break;
		uint32_t never = 0;
		if (asked == ASK_LOST)
			futex_wait_until(&never, 0, clock_now() + LOST_NS, false);
		if (take(grant, sum, bytes, &want))
			return true;
	}
	__atomic_fetch_add(&tel_of(grant)->mem_refused, 1, __ATOMIC_RELAXED);
	return false;
}

static inline __attribute__((always_inline)) bool reserve(uint32_t grant, enum sum sum, uint64_t bytes)
{
	uint64_t want = UINT64_MAX;
	if (bytes == 0)
		return true;
	if ((get(&task.ctl->grant[grant].policy_flags) & ALQ_POLICY_STOPPED) == 0 && take(grant, sum, bytes, &want))
		return true;
	return ask(grant, sum, bytes, want);
}

static void give(uint32_t grant, enum sum sum, uint64_t bytes)
{
	sums_lock();
	uint64_t *own = &sums[grant][sum];
	*own -= bytes < *own ? bytes : *own;
	put_release(shown(grant, sum), *own);
	sums_unlock();
}

bool memory_reserve(uint32_t grant, uint64_t bytes)
{
	return reserve(grant, USED, bytes);
}

void memory_return(uint32_t grant, uint64_t bytes)
{
	if (bytes != 0)
		give(grant, USED, bytes);
}

void memory_charge(uint32_t grant, uint64_t bytes)
{
	sums_lock();
	put_seq(shown(grant, USED), sums[grant][USED] += bytes);
	sums_unlock();
}

bool memory_reserve_overhead(uint32_t grant, uint64_t bytes)
{
	return reserve(grant, OVERHEAD, bytes);
}

bool memory_room(uint32_t grant, uint64_t *bytes)
{
	const struct alq_ctl_grant *c = &task.ctl->grant[grant];
	uint64_t floor = get(&c->mem_floor), held = memory_sum(grant);
	*bytes = held < floor ? (floor - held < ROOM ? floor - held : ROOM) : 0;
	return *bytes != 0 && get_seq(&c->mem_granted) < held + *bytes && memory_reserve_overhead(grant, *bytes);
}

void memory_return_overhead(uint32_t grant, uint64_t bytes)
{
	if (bytes != 0)
		give(grant, OVERHEAD, bytes);
}

uint64_t memory_own(uint32_t grant)
{
	sums_lock();
	uint64_t own = sums[grant][USED] + sums[grant][OVERHEAD];
	sums_unlock();
	return own;
}

uint64_t memory_round(uint64_t bytes)
{
	return bytes > UINT64_MAX - MEMORY_STEP ? UINT64_MAX : (bytes + MEMORY_STEP - 1) / MEMORY_STEP * MEMORY_STEP;
}

void memory_republish(void)
{
	sums_lock();
	for (uint32_t g = 0; g < task.grants; g++)
		for (enum sum sum = USED; sum < SUMS; sum++)
			put_seq(shown(g, sum), sums[g][sum]);
	sums_unlock();
}

void memory_forget(void)
{
	mine.word = 0;
	memset(sums, 0, sizeof(sums));
}
