/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALIQUOT_SIMGPU_SERVER_H
#define ALIQUOT_SIMGPU_SERVER_H

#include "simgpu/server/model.h"

struct options {
	const char *devices, *socket, *record, *costs;
	const char *control; /* the one socket that takes faults, for the server's own user and root; NULL: none are taken */
};

/* Reads a list of devices such as h200x2,a10x4 into the model, and what it may hold beside them, which goes for all: costs such as
 * switch_ns=100000, and how many devices in a row are linked with each other or at one memory node, as linked=2,numa=4; 0, or -1, and then it has said on standard error what is wrong with it. */
int catalog_parse(struct model *m, const char *list);

/* Reads a whole number, 0 or more; 0, or -1 if it is none. */
int parse_number(const char *text, uint64_t *out);
/* Sets the cost of this name; 0, or -1 if costs.h has none of that name or the number is none. */
int cost_set(struct costs *c, const char *name, const char *number);
/* Reads a file of `name = integer` lines; 0, or -1, and then it has said on standard error what is wrong with it. */
int costs_read(struct costs *c, const char *path);

/* Serves until SIGTERM or SIGINT; returns the exit status. */
int serve(struct model *m, const struct options *o);

/* The clock that all stamps are of. */
uint64_t now_ns(void);

#endif
