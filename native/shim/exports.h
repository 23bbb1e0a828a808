/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exports.h: marks on the descriptors by which memory is exported. A mark says how much memory the descriptor stands for, and shows for as long
 * as anybody has it: open, copied, inherited or under way in a socket. It belongs to no process, and goes with the last copy.
 */
#ifndef ALIQUOT_SHIM_EXPORTS_H
#define ALIQUOT_SHIM_EXPORTS_H

#include "shim.h"

/* Of one piece of physical memory, on every descriptor of it. Whoever has one locks it. */
struct mark {
	uint64_t at;    /* 0: never exported */
	uint32_t watch; /* by which it is looked for */
	bool lost;      /* on some descriptor there is none: taken to stand until the process ends */
};

/* Marks a descriptor of so many bytes, in whole steps. */
void mark_put(struct mark *m, int fd, uint64_t bytes);
/* Whether a descriptor with the mark may still be there. */
bool mark_stands(const struct mark *m);
/* Of memory that is gone. */
void mark_drop(struct mark *m);
/* The bytes that the mark of a descriptor tells; 0: it has none. */
uint64_t mark_read(int fd);
void marks_forget(void);

#endif
