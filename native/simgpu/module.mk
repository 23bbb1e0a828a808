# SPDX-License-Identifier: Apache-2.0
# The simulated driver: the process that is the devices, and the two libraries that programs load.

SIM := $(NATIVE)/simgpu
SIM_HEADERS := $(wildcard $(NATIVE)/*.h $(SIM)/*.h $(SIM)/*/*.h $(SIM)/*/*.def)
SIM_SERVER := $(wildcard $(SIM)/server/*.c) $(SIM)/wire.c
SIM_CUDA := $(wildcard $(SIM)/cuda/*.c) $(SIM)/wire.c
SIM_NVML := $(wildcard $(SIM)/nvml/*.c) $(SIM)/wire.c

# A shim with the same names and SONAMEs lies above these in the same process: they bind to themselves.
SIM_LIB := -shared -fPIC -fvisibility=hidden -Wl,-Bsymbolic -Wl,-z,now -Wl,-z,noexecstack -pthread

$(OUT)/bin/aliquot-simgpu: $(SIM_SERVER) $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(SIM_SERVER) -o $@ $(LDFLAGS)

$(OUT)/sim/libcuda.so.1: $(SIM_CUDA) $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(SIM_LIB) -Wl,-soname,libcuda.so.1 $(SIM_CUDA) -o $@ $(LDFLAGS) -ldl

$(OUT)/sim/libnvidia-ml.so.1: $(SIM_NVML) $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(SIM_LIB) -Wl,-soname,libnvidia-ml.so.1 $(SIM_NVML) -o $@ $(LDFLAGS) -ldl

SIM_BUILT := bin/aliquot-simgpu $(if $(wildcard $(SIM)/cuda/*.c),sim/libcuda.so.1) $(if $(wildcard $(SIM)/nvml/*.c),sim/libnvidia-ml.so.1)
ALL += $(addprefix $(OUT)/,$(SIM_BUILT))

DIST += $(SIM_BUILT)

# Tests: the model alone, with a clock of its own; then programs against a server each.
SIM_TEST := $(filter-out $(SIM)/test/model_test.c,$(wildcard $(SIM)/test/*.c))

SIM_MODEL := $(addprefix $(SIM)/server/,model.c rows.c deadline.c)

$(OUT)/test/simgpu-model: $(SIM)/test/model_test.c $(SIM_MODEL) $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(SIM)/test/model_test.c $(SIM_MODEL) -o $@ $(LDFLAGS)

$(OUT)/test/simgpu-test: $(SIM_TEST) $(SIM_HEADERS) $(OUT)/sim/libcuda.so.1 $(OUT)/sim/libnvidia-ml.so.1
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(SIM_TEST) -o $@ $(LDFLAGS) $(OUT)/sim/libcuda.so.1 $(OUT)/sim/libnvidia-ml.so.1 -Wl,-rpath,$(OUT)/sim

.PHONY: test-simgpu
test-simgpu: $(OUT)/test/simgpu-model $(OUT)/test/simgpu-test $(OUT)/bin/aliquot-simgpu
	$(OUT)/test/simgpu-model
	$(OUT)/test/simgpu-test $(OUT)/bin/aliquot-simgpu

TESTS += test-simgpu
