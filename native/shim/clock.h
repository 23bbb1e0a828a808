/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h: the time at the gate. Reading CLOCK_MONOTONIC costs as much as all the rest of a launch through an open gate, so between two readings of it,
 * at most CLOCK_TRUST_NS apart, the processor's counter is read instead. Its rate is measured between readings and taken when two in a row agree
 * to 1/256, so it is off by 4 µs at the most, and by far less while launches go on. A counter that is slow to read, jumps or changes its rate is not used.
 */
#ifndef ALIQUOT_SHIM_CLOCK_H
#define ALIQUOT_SHIM_CLOCK_H

#include "util.h"

#define CLOCK_TRUST_NS NS_PER_MS
#define CLOCK_RATE_NS (100 * NS_PER_US) /* the least time between readings that tells the rate */
#define CLOCK_STRIKES 64

/* Under the lock of what it is part of. All zero: not known yet. */
struct quick_clock {
	uint64_t ticks, ns; /* the last reading */
	uint64_t trusted;   /* so many ticks after it; 0: read the clock */
	uint64_t rate;      /* ns a tick, times 2^32 */
	uint32_t strikes;   /* readings that did not fit; CLOCK_STRIKES: not used any more */
};

#if defined(__x86_64__)

/* Reads the clock, and takes the counter's place beside it. */
static __attribute__((noinline)) uint64_t clock_read(struct quick_clock *q)
{
	const uint64_t near = 4000; /* ticks that a reading may take: else something came in between */
	if (q->strikes >= CLOCK_STRIKES)
		return clock_now();
	uint64_t before = __builtin_ia32_rdtsc(), ns = clock_now(), after = __builtin_ia32_rdtsc();
	uint64_t passed = ns - q->ns, counted = before - q->ticks;
	q->trusted = 0;
	if (after - before > near) {
		q->strikes++;
		q->ns = 0;
		return ns;
	}
	if (q->ns != 0 && passed < CLOCK_RATE_NS)
		return ns;
	if (q->ns != 0 && passed < NS_PER_S && counted > 0 && counted < 1ull << 40) {
		uint64_t rate = (passed << 32) / counted;
		uint64_t off = rate > q->rate ? rate - q->rate : q->rate - rate;
		bool fits = q->rate != 0 && off < q->rate / 256;
		q->strikes = fits ? 0 : q->strikes + 1;
		q->rate = rate;
		/* Products stay below 2^64: the trusted time is, and so are the ticks in it. */
		q->trusted = fits && rate != 0 ? (CLOCK_TRUST_NS << 32) / rate : 0;
	}
	q->ticks = before + (after - before) / 2;
	q->ns = ns;
	return ns;
}

static inline uint64_t clock_quick(struct quick_clock *q)
{
	uint64_t since = __builtin_ia32_rdtsc() - q->ticks;
	return __builtin_expect(since < q->trusted, 1) ? q->ns + (since * q->rate >> 32) : clock_read(q);
}

#else

static inline uint64_t clock_quick(struct quick_clock *q)
{
	(void)q;
	return clock_now();
}

#endif

#endif
