/* SPDX-License-Identifier: Apache-2.0 */
/*
 * util.h: the few things that every part of the shim needs: atomics on plain fields, a clock, futexes, a lock that costs two
 * locked instructions when nobody else wants it, and one way to speak to the user.
 */
#ifndef ALIQUOT_SHIM_UTIL_H
#define ALIQUOT_SHIM_UTIL_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "compat.h"
#include "point.h"

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull
#define NS_PER_US 1000ull

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define RARE __attribute__((noinline, cold)) /* kept out of the way of a launch through an open gate */

#define get(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define get_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define get_seq(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define put(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define put_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define put_seq(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

static inline uint64_t clock_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/*
 * Waits while *word is value, until deadline_ns of CLOCK_MONOTONIC; returns early whenever it likes, so callers look again.
 * shared: the word lies in a page that other processes map.
 */
static inline void futex_wait_until(const uint32_t *word, uint32_t value, uint64_t deadline_ns, bool shared)
{
	struct timespec t = {.tv_sec = (time_t)(deadline_ns / NS_PER_S), .tv_nsec = (long)(deadline_ns % NS_PER_S)};
	int op = FUTEX_WAIT_BITSET | (shared ? 0 : FUTEX_PRIVATE_FLAG);
	syscall(SYS_futex, word, op, value, &t, NULL, FUTEX_BITSET_MATCH_ANY);
}

static inline void futex_wake(const uint32_t *word, int waiters, bool shared)
{
	syscall(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), waiters, NULL, NULL, 0);
}

/* Within one process. 0 free, 1 taken, 2 taken and somebody sleeps. Does not nest. */
struct lock {
	uint32_t word;
};

static inline void lock_take(struct lock *l)
{
	uint32_t seen = 0;
	if (__atomic_compare_exchange_n(&l->word, &seen, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	if (seen != 2)
		seen = __atomic_exchange_n(&l->word, 2, __ATOMIC_ACQUIRE);
	while (seen != 0) {
		syscall(SYS_futex, &l->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
		seen = __atomic_exchange_n(&l->word, 2, __ATOMIC_ACQUIRE);
	}
}

/* False: somebody has it. */
static inline bool lock_try(struct lock *l)
{
	uint32_t seen = 0;
	return __atomic_compare_exchange_n(&l->word, &seen, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void lock_give(struct lock *l)
{
	if (__atomic_exchange_n(&l->word, 0, __ATOMIC_RELEASE) == 2)
		futex_wake(&l->word, 1, false);
}

/* One line on standard error, with the shim's name in front. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Starts a detached thread with all signals blocked, so that the program's handlers never run on it. Returns 0 or an errno. */
int thread_start(void *(*body)(void *), void *arg);

/* Zeroed pages that are never given back; NULL when there are none. */
void *pages_take(size_t bytes);

#endif
