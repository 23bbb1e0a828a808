/* SPDX-License-Identifier: Apache-2.0 */
/* books.c: gates and books are written to the pages, and read back by the next arbiter. */
#include "arbiter.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What is queued on a device is bounded for a share, but each of its processes counts its own: each gets an equal part. */
void publish_run_ahead(struct node *node, struct task *task, int k)
{
	uint32_t users = 0;
	for (const struct process *p = task->processes; p; p = p->next) {
		if (p->slot < 0)
			continue;
		const struct alq_tel_grant *t = &task->tel->slot[p->slot].grant[k];
		uint64_t last = load(&t->last_launch_ns);
		users += load(&t->wait_since_ns) != 0 || load(&t->coming) != 0 || load(&t->launched) > load(&t->completed) ||
			(last != 0 && last + USES_NS > node->now);
	}
	users = users ? users : 1;
	store(&task->ctl->grant[k].run_ahead_share_ns, RUN_AHEAD_NS);
	store(&task->ctl->grant[k].run_ahead_ns, RUN_AHEAD_NS / users);
	store(&task->ctl->grant[k].run_ahead_launches, users < RUN_AHEAD_LAUNCHES ? RUN_AHEAD_LAUNCHES / users : 1);
}

static void publish_gate(struct node *node, int index)
{
	struct task *task = node->of_grant[index].task;
	struct alq_ctl_grant *c = &task->ctl->grant[node->of_grant[index].grant];
	const struct core_gate *gate = &node->core.grant[index].gate;
	uint32_t word = load(&c->gate), bits = 0;
	bool fresh = load(&c->lease_id) != gate->lease_id;
	if (gate->open)
		bits = gate->ungated ? ALQ_GATE_OPEN | ALQ_GATE_UNGATED : ALQ_GATE_OPEN;
	if (gate->open && fresh)
		ALQ_POINT("arbiter.gate.before");
	if (gate->open)
		publish_run_ahead(node, task, node->of_grant[index].grant);
	store(&c->lease_id, gate->lease_id);
	store(&c->lease_start_ns, gate->start_ns);
	store(&c->lease_end_ns, gate->open ? gate->end_ns : node->now);
	word = ((word & ~(ALQ_GATE_STEP - 1)) + ALQ_GATE_STEP) | bits;
	__atomic_store_n(&c->gate, word, __ATOMIC_RELEASE);
	if (!gate->open)
		return;
	/* After the word: a tenant that saw the old one has not gone to sleep on it yet, or is woken. */
	syscall(SYS_futex, &c->gate, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	if (fresh)
		ALQ_POINT("arbiter.gate.after");
}

void publish_gates(struct node *node)
{
	int grant;
	while ((grant = core_next_dirty(&node->core)) >= 0)
		if (node->of_grant[grant].task)
			publish_gate(node, grant);
}

/* A sequence that a predecessor left odd is taken over. */
static void begin(uint32_t *seq)
{
	__atomic_exchange_n(seq, load(seq) | 1, __ATOMIC_ACQ_REL); /* nothing that follows is seen before it */
}

static void end(uint32_t *seq)
{
	__atomic_store_n(seq, load(seq) + 1, __ATOMIC_RELEASE);
}

static void write_split(struct alq_split *to, const struct alq_split *from)
{
	store(&to->own_ns, from->own_ns);
	store(&to->lent_ns, from->lent_ns);
	store(&to->reserved_idle_ns, from->reserved_idle_ns);
	store(&to->burst_free_ns, from->burst_free_ns);
	store(&to->burst_lent_ns, from->burst_lent_ns);
}

static void publish_grant(struct node *node, struct task *task, int k)
{
	struct alq_book_grant *b = &task->book->grant[k];
	const struct core_device *d = &node->core.device[task->grant[k].device];
	struct core_books books;
	core_get_books(&node->core, task->grant[k].core, &books);
	uint64_t used = 0;
	for (struct process *p = task->processes; p; p = p->next)
		if (p->slot >= 0) {
			const struct alq_tel_grant *t = &task->tel->slot[p->slot].grant[k];
			used += load(&t->mem_used) + load(&t->mem_overhead);
		}
	begin(&b->seq);
	store(&b->credit_ns, books.credit_ns);
	store(&b->bucket_ns, books.bucket_ns);
	ALQ_POINT("arbiter.book.half");
	store(&b->vtime_ns, books.vtime_ns);
	store(&b->held_ns, books.held_ns);
	store(&b->leases, books.leases);
	store(&b->overlapped, books.overlapped);
	store(&b->revoked, books.revoked);
	store(&b->wait_ns, books.wait_ns);
	store(&b->wake_worst_ns, books.wake_worst_ns);
	store(&b->wakes, books.wakes);
	store(&b->mem_granted, load(&task->ctl->grant[k].mem_granted));
	if (used > load(&b->mem_peak) && used <= node->device[task->grant[k].device].mem_capacity)
		store(&b->mem_peak, used);
	write_split(&b->split, &books.split);
	store(&b->updated_ns, d->settled_at);
	end(&b->seq);
}

void publish_task(struct node *node, struct task *task)
{
	for (int k = 0; k < task->grants; k++)
		publish_grant(node, task, k);
}

static void write_uid(uint64_t *words, const char *text)
{
	union {
		char text[ALQ_UID_LEN];
		uint64_t word[ALQ_UID_LEN / 8];
	} uid = {.text = ""};
	strcpy(uid.text, text);
	for (int i = 0; i < ALQ_UID_LEN / 8; i++)
		store(&words[i], uid.word[i]);
}

static void write_stall(const struct node *node, struct alq_device *page, const struct stall_work *stall)
{
	write_uid(page->stall_uid, stall->since && stall->grant >= 0 ? node->of_grant[stall->grant].task->uid : "");
	store(&page->stall_since_ns, stall->since);
	store(&page->stall_pid, stall->since ? stall->pid : 0);
}

void publish_device(struct node *node, int device)
{
	struct alq_device *page = node->device[device].page;
	const struct core_device *d = &node->core.device[device];
	if (!page)
		return;
	begin(&page->seq);
	store(&page->active, (uint32_t)core_active(&node->core, device));
	store(&page->since_ns, d->since);
	store(&page->updated_ns, d->settled_at);
	ALQ_POINT("arbiter.device.half");
	store(&page->unreserved_idle_ns, d->unreserved_idle_ns);
	store(&page->down_ns, d->down_ns);
	store(&page->switches, d->switches);
	write_split(&page->ended, &d->ended);
	write_stall(node, page, &node->stalls.device[device].sick);
	store(&page->mem_wanted, node->device[device].wanted.bytes);
	store(&page->mem_wanted_since_ns, node->device[device].wanted.since_ns);
	write_uid(page->mem_wanted_uid, node->device[device].wanted.uid);
	end(&page->seq);
}

void publish_stalls(struct node *node)
{
	for (int i = 0; i < CORE_TASKS; i++)
		for (struct process *p = node->task[i] ? node->task[i]->processes : NULL; p; p = p->next) {
			if (p->slot < 0)
				continue;
			for (int k = 0; k < p->task->grants; k++) {
				const struct alq_tel_grant *t = &p->task->tel->slot[p->slot].grant[k];
				stalls_note(&node->stalls, &node->core, p->task->grant[k].core, p->pid, &p->stall[k],
					p->seen[k].launched > p->seen[k].completed, p->seen[k].completed, load(&t->busy_until_ns));
			}
		}
	for (int i = 0; i < CORE_DEVICES; i++)
		if (node->device[i].page && stalls_judge(&node->stalls, &node->core, i))
			publish_device(node, i);
}

void stalls_anew(struct node *node)
{
	memset(&node->stalls, 0, sizeof node->stalls);
	for (int i = 0; i < CORE_TASKS; i++)
		for (struct process *p = node->task[i] ? node->task[i]->processes : NULL; p; p = p->next)
			memset(p->stall, 0, sizeof p->stall);
	for (int i = 0; i < CORE_DEVICES; i++)
		publish_device(node, i);
}

/* Settles a device and writes its books and those of all grants on it, as of the same time. */
static void settle_and_publish(struct node *node, int device)
{
	const struct core_device *d = &node->core.device[device];
	core_settle(&node->core, device, node->now);
	for (int i = 0; i < d->grants; i++)
		publish_grant(node, node->of_grant[d->grant[i]].task, node->of_grant[d->grant[i]].grant);
	publish_device(node, device);
}

void publish_all(struct node *node)
{
	for (int i = 0; i < CORE_DEVICES; i++)
		if (node->device[i].page)
			settle_and_publish(node, i);
}

/* What `del` does to the books: the rows leave the task's book before they stand in the device's, so that a crash between loses the
 * milliseconds' order but counts none twice (device_restore moves the start of the books instead). */
void ledger_move(struct node *node, struct task *task)
{
	static const struct alq_split zero;
	for (int k = 0; k < task->grants; k++) {
		struct alq_book_grant *b = &task->book->grant[k];
		begin(&b->seq);
		write_split(&b->split, &zero);
		end(&b->seq);
	}
	ALQ_POINT("arbiter.del.moved");
	for (int k = 0; k < task->grants; k++)
		publish_device(node, task->grant[k].device);
}

void books_restore(struct node *node, struct task *task)
{
	for (int k = 0; k < task->grants; k++) {
		const struct alq_book_grant *b = &task->book->grant[k];
		if (!b->updated_ns || b->updated_ns > node->now)
			continue; /* never written */
		core_restore(&node->core, task->grant[k].core, &(struct core_books){
			.credit_ns = b->credit_ns, .bucket_ns = b->bucket_ns, .vtime_ns = b->vtime_ns, .held_ns = b->held_ns,
			.leases = b->leases > task->ctl->grant[k].lease_id ? b->leases : task->ctl->grant[k].lease_id,
			.overlapped = b->overlapped, .revoked = b->revoked, .wait_ns = b->wait_ns, .wake_worst_ns = b->wake_worst_ns,
			.wakes = b->wakes, .split = b->split});
	}
}

/* Continues the books of a device after its tasks have been loaded. Pages are written one after the other, so a predecessor may have died
 * with some newer than others; then the start of the books moves by the difference, and the rows add up again. */
void device_restore(struct node *node, int index)
{
	struct alq_device *page = node->device[index].page;
	const struct core_device *d = &node->core.device[index];
	if (!page->since_ns || page->updated_ns < page->since_ns || page->updated_ns > node->now)
		return; /* new, or of another boot */
	uint64_t rows = page->unreserved_idle_ns + page->down_ns + page->ended.own_ns + page->ended.lent_ns +
		page->ended.reserved_idle_ns + page->ended.burst_free_ns;
	bool live[CORE_GRANTS] = {false};
	for (int i = 0; i < d->grants; i++) {
		int grant = d->grant[i];
		const struct task *task = node->of_grant[grant].task;
		const struct alq_split *s = &node->core.grant[grant].books.split;
		rows += s->own_ns + s->lent_ns + s->reserved_idle_ns + s->burst_free_ns;
		live[grant] = task->live;
	}
	uint64_t since = rows <= page->updated_ns ? page->updated_ns - rows : 0;
	core_device_restore(&node->core, index, since, page->updated_ns, page);
	core_away(&node->core, index, node->now, live);
}
