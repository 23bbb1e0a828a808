/* SPDX-License-Identifier: Apache-2.0 */
/* tasks.c: tasks and devices come and go, and change their limits. */
#include "arbiter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Names from outside become paths: a plain file name, nothing else. */
bool name_ok(const char *name, size_t size)
{
	size_t n = strnlen(name, size);
	if (n == 0 || n >= size || name[0] == '.')
		return false;
	for (size_t i = 0; i < n; i++)
		if (name[i] == '/' || (unsigned char)name[i] <= ' ')
			return false;
	return true;
}

static int open_folder(struct node *node, const char *below, char *path, size_t size)
{
	if (snprintf(path, size, "%s/%s", node->run, below) >= (int)size)
		return -1;
	return open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int device_find(struct node *node, const char *uuid)
{
	for (int i = 0; i < CORE_DEVICES; i++)
		if (node->device[i].page && !strncmp(node->device[i].uuid, uuid, ALQ_UUID_LEN))
			return i;
	return -1;
}

static enum alq_device_state page_state(const struct alq_device *page)
{
	uint32_t state = load(&page->state);
	return state <= ALQ_DEVICE_DOWN ? (enum alq_device_state)state : ALQ_DEVICE_DOWN;
}

int device_load(struct node *node, const char *uuid, char *why, size_t why_size)
{
	int index = device_find(node, uuid);
	if (index >= 0) {
		core_device_state(&node->core, index, node->now, page_state(node->device[index].page));
		node->device[index].mem_capacity = load(&node->device[index].page->mem_capacity);
		return 0;
	}
	char path[PATH_MAX];
	int folder = open_folder(node, "devices", path, sizeof path);
	if (folder < 0) {
		snprintf(why, why_size, "device %s: folder %s: %s", uuid, path, strerror(errno));
		return -1;
	}
	struct alq_device *page = page_map(folder, uuid, ALQ_KIND_DEVICE, why, why_size, NULL);
	close(folder);
	if (!page)
		return -1;
	index = core_device_add(&node->core, node->now, page_state(page));
	if (index < 0) {
		page_unmap(page, ALQ_KIND_DEVICE);
		snprintf(why, why_size, "device %s: this arbiter serves at most %d devices", uuid, CORE_DEVICES);
		return -1;
	}
	struct device *d = &node->device[index];
	*d = (struct device){.page = page, .core = index, .mem_capacity = load(&page->mem_capacity)};
	snprintf(d->uuid, sizeof d->uuid, "%s", uuid);
	return 0;
}

void devices_look(struct node *node)
{
	for (int i = 0; i < CORE_DEVICES; i++)
		if (node->device[i].page)
			core_device_state(&node->core, i, node->now, page_state(node->device[i].page));
}

struct task *task_find(struct node *node, const char *uid)
{
	for (int i = 0; i < CORE_TASKS; i++)
		if (node->task[i] && !strcmp(node->task[i]->uid, uid))
			return node->task[i];
	return NULL;
}

/* Reads the agent's limits. False while the agent writes them: they are read again. */
static bool read_policy(struct task *task, int k, uint64_t capacity)
{
	const struct alq_ctl_grant *c = &task->ctl->grant[k];
	struct task_grant *g = &task->grant[k];
	for (int try = 0; try < 1000; try++) {
		uint32_t seq = __atomic_load_n(&c->policy_seq, __ATOMIC_ACQUIRE);
		if (seq & 1)
			continue;
		struct core_policy p = {.flags = load_acquire(&c->policy_flags), .floor = load_acquire(&c->compute_floor),
			.ceiling = load_acquire(&c->compute_ceiling), .weight = load_acquire(&c->weight)};
		uint64_t floor = load_acquire(&c->mem_floor), ceiling = load_acquire(&c->mem_ceiling);
		if (load(&c->policy_seq) != seq)
			continue;
		/* What cannot be is brought to the nearest that can. */
		p.floor = p.floor < ALQ_MILLI ? p.floor : ALQ_MILLI;
		p.ceiling = p.ceiling < ALQ_MILLI ? p.ceiling : ALQ_MILLI;
		p.ceiling = p.ceiling > p.floor ? p.ceiling : p.floor;
		p.ceiling = p.ceiling ? p.ceiling : 1;
		p.weight = p.weight ? p.weight : 1;
		g->policy = p;
		g->policy_seq = seq;
		g->mem_ceiling = ceiling < capacity ? ceiling : capacity;
		g->mem_floor = floor < g->mem_ceiling ? floor : g->mem_ceiling;
		return true;
	}
	return false;
}

void task_policy(struct node *node, struct task *task)
{
	for (int k = 0; k < task->grants; k++) {
		if (__atomic_load_n(&task->ctl->grant[k].policy_seq, __ATOMIC_ACQUIRE) == task->grant[k].policy_seq)
			continue;
		if (!read_policy(task, k, node->device[task->grant[k].device].mem_capacity))
			continue;
		core_set_policy(&node->core, task->grant[k].core, node->now, &task->grant[k].policy);
		memory_policy(node, task, k);
	}
}

uid_t task_owner(const struct task *task)
{
	char path[PATH_MAX + 16], number[16], *end;
	snprintf(path, sizeof path, "%s/user", task->folder);
	ssize_t size = readlink(path, number, sizeof number - 1);
	if (size < 1)
		return task->user; /* nobody's yet, or an earlier agent's task */
	number[size] = '\0';
	unsigned long user = strtoul(number, &end, 10);
	return *end ? task->user : (uid_t)user;
}

void task_free(struct task *task)
{
	page_unmap(task->ctl, ALQ_KIND_CTL);
	page_unmap(task->tel, ALQ_KIND_TEL);
	page_unmap(task->book, ALQ_KIND_BOOK);
	free(task);
}

/* The tenant may write all of tel. One that is no page any more costs it its word, and nobody else: limits, grants and books stand elsewhere. */
static void map_tel(struct task *task, int folder, char *why, size_t why_size)
{
	struct stat st;
	task->tel = page_map(folder, "tel", ALQ_KIND_TEL, why, why_size, &task->user);
	if (task->tel || fstatat(folder, "tel", &st, AT_SYMLINK_NOFOLLOW))
		return;
	task->tel = page_zeros(ALQ_KIND_TEL);
	task->user = st.st_uid;
	task->spoiled = true;
	complain("task %s: what it says of itself is not heard any more (%s); it holds what it was granted, and what it does is not seen",
		task->uid, why);
}

static int map_pages(struct node *node, struct task *task, char *why, size_t why_size)
{
	char below[ALQ_UID_LEN + 8];
	snprintf(below, sizeof below, "tasks/%s", task->uid);
	int folder = open_folder(node, below, task->folder, sizeof task->folder);
	if (folder < 0) {
		snprintf(why, why_size, "folder tasks/%s: %s", task->uid, strerror(errno));
		return -1;
	}
	task->ctl = page_map(folder, "ctl", ALQ_KIND_CTL, why, why_size, NULL);
	if (task->ctl)
		map_tel(task, folder, why, why_size);
	if (task->tel)
		task->book = page_map(folder, "book", ALQ_KIND_BOOK, why, why_size, NULL);
	close(folder);
	if (!task->book)
		return -1;
	task->grants = (int)task->ctl->header.grants;
	if (task->grants < 1 || task->grants > ALQ_MAX_GRANTS || task->book->header.grants != task->ctl->header.grants) {
		snprintf(why, why_size, "its ctl page has %d grants, its book %u", task->grants, task->book->header.grants);
		return -1;
	}
	return 0;
}

/* Takes the task into the core: its grants, their limits and the books of an earlier arbiter. */
static int enter(struct node *node, struct task *task, char *why, size_t why_size)
{
	int devices[ALQ_MAX_GRANTS] = {0};
	struct core_policy policies[ALQ_MAX_GRANTS];
	for (int k = 0; k < task->grants; k++) {
		char uuid[ALQ_UUID_LEN];
		snprintf(uuid, sizeof uuid, "%.*s", ALQ_UUID_LEN - 1, task->ctl->grant[k].device);
		if (!name_ok(uuid, sizeof uuid) || (device_find(node, uuid) < 0 && device_load(node, uuid, why, why_size))) {
			if (!name_ok(uuid, sizeof uuid))
				snprintf(why, why_size, "grant %d names no device", k);
			return -1;
		}
		devices[k] = task->grant[k].device = device_find(node, uuid);
		for (int j = 0; j < k; j++)
			if (devices[j] == devices[k]) {
				snprintf(why, why_size, "grants %d and %d are both on device %s; a task has one share of a device", j, k, uuid);
				return -1;
			}
		if (!read_policy(task, k, node->device[devices[k]].mem_capacity)) {
			snprintf(why, why_size, "the limits of grant %d are half written", k);
			return -1;
		}
		policies[k] = task->grant[k].policy;
	}
	task->core = core_task_add(&node->core, node->now, task->grants, devices, policies);
	if (task->core < 0) {
		snprintf(why, why_size, "this arbiter holds at most %d tasks with %d grants, %d on a device; end some first", CORE_TASKS,
			CORE_GRANTS, CORE_DEVICE_GRANTS);
		return -1;
	}
	node->task[task->core] = task;
	for (int k = 0; k < task->grants; k++) {
		int grant = task->grant[k].core = node->core.task[task->core].grant[k];
		node->of_grant[grant].task = task;
		node->of_grant[grant].grant = k;
		publish_run_ahead(node, task, k);
	}
	books_restore(node, task);
	return 0;
}

int task_load(struct node *node, const char *uid, char *why, size_t why_size)
{
	char reason[512] = "";
	if (task_find(node, uid)) {
		task_policy(node, task_find(node, uid));
		return 0;
	}
	struct task *task = calloc(1, sizeof *task);
	if (!task) {
		snprintf(why, why_size, "task %s: out of memory", uid);
		return -1;
	}
	snprintf(task->uid, sizeof task->uid, "%s", uid);
	task->listener.fd = -1;
	if (map_pages(node, task, reason, sizeof reason) || enter(node, task, reason, sizeof reason)) {
		task_free(task);
		snprintf(why, why_size, "task %s: %s", uid, reason);
		return -1;
	}
	ALQ_POINT("arbiter.add.mapped");
	process_adopt(node, task);
	for (int k = 0; k < task->grants; k++)
		memory_policy(node, task, k);
	store(&task->ctl->heartbeat_ns, node->now);
	__atomic_store_n(&task->ctl->arbiter_epoch, node->epoch, __ATOMIC_RELEASE);
	publish_gates(node);
	if (task_listen(node, task, reason, sizeof reason)) {
		snprintf(why, why_size, "task %s: %s", uid, reason);
		task_delete(node, task);
		return -1;
	}
	core_touch(&node->core, task->core, node->now);
	return 0;
}

void task_delete(struct node *node, struct task *task)
{
	char path[PATH_MAX + 16];
	while (task->processes)
		process_end(node, task->processes);
	for (int k = 0; k < task->grants; k++)
		stalls_forget(&node->stalls, &node->core, task->grant[k].core);
	core_task_del(&node->core, task->core, node->now);
	ledger_move(node, task);
	for (int k = 0; k < task->grants; k++) {
		struct alq_ctl_grant *c = &task->ctl->grant[k];
		__atomic_store_n(&c->gate, (load(&c->gate) & ~(ALQ_GATE_STEP - 1)) + ALQ_GATE_STEP, __ATOMIC_RELEASE);
		store(&c->lease_end_ns, node->now);
		node->of_grant[task->grant[k].core].task = NULL;
	}
	node->task[task->core] = NULL;
	for (int k = 0; k < task->grants; k++)
		memory_hints(node, task->grant[k].device);
	owed_freed(node);
	if (task->listener.fd >= 0) {
		unwatch(node, &task->listener);
		snprintf(path, sizeof path, "%s/arbiter.sock", task->folder);
		unlink(path);
	}
	task->next_garbage = node->task_garbage;
	node->task_garbage = task;
}

static void each_name(struct node *node, const char *below, int (*load_it)(struct node *, const char *, char *, size_t), size_t longest)
{
	char path[PATH_MAX], why[768];
	snprintf(path, sizeof path, "%s/%s", node->run, below);
	DIR *folder = opendir(path);
	if (!folder)
		return; /* the agent has not made it yet */
	for (struct dirent *entry; (entry = readdir(folder));)
		if (name_ok(entry->d_name, longest) && load_it(node, entry->d_name, why, sizeof why))
			complain("not adopted: %s", why);
	closedir(folder);
}

/* Takes over what an earlier arbiter, or nobody yet, has served. */
void adopt_all(struct node *node)
{
	each_name(node, "devices", device_load, ALQ_UUID_LEN);
	ALQ_POINT("arbiter.adopt.devices");
	node->adopting = true;
	each_name(node, "tasks", task_load, ALQ_UID_LEN);
	node->adopting = false;
	for (int i = 0; i < CORE_DEVICES; i++)
		if (node->device[i].page) {
			device_restore(node, i);
			memory_hints(node, i);
		}
	ALQ_POINT("arbiter.adopt.tasks");
	publish_all(node);
}
