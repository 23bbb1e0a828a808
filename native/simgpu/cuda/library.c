/* SPDX-License-Identifier: Apache-2.0 */
/* Initialisation, the line to the server, handles, fork. */
#include "simgpu/cuda/internal.h"

#include <errno.h>
#include <limits.h>
#include <time.h>
#include <unistd.h>

struct library api = {.lock = PTHREAD_MUTEX_INITIALIZER, .wire_lock = PTHREAD_MUTEX_INITIALIZER, .socket = -1, .kick = -1};

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void kick_server(void)
{
	uint64_t one = 1;
	while (write(api.kick, &one, sizeof one) < 0 && errno == EINTR) {
	}
}

CUresult server_call(struct sim_request *request, struct sim_answer *answer, int *fd)
{
	pthread_mutex_lock(&api.wire_lock);
	int status = wire_call(api.socket, request, answer, fd);
	pthread_mutex_unlock(&api.wire_lock);
	return status < 0 ? CUDA_ERROR_UNKNOWN : (CUresult)status;
}

/* ----------------------------------------------------------------------------------------------------------------- fork */

/* As with the real driver, a child cannot use what its parent initialised. The connection is closed in it, so that the parent's end is seen
 * as such. */
static void in_child(void)
{
	api.forked = true;
	close(api.socket);
	close(api.kick);
	api.socket = api.kick = -1;
	pthread_mutex_init(&api.lock, NULL);
	pthread_mutex_init(&api.wire_lock, NULL);
}

static CUresult initialise(void)
{
	char path[PATH_MAX];
	if (wire_find(&api, path, sizeof path) < 0)
		return CUDA_ERROR_NO_DEVICE;
	int fd = wire_connect(path);
	if (fd < 0)
		return CUDA_ERROR_NO_DEVICE;
	struct sim_request r = {.call = SIM_HELLO, .arg[0] = SIM_VERSION};
	struct sim_answer a;
	int kick, status = wire_call(fd, &r, &a, &kick);
	if (status != CUDA_SUCCESS || kick < 0) {
		close(fd);
		return status < 0 ? CUDA_ERROR_NO_DEVICE : (CUresult)status;
	}
	api.devices = (uint32_t)a.value[0];
	api.kernel_min_ns = a.costs[0];
	api.kernel_default_ns = a.costs[1];
	api.copy_start_ns = a.costs[2];
	api.context_bytes = a.costs[3];
	for (uint32_t i = 0; i < api.devices; i++) {
		r = (struct sim_request){.call = SIM_DEVICE, .device = i};
		if (wire_call(fd, &r, &a, NULL) != 0) {
			close(fd);
			close(kick);
			return CUDA_ERROR_NO_DEVICE;
		}
		api.info[i] = a.info;
	}
	const char *loading = getenv("CUDA_MODULE_LOADING");
	api.puts_off = loading && !strcmp(loading, "LAZY");
	api.socket = fd;
	api.kick = kick;
	pthread_atfork(NULL, NULL, in_child);
	api.ready = true;
	return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&api.lock);
	CUresult r = api.forked ? CUDA_ERROR_NOT_INITIALIZED : api.ready ? CUDA_SUCCESS : initialise();
	return leave(r);
}

CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

CUresult enter(void)
{
	pthread_mutex_lock(&api.lock);
	if (api.ready && !api.forked)
		return CUDA_SUCCESS;
	return leave(CUDA_ERROR_NOT_INITIALIZED);
}

CUresult enter_context(CUcontext *out)
{
	CUresult r = enter();
	if (r != CUDA_SUCCESS)
		return r;
	r = context_current(out);
	return r == CUDA_SUCCESS ? r : leave(r);
}

/* -------------------------------------------------------------------------------------------------------------- handles */

/* Open addressing with linear probing; what is removed leaves a mark, swept out when the table grows. */
static struct {
	struct entry {
		const void *p;
		enum handle kind;
	} *at;
	size_t room, used;
} handles;
#define REMOVED ((const void *)1)

static size_t slot_of(const void *p, size_t room)
{
	return (size_t)(((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15ull >> 20) & (room - 1);
}

static void put(struct entry *at, size_t room, const void *p, enum handle kind)
{
	size_t i = slot_of(p, room);
	while (at[i].p && at[i].p != REMOVED)
		i = (i + 1) & (room - 1);
	at[i].p = p;
	at[i].kind = kind;
}

void handle_add(const void *p, enum handle kind)
{
	if ((handles.used + 1) * 2 > handles.room) {
		size_t room = 256, live = 0;
		for (size_t i = 0; i < handles.room; i++)
			live += handles.at[i].p && handles.at[i].p != REMOVED;
		while (room < (live + 1) * 4)
			room *= 2;
		struct entry *at = calloc(room, sizeof *at);
		if (!at)
			abort();
		for (size_t i = 0; i < handles.room; i++)
			if (handles.at[i].p && handles.at[i].p != REMOVED)
				put(at, room, handles.at[i].p, handles.at[i].kind);
		free(handles.at);
		handles.at = at;
		handles.room = room;
		handles.used = live;
	}
	put(handles.at, handles.room, p, kind);
	handles.used++;
}

static struct entry *handle_find(const void *p)
{
	if (!handles.room || (uintptr_t)p <= 1)
		return NULL;
	for (size_t i = slot_of(p, handles.room); handles.at[i].p; i = (i + 1) & (handles.room - 1))
		if (handles.at[i].p == p)
			return &handles.at[i];
	return NULL;
}

void handle_remove(const void *p)
{
	struct entry *e = handle_find(p);
	if (e)
		e->p = REMOVED;
}

bool handle_is(const void *p, enum handle kind)
{
	struct entry *e = handle_find(p);
	return e && e->kind == kind;
}

CUcontext context_on(uint32_t device)
{
	CUcontext c;
	if (context_current(&c) == CUDA_SUCCESS && c->device == device)
		return c;
	c = api.primary[device];
	for (size_t i = 0; i < handles.room && !c; i++) {
		const struct entry *e = &handles.at[i];
		if (e->p && e->p != REMOVED && e->kind == H_CONTEXT && ((CUcontext)e->p)->device == device)
			c = (CUcontext)e->p;
	}
	return c;
}
