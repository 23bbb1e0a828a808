# SPDX-License-Identifier: Apache-2.0
#
# The probe: what a program with a share sees of its device.

ALL += $(OUT)/bin/aliquot-probe
DIST += bin/aliquot-probe

$(OUT)/bin/aliquot-probe: $(NATIVE)/probe/probe.c $(NATIVE)/cuda.h
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< -ldl
