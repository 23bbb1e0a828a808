# SPDX-License-Identifier: Apache-2.0
# The arbiter: its pure core, the process around it, and their tests.

ARBITER := $(NATIVE)/arbiter
ARBITER_CORE := admit charge core choose gang idle ledger lease word
ARBITER_PROCESS := bell stall main page tasks process sockets observe books memory owed control
ARBITER_SOURCES := $(ARBITER_CORE:%=$(ARBITER)/%.c) $(ARBITER_PROCESS:%=$(ARBITER)/%.c)
ARBITER_TEST_CORE := $(ARBITER_CORE:%=$(ARBITER)/%.c)
ARBITER_WORLD := $(addprefix $(ARBITER)/test/,world.c nodes.c judge.c)
ARBITER_HEADERS := $(wildcard $(ARBITER)/*.h $(ARBITER)/test/*.h) $(NATIVE)/abi.h $(NATIVE)/point.h $(NATIVE)/prompt.h

$(OUT)/bin/aliquot-arbiter: $(ARBITER_SOURCES) $(ARBITER_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -D_GNU_SOURCE $(LDFLAGS) -o $@ $(ARBITER_SOURCES)

# The same with its named points, for tests that kill it there.
$(OUT)/test/aliquot-arbiter: $(ARBITER_SOURCES) $(ARBITER_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -D_GNU_SOURCE -DALQ_POINTS $(LDFLAGS) -o $@ $(ARBITER_SOURCES)

ALL += $(OUT)/bin/aliquot-arbiter
DIST += bin/aliquot-arbiter

ARBITER_VIRTUAL := shares virtual charged pauses latency luck gangs stalls
$(ARBITER_VIRTUAL:%=$(OUT)/test/arbiter-%): $(OUT)/test/arbiter-%: $(ARBITER_TEST_CORE) $(ARBITER)/stall.c $(ARBITER_WORLD) $(ARBITER)/test/%.c $(ARBITER_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -lm

# Reads tel pages as the arbiter does.
ARBITER_ADMISSIONS := $(ARBITER)/observe.c $(ARBITER_WORLD) $(addprefix $(ARBITER)/test/,tel.c payments.c admissions.c)
$(OUT)/test/arbiter-admissions: $(ARBITER_TEST_CORE) $(ARBITER_ADMISSIONS) $(ARBITER_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -D_GNU_SOURCE $(LDFLAGS) -o $@ $(filter %.c,$^) -lm

# Every call of the core, by way of the functions that write it down.
ARBITER_RECORDED := core_device_add core_task_add core_task_del core_device_state core_set_policy core_restore core_device_restore core_away \
	core_touch core_settle core_run
ARBITER_TRACE := $(ARBITER_WORLD) $(addprefix $(ARBITER)/test/,state.c record.c trace.c)
ARBITER_TRACE_FLAGS := $(ARBITER_RECORDED:%=-Wl,--wrap=%)
$(OUT)/test/arbiter-trace: $(ARBITER_TEST_CORE) $(ARBITER_TRACE) $(ARBITER_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) $(ARBITER_TRACE_FLAGS) -o $@ $(filter %.c,$^) -lm

# What the tests of divide/lease hold the rule in Go to.
.PHONY: arbiter-trace
arbiter-trace: $(OUT)/test/arbiter-trace

$(OUT)/test/arbiter-process: $(addprefix $(ARBITER)/test/,rig.c process.c away.c hostile.c lend.c) $(ARBITER_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -D_GNU_SOURCE $(LDFLAGS) -o $@ $(filter %.c,$^)

# The rule by itself, under virtual time and in one thread: the sanitizer of threads has nothing to see there, and would take minutes.
.PHONY: test-arbiter-rule
test-arbiter-rule: $(OUT)/test/arbiter-trace $(ARBITER_VIRTUAL:%=$(OUT)/test/arbiter-%) $(OUT)/test/arbiter-admissions
	$(OUT)/test/arbiter-shares
	$(OUT)/test/arbiter-virtual
	$(OUT)/test/arbiter-charged
	$(OUT)/test/arbiter-pauses
	$(OUT)/test/arbiter-luck
	$(OUT)/test/arbiter-stalls
	$(OUT)/test/arbiter-gangs $(if $(SAN),-n 50000)
	$(OUT)/test/arbiter-latency $(if $(SAN),-n 100)
	$(OUT)/test/arbiter-admissions $(if $(SAN),-n 8)
	$(OUT)/test/arbiter-trace $(if $(SAN),-n 20) >/dev/null

.PHONY: test-arbiter
test-arbiter: $(if $(filter thread,$(SAN)),,test-arbiter-rule) $(OUT)/test/arbiter-process $(OUT)/test/aliquot-arbiter
	$(OUT)/test/arbiter-process $(OUT)/test/aliquot-arbiter
TESTS += test-arbiter

# Tests that cannot fail are none: the arbiter broken on purpose, in one way after another, must fail them.
.PHONY: test-arbiter-mutants
test-arbiter-mutants: $(ARBITER_TEST_CORE) $(ARBITER_HEADERS)
	$(ARBITER)/test/mutants $(OUT)/test/mutants $(CC) $(CFLAGS) $(LDFLAGS)
ifeq ($(SAN),) # once is enough
TESTS += test-arbiter-mutants
endif
