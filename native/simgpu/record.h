/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h: the record of device time that the simulated driver keeps: the truth that shares are judged by. One file, written by the
 * server alone, mapped read-only by whoever wants to know.
 *
 * Figures stand as of updated_ns. The server advances its model only when somebody needs to know; a reader that wants figures as of
 * now asks for it first (`aliquot-simgpu sync --socket S`, or SIM_SYNC on the socket), then reads.
 *
 * seq is odd while the server writes; a reader takes a copy and takes it again if seq was odd or has changed.
 * Times are ns of CLOCK_MONOTONIC; integers are little-endian and naturally aligned.
 */
#ifndef ALIQUOT_SIMGPU_RECORD_H
#define ALIQUOT_SIMGPU_RECORD_H

#include <stdint.h>

#define SIM_RECORD_MAGIC 0x31524d53u /* "SMR1" */
#define SIM_RECORD_VERSION 1u
#define SIM_MAX_DEVICES 16
#define SIM_RECORD_ROWS 4096

struct sim_record_device { /* 128 bytes */
	char uuid[48];
	uint64_t since_ns;  /* the device exists since */
	uint64_t busy_ns;   /* kernels, copies and sets ran */
	uint64_t switch_ns; /* it changed from one context to another; not in busy_ns */
	uint64_t launches;  /* kernels that have ended; a graph counts each of its kernels */
	uint64_t copies;    /* copies and sets that have ended */
	uint64_t folded_ns; /* busy time of ended processes whose rows were given up for want of space */
	uint64_t switches;
	uint64_t peak_bytes; /* the most device memory that was ever held at once, contexts included */
	uint8_t reserved[16];
};

/* One process on one device. */
struct sim_record_row { /* 64 bytes */
	int32_t pid;           /* in the server's pid namespace; 0: the row is free */
	uint32_t device;
	uint64_t start_time;   /* field 22 of /proc/pid/stat */
	uint64_t busy_ns;
	uint64_t launches;
	uint64_t copies;
	uint64_t first_ns;     /* its first context was made */
	uint64_t ended_ns;     /* its last context is gone since; 0: alive */
	uint64_t bytes;        /* device memory held now, contexts included */
};

struct sim_record {
	uint32_t magic;
	uint32_t version;
	uint32_t size;         /* of the file */
	uint32_t devices;
	uint32_t seq;
	uint32_t rows;         /* rows in use or used, from the first */
	uint64_t updated_ns;
	uint8_t reserved[32];
	struct sim_record_device device[SIM_MAX_DEVICES];
	struct sim_record_row row[SIM_RECORD_ROWS];
};

_Static_assert(sizeof(struct sim_record_device) == 128, "record device");
_Static_assert(sizeof(struct sim_record_row) == 64, "record row");
_Static_assert(sizeof(struct sim_record) == 64 + 128 * SIM_MAX_DEVICES + 64 * SIM_RECORD_ROWS, "record");

#endif
