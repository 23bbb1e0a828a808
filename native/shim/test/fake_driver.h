/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALIQUOT_SHIM_FAKE_DRIVER_H
#define ALIQUOT_SHIM_FAKE_DRIVER_H

#include "cuda.h"

#include <stdbool.h>
#include <stdint.h>

#define FAKE_DEVICES 4
#define FAKE_CAPACITY (64ull << 30)
#define FAKE_BLOCK (2ull << 20)          /* what the driver takes from the device at once */
#define FAKE_REFUSED ((1ull << 20) * 7) /* a size that the driver always refuses */

struct fake_stats {
	uint64_t launches, captured, busy_ns;
	uint64_t on_device[FAKE_DEVICES]; /* launches */
	uint64_t misused; /* calls that named a stream or context that was gone, and waits in one when it went */
	uint64_t queued_most; /* device time already queued when a launch came, at most */
	uint64_t events, events_captured;
	char visible[1024]; /* CUDA_VISIBLE_DEVICES as cuInit saw it */
};

struct fake_memory { /* shared by all processes of a test: the file $FAKE_MEMORY */
	uint64_t held, most;
	uint32_t arrived; /* processes that are ready to begin */
};

/* The device clock: runs by itself, or stands until it is moved. */
void fake_run(bool on);
void fake_advance(uint64_t ns);
void fake_read(struct fake_stats *out);
/* From now on each launch of a kernel calls that, before or after it takes the kernel, and fails with what it returns; NULL: nothing. */
void fake_at_launch(CUresult (*call)(void), bool after);
/* Ends a context where the shim does not see it. */
void fake_end(CUcontext ctx);
/* Another context comes to be in the place of one that is gone. */
void fake_begin_again(CUcontext ctx);
/* Threads that wait for an event of a context. */
uint32_t fake_waiting(CUcontext ctx);
/* From now on cuInit does not come back, until it may. How often it was called. */
void fake_hold_init(bool on);
uint32_t fake_inits(void);
/* From now on blocks of pieces stay when they are empty. */
void fake_keeps(bool on);
/* Another tenant of the device takes so many blocks (gives them back, if negative): now, and at the next free of this process. */
void fake_others(int64_t now, int64_t at_free);
/* From now on NVML says what this process holds. */
void fake_books(bool on);
/* What it holds, or 0 where NVML does not say. */
uint64_t fake_booked(void);
/* Calls that once, when the driver has just released a handle or unmapped its memory and not answered yet; refuse: from now on none is released. */
void fake_at_release(void (*call)(void), bool refuse);
/* From now on a graph has an allocation node of so many bytes (0: none), and a module takes so many blocks. */
void fake_takes(uint64_t graph, int64_t module);
/* From now on pools give nothing back when they are trimmed. */
void fake_pools_stuck(bool on);
#define FAKE_GROWTH (32ull << 20) /* what a pool takes from the device at once */
/* The name of the last function called that does nothing. */
const char *fake_called(void);
/* The names of those that do something. */
const char *fake_named(void);

/* Within the driver: from now on memory is counted in $FAKE_MEMORY, where that is set. */
void fake_memory_open(void);
void fake_memory_in_child(void);

#endif
