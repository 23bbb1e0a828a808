/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the simulated libnvidia-ml share. */
#ifndef ALIQUOT_SIMGPU_NVML_INTERNAL_H
#define ALIQUOT_SIMGPU_NVML_INTERNAL_H

#include <stddef.h>

#include "nvml.h"
#include "simgpu/proto.h"

#define EXPORT __attribute__((visibility("default")))

struct nvmlDevice_st {
	unsigned int index;
};

/* Where the server is. Returns -1 if that is not known. */
int library_path(char *path, size_t size);

/* The handle of a device; NULL: there is none. */
struct nvmlDevice_st *library_device(unsigned int index);

/* One question to the server. */
nvmlReturn_t ask(struct sim_request *request, struct sim_answer *answer);

/* Says whether a handle is one of ours, and the library initialized. */
nvmlReturn_t check_device(nvmlDevice_t device);

/* The same, and whether the device is still on the bus. */
nvmlReturn_t device_alive(nvmlDevice_t device);

/* Copies a text with its NUL to a place of that length; what is longer is refused. */
nvmlReturn_t copy_text(char *to, unsigned int length, const char *text);

#endif
