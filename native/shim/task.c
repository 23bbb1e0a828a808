/* SPDX-License-Identifier: Apache-2.0 */
/* task.c: registers this process, once, and lets go of everything in a forked child. */
#include "descriptor.h"
#include "shim.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#define REGISTER_NS (30 * NS_PER_S)
#define RETRY_NS (20 * NS_PER_MS)
#define STACK_BYTES (256u << 10)

static struct lock starting;

int thread_start(void *(*body)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&thread, &attr, body, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return error;
}

void *pages_take(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

/* Waits for an arbiter to take us in. */
static bool task_register(void)
{
	uint64_t until = clock_now() + REGISTER_NS;
	while (!line_connect()) {
		uint64_t now = clock_now();
		if (now >= until) {
			say("no arbiter answers at %s/arbiter.sock since %llu s, so the share cannot be had; see `aliquot doctor`",
			    task.folder, (unsigned long long)(REGISTER_NS / NS_PER_S));
			return false;
		}
		uint32_t never = 0;
		futex_wait_until(&never, 0, now + RETRY_NS, false);
	}
	return true;
}

/* A forked child has the driver's word that it is not initialised; it must not touch the parent's slot or line. */
static void task_forked(void)
{
	starting.word = 0;
	driver_forget();
	contexts_forget();
	if (task.ctl == NULL)
		return;
	line_forget();
	meter_forget();
	memory_forget();
	blocks_forget();
	physical_forget();
	ipc_forget();
	pieces_forget();
	pools_forget();
	graphs_forget();
	modules_forget();
	limits_forget();
	munmap((void *)(uintptr_t)task.ctl, sizeof(*task.ctl));
	if (task.tel != NULL)
		munmap(task.tel, sizeof(*task.tel));
	task.ctl = NULL;
	task.tel = NULL;
	put_release(&task.state, SHIM_NEW);
}

void task_watch_forks(void)
{
	static bool watched;
	if (!__atomic_exchange_n(&watched, true, __ATOMIC_SEQ_CST))
		pthread_atfork(NULL, NULL, task_forked);
}

enum shim_state task_start(void)
{
	enum shim_state state = (enum shim_state)get_acquire(&task.state);
	if (state != SHIM_NEW)
		return state;
	int cancel = cancel_off();
	lock_take(&starting);
	state = (enum shim_state)get_acquire(&task.state);
	if (state == SHIM_NEW) {
		state = task_open(true);
		if (state == SHIM_ON && !task_register())
			state = SHIM_FAILED;
		if (state == SHIM_ON)
			line_keep();
		put_release(&task.state, (int)state);
	}
	lock_give(&starting);
	cancel_restore(cancel);
	return state;
}

bool task_arbiter_lost(uint64_t now)
{
	uint64_t alone = get_acquire(&task.alone_ns), beat = get_acquire(&task.ctl->heartbeat_ns);
	return (alone != 0 && beat <= alone) || (now > beat && now - beat > ALQ_ARBITER_LOST_NS);
}
