# SPDX-License-Identifier: Apache-2.0
# The arbiter: its pure core, the process around it, and their tests.

ARBITER := $(NATIVE)/arbiter
ARBITER_CORE := core choose ledger lease
ARBITER_TEST_CORE := $(ARBITER_CORE:%=$(ARBITER)/%.c)
ARBITER_HEADERS := $(wildcard $(ARBITER)/*.h $(ARBITER)/test/*.h) $(NATIVE)/abi.h

$(OUT)/test/arbiter-virtual: $(ARBITER_TEST_CORE) $(ARBITER)/test/world.c $(ARBITER)/test/virtual.c $(ARBITER_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -lm

.PHONY: test-arbiter
test-arbiter: $(OUT)/test/arbiter-virtual
	$(OUT)/test/arbiter-virtual
TESTS += test-arbiter
