/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proto.h: between the simulated devices (aliquot-simgpu) and the client libraries.
 *
 * Control goes over a SOCK_SEQPACKET Unix socket, one request and one answer at a time (sim_request, sim_answer). Work goes through
 * shared memory: each context has a channel (sim_channel), a memfd that comes with the answer to SIM_CONTEXT. The client writes
 * operations into the ring, stamped with CLOCK_MONOTONIC, and publishes them by moving head; no system call. The server reads them when it
 * next has a reason to: it works out what happened since, at the exact times. A client kicks the server (the eventfd that comes
 * with SIM_HELLO) only when it begins to wait, or when an operation must show on the host without anyone waiting for it.
 *
 * The connection's end, or the process', is the end of all its contexts and memory.
 */
#ifndef ALIQUOT_SIMGPU_PROTO_H
#define ALIQUOT_SIMGPU_PROTO_H

#include <stdatomic.h>
#include <stdint.h>

#include "simgpu/record.h"

#define SIM_MAGIC 0x31474d53u /* "SMG1" */
#define SIM_VERSION 1u

#define SIM_RING 1024     /* operations outstanding in a context; further launches block, as with the real driver */
#define SIM_STREAMS 4096  /* streams of a context, the two default streams included */
#define SIM_EVENTS 65536  /* events of a context */
#define SIM_WAITS 256     /* threads of a context that wait at the same time */
#define SIM_NEVER UINT64_MAX

/* ---------------------------------------------------------------------------------------------------------- operations */

enum sim_kind {
	SIM_OP_EMPTY = 0,
	SIM_OP_KERNEL = 1, /* takes duration_ns of the device; SIM_NEVER: does not end */
	SIM_OP_COPY = 2,   /* the same; counted as a copy */
	SIM_OP_EVENT = 3,  /* notes its time in event[event] */
	SIM_OP_WAIT = 4,   /* for operation dep_seq of channel dep_channel of the same process */
	SIM_OP_HOST = 5,   /* ends when the client acknowledges it: a function on the host, or a wait for a value in memory */
	SIM_OP_WRITE = 6,  /* takes no time; its action writes memory */
};

#define SIM_FLAG_ACTION 1u /* the client does something when it ends (HOST: when its turn comes): its seq is put on the action queue */
#define SIM_FLAG_SHOW 2u   /* and must do so at that time, even if nobody waits */

struct sim_op { /* 64 bytes; seq is its place in the ring's history, from 1 */
	uint64_t stamp_ns;
	uint64_t duration_ns;
	uint32_t kind;
	uint32_t stream;
	uint32_t flags;
	uint32_t event;
	uint64_t dep_seq;
	uint32_t dep_channel;
	uint32_t launches; /* kernels in it: a run of a graph's kernels goes as one operation */
	uint64_t reserved[2];
};

#define SIM_STREAM_NONBLOCKING 1u /* does not wait for the legacy default stream, nor that for it */
#define SIM_STREAM_SLOT_LEGACY 0  /* stream[0] is the legacy default stream */

struct sim_stream { /* 32 bytes */
	_Atomic uint64_t done;   /* server, release: all its operations up to this seq have ended */
	_Atomic uint64_t ack;    /* client, release: host operations acknowledged up to this seq; then kick */
	_Atomic uint64_t ack_ns; /* client, before ack: when */
	uint32_t flags;          /* client, before its first operation */
	int32_t priority;        /* client: lower goes first */
};

struct sim_event { /* 16 bytes */
	_Atomic uint64_t seq;     /* server, release: the newest record of it that has ended */
	_Atomic uint64_t time_ns; /* server: when */
};

struct sim_wait { /* 16 bytes; client claims a slot by moving stream from 0 to slot+1, server only reads */
	_Atomic uint32_t stream;
	uint32_t reserved;
	_Atomic uint64_t seq;
};

struct sim_channel {
	uint32_t magic;
	uint32_t version;
	uint32_t id;
	uint32_t device;
	_Atomic uint32_t fault;   /* server: a CUresult that every call of this context returns from now on; 0: none */
	_Atomic uint32_t notify;  /* server: futex, moves when something ended that someone waits for, and on a fault */
	_Atomic uint64_t head;    /* client, release: operations submitted */
	_Atomic uint64_t tail;    /* server, release: all operations up to this seq have ended; their slots may be used again */
	_Atomic uint64_t actions; /* server, release: entries ever put on the action queue */
	_Atomic uint64_t quiet_head;  /* server: while head is this ... */
	_Atomic uint64_t quiet_until; /* ... nothing of this channel ends before this time */
	uint64_t reserved[8];
	struct sim_wait wait[SIM_WAITS];
	uint64_t action[SIM_RING]; /* server: seqs whose action is due, in order; entry i is action[i % SIM_RING] */
	struct sim_op ring[SIM_RING];
	struct sim_stream stream[SIM_STREAMS];
	struct sim_event event[SIM_EVENTS];
};

_Static_assert(sizeof(struct sim_op) == 64, "op");
_Static_assert(sizeof(struct sim_stream) == 32, "stream");

/* ------------------------------------------------------------------------------------------------------------- control */

enum sim_call {
	SIM_HELLO = 1,    /* arg[0] version; answers value[0] devices, and the kick eventfd */
	SIM_DEVICE = 2,   /* device; answers info, value[0] it is gone, value[1] which linked devices it is of, value[2] its memory node; both from 1, 0: none */
	SIM_CONTEXT = 3,  /* device; answers value[0] channel id, and the channel's memfd */
	SIM_DESTROY = 4,  /* arg[0] channel id; its memory goes too */
	SIM_ALLOC = 5,    /* arg[0] channel id (0: the device only), arg[1] bytes, a multiple of SIM_GRANULE; answers value[0] allocation id */
	SIM_FREE = 6,     /* arg[0] allocation id */
	SIM_MEMORY = 7,   /* device; answers value[0] total, value[1] free, value[2] reserved */
	SIM_SYNC = 8,     /* brings every context and the record up to now */
	SIM_PROCESSES = 9, /* device, arg[0] first; answers up to SIM_PROC_MAX in proc, value[0] how many there are */
	SIM_LOAD = 10,    /* device; answers value[0] busy, value[1] copying, in thousandths of the last second */
	SIM_LISTEN = 11,  /* device, arg[0] mask; from now on this connection is sent sim_notice for the device's events */
	SIM_INJECT = 12,  /* device, arg[0] enum sim_fault, arg[1] XID, arg[2] pid or 0 */
	SIM_SHARE = 14,   /* arg[0] allocation id, arg[1] the number that other processes know its memory by */
	SIM_IMPORT = 15,  /* arg[0] channel id, arg[1] such a number, arg[2] bytes to take if nobody holds it; answers value[0] allocation id */
	SIM_STATUS = 13,  /* device; answers value: busy, switch, launches, contexts, memory used, fault, hung */
};

enum sim_fault {
	SIM_FAULT_XID = 1,
	SIM_FAULT_GONE = 2,
	SIM_FAULT_HANG = 3,
	SIM_FAULT_OOM = 4,
	SIM_FAULT_BACK = 5,
};

#define SIM_PROC_MAX 32

struct sim_request { /* 64 bytes */
	uint32_t call;
	uint32_t device;
	uint64_t arg[6];
	uint64_t reserved;
};

struct sim_info { /* one device, as it presents itself */
	char name[64];
	char uuid[48]; /* GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx */
	uint8_t uuid_bytes[16];
	uint64_t memory;       /* bytes on the board */
	uint64_t reserved;     /* of these, kept by the driver */
	uint32_t major, minor; /* compute capability */
	uint32_t multiprocessors;
	uint32_t clock_khz;
	uint32_t memory_clock_khz;
	uint32_t bus_bits;
	uint32_t l2_bytes;
	uint32_t shared_per_sm;
	uint32_t shared_optin;
	uint32_t threads_per_sm;
	uint32_t pci_bus;
	uint32_t pci_device_id;
	uint32_t power_limit_mw;
	uint32_t brand;        /* nvmlBrandType_t */
	uint32_t architecture; /* nvmlDeviceArchitecture_t */
	uint64_t copy_host_bps;   /* bytes a second to and from the host */
	uint64_t copy_device_bps; /* and within the device's memory */
	uint64_t unpack_bps;      /* bytes a second that its engine for decompression puts out; 0: it has none */
};

struct sim_proc {
	int32_t pid;
	uint32_t load; /* thousandths of the last second */
	uint64_t bytes;
};

struct sim_answer {
	uint32_t call;
	uint32_t status; /* a CUresult */
	uint64_t value[8];
	uint64_t costs[4]; /* SIM_HELLO: kernel_min, kernel_default, copy_start, context_bytes */
	union {
		struct sim_info info;
		struct sim_proc proc[SIM_PROC_MAX];
	};
};

struct sim_notice {
	uint32_t call; /* SIM_LISTEN */
	uint32_t device;
	uint64_t type; /* nvmlEventType */
	uint64_t data; /* the XID */
};

#endif
