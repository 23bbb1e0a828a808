/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "simgpu/wire.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/un.h>

int wire_find(const void *symbol, char *path, size_t size)
{
	const char *set = getenv("ALIQUOT_SIMGPU");
	if (set && *set)
		return snprintf(path, size, "%s", set) < (int)size ? 0 : -1;
	Dl_info info;
	char real[PATH_MAX];
	if (!dladdr(symbol, &info) || !realpath(info.dli_fname, real))
		return -1;
	for (int up = 0; up < 2; up++) {
		char *slash = strrchr(real, '/');
		if (!slash)
			return -1;
		*slash = '\0';
	}
	return snprintf(path, size, "%s/simgpu.sock", real) < (int)size ? 0 : -1;
}

int wire_connect(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	if (snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path) >= (int)sizeof addr.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	int r;
	do
		r = connect(fd, (struct sockaddr *)&addr, sizeof addr);
	while (r < 0 && errno == EINTR);
	if (r < 0) {
		int saved = errno;
		close(fd);
		errno = saved;
		return -1;
	}
	return fd;
}

int wire_call(int socket, const struct sim_request *request, struct sim_answer *answer, int *fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec io = {.iov_base = answer, .iov_len = sizeof *answer};
	struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
	ssize_t n;
	if (fd)
		*fd = -1;
	do
		n = send(socket, request, sizeof *request, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n != sizeof *request)
		return -1;
	do
		n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n != sizeof *answer)
		return -1;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		int got;
		memcpy(&got, CMSG_DATA(h), sizeof got);
		if (fd)
			*fd = got;
		else
			close(got);
	}
	return (int)answer->status;
}
