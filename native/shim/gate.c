/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.c: who may launch when.
 *
 * A launch goes when the lease stands and what is queued on the device is little: run_ahead_ns of estimated time, and run_ahead_launches
 * that were never measured; one always goes when nothing is outstanding, and one behind it shortly before it should end. Nothing is queued behind work that already fills the lease,
 * so that it drains when it ends. While the arbiter is away (the line to it broke, or it has been silent for long), each process launches at
 * its floor's rate, by a virtual schedule that all processes of the task share (tel.schedule_ns), until the gate opens again.
 */
#include "meter.h"

#define GATE_SLEEP_NS (100 * NS_PER_MS) /* looks again at least so often: the arbiter may have died */
#define EXTENDED_NS (200 * NS_PER_US)   /* so long before its end a lease that goes on has been extended, as a rule */
#define RETURNS_NS (300 * NS_PER_US)    /* launching again so soon after all had ended is a wait between launches, not a pause */
#define TURN_RECHECK_NS NS_PER_MS       /* another process' launch may end sooner than it should, and it does not tell */
#define TURN_FAR_NS NS_PER_S            /* a turn further ahead than this is scribble, or behind a giant launch: it is not waited for */
#define FLOOR_BURST_NS (5 * NS_PER_MS)  /* of the floor's schedule, what may be used ahead, */
#define FLOOR_LATE_NS (20 * NS_PER_MS)  /* what may be made up for by one who came late to it, */
#define FLOOR_FAR_NS (10 * NS_PER_S)    /* and the most that one launch moves it on: what is further ahead is scribble */

enum verdict { GO, WAIT_GATE, WAIT_ROOM, WAIT_FLOOR, STOPPED };

bool gate_is_open(const struct alq_ctl_grant *c, uint64_t now)
{
	uint32_t word = get_acquire(&c->gate);
	if ((word & ALQ_GATE_OPEN) == 0)
		return false;
	return (word & ALQ_GATE_UNGATED) != 0 || now < get_acquire(&c->lease_end_ns);
}

/* What one launch counts for. The unmeasured share the run-ahead in as many equal parts as may be queued. */
static uint64_t estimate(const struct alq_ctl_grant *c, const struct cost *cost)
{
	uint32_t launches = get(&c->run_ahead_launches);
	return cost->est_ns != 0 ? cost->est_ns : get(&c->run_ahead_ns) / (launches == 0 ? 1 : launches) + 1;
}

/* How far ahead of the clock a step may begin, how much it may make up for, and beyond what the schedule is not believed. */
struct pace {
	uint64_t ahead, late, far;
	uint64_t mark; /* ALQ_SCHEDULE_FLOOR, or 0: turns. What one of the two has written means nothing to the other */
};

/* Takes `step` of the schedule that all processes of the share keep for a device, if the pace allows it; else *again is when to try. */
static bool schedule(const struct meter *m, uint64_t step, const struct pace *pace, uint64_t now, uint64_t *end, uint64_t *again)
{
	uint64_t *word = &task.tel->schedule_ns[m->grant], seen = get_seq(word);
	now &= ~ALQ_SCHEDULE_FLOOR;
	do {
		uint64_t due = (seen & ALQ_SCHEDULE_FLOOR) == pace->mark ? seen & ~ALQ_SCHEDULE_FLOOR : 0;
		uint64_t base = due < now - pace->late ? now - pace->late : due < now + pace->far ? due : now;
		if (base > now + pace->ahead) {
			*again = base - pace->ahead;
			return false;
		}
		*end = base + step;
	} while (!__atomic_compare_exchange_n(word, &seen, *end | pace->mark, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	return true;
}

/* Steps are even: bit 0 of the schedule is a mark. */
static uint64_t even(uint64_t ns)
{
	return (ns + 1) & ~ALQ_SCHEDULE_FLOOR;
}

/* Paces at the floor. Returns GO and moves the schedule on, or the time to try again at. */
static enum verdict floor_verdict(const struct meter *m, uint64_t est_ns, uint64_t now, uint64_t *again)
{
	static const struct pace pace = {FLOOR_BURST_NS, FLOOR_LATE_NS, FLOOR_FAR_NS, ALQ_SCHEDULE_FLOOR};
	struct policy p = {0};
	uint64_t step, end, look = now + GATE_SLEEP_NS; /* it may be back */
	task_policy(m->grant, &p);
	if (p.floor != 0) {
		step = est_ns * ALQ_MILLI / p.floor;
		step = step < FLOOR_FAR_NS - FLOOR_BURST_NS ? step : FLOOR_FAR_NS - FLOOR_BURST_NS;
		if (schedule(m, even(step), &pace, now, &end, again))
			return GO;
	}
	*again = p.floor != 0 && *again < look ? *again : look;
	return WAIT_FLOOR;
}

/* Launches too long for two of them to fit the run-ahead go one behind the other also where they come from several processes. */
static bool take_turn(struct meter *m, const struct alq_ctl_grant *c, struct pass *pass, uint64_t now, uint64_t *again)
{
	const struct pace pace = {get(&c->run_ahead_share_ns) / 2, 0, TURN_FAR_NS, 0};
	uint64_t end;
	if (pass->cost->est_ns == 0 || pass->est_ns <= pace.ahead)
		return true;
	if (!schedule(m, even(pass->est_ns), &pace, now, &end, again)) {
		*again = *again < now + TURN_RECHECK_NS ? *again : now + TURN_RECHECK_NS;
		return false;
	}
	uint64_t begin = end - even(pass->est_ns);
	pass->behind_ns = begin > now && begin != m->turn_end_ns ? begin - now : 0;
	m->turn_end_ns = end;
	return true;
}

/*
 * Whether there is room for one that is unmeasured, or fills the run-ahead. Launches too long for two of them to fit it go one behind the other,
 * the next when the one that runs should end within half of it: else the device would be idle after each. *again is when that will be.
 */
static RARE bool room_for_large(const struct meter *m, const struct alq_ctl_grant *c, const struct pass *pass, uint64_t now, uint64_t *again)
{
	uint64_t most = get(&c->run_ahead_ns);
	if (pass->cost->est_ns == 0)
		return pass->cost->pending == 0 && m->outstanding_unknown < get(&c->run_ahead_launches) && m->outstanding_ns <= most;
	if (m->outstanding != 1 || m->outstanding_unknown != 0)
		return false;
	if (m->busy_until_ns <= now + most / 2)
		return true;
	if (m->busy_until_ns - most / 2 < *again)
		*again = m->busy_until_ns - most / 2;
	return false;
}

/* Whether what is queued leaves room for one more. */
static inline bool room(const struct meter *m, const struct alq_ctl_grant *c, const struct pass *pass, uint64_t now, uint64_t *again)
{
	bool small = pass->cost->est_ns != 0 && m->outstanding_ns + pass->est_ns <= get(&c->run_ahead_ns);
	return m->outstanding == 0 || likely(small) || room_for_large(m, c, pass, now, again);
}

/* The same where the gate is closed or the lease is over. */
static RARE enum verdict verdict_closed(struct meter *m, struct pass *pass, uint64_t now, uint64_t *again)
{
	pass->paced = task_arbiter_lost(now);
	if (!pass->paced)
		return WAIT_GATE;
	return room(m, m->ctl, pass, now, again) ? floor_verdict(m, pass->est_ns, now, again) : WAIT_ROOM;
}

static inline enum verdict verdict(struct meter *m, struct pass *pass, uint64_t now, uint64_t *again)
{
	const struct alq_ctl_grant *c = m->ctl;
	if (unlikely((get(&c->policy_flags) & ALQ_POLICY_STOPPED) != 0))
		return STOPPED;
	uint32_t word = get_acquire(&c->gate);
	pass->paced = false;
	if ((word & (ALQ_GATE_OPEN | ALQ_GATE_UNGATED)) == (ALQ_GATE_OPEN | ALQ_GATE_UNGATED))
		return GO;
	uint64_t end = get_acquire(&c->lease_end_ns);
	*again = now + GATE_SLEEP_NS;
	if (unlikely((word & ALQ_GATE_OPEN) == 0 || now >= end))
		return verdict_closed(m, pass, now, again);
	if (m->outstanding != 0 && unlikely(m->busy_until_ns >= end)) {
		*again = now + EXTENDED_NS < end ? end - EXTENDED_NS : end;
		return WAIT_ROOM;
	}
	return room(m, c, pass, now, again) && take_turn(m, c, pass, now, again) ? GO : WAIT_ROOM;
}

/* Sleeps until the gate may have opened, or the time has come. Publishes first, looks again, and only then sleeps: see abi.h. */
static void wait_gate(struct meter *m, uint64_t again)
{
	const struct alq_ctl_grant *c = m->ctl;
	uint32_t word = get_seq(&c->gate);
	lock_give(&m->lock);
	task_ring();
	ALQ_POINT("shim.gate.waiting");
	if (!gate_is_open(c, clock_now()) && get_seq(&c->gate) == word)
		futex_wait_until(&c->gate, word, again, true);
	lock_take(&m->lock);
}

/* Sleeps until work has ended or the time has come. */
static void wait_room(struct meter *m, uint64_t again)
{
	uint32_t done = m->done;
	put(&tel_of(m->grant)->coming, ++m->room_waiters);
	meter_wake_watcher(m);
	lock_give(&m->lock);
	futex_wait_until(&m->done, done, again, false);
	lock_take(&m->lock);
	put(&tel_of(m->grant)->coming, --m->room_waiters);
}

/* One launch has to wait. since is when it reached the gate; *gated: it has been counted as waiting for the arbiter. */
static void wait_for(struct meter *m, enum verdict why, uint64_t now, uint64_t again, bool *gated)
{
	struct alq_tel_grant *t = tel_of(m->grant);
	bool gate = why == WAIT_GATE || why == WAIT_FLOOR; /* whoever waits for its floor takes a lease as soon as there is one */
	if (gate && !*gated) {
		*gated = true;
		if (m->gate_waiters++ == 0)
			put_seq(&t->wait_since_ns, now);
		put(&t->gate_waits, t->gate_waits + 1);
	}
	batches_flush(m, UINT64_MAX);
	if (gate)
		wait_gate(m, again);
	else
		wait_room(m, again);
}

/* The launch goes: everything that is told about it is told before it does. */
static inline void admit(struct meter *m, struct pass *pass, uint64_t now)
{
	struct alq_tel_grant *t = tel_of(m->grant);
	pass->unknown = pass->cost->est_ns == 0;
	if (m->outstanding++ == 0 && m->drained_ns != 0) {
		m->returns = now < m->drained_ns + RETURNS_NS;
		m->drained_ns = 0;
	}
	m->outstanding_ns += pass->est_ns;
	if (unlikely(pass->unknown)) {
		m->outstanding_unknown++;
		pass->cost->pending++;
	}
	m->busy_until_ns = (m->busy_until_ns > now ? m->busy_until_ns : now) + pass->est_ns;
	put(&t->busy_until_ns, m->busy_until_ns);
	put(&t->launched_ns, t->launched_ns + pass->est_ns);
	put(&t->launch_lease_id, get(&m->ctl->lease_id));
	put(&t->last_launch_ns, now);
	put_release(&t->launched, t->launched + 1);
}

/* Whether it may go at this moment. */
static inline enum verdict judge(struct meter *m, struct pass *pass, uint64_t key, uint64_t now, uint64_t *again)
{
	pass->cost = cost_find(m->costs, key);
	pass->est_ns = estimate(m->ctl, pass->cost);
	return verdict(m, pass, now, again);
}

/* Waits for as long as it may not, and admits it. Returns when it went; 0: the task is being ended. */
static RARE uint64_t wait_through(struct meter *m, struct pass *pass, uint64_t key, enum verdict v, uint64_t since, uint64_t again)
{
	uint64_t now = since;
	bool gated = false;
	while (v != GO && v != STOPPED) {
		wait_for(m, v, now, again, &gated);
		now = clock_now();
		v = judge(m, pass, key, now, &again);
	}
	if (v == GO)
		admit(m, pass, now);
	if (gated) {
		struct alq_tel_grant *t = tel_of(m->grant);
		if (v == GO)
			put(&t->gate_wait_ns, t->gate_wait_ns + (now - since));
		if (--m->gate_waiters == 0)
			put_seq(&t->wait_since_ns, 0);
	}
	return v == GO ? now : 0;
}

/* Inside a capture nothing runs: the launch is only written down. Asked only while a capture may be open. */
bool gate_capturing(CUstream stream, bool per_thread)
{
	if (__builtin_expect(get(&captures) == 0, 1))
		return false;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (per_thread && stream == NULL)
		stream = CU_STREAM_PER_THREAD;
	return driver.cuStreamIsCapturing != NULL &&
	       (driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/*
 * Whether a launch goes into the open batch of its stream: what was never measured is measured alone, idle time between launches belongs to none, and
 * one that is full and that all have left waits only for the lock to be closed.
 */
static inline bool batch_takes(const struct batch *open, const struct pass *pass, uint64_t now)
{
	return open != NULL && ((!pass->unknown && now <= open->ends_ns && (get(&open->left) & BATCH_FULL) == 0) || batch_in_flight(open));
}

/* The batch for a launch that the open one, if any, does not take. *start: its start event must be recorded first. */
static RARE struct batch *batch_next(struct meter *m, const struct pass *pass, uint64_t now, bool *start)
{
	struct batch *open = pass->stream->open;
	if (open != NULL)
		batch_close(m, open, now > open->ends_ns);
	struct batch *b = batch_open(pass->stream, now, start);
	if (b != NULL && *start)
		b->behind_ns += pass->behind_ns;
	return b;
}

CUresult gate_enter(struct pass *pass, CUstream stream, bool per_thread, uint64_t key)
{
	pass->meter = NULL;
	pass->behind_ns = 0;
	if (!task_on())
		return get_acquire(&task.state) == SHIM_FAILED ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
	struct stream *known = stream_is_default(stream) ? NULL : stream_known(stream);
	struct context *c = known != NULL ? known->context : stream_is_default(stream) ? meter_current() : meter_context(stream);
	if (c == NULL || (unlikely(get(&captures) != 0) && gate_capturing(stream, per_thread)))
		return CUDA_SUCCESS;
	struct meter *m = c->meter;
	bool start = false;
	lock_take(&m->lock);
	uint64_t now = clock_quick(&m->clock), again;
	enum verdict v = judge(m, pass, key, now, &again);
	if (likely(v == GO))
		admit(m, pass, now);
	else if ((now = wait_through(m, pass, key, v, now, again)) == 0) {
		lock_give(&m->lock);
		return CUDA_ERROR_NOT_PERMITTED;
	}
	pass->meter = m;
	if (unlikely(pass->unknown))
		m->fresh = c->handle;
	bool stands = known != NULL && known->handle == stream && !known->gone;
	struct stream *s = pass->stream = stands ? known : stream_of(c, stream, per_thread);
	struct batch *b = s == NULL ? NULL : s->open;
	if (s != NULL && unlikely(!batch_takes(b, pass, now)))
		b = batch_next(m, pass, now, &start);
	pass->batch = b;
	pass->locked = true;
	if (b != NULL) {
		b->entered++;
		b->paced |= pass->paced;
		b->lease_end_ns = get(&m->ctl->lease_end_ns);
		batch_count(b, pass);
		pass->locked = m->watch_sleeps || batch_is_full(m, b);
	}
	lock_give(&m->lock);
	ALQ_POINT("shim.gate.passed");
	if (unlikely(start))
		b->timed = event_put(b->start, s) == CUDA_SUCCESS;
	return CUDA_SUCCESS;
}

/* A launch has left its batch, which may be full, or hold nothing that reached the device: the last to leave closes it. It may be another stream's by now. */
static void batch_left(struct meter *m, const struct pass *pass)
{
	struct batch *b = pass->batch;
	if (pass->stream->open != b || batch_in_flight(b))
		return;
	if (b->launches == 0) {
		pass->stream->open = NULL;
		batch_free(b);
	} else if ((get(&b->left) & BATCH_FULL) != 0) {
		batch_close(m, b, false);
	}
}

/* A launch after which there is more to do than to count that it has left. What never reached the device, and that of which nothing tells when it ends, is
 * booked by its estimate. */
static RARE void leave_locked(const struct pass *pass, CUresult result)
{
	struct meter *m = pass->meter;
	struct batch *b = pass->batch;
	lock_take(&m->lock);
	if (b == NULL || (result != CUDA_SUCCESS && !b->dropped)) {
		pass->cost->pending -= pass->unknown && pass->cost->pending > 0;
		meter_completed(m, 1, pass->est_ns, pass->unknown);
	}
	if (b != NULL) {
		if (result != CUDA_SUCCESS)
			batch_discount(b, pass);
		__atomic_fetch_add(&b->left, 1, __ATOMIC_ACQ_REL);
		if (batch_is_full(m, b))
			__atomic_fetch_or(&b->left, BATCH_FULL, __ATOMIC_ACQ_REL);
		batch_left(m, pass);
	}
	meter_wake_watcher(m);
	lock_give(&m->lock);
}

/* As a rule a launch leaves without the lock. Its batch is not touched any more once it has: it may be another's by then. */
void gate_leave(struct pass *pass, CUresult result)
{
	struct meter *m = pass->meter;
	struct batch *b = pass->batch;
	if (m == NULL)
		return;
	if (unlikely(result != CUDA_SUCCESS || pass->locked)) {
		leave_locked(pass, result);
	} else if (unlikely((__atomic_fetch_add(&b->left, 1, __ATOMIC_ACQ_REL) & BATCH_FULL) != 0)) {
		lock_take(&m->lock);
		batch_left(m, pass);
		lock_give(&m->lock);
	}
}
