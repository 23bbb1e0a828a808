/* SPDX-License-Identifier: Apache-2.0 */
/* page.c: finds the task that this process belongs to, opens its pages, and reads them. All that the NVML side needs. */
#include "shim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct task task = {.bell = -1};

void say(const char *format, ...)
{
	char line[1024];
	int n = snprintf(line, sizeof(line), "aliquot: ");
	va_list args;
	va_start(args, format);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
	va_end(args);
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nobody listens; the error code still says it */
}

/* Maps one page of the task after checking that it is what it should be. */
static void *page_open(const char *name, uint32_t kind, size_t size, bool writable)
{
	char path[PATH_MAX + 16];
	snprintf(path, sizeof(path), "%s/%s", task.folder, name);
	int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (fd < 0) {
		say("this program runs in the share at %s, but its page %s cannot be opened (%s); start it again with `aliquot run`",
		    task.folder, path, strerror(errno));
		return NULL;
	}
	off_t length = lseek(fd, 0, SEEK_END);
	if (length != (off_t)size) {
		say("the page %s has %lld bytes where %zu are right; start the workload again, and see `aliquot doctor`", path,
		    (long long)length, size);
		close(fd);
		return NULL;
	}
	void *page = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED) {
		say("the page %s cannot be mapped (%s)", path, strerror(errno));
		return NULL;
	}
	const struct alq_header *h = page;
	if (h->magic != ALQ_ABI_MAGIC || h->kind != kind || h->size != size || h->grants < 1 || h->grants > ALQ_MAX_GRANTS) {
		say("the page %s is damaged; start the workload again, and see `aliquot doctor`", path);
	} else if (h->version != ALQ_ABI_VERSION) {
		say("the page %s is of version %u and this library reads version %u; start the workload again after the update", path,
		    h->version, ALQ_ABI_VERSION);
	} else {
		return page;
	}
	munmap(page, size);
	return NULL;
}

/*
 * Where a task's own mount namespace has its folder: `task` in the folder that the driver behind this library was loaded from. That folder is
 * the agent's, so it can be had without root, and outside of such a namespace it has no `task` (node/device lays it out). False: none there.
 */
static bool folder_mounted(void)
{
	static const char *const drivers[] = {"libcuda-real.so.1", "libnvidia-ml-real.so.1"};
	bool found = false;
	for (int i = 0; i < 2 && !found; i++) {
		void *driver = dlopen(drivers[i], RTLD_NOLOAD | RTLD_LAZY);
		struct link_map *map;
		if (driver == NULL)
			continue; /* a program may have only one of our libraries loaded */
		if (dlinfo(driver, RTLD_DI_LINKMAP, &map) == 0 && strrchr(map->l_name, '/') != NULL) {
			int length = (int)(strrchr(map->l_name, '/') - map->l_name);
			int size = snprintf(task.folder, sizeof(task.folder), "%.*s/task", length, map->l_name);
			found = size < (int)sizeof(task.folder) && access(task.folder, F_OK) == 0;
		}
		dlclose(driver);
	}
	return found;
}

/* The folder of the task: named by the environment, else where it lies for a program that has thrown that away. False: there is none. */
static bool folder_find(void)
{
	const char *named = getenv("ALIQUOT_TASK");
	if (named != NULL && named[0] != '\0') {
		if (snprintf(task.folder, sizeof(task.folder), "%s", named) < (int)sizeof(task.folder))
			return true;
		task.folder[0] = '\0';
		return true; /* cannot be opened, and that is said */
	}
	if (folder_mounted())
		return true;
	snprintf(task.folder, sizeof(task.folder), "/run/aliquot/task"); /* the one place where containers have it */
	return access(task.folder, F_OK) == 0;
}

enum shim_state task_open(bool writable)
{
	if (!folder_find())
		return SHIM_OFF;
	struct alq_ctl *ctl = page_open("ctl", ALQ_KIND_CTL, sizeof(struct alq_ctl), false);
	struct alq_tel *tel = ctl == NULL ? NULL : page_open("tel", ALQ_KIND_TEL, sizeof(struct alq_tel), writable);
	if (tel == NULL) {
		if (ctl != NULL)
			munmap(ctl, sizeof(*ctl));
		return SHIM_FAILED;
	}
	task.ctl = ctl;
	task.tel = tel;
	task.grants = ctl->header.grants;
	return SHIM_ON;
}

void task_policy(uint32_t grant, struct policy *out)
{
	const struct alq_ctl_grant *c = &task.ctl->grant[grant];
	/* A writer that died in the middle leaves the sequence odd: after so many tries what is there is taken as it is. */
	for (int tries = 0; tries < 1000; tries++) {
		uint32_t before = get_acquire(&c->policy_seq);
		out->flags = get_acquire(&c->policy_flags);
		out->floor = get_acquire(&c->compute_floor);
		out->ceiling = get_acquire(&c->compute_ceiling);
		out->mem_ceiling = get_acquire(&c->mem_ceiling);
		out->mem_device = get_acquire(&c->mem_device);
		if ((before & 1) == 0 && before == get(&c->policy_seq))
			return;
	}
}

/* What all processes of the task hold on a device. */
uint64_t memory_sum(uint32_t grant)
{
	uint64_t total = 0;
	for (int i = 0; i < ALQ_MAX_PROCS; i++) {
		const struct alq_slot *s = &task.tel->slot[i];
		if (get_acquire(&s->state) == ALQ_SLOT_LIVE)
			total += get_seq(&s->grant[grant].mem_used) + get_seq(&s->grant[grant].mem_overhead);
	}
	return total;
}

void memory_view(uint32_t grant, uint64_t *free_bytes, uint64_t *total_bytes)
{
	struct policy p = {0};
	task_policy(grant, &p);
	uint64_t could = get_seq(&task.ctl->grant[grant].mem_granted) + get(&task.ctl->grant[grant].mem_free_hint);
	uint64_t held = memory_sum(grant), floor = get(&task.ctl->grant[grant].mem_floor);
	if (could < floor)
		could = floor; /* which can always be had; the two were read while one became the other */
	if (could > p.mem_ceiling)
		could = p.mem_ceiling;
	*total_bytes = p.mem_ceiling;
	/* The driver takes memory in whole steps: of what is less than one nothing could be had. */
	*free_bytes = could > held ? (could - held) / MEMORY_STEP * MEMORY_STEP : 0;
}
