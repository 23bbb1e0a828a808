/* SPDX-License-Identifier: Apache-2.0 */
/* sockets.h: SOCK_SEQPACKET sockets by path, their peers, and messages with a descriptor. */
#ifndef ALIQUOT_ARBITER_SOCKETS_H
#define ALIQUOT_ARBITER_SOCKETS_H

#include <stddef.h>
#include <sys/types.h>

/* A listening socket at path, which replaces what lies there. −1 after saying why. */
int socket_listen(const char *path, mode_t mode, char *why, size_t why_size);
int socket_peer(int fd, uid_t *uid, pid_t *pid);
/* Sends one message, with a descriptor if passed ≥ 0. Never blocks; −1 if it could not be sent. */
int socket_send(int fd, const void *message, size_t size, int passed);

#endif
