/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h: the rule by which the devices of a node are shared from moment to moment. Pure: no clock, no I/O, no allocation.
 *
 * What comes in: grants and their limits (core_task_add, core_policy), the time, and through core_config.observe what a grant's
 * processes say of themselves. What goes out: for each grant a gate (open or closed, lease with its end) that the caller publishes
 * when it is dirty, the books, and the time of the next wake-up. The process around it is main.c; the tests drive it under virtual time.
 * divide/lease says the same in Go and is held to it call by call: what changes here changes there (`go test ./divide/lease`).
 *
 * THE RULE
 *
 * A device is held by one task at a time, under a lease of some milliseconds. Each grant g on it has
 *
 *   credit   what its floor still owes it.  credit += floor·dt, always; while g is idle it is cut to idle_cap, so that an idle
 *            owner keeps just enough to be served at once when it wakes. Nor does it grow beyond that while g gives no sign that it wants
 *            the device (it is stopped, or its kernel has no end): else the others would pay for that time later. Of the latency class, enough for whole requests: what its
 *            floor brings in latency_reach, latency_cap at most. So much later its neighbours have theirs when it comes in bursts:
 *            within 10 s they miss 1 point of the device at most. Use under an owner's lease is taken off. Negative
 *            credit is debt, and is carried: the long-run error goes to zero. Credit and debt, the bucket's too, are kept up to 2 s
 *            of device time and forgiven beyond, so that one endless launch does not decide over a device for minutes: a kernel that
 *            runs for 10 s under a ceiling of 0.1 is followed by 20 s of pause and not by 90 s. When another arbiter takes over,
 *            both stand.
 *   bucket   what its ceiling still allows. bucket += ceiling·dt, cut to burst while idle (2.5·burst while waiting, since time
 *            that was refused is not a burst); all use is taken off. At zero g is barred until there is enough for a whole lease
 *            at the rate (1 − ceiling). A whole ceiling has no bucket. Over any time T use is at most
 *            ceiling·T + 2.5·burst + what one lease and one launch overrun.
 *   vtime    what it got above its floor, over its weight: use under a borrower's lease ÷ weight. A grant that wakes starts no
 *            further back than those that are active, after a pause of less than 20 ms by two leases.
 *
 * When the device is about to be free, the next holder is
 *
 *   1. an owner that has just woken and has credit; of those the latency class, then who came first. It also ends any
 *      lease that is running, at once, but that of another owner who has just woken (unless it alone is of the latency class);
 *   2. an owner with credit: the latency class, then the largest credit. Its lease is an owner's lease: use is taken off credit;
 *   3. a borrower: the smallest vtime. Its lease is a borrower's: use goes to vtime.
 *
 * This converges to what `divide` says: each owner gets ∫floor as long as it wants it, the rest goes by weight, the bucket holds
 * ceilings, and the device is never idle while somebody who may run waits.
 *
 * A lease whose holder is still the first is extended in place, `ahead` before its end, so that it never blocks. Otherwise its end
 * passes, its work drains, and the next gate opens `early` before the work should be done. A lease is charged by the caller's clock from
 * the time when it is open and its predecessor has drained until it has itself drained, while anybody with a right to the device waits;
 * what a tenant says of its own device time is not used then: less would reward a lie (when it is: below). Once work is later than its
 * own estimate and the next gate is open, both are under the driver's time slicing, and each is charged half, a holder who has nothing
 * outstanding no more than it says that it launched. What such halves get wrong is mended by admissions (admit.c): who says it used more
 * than it was charged pays in place of those who say they used less. What the device takes to switch between tenants is nobody's: it is
 * learned from what all say together, within bounds, and taken off all charges alike. Work that has not drained `overlap` after its
 * lease's end, or after the end that it announced itself (up to `patience`, and not while an owner who has just woken waits), is
 * overlapped: the next goes beside it and the time is apportioned in the same way.
 *
 * A holder that has drained, waits to launch nothing and has launched nothing for `idle` loses its lease; if another waits and it is not worth
 * holding (worth_holding), at once, or even `early` before what it launched last should end (core_about_to_idle). If it wants the device again
 * before its end is noticed it wakes like one that was idle, unless it comes back soon as a rule: that is a wait between launches. Time that a program spends
 * between its launches is not use: while nobody waits the holder is charged by its own word (launches at their learned durations), never more
 * than the clock; likewise while only borrowers wait and it is an owner, but pauses of more than half its work are charged then, and the rest
 * of them comes off what it gets above its floor, bucket and vtime. Work that is later than its word may have ended unheard, where its program
 * has no CPU: while nobody waits, that time is charged only once it has been late for 50 ms, or when what it measured says so. What it measured
 * may come later still, of work that was never measured before, that slipped through as its gate closed, or that ran while the arbiter did not:
 * it is charged then, from time that nobody was charged for, no more than it may have run unseen within `settle`. Where an owner
 * waits, holding is charged by the clock. So a program that waits after each launch gets its floor, at nobody's cost or at that of borrowers,
 * and one that lies gets idle time at most, until the agent finds that the device was busy for longer than was charged and sets
 * ALQ_POLICY_CLOCK.
 *
 * A task that uses several devices holds them together. It is chosen once it is first on every one of them, or if of several such tasks none
 * is and it has waited longest, the one that holds them last of all. Where its kernels wait for each other on some devices
 * and it waits at the gate of another, its rank may rise on that one alone: so what has waited for `patience` is not revoked under the
 * lease that it then gets. It is extended only where nobody else is first on any of its devices. Once it is chosen no lease on any of them
 * goes past the time when the last lease running there ends; others fill that time, and all its gates open together when all its
 * devices are free. A device is set aside for one such task at a time, so none of them waits for another.
 *
 * A device's only grant, with a whole ceiling, is ungated and charged what it measures, bounded by the clock.
 *
 * THE LEDGER (enum rows of struct alq_split). Each grant's floor and the rest of the device fill accounts as time goes by; each
 * nanosecond of use or idleness is taken from one: use under an owner's lease from its own; use under a borrower's first from its own
 * idle floor (all of it, and into debt, where the ceiling leaves no burst), then from what nobody reserved, then from others' idle floors
 * in proportion; idle time from idle floors and the unreserved in proportion. Accounts are exact (ns/1000) and the rows add up to elapsed
 * time to the nanosecond at each core_settle.
 */
#ifndef ALIQUOT_ARBITER_CORE_H
#define ALIQUOT_ARBITER_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "../abi.h"

#define CORE_DEVICES 64  /* of one node, MIG partitions included */
#define CORE_TASKS 1024
#define CORE_GRANTS 4096 /* of all tasks */
#define CORE_DEVICE_GRANTS 512 /* on one device */
#define CORE_NEVER UINT64_MAX

/* What a grant's processes say, summed by the caller over its live slots and clamped to what can be true. */
struct core_observation {
	bool waiting;            /* a process waits at the gate */
	bool outstanding;        /* work let through has not ended */
	bool coming;             /* or a launch waits behind it */
	bool several;            /* of its processes have launched of late: what each measures holds the others' work too */
	uint64_t wait_since_ns;  /* of the one that waits longest; ≤ now */
	uint64_t launched;       /* launches, counted; never falls */
	uint64_t completed;      /* of those; ≤ launched */
	uint64_t launched_ns;    /* estimated device time of all launches; never falls */
	uint64_t outstanding_ns; /* of those that have not completed */
	uint64_t busy_until_ns;  /* when outstanding work should end; 0: not said */
	uint64_t measured_ns;    /* device time, by the tenant's measure; never falls */
};

struct core_config {
	uint64_t lease_ns;    /* 4 ms */
	uint64_t idle_cap_ns; /* 5 ms */
	uint64_t latency_cap_ns;   /* 100 ms: idle_cap of the latency class, at most */
	uint64_t latency_reach_ns; /* 400 ms of its floor */
	uint64_t burst_ns;    /* 20 ms */
	uint64_t ahead_ns;    /* 0.3 ms */
	uint64_t early_ns;    /* 0.2 ms */
	uint64_t idle_ns;     /* 0.3 ms */
	uint64_t start_ns;    /* 1 ms: a holder that has not launched yet is given so long */
	uint64_t overlap_ns;  /* 10 ms */
	uint64_t patience_ns; /* 50 ms: so long work that said when it will end is waited for before it counts as late */
	uint64_t settle_ns;   /* 100 ms: books are settled so often while a device is in use */
	void *context;
	/* Reads the processes of a grant now. Must not call back into the core. */
	void (*observe)(void *context, int grant, uint64_t now, struct core_observation *out);
};

struct core_policy {
	uint32_t flags; /* enum alq_policy_flags */
	uint32_t floor, ceiling, weight;
};

/* The ledger and debts of a grant as they stand in its book. */
struct core_books {
	int64_t credit_ns, bucket_ns;
	uint64_t vtime_ns, held_ns, leases, overlapped, revoked, wait_ns, wake_worst_ns, wakes;
	struct alq_split split;
};

enum core_phase {
	CORE_IDLE = 0,  /* no lease, nothing outstanding */
	CORE_OPEN,      /* holds a lease */
	CORE_DRAINING,  /* its lease is over, its work is not */
	CORE_UNGATED,
};

struct core_gate { /* to be published */
	bool open, ungated, extended;
	uint64_t lease_id, start_ns, end_ns;
};

struct core_grant {
	bool used_slot, used; /* slot of the array taken; has ever launched or waited */
	int task, device;
	struct core_policy policy;
	struct core_gate gate;
	bool dirty;           /* gate is to be published */

	enum core_phase phase;
	bool owner;           /* mode of the lease */
	bool wake_lease;      /* it was given to an owner who had just woken */
	bool overlapped, barred, quick;
	bool demand;          /* waits at the gate */
	bool waking;          /* woke with credit and has not been served since */
	bool yielded;         /* its last lease ended because it idled, and it does not come back soon as a rule, or was about to idle */
	bool outstanding;
	bool coming;          /* a launch waits behind what is queued */
	uint64_t still_since; /* when it was last seen to have launched */
	uint64_t demand_since, woke_at, busy_until, launched;
	uint64_t measured;    /* of measured_ns: charged already, where it is charged by its word */
	uint64_t open_at, ended_at; /* of the lease */
	uint64_t idle_since;  /* drained and launching nothing; 0: not idle */
	uint64_t launched_at_open, completed, outstanding_ns;
	uint64_t paid_ns;     /* of launched_ns: charged already, where time is apportioned */
	uint64_t late, late_completed; /* see core_observe; holds while `completed` stands */
	uint64_t unsettled, unsettled_wanted; /* held at nobody's or only at borrowers' cost and not yet charged; of that, at borrowers' */
	uint64_t settled_word_at; /* when it was last charged by its word */
	uint64_t may_hold;    /* so long it may hold at borrowers' cost without charge */
	uint64_t unheard_ns;  /* not charged, since nothing said yet that it ran then; at most `settle` */
	uint64_t looked_at;   /* when its processes were last asked; 0: never */
	uint64_t pause_ns;    /* for how long it last launched nothing before it came back */
	uint64_t lost_idle_at; /* idle_since of the lease that was lost for idling */
	uint64_t retry_at;    /* it waited and then launched nothing under its lease (stopped?): not chosen before */
	uint64_t retry_since; /* demand_since of that wait */
	uint32_t misses;      /* how many leases in a row it let pass so */
	bool asked;           /* told_ns and held_at_told have been read */
	uint64_t told_ns, measured_at_told, held_at_told; /* what it said it had used and measured, and had been charged, when last asked */
	uint64_t spared_ns;   /* of the time that it held, what was not charged, since it was last asked */
	int64_t claim_ns;     /* what it says it used beyond its charges; negative: was charged beyond its use */
	uint64_t accrued_at;

	/* thousandths of a ns, exact */
	int64_t credit, bucket, floor_account;
	uint64_t vtime;
	uint64_t burst_pending; /* ns, use under borrowers' leases not yet settled */
	struct core_books books; /* credit, bucket and vtime there are filled in by core_books */
};

struct core_task {
	bool used_slot;
	int grants, grant[ALQ_MAX_GRANTS];
	bool gathering;
	uint64_t gather_at;
	uint64_t gather_since;
};

struct core_device {
	bool used_slot;
	enum alq_device_state state;
	int grants, grant[CORE_DEVICE_GRANTS];
	int holder;           /* grant with the lease, or −1 */
	int reserved_for;     /* task that gathers this device, or −1 */
	int last_holder;      /* grant that held it last, for counting switches */
	uint64_t charged_at, settled_at, since;
	uint64_t idle_pending, down_pending; /* ns */
	int64_t free_account; /* of what no floor reserves; thousandths of a ns */
	uint64_t vmin;
	uint64_t asked_at;    /* when its grants were last asked what they used */
	uint64_t admitted_ns; /* of its grants' claims, what can be charged in place of others */
	uint64_t lately_held_ns, lately_said_ns; /* for how long its grants held it, what they said they used; both fade */
	uint64_t spare_ns;         /* of lately_held_ns: switching */
	uint64_t switching_ns;     /* the most that switches can have taken of late; fades */
	uint64_t switches_asked;   /* switches up to when that was last reckoned */
	bool shared;          /* time was apportioned when it was last charged */
	bool handoff;         /* work of a lease that is over has just drained */
	uint64_t unreserved_idle_ns, down_ns, switches;
	struct alq_split ended;
	uint64_t next;        /* wake-up */
};

struct core {
	struct core_config config;
	uint64_t now;
	struct core_device device[CORE_DEVICES];
	struct core_task task[CORE_TASKS];
	struct core_grant grant[CORE_GRANTS];
	int dirty_first, dirty_count, dirty_list[CORE_GRANTS]; /* in the order in which they are to be published */
};

void core_defaults(struct core_config *config);
void core_init(struct core *core, const struct core_config *config);

/* Both return an index ≥ 0, or −1 where the core is full. `since` is when a device's books began. */
int core_device_add(struct core *core, uint64_t now, enum alq_device_state state);
int core_task_add(struct core *core, uint64_t now, int grants, const int *devices, const struct core_policy *policies);

/* Removes a task; its rows go to the `ended` rows of its devices. */
void core_task_del(struct core *core, int task, uint64_t now);
void core_device_state(struct core *core, int device, uint64_t now, enum alq_device_state state);
void core_set_policy(struct core *core, int grant, uint64_t now, const struct core_policy *policy);

/* Continues the books of an earlier arbiter: before the first core_run after the grant was added. */
void core_restore(struct core *core, int grant, const struct core_books *books);
/* Continues a device's books, which had been settled to `updated`. Time since then is booked by core_away. */
void core_device_restore(struct core *core, int device, uint64_t since, uint64_t updated, const struct alq_device *page);
/* Books the time from a device's last settling until now, when no arbiter watched: to a floor whose task had live processes (`live` is
 * indexed by grant) as own, since tenants pace themselves at their floors; other floors as reserved and idle; the rest as idle. No
 * credit accrues for it. Also for one that was there all the time and did not run. */
void core_away(struct core *core, int device, uint64_t now, const bool *live);

/* Something may have changed for the task: a bell, a process that came or went. Then, once for all, core_run. */
void core_touch(struct core *core, int task, uint64_t now);
/* Does what is due and returns when it must be called next (CORE_NEVER: nothing is going on). */
uint64_t core_run(struct core *core, uint64_t now);
/* Settles the ledger of a device up to now. */
void core_settle(struct core *core, int device, uint64_t now);
void core_get_books(const struct core *core, int grant, struct core_books *out);
/* Grants of a device that have work or wait. */
int core_active(const struct core *core, int device);

/* The next grant whose gate is to be published, or −1. */
int core_next_dirty(struct core *core);

/* Between the core's files. */
#define CORE_MILLI 1000

void core_accrue(struct core *core, struct core_grant *grant, uint64_t now);
bool core_idle(const struct core_grant *grant);
/* Whether nothing says that the grant's program still wants its floor: it let leases pass again and again, or what is beside others' work is
 * later than its announced end by `patience` for each whose work is to drain, and nobody of it waits. */
bool core_silent(const struct core *core, const struct core_grant *grant, uint64_t now);
int64_t core_idle_cap(const struct core_config *config, const struct core_policy *policy); /* ns/1000 */
void core_charge(struct core *core, struct core_device *device, uint64_t now);
void core_use(struct core_grant *grant, uint64_t use);
void core_word(struct core *core, int grant, bool all);
/* Of a grant that is charged by its word: so much time was not charged in which it may have run. */
void core_unheard(const struct core *core, struct core_grant *grant, uint64_t time);
void core_settle_word(struct core *core, struct core_device *device, struct core_grant *grant, const struct core_observation *seen, bool all);
/* Compares what the grants of a device say they used with what they were charged. */
void core_admit(struct core *core, struct core_device *device);
/* A grant that gave no sign of life does again. */
void core_revived(struct core *core, int grant);
/* What of `use` the device took to switch; none where the grant's word is not taken. */
uint64_t core_spare(const struct core_device *device, const struct core_grant *grant, uint64_t use);
/* Charges a grant, or those of the device who admit that the time was theirs. */
void core_pay(struct core *core, struct core_device *device, struct core_grant *grant, uint64_t use);

bool core_gated(const struct core *core, int grant); /* takes part in its task's leases */
bool core_gang(const struct core *core, int task);
bool core_may_run(const struct core *core, int grant);
bool core_waits(const struct core *core, int grant);
int core_best(const struct core *core, int device, bool gangs);
int core_choose(const struct core *core, int device);
/* Since when a task with several devices waits on any of them; now, if it waits nowhere. */
uint64_t core_since(const struct core *core, int task);
bool core_revokes(const struct core *core, int waking, int holder);
uint64_t core_lease_length(const struct core *core, const struct core_grant *grant);

void core_due(struct core_device *device, uint64_t at);
struct core_device *core_device_of(struct core *core, int grant);
void core_open(struct core *core, int grant, uint64_t length);
/* Whether work of leases that are over keeps the device from whoever is next; then *again says when to look again. */
bool core_blocked(struct core *core, const struct core_device *device, int next, uint64_t *again);
/* Sets the devices of a task aside until all are free together, and opens its gates once they are. */
void core_gather(struct core *core, int task);
void core_finish_gather(struct core *core, struct core_device *asking);
/* The device was handed to its holder just now. */
void core_handoff(struct core *core, struct core_device *device);

/* Whether the holder's task makes no use of its lease; *at: when it loses it for that. */
bool core_idled(const struct core *core, int holder, bool wanted, uint64_t *at);
/* Whether the device should go to others before the holder leaves it idle; *at: when to look again. */
bool core_about_to_idle(const struct core *core, const struct core_grant *holder, bool wanted, uint64_t *at);
void core_lose_idle(struct core *core, int holder);

#define CORE_RECHECK_NS 500000 /* when to look again at work that is late, without word from its processes */

void core_step(struct core *core, int device);
void core_observe(struct core *core, int grant);
void core_end_lease(struct core *core, int grant);
void core_publish(struct core *core, int grant);

#endif
