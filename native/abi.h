/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abi.h: the one contract between the agent (Go), the arbiter (C) and the shim (C, inside the tenant).
 *
 * A task has three pages, files in its own directory TASK, plus one socket and one link:
 *
 *   TASK/ctl           what the tenant must obey. The agent writes policy, the arbiter writes leases; the tenant maps it
 *                      read-only.
 *   TASK/tel           what the tenant says of itself: untrusted. Of compute it is believed no further than the arbiter's clock allows;
 *                      what others lose by a lie is idle time that nobody waited for, until the agent holds the driver's word
 *                      against it (ALQ_POLICY_CLOCK). A page that is spoiled or cut short costs its author alone. Two lies do harm
 *                      others, and are detected by the driver's own figures at most: of memory above its floor, and of its floor beside a share that may
 *                      be stopped for it, a task that says it holds less than it does has the rest lent to others, whose allocations then fail; and a process that its own task lists by pid and start
 *                      time counts as covered, although it computes past the shim.
 *   TASK/book          what the arbiter holds against and for the task: credit, debt, and where each nanosecond went. Never
 *                      mapped by the tenant; survives the arbiter.
 *   TASK/arbiter.sock  SOCK_SEQPACKET, one per task, so that the socket a process comes through says which task it is.
 *   TASK/user          a link to the number of the user whose tel and arbiter.sock are, once that is known: made once, by the agent or by who begins the
 *                      task's container. It says more than tel's owner does, which a tenant that is root may change.
 *
 * and every device has one page:
 *
 *   DEVICES/<uuid>     capacity and health (agent), the device's own rows of the ledger (arbiter).
 *
 * Conventions. All integers are little-endian and naturally aligned. Times are nanoseconds of CLOCK_MONOTONIC of the node.
 * Compute is in thousandths of a device. Memory is in bytes. Each field has exactly one writer, named at its struct: A the
 * agent, B the arbiter, T the tenant's process that owns the slot. Unless said otherwise a field is read and written with
 * relaxed atomics of its own width; "release" fields publish what was written before them and are read with acquire.
 * A reader checks magic, version, kind and size before it believes anything else, and never follows an offset found in a page:
 * the layout is fixed by the version alone.
 *
 * Two numbers say which contract a page keeps. The version must be equal: it changes with anything that one who knows only the contract before
 * would get wrong (a field moved, removed or resized, another meaning or unit, a value that must be understood). The minor version is that of
 * who made the page: it rises where a `reserved` field is taken for what others may leave out, and any is accepted, an older one and a newer
 * one. Such a field reads as zero where nobody wrote it, and zero means that there is nothing to say; its declaration names the minor version
 * that it came with. Pages outlive who made them, so one who knows a field writes it into an older page, too: the number tells people and tests
 * what to expect, it decides nothing.
 *
 * The Go mirror is node/page; a test compiles this header and compares every size and offset.
 */
#ifndef ALIQUOT_ABI_H
#define ALIQUOT_ABI_H

#include <stdint.h>

#define ALQ_ABI_MAGIC 0x31514c41u /* "ALQ1" */
#define ALQ_ABI_VERSION 1u
#define ALQ_ABI_MINOR 2u

#define ALQ_MAX_GRANTS 16 /* devices of one task on one node */
#define ALQ_MAX_PROCS 64  /* processes of one task that use a device at the same time */
#define ALQ_UUID_LEN 96   /* a device's UUID with its terminating NUL; MIG names are long */
#define ALQ_UID_LEN 64    /* a task's UID with its terminating NUL */
#define ALQ_MILLI 1000u   /* one whole device */

enum alq_kind {
	ALQ_KIND_CTL = 1,
	ALQ_KIND_TEL = 2,
	ALQ_KIND_BOOK = 3,
	ALQ_KIND_DEVICE = 4,
};

/* Opens every page. Written once by A before the file is renamed into place. */
struct alq_header {
	uint32_t magic;
	uint32_t version;
	uint32_t kind;        /* enum alq_kind */
	uint32_t size;        /* of the whole page, bytes */
	uint32_t grants;      /* entries in use, 1..ALQ_MAX_GRANTS; 0 in a device page */
	uint32_t minor;       /* ALQ_ABI_MINOR of who made it; any is accepted */
	uint64_t created_ns;
	char uid[ALQ_UID_LEN]; /* the task's UID; in a device page the first bytes of the device's UUID */
	uint8_t reserved[32];
};

/* ------------------------------------------------------------------------------------------------------------------ ctl */

/*
 * The gate. A futex word: bit 0 says open, bit 1 says ungated, the rest counts changes so that a waiter never misses one.
 *
 *   closed           wait: FUTEX_WAIT on the value seen (works on the read-only mapping).
 *   open             launch while now < lease_end_ns and run-ahead allows it. The tenant checks the deadline itself: a lease
 *                    over its deadline is closed whatever the word says.
 *   open + ungated   launch freely; the device's sole grant with a whole ceiling. Metering goes on.
 *
 * B writes lease_* first, then the word with release; T reads the word with acquire, then lease_*. B may move lease_end_ns in
 * place, later (extension) or earlier (revocation), without changing the word; when it extends, it then bumps the word and
 * wakes, so that a tenant between its check and its sleep sees either the deadline or the bump. A tenant that is about to sleep
 * publishes wait_since_ns (seq_cst), rings the bell, reads word and deadline again, and only then sleeps.
 */
#define ALQ_GATE_OPEN 1u
#define ALQ_GATE_UNGATED 2u
#define ALQ_GATE_STEP 4u

/* Parking of an idle session's memory: B asks, T acknowledges in its slot. */
enum alq_park {
	ALQ_PARK_NONE = 0,    /* memory on the device, or never parked */
	ALQ_PARK_ASKED = 1,   /* B: copy out and unmap */
	ALQ_PARK_PARKED = 2,  /* T: done */
	ALQ_PARK_RESUME = 3,  /* B: memory is reserved again, copy back */
};

enum alq_policy_flags {
	ALQ_POLICY_LATENCY = 1u << 0,   /* latency class: first within its floor */
	ALQ_POLICY_LEND_MEM = 1u << 1,  /* accepts on-reclaim stop (later also park): may borrow idle memory floors, and what it holds above its own can be taken back */
	ALQ_POLICY_STOPPED = 1u << 2,   /* nothing new may launch or be allocated: the task is being ended */
	ALQ_POLICY_CLOCK = 1u << 3,     /* its own word on what it used is not taken: charged for all the time that it holds */
};

struct alq_ctl_grant { /* 256 bytes */
	/* A, under policy_seq: odd while it is being written; readers retry. Changes live, in place. */
	uint32_t policy_seq;
	uint32_t policy_flags;    /* enum alq_policy_flags */
	uint32_t compute_floor;   /* 0..1000 */
	uint32_t compute_ceiling; /* max(1, floor)..1000 */
	uint32_t weight;          /* ≥ 1: what is over the floors goes by it */
	uint32_t reserved0;
	uint64_t mem_floor;
	uint64_t mem_ceiling;     /* what cuMemGetInfo shows as total */
	uint64_t mem_device;      /* the device's own capacity, for the record */
	uint8_t reserved1[16];
	char device[ALQ_UUID_LEN];

	/* B */
	uint32_t gate;            /* futex word, release */
	uint32_t park;            /* enum alq_park */
	uint64_t lease_id;        /* counts leases of this grant */
	uint64_t lease_start_ns;
	uint64_t lease_end_ns;    /* 0: none; UINT64_MAX: ungated */
	uint32_t run_ahead_ns;    /* estimated device time that a process may queue at once: a share's 1 ms, divided among those that launch */
	uint32_t run_ahead_launches; /* launches of unknown duration that a process may queue at once, ≥ 1: a share's 10, divided likewise */
	uint64_t mem_granted;     /* what this task's processes together may hold now, 0..ceiling, less than the floor where that is lent; seq_cst */
	uint64_t mem_free_hint;   /* what an ask would add to mem_granted now: free = granted + hint - used */
	uint32_t run_ahead_share_ns; /* the share's, undivided */
	uint8_t reserved2[36];
};

struct alq_ctl {
	struct alq_header header;
	uint64_t heartbeat_ns;    /* B: at least every ALQ_HEARTBEAT_NS while a process is registered */
	uint64_t arbiter_epoch;   /* B: changes when an arbiter starts or adopts the task; a tenant then registers again */
	uint8_t reserved[112];
	struct alq_ctl_grant grant[ALQ_MAX_GRANTS];
};

#define ALQ_HEARTBEAT_NS 100000000ull   /* 100 ms */
#define ALQ_ARBITER_LOST_NS 500000000ull /* without a heartbeat for so long, a tenant paces itself at its floor; at once where its line breaks */
#define ALQ_SCHEDULE_FLOOR 1ull         /* a mark in schedule_ns */

/* ------------------------------------------------------------------------------------------------------------------ tel */

enum alq_slot_state {
	ALQ_SLOT_FREE = 0,
	ALQ_SLOT_LIVE = 1,
};

/* One process' use of one device: 256 bytes, written by that process alone. Counters only grow. */
struct alq_tel_grant {
	uint64_t wait_since_ns;   /* reached the gate and found it closed; 0: not waiting; seq_cst */
	uint64_t launched;        /* launches (kernels, graphs, large copies and sets) let through */
	uint64_t completed;       /* of those, known to have ended; release */
	uint64_t launched_ns;     /* their estimated device time, summed */
	uint64_t completed_ns;    /* of launched_ns, what belongs to launches that have ended: the difference is still queued */
	uint64_t device_ns;       /* device time measured by events, summed */
	uint64_t device_launches; /* launches covered by device_ns */
	uint64_t busy_until_ns;   /* when the work let through should end, by estimate; 0: nothing outstanding. Set before `launched`, cleared after `completed`; release */
	uint64_t launch_lease_id; /* lease under which the last launch went */
	uint64_t last_launch_ns;
	uint64_t longest_ns;      /* longest single launch measured of late: what revocation may have to wait for */
	uint64_t gate_waits;      /* times a launch had to wait */
	uint64_t gate_wait_ns;    /* and for how long */
	uint64_t mem_used;        /* bytes allocated, at the driver's granularity; under alq_tel.mem_lock */
	uint64_t mem_overhead;    /* contexts, modules: bytes not asked for by the program; under alq_tel.mem_lock */
	uint64_t mem_refused;     /* allocations refused at the limit */
	uint32_t park_state;      /* enum alq_park as reached by this process */
	uint32_t captures;        /* stream captures open now */
	uint64_t unknown_calls;   /* driver calls passed through that the shim did not know */
	uint32_t coming;          /* launches that wait for room behind queued work: it is not idle, even if that has just drained */
	uint32_t reserved0;
	uint8_t reserved[104];
};

struct alq_slot { /* header 128 bytes, then the grants */
	uint32_t state;           /* B: enum alq_slot_state; B frees a dead process' slot and zeroes it */
	int32_t pid;              /* B: in the node's pid namespace, from SO_PEERCRED */
	uint64_t start_time;      /* B: field 22 of /proc/pid/stat, so that a pid used again is told apart */
	uint32_t shim_version;    /* T */
	uint32_t flags;           /* T: reserved */
	uint64_t registered_ns;   /* B */
	uint8_t reserved[96];
	struct alq_tel_grant grant[ALQ_MAX_GRANTS];
};

struct alq_tel {
	struct alq_header header;
	uint32_t mem_lock;        /* futex lock word: the owner's pid << 6 | its slot, with FUTEX_WAITERS; 0: free. A dead owner is told by its slot. Guards mem_* of all slots */
	uint32_t reserved0;
	/* T, by compare-and-swap over all processes: when long launches let through should have ended (even); while the arbiter is away, when
	 * the floor allows the next, with ALQ_SCHEDULE_FLOOR (GCRA). */
	uint64_t schedule_ns[ALQ_MAX_GRANTS];
	uint8_t reserved[120];
	struct alq_slot slot[ALQ_MAX_PROCS];
};

/* ----------------------------------------------------------------------------------------------------------------- book */

/*
 * B alone. Where each nanosecond of the device went, seen from one grant; over all grants of a device and its device page, the rows
 * add up to elapsed time:
 *
 *   own           the grant ran, within its floor
 *   lent          another ran on this grant's idle floor (that other's burst_lent)
 *   reserved_idle this grant's floor, and nobody ran on it
 *   burst_free    the grant ran above its floor, on time nobody reserved
 *   burst_lent    the grant ran above its floor, on floors that others left idle (not a row: it is others' `lent` seen from here)
 */
struct alq_split {
	uint64_t own_ns;
	uint64_t lent_ns;
	uint64_t reserved_idle_ns;
	uint64_t burst_free_ns;
	uint64_t burst_lent_ns;
};

struct alq_book_grant { /* 256 bytes */
	uint32_t seq;             /* odd while being written; a reader that finds it odd for long has found a dead arbiter */
	uint32_t reserved0;
	int64_t credit_ns;        /* guarantee credit: floor × time − use within it; capped above when idle, negative is debt */
	int64_t bucket_ns;        /* ceiling bucket: what may still be used before the ceiling closes; negative is debt */
	uint64_t vtime_ns;        /* burst received over weight */
	uint64_t held_ns;         /* device time charged, all told */
	uint64_t leases;
	uint64_t overlapped;      /* leases that had not drained 10 ms after their end */
	uint64_t revoked;         /* leases cut short for a waking owner */
	uint64_t wait_ns;         /* from reaching the gate to a lease, summed */
	uint64_t wake_worst_ns;   /* worst such wait of an owner with credit */
	uint64_t wakes;           /* wake-ups of an owner with credit */
	uint64_t mem_granted;
	uint64_t mem_peak;        /* highest use seen */
	struct alq_split split;
	uint64_t updated_ns;
	uint64_t launches_ended;  /* launches of processes that have ended: B adds tel.launched here once it has zeroed their slot */
	uint8_t reserved[96];
};

struct alq_book {
	struct alq_header header;
	uint8_t reserved[128];
	struct alq_book_grant grant[ALQ_MAX_GRANTS];
};

/* --------------------------------------------------------------------------------------------------------------- device */

enum alq_device_state {
	ALQ_DEVICE_OK = 0,
	ALQ_DEVICE_DRAINING = 1,  /* no new grant; those there run on */
	ALQ_DEVICE_DOWN = 2,      /* gone or sick: gates closed, time counted as down */
};

struct alq_device { /* 512 bytes */
	struct alq_header header;
	/* A */
	char uuid[ALQ_UUID_LEN];
	uint64_t mem_capacity;    /* what may be granted: total less what the driver keeps */
	uint32_t state;           /* enum alq_device_state */
	uint32_t reserved0;
	/* B */
	uint32_t seq;
	uint32_t active;          /* shares with work or waiting for a lease, now */
	uint64_t since_ns;        /* start of the books */
	uint64_t updated_ns;      /* the rows add up to updated_ns − since_ns */
	uint64_t unreserved_idle_ns;
	uint64_t down_ns;
	uint64_t switches;        /* leases that went from one task to another */
	uint64_t mem_reserved;    /* Σ max(floor, granted), of those that may be stopped Σ floor: what cannot be taken back */
	struct alq_split ended;   /* rows of tasks that were deleted: `del` moves them here out of the task's book, so that the rows still add up */
	/* Since minor version 1: work that does not end and takes others' floors (native/arbiter/stall.h); B, under seq. */
	uint64_t stall_since_ns;  /* since when none of it has ended; 0: there is none */
	uint64_t stall_uid[ALQ_UID_LEN / 8]; /* the task's UID, its bytes in order; empty: of several tasks */
	int32_t stall_pid;        /* its process, in the node's pid namespace; 0: not known, or several */
	uint32_t reserved1;
	/* Since minor version 2: memory within floors that is lent and that their owners wait for (native/arbiter/owed.c); B, under seq. */
	uint64_t mem_wanted;      /* bytes beyond what is free; 0: nobody waits */
	uint64_t mem_wanted_since_ns; /* since when the one who has waited longest does */
	uint64_t mem_wanted_uid[ALQ_UID_LEN / 8]; /* and the UID of its task, its bytes in order */
	uint8_t reserved[16];
};

/* --------------------------------------------------------------------------------------------------------- registration */

/*
 * T connects to TASK/arbiter.sock and sends alq_hello; B answers alq_welcome with one file descriptor (SCM_RIGHTS), the bell: an
 * eventfd. T rings it (writes 1) when it begins to wait at a gate and when work let through has drained while it waits for
 * nothing. The connection stays open: its end, or the end of the process, frees the slot. Memory above mem_granted is asked for
 * with alq_mem_ask, one at a time on a connection; B answers each with alq_mem_answer. It answers at once, but where the task would hold no more
 * than its floor with it, and that is lent: then once the memory has come back, or after ALQ_FLOOR_WAIT_NS. Of shims older than
 * ALQ_SHIM_WAITS, which take a line for broken after 2 s, after 1.5 s.
 */
#define ALQ_FLOOR_WAIT_NS 30000000000ull
#define ALQ_SHIM_WAITS 2u
#define ALQ_HELLO 1u
#define ALQ_WELCOME 2u
#define ALQ_MEM_ASK 3u
#define ALQ_MEM_ANSWER 4u

enum alq_status {
	ALQ_OK = 0,
	ALQ_ERR_VERSION = 1, /* speaks another version */
	ALQ_ERR_FULL = 2,    /* all ALQ_MAX_PROCS slots are taken */
	ALQ_ERR_REFUSED = 3, /* no such grant, or the task is being ended */
	ALQ_ERR_NO_MEM = 4,  /* nothing left to lend */
};

struct alq_hello {
	uint32_t type; /* ALQ_HELLO */
	uint32_t magic;
	uint32_t version;
	uint32_t shim_version;
	int32_t slot; /* the slot held before, when registering again with a new arbiter; else -1 */
	uint32_t reserved;
};

struct alq_welcome {
	uint32_t type; /* ALQ_WELCOME */
	uint32_t status; /* enum alq_status; without ALQ_OK there is no descriptor and the connection closes */
	uint32_t slot;
	uint32_t reserved;
	uint64_t arbiter_epoch;
};

struct alq_mem_ask {
	uint32_t type; /* ALQ_MEM_ASK */
	uint32_t grant;
	uint64_t want; /* bytes that all processes of the task together want to hold, this allocation included */
};

struct alq_mem_answer {
	uint32_t type; /* ALQ_MEM_ANSWER */
	uint32_t status;
	uint64_t granted; /* mem_granted now */
};

_Static_assert(sizeof(struct alq_header) == 128, "header");
_Static_assert(sizeof(struct alq_ctl_grant) == 256, "ctl grant");
_Static_assert(sizeof(struct alq_ctl) == 256 + 256 * ALQ_MAX_GRANTS, "ctl");
_Static_assert(sizeof(struct alq_tel_grant) == 256, "tel grant");
_Static_assert(sizeof(struct alq_slot) == 128 + 256 * ALQ_MAX_GRANTS, "slot");
_Static_assert(sizeof(struct alq_tel) == 384 + sizeof(struct alq_slot) * ALQ_MAX_PROCS, "tel");
_Static_assert(sizeof(struct alq_book_grant) == 256, "book grant");
_Static_assert(sizeof(struct alq_book) == 256 + 256 * ALQ_MAX_GRANTS, "book");
_Static_assert(sizeof(struct alq_device) == 512, "device page");

#endif
