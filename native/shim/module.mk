# SPDX-License-Identifier: Apache-2.0
#
# The shim: libcuda.so.1 and libnvidia-ml.so.1 as tenants see them. Linked against empty libraries that bear the names under which the agent
# lays out the driver's own, with a run path that is one long marker for the agent to write over; see README.md.

SHIM := $(NATIVE)/shim
SHIM_OUT := $(OUT)/shim
SHIM_HEADERS := $(wildcard $(SHIM)/*.h) $(SHIM)/hooks.def $(NATIVE)/abi.h $(NATIVE)/cuda.h $(wildcard $(NATIVE)/point.h)
SHIM_CUDA := page task line cost gate meter watch memory blocks driver view launch copy alloc context stream overhead
SHIM_NVML := page nvml

# 256 characters: a path and as many slashes as it takes.
SHIM_MARKER := $(shell printf '/@ALIQUOT-DRIVER-FOLDER@'; printf '/%.0s' $$(seq 1 232))

SHIM_CFLAGS := $(CFLAGS) -D_GNU_SOURCE -fPIC -fvisibility=hidden -fno-plt
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
