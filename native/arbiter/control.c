/* SPDX-License-Identifier: Apache-2.0 */
/* control.c: the agent's line: one request, one answer (docs/architecture.md). */
#include "arbiter.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sockets.h"

int control_open(struct node *node)
{
	char path[PATH_MAX], why[512];
	snprintf(path, sizeof path, "%s/arbiter.ctl", node->run);
	int fd = socket_listen(path, 0600, why, sizeof why);
	if (fd < 0) {
		complain("%s", why);
		return -1;
	}
	for (int i = 0; i < LINES; i++)
		node->line[i] = (struct source){.kind = SOURCE_CONTROL_LINE, .fd = -1};
	node->control = (struct source){.kind = SOURCE_CONTROL, .fd = fd};
	return watch(node, &node->control, EPOLLIN);
}

/* Whether who connects is let in; otherwise it waits in the socket's queue. */
static void admit(struct node *node, bool on)
{
	struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.ptr = &node->control};
	epoll_ctl(node->epoll, EPOLL_CTL_MOD, node->control.fd, &event);
}

static void hang_up(struct node *node, struct source *line)
{
	unwatch(node, line);
	admit(node, true);
}

void control_accept(struct node *node)
{
	uid_t uid;
	pid_t pid;
	struct source *line = NULL;
	for (int i = 0; i < LINES; i++)
		if (node->line[i].fd < 0)
			line = &node->line[i];
	if (!line) {
		admit(node, false);
		return;
	}
	int fd = accept4(node->control.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return;
	if (socket_peer(fd, &uid, &pid) || (uid != geteuid() && uid != 0)) {
		close(fd);
		return;
	}
	line->fd = fd;
	if (watch(node, line, EPOLLIN | EPOLLRDHUP))
		hang_up(node, line);
}

/* The answer to one request. */
static void serve(struct node *node, char *request, char *answer, size_t size)
{
	char why[768] = "", *name = strchr(request, ' ');
	if (name)
		*name++ = '\0';
	bool plain = !name, uid = name && name_ok(name, ALQ_UID_LEN);
	struct task *task = uid ? task_find(node, name) : NULL;
	if (plain && !strcmp(request, "ping")) {
		publish_all(node);
		snprintf(answer, size, "ok %s %llu", ARBITER_VERSION, (unsigned long long)node->epoch);
	} else if (plain && !strcmp(request, "quit")) {
		node->ending = true;
		publish_all(node);
		snprintf(answer, size, "ok");
	} else if (uid && !strcmp(request, "add")) {
		if (task_load(node, name, why, sizeof why))
			snprintf(answer, size, "error: %s", why);
		else
			snprintf(answer, size, "ok");
	} else if (uid && !strcmp(request, "del")) {
		if (task)
			task_delete(node, task);
		snprintf(answer, size, "ok");
	} else if (uid && !strcmp(request, "policy")) {
		if (task)
			task_policy(node, task);
		snprintf(answer, size, task ? "ok" : "error: task %s is not known here; add it first", name);
	} else if (name && name_ok(name, ALQ_UUID_LEN) && !strcmp(request, "device")) {
		if (device_load(node, name, why, sizeof why))
			snprintf(answer, size, "error: %s", why);
		else
			snprintf(answer, size, "ok");
	} else {
		snprintf(answer, size, "error: asked for \"%.64s\"; known are add UID, del UID, policy UID, device UUID, ping and quit", request);
	}
}

void control_read(struct node *node, struct source *line)
{
	char request[256], answer[1024];
	ssize_t n = recv(line->fd, request, sizeof request - 1, MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && n < (ssize_t)sizeof request && !memchr(request, 0, (size_t)n)) {
		while (n > 0 && (request[n - 1] == '\n' || request[n - 1] == ' '))
			n--;
		request[n] = '\0';
		serve(node, request, answer, sizeof answer);
		if (!socket_send(line->fd, answer, strlen(answer), -1))
			return;
	}
	hang_up(node, line);
}
