/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.c: what launches are expected to take. Measured times err upwards only (a neighbour's time slice, a wait for the host), so the
 * estimate follows what is less at once, what is a little more unless others may be the cause, and what is far more once several
 * in a row say so: then the least of them.
 */
#include "shim.h"

#define PROBES 8
#define IN_A_ROW 4         /* so many measurements that err are no error: a kernel as long as a lease is never measured otherwise */
#define LEAST_NS NS_PER_US /* a launch that measures as nothing still costs its dispatch */

struct cost *cost_seek(struct cost *table, uint64_t key)
{
	uint64_t home = cost_home(key);
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

struct cost *cost_look(struct cost *table, uint64_t key)
{
	uint64_t home = cost_home(key);
	for (unsigned i = 0; i < PROBES; i++) {
		struct cost *c = &table[(home + i) & (COSTS - 1)];
		if (c->key == key)
			return c;
	}
	return NULL;
}

/*
 * A changed graph is unmeasured again. Programs that change one before each launch (other addresses, the same work) would then never have more
 * than one queued: once it took as long as before, to a factor of two, after several changes in a row, it is expected to do so again, and the
 * first measurement that says otherwise is believed.
 */
void cost_changed(struct cost *c, bool gone)
{
	if (!gone && c->est_ns != 0 && c->same >= IN_A_ROW) {
		c->leaps = IN_A_ROW - 1;
		c->leap_ns = UINT64_MAX;
		return;
	}
	if (c->est_ns != 0)
		c->was_ns = c->est_ns;
	if (gone) {
		c->was_ns = 0;
		c->same = 0;
	}
	c->est_ns = 0;
	c->doubted = c->leaps = 0;
	c->version++;
}

bool cost_trusts(const struct cost *c)
{
	return c->est_ns == 0 || c->doubted >= IN_A_ROW;
}

void cost_learn(struct cost *c, uint64_t measured_ns, bool doubted)
{
	uint64_t m = measured_ns < LEAST_NS ? LEAST_NS : measured_ns, est = c->est_ns;
	uint64_t far = est + (doubted ? est / 4 : est);
	bool trusted = !doubted || cost_trusts(c);
	c->doubted = doubted ? c->doubted + (c->doubted < IN_A_ROW) : 0;
	if (est == 0 || m <= far)
		c->leaps = 0;
	if (est == 0) {
		c->est_ns = m;
		if (c->was_ns != 0)
			c->same = m >= c->was_ns / 2 && m <= 2 * c->was_ns ? c->same + (c->same < IN_A_ROW) : 0;
		c->was_ns = 0;
	} else if (m < est) {
		c->est_ns -= (est - m) / 4;
	} else if (m <= far) {
		c->est_ns += trusted ? (m - est) / 4 : 0;
	} else {
		c->leap_ns = c->leaps == 0 || m < c->leap_ns ? m : c->leap_ns;
		if (++c->leaps < IN_A_ROW)
			return;
		c->est_ns = c->leap_ns;
		c->leaps = c->same = 0;
	}
}
