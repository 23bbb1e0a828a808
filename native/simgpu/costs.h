/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs.h: every cost of the simulated device, with its source. "Uncalibrated" means: chosen as plausible, not measured by us on a
 * real GPU; whoever prints a figure that depends on one says so (SIM_CALIBRATED).
 *
 * The server reads a file of `name = integer` lines over these with --costs, and `name=integer` in its list of devices
 * (`aliquot up --simulate h200x2,switch_ns=100000`); the names are the ones below in lower case without SIM_COST_.
 */
#ifndef ALIQUOT_SIMGPU_COSTS_H
#define ALIQUOT_SIMGPU_COSTS_H

#define SIM_CALIBRATED 0

/* A context's turn while another context has work, in ns. An H200 with driver 580 gives 2.09 ms (docs/measurements.md). */
#define SIM_COST_SLICE_NS 2000000ull

/* What a change from one context to another takes, in ns, during which neither runs. 0, so that the model's own fairness
 * is exact; runs that want to see a cost set it (an H200 takes 151000). */
#define SIM_COST_SWITCH_NS 0ull

/* The least a kernel takes, in ns, whatever its name says. Uncalibrated. */
#define SIM_COST_KERNEL_MIN_NS 2000ull

/* What a kernel takes whose name says nothing of its duration, in ns. Ours to choose. */
#define SIM_COST_KERNEL_DEFAULT_NS 10000ull

/* What every copy or set takes before its first byte, in ns. Uncalibrated. */
#define SIM_COST_COPY_START_NS 1500ull

/* Bytes that a context takes on its device before the program asks for any. Uncalibrated: drivers take 100 to 600 MiB, 518 on an H200. */
#define SIM_COST_CONTEXT_BYTES (256ull << 20)

/* Bytes that the driver keeps of a device's memory for itself. Uncalibrated: 615 MiB on an H200. */
#define SIM_COST_RESERVED_BYTES (512ull << 20)

/* Granularity of device memory, in bytes: what the driver maps at once on every GPU of the last ten years, and what
 * cuMemGetAllocationGranularity says there. */
#define SIM_GRANULE (2ull << 20)

#endif
