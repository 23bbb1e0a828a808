/* SPDX-License-Identifier: Apache-2.0 */
/* rig.h: a folder as the agent makes it, an arbiter as a process, and tenants in C that behave as the shim does. */
#ifndef ALIQUOT_TEST_RIG_H
#define ALIQUOT_TEST_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../abi.h"

struct rig {
	char run[128];
	const char *program;
	pid_t arbiter;
};

struct pages {
	struct alq_ctl *ctl;
	struct alq_tel *tel;
	struct alq_book *book;
};

struct tenant { /* a connection of this process, registered */
	struct pages pages;
	int line, bell;
	uint32_t slot;
};

#define FAIL(...) rig_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(ok, ...) ((ok) ? (void)0 : FAIL(__VA_ARGS__))
void rig_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4), noreturn));

/* Waits until the expression is true; fails after a minute. */
#define WAIT(expression)                                                                                               \
	for (uint64_t until_ = rig_now() + 60000000000ull; !(expression); rig_pause())                                 \
		CHECK(rig_now() < until_, "waited in vain for %s", #expression)

uint64_t rig_now(void);
void rig_pause(void);
void rig_open(struct rig *rig, const char *program);
void rig_close(struct rig *rig);
void rig_start(struct rig *rig, const char *kill_at);
void rig_kill(struct rig *rig);
int rig_wait(struct rig *rig); /* its wait status */
void rig_ask(struct rig *rig, const char *want, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool rig_try(struct rig *rig, const char *line, char *answer, size_t size);
int rig_dial(const char *path); /* a connection to a socket; −1: it is not let in */
struct alq_device *rig_device(struct rig *rig, const char *uuid, uint64_t capacity);
struct pages rig_task(struct rig *rig, const char *uid, int grants, const char *const *devices, uint32_t floor, uint32_t ceiling,
	uint64_t mem_floor, uint64_t mem_ceiling);
void rig_policy(struct alq_ctl_grant *grant, uint32_t floor, uint32_t ceiling, uint64_t mem_floor, uint64_t mem_ceiling);
uint32_t rig_register(struct rig *rig, const char *uid, const struct pages *pages, int32_t slot, struct tenant *tenant);
void rig_leave(struct tenant *tenant);
uint32_t rig_mem(struct tenant *tenant, uint32_t grant, uint64_t want, uint64_t *granted);
/* The same in two parts. rig_mem_answered: false as long as there is no answer. */
void rig_mem_ask(struct tenant *tenant, uint32_t grant, uint64_t want);
bool rig_mem_answered(struct tenant *tenant, uint32_t *status);
extern uint32_t rig_shim_version; /* that tenants register with */
/* Waits at the gate as the shim does, until it is open and its deadline ahead. */
void rig_gate(struct tenant *tenant, int grant);
/* As if it launched `ns` of work, which ends when rig_done is called. */
void rig_launch(struct tenant *tenant, int grant, uint64_t ns);
void rig_done(struct tenant *tenant, int grant);
bool rig_may_launch(const struct tenant *tenant, int grant);

#endif
