/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.h: what has a program be as prompt as the machine allows. */
#ifndef ALIQUOT_PROMPT_H
#define ALIQUOT_PROMPT_H

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/*
 * Has the calling thread run in real time, of a priority from 1 (the least) to 99, else of a niceness from -20 (the most) to 19 where that is not allowed;
 * with exact timers, and memory that is never paged out. None of it is needed to be right, so nothing is said where it cannot be had.
 */
static inline void be_prompt(int priority, int niceness)
{
	struct sched_param param = {.sched_priority = priority};
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param))
		setpriority(PRIO_PROCESS, 0, niceness);
	prctl(PR_SET_TIMERSLACK, 1ul);
	mlockall(MCL_CURRENT);
}

#endif
