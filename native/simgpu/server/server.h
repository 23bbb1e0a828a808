/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALIQUOT_SIMGPU_SERVER_H
#define ALIQUOT_SIMGPU_SERVER_H

#include "simgpu/server/model.h"

struct options {
	const char *devices, *socket, *record, *costs;
};

/* Reads a list of devices such as h200x2,a10x4 into the model; says on standard error what is wrong with it. */
int catalog_parse(struct model *m, const char *list);

/* Serves until SIGTERM or SIGINT; returns the exit status. */
int serve(struct model *m, const struct options *o);

/* The clock that all stamps are of. */
uint64_t now_ns(void);

#endif
