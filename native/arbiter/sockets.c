/* SPDX-License-Identifier: Apache-2.0 */
#include "sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* An address holds 107 characters, a path may have more: then its folder is named by a descriptor. */
static int address(const char *path, struct sockaddr_un *to, int *folder)
{
	char parent[PATH_MAX];
	const char *name = strrchr(path, '/');
	*folder = -1;
	*to = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) < sizeof to->sun_path) {
		strcpy(to->sun_path, path);
		return 0;
	}
	if (!name || (size_t)(name - path) >= sizeof parent)
		return -1;
	snprintf(parent, sizeof parent, "%.*s", (int)(name - path), path);
	*folder = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*folder < 0)
		return -1;
	return snprintf(to->sun_path, sizeof to->sun_path, "/proc/self/fd/%d%s", *folder, name) < (int)sizeof to->sun_path ? 0 : -1;
}

int socket_listen(const char *path, mode_t mode, char *why, size_t why_size)
{
	struct sockaddr_un at;
	int folder, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0 || address(path, &at, &folder)) {
		snprintf(why, why_size, "socket %s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	unlink(path);
	mode_t mask = umask(0777 & ~mode);
	int failed = bind(fd, (struct sockaddr *)&at, sizeof at);
	umask(mask);
	if (failed || listen(fd, 1024)) {
		snprintf(why, why_size, "listen at %s: %s", path, strerror(errno));
		close(fd);
		fd = -1;
	}
	if (folder >= 0)
		close(folder);
	return fd;
}

int socket_peer(int fd, uid_t *uid, pid_t *pid)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return -1;
	*uid = peer.uid;
	*pid = peer.pid;
	return 0;
}

int socket_send(int fd, const void *message, size_t size, int passed)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {.space = {0}};
	struct iovec iov = {.iov_base = (void *)message, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (passed >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof control.space;
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &passed, sizeof passed);
	}
	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size ? 0 : -1;
}
