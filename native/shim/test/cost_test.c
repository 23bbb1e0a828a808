/* SPDX-License-Identifier: Apache-2.0 */
/* cost_test.c: what is expected of a graph after it was changed. */
#include "fake_driver.h"
#include "harness.h"
#include "meter.h"

static struct cost table[COSTS];

static struct cost *learnt(uint64_t key, uint64_t ns)
{
	struct cost *c = cost_find(table, key);
	for (int i = 0; i < 8; i++)
		cost_learn(c, ns, false);
	CHECK_EQ(c->est_ns, ns);
	return c;
}

/* After a change nothing is known, and what was launched before it can be told. */
static void test_forgotten(void)
{
	struct cost *c = learnt(cost_key(table, 0), 100 * NS_PER_US);
	uint32_t version = c->version;
	CHECK(cost_look(table, cost_key(table, 0)) == c && cost_look(table, cost_key(table, 7)) == NULL);
	cost_changed(c, false);
	CHECK_EQ(c->est_ns, 0);
	CHECK(c->version != version);
	cost_learn(c, 20 * NS_PER_MS, false);
	CHECK_EQ(c->est_ns, 20 * NS_PER_MS);
	/* Unmeasured, and changed again: still another. */
	cost_changed(c, false);
	version = c->version;
	cost_changed(c, false);
	CHECK(c->version != version && c->est_ns == 0);
}

/* Changes that never make a difference are not worth forgetting for; the first that does is believed at once. */
static void test_harmless(void)
{
	struct cost *c = learnt(cost_key(table, 1), 5 * NS_PER_MS);
	for (int i = 0; i < 4; i++) {
		cost_changed(c, false);
		CHECK_EQ(c->est_ns, 0);
		cost_learn(c, 5 * NS_PER_MS, false);
	}
	cost_changed(c, false);
	CHECK_EQ(c->est_ns, 5 * NS_PER_MS);
	cost_learn(c, 50 * NS_PER_MS, false);
	CHECK_EQ(c->est_ns, 50 * NS_PER_MS);
	cost_changed(c, false);
	CHECK_EQ(c->est_ns, 0);
	/* What bears the handle next has shown nothing yet. */
	for (int i = 0; i < 6; i++) {
		cost_learn(c, 5 * NS_PER_MS, false);
		cost_changed(c, false);
	}
	CHECK(c->est_ns != 0);
	cost_changed(c, true);
	CHECK_EQ(c->est_ns, 0);
	cost_learn(c, 5 * NS_PER_MS, false);
	cost_changed(c, false);
	CHECK_EQ(c->est_ns, 0);
}

/* ------------------------------------------------------------------------------------------------- each call that changes one */

static struct arbiter arbiter;

/* What is known of a graph's duration, which the watcher may be learning at this moment. */
static uint64_t known(const uint64_t *graph)
{
	lock_take(&meters[0]->lock);
	const struct cost *c = cost_look(meters[0]->costs, cost_key(graph, 0));
	uint64_t ns = c == NULL ? 0 : c->est_ns;
	lock_give(&meters[0]->lock);
	return ns;
}

/* Launches a graph, which for the fake driver is how long it takes, and waits until that was learnt. */
static void launched(uint64_t *graph)
{
	const struct alq_tel_grant *t = &arbiter.tel->slot[get(&task.slot)].grant[0];
	*graph = 100 * NS_PER_US;
	CHECK_EQ(cuGraphLaunch((CUgraphExec)graph, NULL), CUDA_SUCCESS);
	WAIT(get_acquire(&t->completed) == get_acquire(&t->launched));
	WAIT(known(graph) != 0);
}

#define FORGETS(call)                                                                                                              \
	do {                                                                                                                       \
		static uint64_t graph;                                                                                             \
		CUgraphExec x = (CUgraphExec)&graph;                                                                               \
		launched(&graph);                                                                                                  \
		CHECK_EQ(call, CUDA_SUCCESS);                                                                                      \
		CHECK_EQ(known(&graph), 0);                                                                                        \
	} while (0)

static void test_calls(void)
{
	arbiter_make(&arbiter, 1, 1u << 30, 1u << 30);
	arbiter_serve(&arbiter);
	tenant_start(&arbiter);
	gate_open(&arbiter, 0, UINT64_MAX - 1);
	fake_run(true);
	FORGETS(cuGraphExecUpdate(x, NULL, NULL, NULL));
	FORGETS(cuGraphExecUpdate_v2(x, NULL, NULL));
	FORGETS(cuGraphExecKernelNodeSetParams(x, NULL, NULL));
	FORGETS(cuGraphExecKernelNodeSetParams_v2(x, NULL, NULL));
	FORGETS(cuGraphExecMemcpyNodeSetParams(x, NULL, NULL, NULL));
	FORGETS(cuGraphExecMemsetNodeSetParams(x, NULL, NULL, NULL));
	FORGETS(cuGraphExecChildGraphNodeSetParams(x, NULL, NULL));
	FORGETS(cuGraphExecNodeSetParams(x, NULL, NULL));
	FORGETS(cuGraphNodeSetEnabled(x, NULL, 0));
	FORGETS(cuGraphExecDestroy(x));
	arbiter_remove(&arbiter);
}

int main(void)
{
	test_forgotten();
	test_harmless();
	test_calls();
	printf("cost: ok\n");
	return 0;
}
