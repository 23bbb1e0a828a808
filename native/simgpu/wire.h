/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h: a client's end of the control socket; see proto.h. Used by both libraries and by the command line. */
#ifndef ALIQUOT_SIMGPU_WIRE_H
#define ALIQUOT_SIMGPU_WIRE_H

#include <stddef.h>

#include "simgpu/proto.h"

/* Where the server is: $ALIQUOT_SIMGPU, else simgpu.sock in the parent of the directory that the library with `symbol` lies in, links
 * followed. Returns -1 if there is no such path or it is too long. */
int wire_find(const void *symbol, char *path, size_t size);

/* Connects; returns the socket, or -1 with errno. */
int wire_connect(const char *path);

/* One request, one answer. *fd, where asked for, becomes the descriptor that came along or -1. Returns the answer's status, or -1 if the
 * server is gone. The caller sees to it that one thread at a time calls. */
int wire_call(int socket, const struct sim_request *request, struct sim_answer *answer, int *fd);

#endif
