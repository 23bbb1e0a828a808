/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptor.h: descriptors of our own in a program that may close all that it did not open, and open its own files by the same numbers: each is
 * looked at before it is used. And what may wait in the kernel with a lock held, during which a thread must not be cancelled.
 */
#ifndef ALIQUOT_SHIM_DESCRIPTOR_H
#define ALIQUOT_SHIM_DESCRIPTOR_H

#include "util.h"

#include <pthread.h>
#include <sys/stat.h>

/* What a descriptor is open on. */
struct file_id {
	dev_t dev;
	ino_t ino;
};

/* fstat is younger than the C libraries that the shim is loaded beside; on 64 bits the kernel's struct is theirs. */
static inline bool file_of(int fd, struct file_id *out)
{
	struct stat is;
	if (fd < 0 || syscall(SYS_fstat, fd, &is) != 0)
		return false;
	*out = (struct file_id){.dev = is.st_dev, .ino = is.st_ino};
	return true;
}

/* Whether the program has left it alone. */
static inline bool file_is(int fd, const struct file_id *id)
{
	struct file_id is;
	return file_of(fd, &is) && is.dev == id->dev && is.ino == id->ino;
}

/* Between these the calling thread is not cancelled. */
static inline int cancel_off(void)
{
	int before;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void cancel_restore(int before)
{
	pthread_setcancelstate(before, NULL);
}

#endif
