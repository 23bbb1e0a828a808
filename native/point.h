/* SPDX-License-Identifier: Apache-2.0 */
/*
 * point.h: the moments at which a crash would be worst, by name, as internal/point has them in Go. In a program built with -DALQ_POINTS,
 * ALQ_POINT("name") kills the process with SIGKILL if ALIQUOT_KILL_AT is NAME, or NAME:N for the Nth time, after it has appended the
 * name to the file ALIQUOT_KILL_LOG. Otherwise it is nothing.
 */
#ifndef ALIQUOT_POINT_H
#define ALIQUOT_POINT_H

#ifdef ALQ_POINTS
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void alq_point(const char *name, long *hits)
{
	const char *at = getenv("ALIQUOT_KILL_AT");
	size_t n = strlen(name);
	if (!at || strncmp(at, name, n) || (at[n] != '\0' && at[n] != ':'))
		return;
	if (__atomic_add_fetch(hits, 1, __ATOMIC_RELAXED) < (at[n] == ':' ? atol(at + n + 1) : 1))
		return;
	const char *log = getenv("ALIQUOT_KILL_LOG");
	int fd = log ? open(log, O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600) : -1;
	if (fd >= 0) {
		char line[128];
		n = n < sizeof line - 1 ? n : sizeof line - 1;
		memcpy(line, name, n);
		line[n] = '\n';
		ssize_t written = write(fd, line, n + 1);
		(void)written; /* the test that asked finds the name missing */
		close(fd);
	}
	kill(getpid(), SIGKILL);
}
#define ALQ_POINT(name)                                                                                                \
	do {                                                                                                           \
		static long alq_hits;                                                                                  \
		alq_point(name, &alq_hits);                                                                            \
	} while (0)
#else
#define ALQ_POINT(name) ((void)0)
#endif

#endif
