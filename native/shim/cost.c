/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.c: what launches are expected to take. Measured times err upwards only (a neighbour's time slice, a wait for the host), so the
 * estimate falls fast, rises slowly, and one measurement never more than doubles it.
 */
#include "shim.h"

#define PROBES 8
#define LEAST_NS NS_PER_US /* a launch that measures as nothing still costs its dispatch */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ (x >> 33);
}

uint64_t cost_key(const void *function, uint64_t size)
{
	uint64_t key = mix((uint64_t)(uintptr_t)function ^ size * 0x9e3779b97f4a7c15ull);
	return key == 0 ? 1 : key;
}

struct cost *cost_find(struct cost *table, uint64_t key)
{
	uint64_t home = key & (COSTS - 1);
	for (unsigned i = 0; i < PROBES; i++) {
		struct cost *c = &table[(home + i) & (COSTS - 1)];
		if (c->key == key)
			return c;
		if (c->key == 0) {
			c->key = key;
			return c;
		}
	}
	/* Full around here: an entry that nothing is under way for makes room; the one at home if all are busy. */
	struct cost *victim = &table[home];
	for (unsigned i = 0; i < PROBES && victim->pending != 0; i++)
		victim = &table[(home + i) & (COSTS - 1)];
	*victim = (struct cost){.key = key, .pending = victim->pending};
	return victim;
}

void cost_learn(struct cost *c, uint64_t measured_ns, bool shared)
{
	uint64_t m = measured_ns < LEAST_NS ? LEAST_NS : measured_ns;
	if (c->est_ns == 0) {
		c->est_ns = m;
	} else if (m < c->est_ns) {
		c->est_ns -= (c->est_ns - m) / 4;
	} else {
		uint64_t most = shared ? c->est_ns + c->est_ns / 4 : 2 * c->est_ns;
		c->est_ns += ((m < most ? m : most) - c->est_ns) / 4;
	}
}
