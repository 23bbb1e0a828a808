/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h: the simulated devices and their time.
 *
 * Time is worked out, not waited for: model_advance() takes what clients have submitted, with its stamps, and computes what ran when
 * up to now. It makes no difference how late it is called, so a figure never depends on how busy the machine is.
 *
 * The model of a device: one context runs at a time. Contexts that have work take turns of slice_ns, round robin; a turn ends early when
 * the context has nothing to run, and a kernel is cut at the end of a turn and goes on in the next. Within a context operations run one after
 * another, in the order of submission across its streams (by priority first), as far as streams, events and the legacy default stream
 * allow; copies take part in this like kernels. So a context never runs two things at once: that is what share measurements need, and it
 * is a simplification.
 */
#ifndef ALIQUOT_SIMGPU_MODEL_H
#define ALIQUOT_SIMGPU_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "simgpu/proto.h"

#define LOAD_BUCKETS 32
#define LOAD_BUCKET_NS 50000000ull /* utilisation is read over the last LOAD_WINDOW buckets */
#define LOAD_WINDOW 20

struct costs {
	uint64_t slice_ns, switch_ns, kernel_min_ns, kernel_default_ns, copy_start_ns, context_bytes, reserved_bytes;
};

struct load { /* busy time by bucket of time */
	uint64_t bucket[LOAD_BUCKETS];
	uint64_t last; /* bucket number written last */
};

enum op_state { OP_FREE = 0, OP_COMING, OP_QUEUED, OP_HOST_WAIT, OP_HOST_DONE };

struct op {
	uint64_t seq, stamp_ns, left_ns, dep_seq; /* HOST_DONE: stamp_ns is when it was acknowledged */
	uint32_t kind, stream, flags, event, dep_channel, launches;
	enum op_state state;
	struct op *next; /* in its stream */
};

struct stream {
	struct op *first, *last;
	struct stream *next_busy; /* streams with operations, in no order */
	uint32_t slot, flags;
	int32_t priority;
	bool listed;
};

struct row { /* a process on a device */
	struct sim_record_row *record;
	struct load load;
	unsigned contexts;
};

struct client;
struct device;

struct channel {
	uint32_t id;
	struct client *client;
	struct device *device;
	struct sim_channel *shared;
	struct row *row;
	struct channel *next; /* the device's */
	struct op ops[SIM_RING];
	struct stream *stream[SIM_STREAMS]; /* made when first used */
	struct stream *busy;                /* list by next_busy */
	struct op *running;
	uint64_t taken;   /* operations read from the ring */
	uint64_t arrived; /* of those, whose time of submission has come */
	uint64_t ended;   /* all up to this seq have ended */
	uint64_t last_stamp_ns;
	uint64_t actions;
	bool notified;    /* something ended since the last notice */
	bool dead;        /* met a fault: runs nothing any more */
};

struct device {
	uint32_t index;
	struct sim_info info;
	struct sim_record_device *record;
	struct load load, copy_load;
	struct channel *channels; /* in the order of their turns */
	struct channel *turn;     /* whose turn it is; NULL: nobody's */
	struct channel *resident; /* who ran last */
	uint64_t t_ns;            /* worked out up to here */
	uint64_t turn_end_ns, switch_left_ns;
	uint64_t used;            /* bytes */
	bool gone, hung, no_memory;
	uint32_t fault;           /* CUresult that new contexts get; 0: none */
};

struct model {
	struct costs costs;
	struct device device[SIM_MAX_DEVICES];
	uint32_t devices;
	uint32_t linked, local; /* so many devices in a row are linked with each other, and at the same memory node; 0: none are, and it is not said */
	struct sim_record *record;
	struct row row[SIM_RECORD_ROWS];
	uint32_t cross_waits; /* operations outstanding that wait for another device: then devices advance in step */
};

static inline uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Finds a channel of the same process by its id; NULL: gone. */
struct channel *client_channel(struct client *client, uint32_t id);

/* Takes everything submitted into account and works out every device up to now. */
void model_advance(struct model *m, uint64_t now);

/* The time at which the server must look again, for somebody waits or an action is due; SIM_NEVER: no need. */
uint64_t model_deadline(struct model *m);

/* The end of what the device does now, if nothing else happens; SIM_NEVER: it does nothing, or without end. */
uint64_t device_next_end(const struct device *d);
bool takes_time(const struct op *op);

void model_attach(struct model *m, struct channel *c, pid_t pid, uint64_t start_time, uint64_t now);
void model_detach(struct model *m, struct channel *c, uint64_t now);
void model_fault(struct channel *c, uint32_t result);
uint32_t load_read(const struct load *load, uint64_t now); /* thousandths of the last second */

/* Books time [from, to) on a device for a channel's process. */
void account(struct device *d, struct channel *c, uint64_t from, uint64_t to, bool copy);

void record_begin(struct sim_record *r);
void record_end(struct sim_record *r, uint64_t now);

#endif
