# SPDX-License-Identifier: Apache-2.0
#
# The shim: libcuda.so.1 and libnvidia-ml.so.1 as tenants see them. Linked against empty libraries that bear the names under which the agent
# lays out the driver's own, with a run path that is one long marker for the agent to write over; see README.md.

SHIM := $(NATIVE)/shim
SHIM_OUT := $(OUT)/shim
SHIM_HEADERS := $(wildcard $(SHIM)/*.h) $(SHIM)/paths.def $(NATIVE)/abi.h $(NATIVE)/cuda.h $(NATIVE)/point.h
SHIM_CUDA := page task line cost gate place route meter watch memory table blocks physical exports ipc pieces driver view launch copy alloc pool graph change limit module refused context stream overhead
SHIM_NVML := page nvml

# 256 characters: a path and as many slashes as it takes.
SHIM_MARKER := $(shell printf '/@ALIQUOT-DRIVER-FOLDER@'; printf '/%.0s' $$(seq 1 232))

SHIM_CFLAGS := $(CFLAGS:-O2=-O3) -D_GNU_SOURCE -DCUDA_EXACT_NAMES=1 -fPIC -fvisibility=hidden -fno-plt
SHIM_LDFLAGS := -shared -Wl,-z,now,-z,relro -Wl,-Bsymbolic -Wl,--enable-new-dtags '-Wl,-rpath,$(SHIM_MARKER)' \
	-Wl,--no-as-needed
# The old homes of threads and dlopen, which programs with an older C library still need named.
SHIM_LIBS := $(if $(SAN),-lpthread -ldl,-l:libpthread.so.0 -l:libdl.so.2)

ALL += $(SHIM_OUT)/libcuda.so.1 $(SHIM_OUT)/libnvidia-ml.so.1
DIST += shim/libcuda.so.1 shim/libnvidia-ml.so.1

$(SHIM_OUT)/stub/lib%-real.so.1:
	@mkdir -p $(@D)
	$(CC) -shared -nostdlib -o $@ -Wl,-soname,$(@F) -x c /dev/null

$(SHIM_OUT)/obj/%.o: $(SHIM)/%.c $(SHIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SHIM_CFLAGS) -c -o $@ $<

$(SHIM_OUT)/libcuda.so.1: $(SHIM_CUDA:%=$(SHIM_OUT)/obj/%.o) $(SHIM_OUT)/stub/libcuda-real.so.1
	$(CC) $(LDFLAGS) $(SHIM_LDFLAGS) -Wl,-soname,libcuda.so.1 -o $@ $^ $(SHIM_LIBS)

$(SHIM_OUT)/libnvidia-ml.so.1: $(SHIM_NVML:%=$(SHIM_OUT)/obj/%.o) $(SHIM_OUT)/stub/libnvidia-ml-real.so.1
	$(CC) $(LDFLAGS) $(SHIM_LDFLAGS) -Wl,-soname,libnvidia-ml.so.1 -o $@ $^ $(SHIM_LIBS)

.PHONY: shim
shim: $(SHIM_OUT)/libcuda.so.1 $(SHIM_OUT)/libnvidia-ml.so.1

# The tests: against a driver whose clock they move. Unit tests hold the shim's own objects, so that they can look inside; names and
# process tests load the finished libraries the way a program does, their run path written over as the agent does it.

SHIM_TEST := $(SHIM_OUT)/test
SHIM_FAKE := $(SHIM_TEST)/driver/libcuda-real.so.1 $(SHIM_TEST)/driver/libnvidia-ml-real.so.1
SHIM_TEST_HEADERS := $(wildcard $(SHIM)/test/*.h) $(SHIM_HEADERS)
SHIM_UNIT := gate_test flight_test stream_test line_test away_test memory_test pools_test tables_test pieces_test cost_test
SHIM_WHOLE := names_test process_test

# With the named crash points in.
$(SHIM_TEST)/obj/%.o: $(SHIM)/%.c $(SHIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SHIM_CFLAGS) -DALQ_POINTS -c -o $@ $<

$(SHIM_TEST)/driver/libcuda-real.so.1: $(patsubst %,$(SHIM)/test/fake_%.c,driver context memory pool names) $(SHIM_TEST_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SHIM_CFLAGS) -shared -Wl,-Bsymbolic -Wl,-soname,$(@F) -o $@ $(filter %.c,$^) $(LDFLAGS) -lpthread -ldl

$(SHIM_TEST)/driver/libnvidia-ml-real.so.1: $(SHIM)/test/fake_nvml.c $(NATIVE)/nvml.h
	@mkdir -p $(@D)
	$(CC) $(SHIM_CFLAGS) -shared -Wl,-Bsymbolic -Wl,-soname,$(@F) -o $@ $< $(LDFLAGS)

$(SHIM_TEST)/%.o: $(SHIM)/test/%.c $(SHIM_TEST_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -D_GNU_SOURCE -DCUDA_EXACT_NAMES=1 -I$(SHIM) -c -o $@ $<

$(SHIM_UNIT:%=$(SHIM_TEST)/%): $(SHIM_CUDA:%=$(SHIM_TEST)/obj/%.o)
$(SHIM_UNIT:%=$(SHIM_TEST)/%): $(SHIM_TEST)/%: $(SHIM_TEST)/%.o $(SHIM_TEST)/harness.o $(SHIM_FAKE)
	$(CC) -o $@ $(filter %.o,$^) $(LDFLAGS) $(SHIM_WRAP) -Wl,-rpath,'$$ORIGIN/driver' -Wl,--no-as-needed $(SHIM_FAKE) $(SHIM_LIBS)
$(SHIM_TEST)/tables_test: SHIM_WRAP := -Wl,--wrap=pages_take

$(SHIM_TEST)/lib/%: $(SHIM_OUT)/% $(SHIM)/test/aim
	@mkdir -p $(@D)
	$(SHIM)/test/aim $< $(SHIM_TEST)/driver $@

$(SHIM_WHOLE:%=$(SHIM_TEST)/%) $(SHIM_TEST)/gate_cost: $(SHIM_TEST)/%: $(SHIM_TEST)/%.o $(SHIM_TEST)/harness.o $(SHIM_TEST)/lib/libcuda.so.1 \
		$(SHIM_TEST)/lib/libnvidia-ml.so.1 $(SHIM_FAKE)
	$(CC) -o $@ $(filter %.o,$^) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/lib' -Wl,-rpath,'$$ORIGIN/driver' -Wl,--no-as-needed \
		$(SHIM_TEST)/lib/libcuda.so.1 $(SHIM_TEST)/lib/libnvidia-ml.so.1 $(SHIM_FAKE) -lpthread -ldl

# Every path on simulated devices: the program is linked to their driver and finds the shim, which finds that driver, as with a real one.
SHIM_SIM := $(SHIM_TEST)/simulated
SHIM_SIM_LIBS := $(SHIM_SIM)/driver/libcuda-real.so.1 $(SHIM_SIM)/driver/libnvidia-ml-real.so.1 $(SHIM_SIM)/lib/libcuda.so.1 \
	$(SHIM_SIM)/lib/libnvidia-ml.so.1

$(SHIM_SIM)/driver/lib%-real.so.1: $(OUT)/sim/lib%.so.1
	@mkdir -p $(@D)
	cp $< $@

$(SHIM_SIM)/lib/%: $(SHIM_OUT)/% $(SHIM)/test/aim
	@mkdir -p $(@D)
	$(SHIM)/test/aim $< $(SHIM_SIM)/driver $@

$(SHIM_SIM)/paths_test: $(patsubst %,$(SHIM_TEST)/%.o,paths_test paths_memory paths_pools paths_shared paths_late paths_launch paths_change harness) $(SHIM_SIM_LIBS)
	$(CC) -o $@ $(filter %.o,$^) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/lib' -Wl,--no-as-needed $(OUT)/sim/libcuda.so.1 $(OUT)/sim/libnvidia-ml.so.1 \
		-lpthread -ldl

.PHONY: shim-test
shim-test: $(SHIM_UNIT:%=$(SHIM_TEST)/%) $(SHIM_WHOLE:%=$(SHIM_TEST)/%) $(SHIM_SIM)/paths_test $(OUT)/bin/aliquot-simgpu
	$(SHIM)/test/names_check $(SHIM)/names.txt $(OUT)/sim/libcuda.so.1 $(SHIM_OUT)/libcuda.so.1
	$(SHIM)/test/listed $(SHIM)/paths.def $(SHIM)/names.txt $(ALIQUOT_DRIVER)
	$(SHIM)/test/versions $(SHIM_OUT)/libcuda.so.1 $(SHIM_OUT)/libnvidia-ml.so.1
	@for t in $(SHIM_UNIT) $(SHIM_WHOLE); do $(SHIM_TEST)/$$t || exit 1; done
	$(SHIM_SIM)/paths_test $(OUT)/bin/aliquot-simgpu
TESTS += shim-test

# Writes the list of the driver's names anew: ALIQUOT_DRIVER names real drivers' libcuda.so.1, and headers (a toolkit's cuda.h), of which it is to
# have the names too.
.PHONY: shim-names
shim-names: $(OUT)/sim/libcuda.so.1 $(SHIM_OUT)/libcuda.so.1
	$(SHIM)/test/names $(SHIM)/names.txt $^ $(ALIQUOT_DRIVER) > $(SHIM_OUT)/names.txt
	mv $(SHIM_OUT)/names.txt $(SHIM)/names.txt

# Not a test: what a launch through the gate costs on this machine.
.PHONY: shim-cost
shim-cost: $(SHIM_TEST)/gate_cost
	$<
