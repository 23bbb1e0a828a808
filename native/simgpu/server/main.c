/* SPDX-License-Identifier: Apache-2.0 */
/* aliquot-simgpu: serves simulated devices, and asks one that serves. */
#include "simgpu/server/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "simgpu/costs.h"
#include "simgpu/wire.h"

static const char usage[] =
	"aliquot-simgpu: simulated GPUs for driver-API programs\n"
	"\n"
	"  aliquot-simgpu serve --devices h200x2,a10x4 --socket S --record R [--control C] [--costs FILE] [--slice-us N] [--switch-us N]\n"
	"  aliquot-simgpu status --socket S\n"
	"  aliquot-simgpu sync --socket S                       bring the record up to now\n"
	"  aliquot-simgpu inject --control C --device N FAULT   FAULT: xid NUMBER [--pid PID] | gone | hang | oom | back\n"
	"\n"
	"Devices may have costs in their list: h200x2,switch_ns=100000 with the names of native/simgpu/costs.h, as in FILE; and be linked\n"
	"with each other, and at memory nodes, so many in a row: h200x8,linked=4,numa=4.\n"
	"Faults are taken over the socket C alone, which its user and root may open; whoever is to use the devices is given S.\n"
	"A program finds the devices through build/native/sim/libcuda.so.1 and $ALIQUOT_SIMGPU=S.\n";

static int fail(const char *what, const char *which)
{
	fprintf(stderr, "aliquot-simgpu: %s%s%s; see aliquot-simgpu --help\n", what, which ? " " : "", which ? which : "");
	return 2;
}

static int ask(const char *path, struct sim_request *r, struct sim_answer *a)
{
	int fd = wire_connect(path);
	if (fd < 0) {
		fprintf(stderr, "aliquot-simgpu: nobody serves %s: %s\n", path, strerror(errno));
		return -1;
	}
	int status = wire_call(fd, r, a, NULL);
	close(fd);
	if (status != 0) {
		if (status < 0)
			fprintf(stderr, "aliquot-simgpu: the server at %s went away\n", path);
		else if (status == 101)
			fprintf(stderr, "aliquot-simgpu: there is no device %u; see aliquot-simgpu status\n", r->device);
		else if (status == 800)
			fprintf(stderr, "aliquot-simgpu: faults are not taken there, only over the socket that the server was given as --control\n");
		else
			fprintf(stderr, "aliquot-simgpu: refused with status %d\n", status);
		return -1;
	}
	return 0;
}

static int command_status(const char *socket)
{
	struct sim_request r = {.call = SIM_HELLO, .arg[0] = SIM_VERSION};
	struct sim_answer a;
	if (ask(socket, &r, &a) < 0)
		return 1;
	uint32_t n = (uint32_t)a.value[0];
	printf("DEVICE  UUID                                      NAME                   BUSY(s)    SWITCH(s)  LAUNCHES   CONTEXTS  MEMORY(MiB)"
	       "      STATE\n");
	for (uint32_t i = 0; i < n; i++) {
		r = (struct sim_request){.call = SIM_STATUS, .device = i};
		if (ask(socket, &r, &a) < 0)
			return 1;
		printf("%-7u %-41s %-22s %-10.3f %-10.3f %-10" PRIu64 " %-9" PRIu64 " %6" PRIu64 "/%-9" PRIu64 " %s\n", i, a.info.uuid, a.info.name,
		       (double)a.value[0] / 1e9, (double)a.value[1] / 1e9, a.value[2], a.value[3], a.value[4] >> 20,
		       (a.info.memory - a.info.reserved) >> 20, a.value[5] ? "gone" : a.value[6] ? "hung" : "ok");
	}
	printf("costs: %s\n", SIM_CALIBRATED ? "calibrated" : "uncalibrated (native/simgpu/costs.h)");
	return 0;
}

static int command_inject(const char *control, uint64_t device, const char *fault, const char *number, uint64_t pid)
{
	static const char *const names[] = {[SIM_FAULT_XID] = "xid", [SIM_FAULT_GONE] = "gone", [SIM_FAULT_HANG] = "hang", [SIM_FAULT_OOM] = "oom",
					    [SIM_FAULT_BACK] = "back"};
	struct sim_request r = {.call = SIM_INJECT, .device = (uint32_t)device, .arg[2] = pid};
	struct sim_answer a;
	for (uint64_t i = SIM_FAULT_XID; i <= SIM_FAULT_BACK; i++)
		if (strcmp(names[i], fault) == 0)
			r.arg[0] = i;
	if (!r.arg[0])
		return fail("there is no fault", fault);
	if (r.arg[0] == SIM_FAULT_XID && (!number || parse_number(number, &r.arg[1]) < 0))
		return fail("xid needs a number, for example: xid 79", NULL);
	return ask(control, &r, &a) < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
	static struct model model;
	model.costs = (struct costs){SIM_COST_SLICE_NS,	     SIM_COST_SWITCH_NS,     SIM_COST_KERNEL_MIN_NS, SIM_COST_KERNEL_DEFAULT_NS,
				     SIM_COST_COPY_START_NS, SIM_COST_CONTEXT_BYTES, SIM_COST_RESERVED_BYTES};
	struct options o = {0};
	uint64_t device = 0, pid = 0, slice_us = 0, switch_us = SIM_NEVER;
	const char *words[3] = {0};
	int count = 0;
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
		if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
			fputs(usage, stdout);
			return 0;
		}
		if (strncmp(name, "--", 2) != 0) {
			if (count == 3)
				return fail("too many words, from", name);
			words[count++] = name;
			continue;
		}
		if (!value)
			return fail("a value is missing after", name);
		i++;
		uint64_t *number = strcmp(name, "--device") == 0      ? &device
				   : strcmp(name, "--pid") == 0	      ? &pid
				   : strcmp(name, "--slice-us") == 0  ? &slice_us
				   : strcmp(name, "--switch-us") == 0 ? &switch_us
								      : NULL;
		const char **text = strcmp(name, "--devices") == 0  ? &o.devices
				    : strcmp(name, "--socket") == 0 ? &o.socket
				    : strcmp(name, "--control") == 0 ? &o.control
				    : strcmp(name, "--record") == 0 ? &o.record
				    : strcmp(name, "--costs") == 0  ? &o.costs
								    : NULL;
		if (number && parse_number(value, number) < 0)
			return fail("not a number:", value);
		if (!number && !text)
			return fail("there is no option", name);
		if (text)
			*text = value;
	}
	if (!count)
		return fail("say what to do: serve, status, sync or inject", NULL);
	if (strcmp(words[0], "inject") == 0) {
		if (!words[1])
			return fail("say which fault to inject", NULL);
		if (!o.control)
			return fail("--control is missing: faults are taken over the socket that the server was given so", NULL);
		return command_inject(o.control, device, words[1], words[2], pid);
	}
	if (!o.socket)
		return fail("--socket is missing", NULL);
	if (strcmp(words[0], "status") == 0)
		return command_status(o.socket);
	if (strcmp(words[0], "sync") == 0) {
		struct sim_request r = {.call = SIM_SYNC};
		struct sim_answer a;
		return ask(o.socket, &r, &a) < 0 ? 1 : 0;
	}
	if (strcmp(words[0], "serve") != 0)
		return fail("there is no command", words[0]);
	if (!o.devices || !o.record)
		return fail(o.devices ? "--record is missing" : "--devices is missing, for example --devices h200x2", NULL);
	if (o.costs && costs_read(&model.costs, o.costs) < 0)
		return 2;
	if (slice_us)
		model.costs.slice_ns = slice_us * 1000;
	if (switch_us != SIM_NEVER)
		model.costs.switch_ns = switch_us * 1000;
	if (catalog_parse(&model, o.devices) < 0)
		return 2;
	return serve(&model, &o);
}
