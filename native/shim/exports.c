/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exports.c: marks on descriptors. A mark is a shared lock of an open file description (F_OFD_SETLK) on bytes that no file has: the kernel
 * keeps it until the last copy of the descriptor is closed, in whatever process that is. It begins at a number that no other memory has, and
 * is as long as the memory has steps of 2 MiB; who gets the descriptor reads that in /proc/self/fdinfo. Whether a mark stands is asked through
 * a descriptor of our own of the same file, one for all that are exported by it (a driver exports all by one device file).
 */
#include "descriptor.h"
#include "exports.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define STEP_BITS 20   /* a mark's length: up to 2 TiB */
#define SERIAL_BITS 20 /* a number taken again after so many makes one be kept for longer, never for less */
#define WATCHES 1024   /* files looked at, of one process; what is exported by further ones stays charged */

static uint64_t serial;
static struct watch {
	uint32_t users; /* 0: free */
	int fd;
	struct file_id file;
} watches[WATCHES];

static struct flock mark_lock(short type, uint64_t at, uint64_t steps)
{
	return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = (off_t)steps};
}

/* A watch of the file that a descriptor is open on; WATCHES: none could be had. */
static uint32_t watch_take(int fd)
{
	struct file_id is;
	char path[64];
	uint32_t spare = WATCHES;
	if (!file_of(fd, &is))
		return WATCHES;
	for (uint32_t i = WATCHES; i-- > 0;) {
		if (watches[i].users != 0 && watches[i].file.dev == is.dev && watches[i].file.ino == is.ino) {
			watches[i].users++;
			return i;
		}
		spare = watches[i].users == 0 ? i : spare;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int own = spare == WATCHES ? -1 : open(path, O_RDWR | O_CLOEXEC);
	if (own < 0)
		return WATCHES;
	watches[spare] = (struct watch){.users = 1, .fd = own, .file = is};
	return spare;
}

static void watch_give(uint32_t i)
{
	struct watch *w = &watches[i];
	if (--w->users == 0 && file_is(w->fd, &w->file))
		close(w->fd);
}

void mark_put(struct mark *m, int fd, uint64_t bytes)
{
	int cancel = cancel_off();
	uint32_t watch = watch_take(fd);
	if (m->at == 0) {
		uint64_t pid = (uint64_t)get(&task.tel->slot[get(&task.slot)].pid);
		m->at = ((pid << SERIAL_BITS) | (++serial & ((1u << SERIAL_BITS) - 1))) << STEP_BITS;
		m->watch = watch;
	} else if (watch != WATCHES) {
		watch_give(watch);
	}
	uint64_t steps = bytes < MEMORY_STEP ? 1 : bytes / MEMORY_STEP;
	struct flock lock = mark_lock(F_RDLCK, m->at, steps);
	if (watch == WATCHES || watch != m->watch || steps > 1u << STEP_BITS || fcntl(fd, F_OFD_SETLK, &lock) != 0)
		m->lost = true;
	cancel_restore(cancel);
}

bool mark_stands(const struct mark *m)
{
	if (m->at == 0 || m->lost)
		return m->lost;
	const struct watch *w = &watches[m->watch];
	struct flock lock = mark_lock(F_WRLCK, m->at, 1);
	return !file_is(w->fd, &w->file) || fcntl(w->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

void mark_drop(struct mark *m)
{
	int cancel = cancel_off();
	if (m->at != 0 && m->watch != WATCHES)
		watch_give(m->watch);
	cancel_restore(cancel);
	*m = (struct mark){0};
}

uint64_t mark_read(int fd)
{
	char path[64], text[1024];
	unsigned long long first, last;
	int cancel = cancel_off();
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	int info = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = info < 0 ? 0 : read(info, text, sizeof(text) - 1);
	if (info >= 0)
		close(info);
	cancel_restore(cancel);
	text[n < 0 ? 0 : n] = '\0';
	const char *lock = strstr(text, "OFDLCK");
	if (lock == NULL || sscanf(lock, "OFDLCK ADVISORY READ %*d %*s %llu %llu", &first, &last) != 2)
		return 0;
	return first < 1ull << STEP_BITS || last - first >= 1u << STEP_BITS ? 0 : (last - first + 1) * MEMORY_STEP;
}

void marks_forget(void)
{
	/* The descriptors are copies of the parent's: let go of, so that its files do not stay open here. */
	for (uint32_t i = 0; i < WATCHES; i++) {
		if (watches[i].users != 0 && file_is(watches[i].fd, &watches[i].file))
			close(watches[i].fd);
		watches[i].users = 0;
	}
}
