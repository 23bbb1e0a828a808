/* SPDX-License-Identifier: Apache-2.0 */
/* The models of GPUs that can be simulated, and `h200x2,a10x4,linked=2,switch_ns=100000` read into devices, how they are joined, and their costs. Figures are those of the vendor's data sheets. */
#include "simgpu/server/server.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB(n) ((uint64_t)(n) << 20)

/* name, memory, cc, SMs, clocks in kHz, bus, L2, shared memory per SM and per block, threads per SM, PCI id, power, brand, architecture,
 * bytes a second to the host, within the device, and decompressed */
static const struct {
	const char *word;
	struct sim_info info;
} catalog[] = {
	{"b200", {.name = "NVIDIA B200", .memory = MIB(183359), .major = 10, .minor = 0, .multiprocessors = 148, .clock_khz = 1965000,
		  .memory_clock_khz = 3996000, .bus_bits = 7680, .l2_bytes = 132644864, .shared_per_sm = 233472, .shared_optin = 232448,
		  .threads_per_sm = 2048, .pci_device_id = 0x290110de, .power_limit_mw = 1000000, .brand = 14, .architecture = 10,
		  .copy_host_bps = 50000000000ull, .copy_device_bps = 3300000000000ull, .unpack_bps = 800000000000ull}},
	{"h200", {.name = "NVIDIA H200", .memory = MIB(143771), .major = 9, .minor = 0, .multiprocessors = 132, .clock_khz = 1980000,
		  .memory_clock_khz = 3201000, .bus_bits = 6144, .l2_bytes = 62914560, .shared_per_sm = 233472, .shared_optin = 232448,
		  .threads_per_sm = 2048, .pci_device_id = 0x233510de, .power_limit_mw = 700000, .brand = 14, .architecture = 9,
		  .copy_host_bps = 50000000000ull, .copy_device_bps = 2000000000000ull}},
	{"h100", {.name = "NVIDIA H100 80GB HBM3", .memory = MIB(81559), .major = 9, .minor = 0, .multiprocessors = 132, .clock_khz = 1980000,
		  .memory_clock_khz = 2619000, .bus_bits = 5120, .l2_bytes = 52428800, .shared_per_sm = 233472, .shared_optin = 232448,
		  .threads_per_sm = 2048, .pci_device_id = 0x233010de, .power_limit_mw = 700000, .brand = 14, .architecture = 9,
		  .copy_host_bps = 50000000000ull, .copy_device_bps = 1400000000000ull}},
	{"a100", {.name = "NVIDIA A100-SXM4-80GB", .memory = MIB(81920), .major = 8, .minor = 0, .multiprocessors = 108, .clock_khz = 1410000,
		  .memory_clock_khz = 1593000, .bus_bits = 5120, .l2_bytes = 41943040, .shared_per_sm = 167936, .shared_optin = 166912,
		  .threads_per_sm = 2048, .pci_device_id = 0x20b210de, .power_limit_mw = 400000, .brand = 14, .architecture = 7,
		  .copy_host_bps = 25000000000ull, .copy_device_bps = 900000000000ull}},
	{"a10", {.name = "NVIDIA A10", .memory = MIB(23028), .major = 8, .minor = 6, .multiprocessors = 72, .clock_khz = 1695000,
		 .memory_clock_khz = 6251000, .bus_bits = 384, .l2_bytes = 6291456, .shared_per_sm = 102400, .shared_optin = 101376,
		 .threads_per_sm = 1536, .pci_device_id = 0x223610de, .power_limit_mw = 150000, .brand = 14, .architecture = 7,
		 .copy_host_bps = 25000000000ull, .copy_device_bps = 270000000000ull}},
	{"l4", {.name = "NVIDIA L4", .memory = MIB(23034), .major = 8, .minor = 9, .multiprocessors = 58, .clock_khz = 2040000,
		.memory_clock_khz = 6251000, .bus_bits = 192, .l2_bytes = 50331648, .shared_per_sm = 102400, .shared_optin = 101376,
		.threads_per_sm = 1536, .pci_device_id = 0x27b810de, .power_limit_mw = 72000, .brand = 14, .architecture = 8,
		.copy_host_bps = 25000000000ull, .copy_device_bps = 135000000000ull}},
	{"t4", {.name = "Tesla T4", .memory = MIB(15360), .major = 7, .minor = 5, .multiprocessors = 40, .clock_khz = 1590000,
		.memory_clock_khz = 5001000, .bus_bits = 256, .l2_bytes = 4194304, .shared_per_sm = 65536, .shared_optin = 65536,
		.threads_per_sm = 1024, .pci_device_id = 0x1eb810de, .power_limit_mw = 70000, .brand = 2, .architecture = 6,
		.copy_host_bps = 12000000000ull, .copy_device_bps = 140000000000ull}},
};

/* The same devices in the same order have the same UUIDs, whenever and wherever they are simulated. */
static void name_device(struct sim_info *info, const char *word, uint32_t index)
{
	uint64_t h = 0xcbf29ce484222325ull;
	for (const char *p = word; *p; p++)
		h = (h ^ (uint8_t)*p) * 0x100000001b3ull;
	h = (h ^ index) * 0x100000001b3ull;
	for (int i = 0; i < 16; i++) {
		h ^= h >> 29;
		h *= 0xbf58476d1ce4e5b9ull;
		info->uuid_bytes[i] = (uint8_t)(h >> 56);
	}
	info->uuid_bytes[6] = (info->uuid_bytes[6] & 0x0f) | 0x40;
	info->uuid_bytes[8] = (info->uuid_bytes[8] & 0x3f) | 0x80;
	const uint8_t *b = info->uuid_bytes;
	snprintf(info->uuid, sizeof info->uuid, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
		 b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	info->pci_bus = 1 + index;
}

static int add_device(struct model *m, const char *word)
{
	for (size_t i = 0; i < sizeof catalog / sizeof *catalog; i++) {
		if (strcmp(catalog[i].word, word) != 0)
			continue;
		struct device *d = &m->device[m->devices];
		d->index = m->devices++;
		d->info = catalog[i].info;
		name_device(&d->info, word, d->index);
		return 0;
	}
	fprintf(stderr, "aliquot-simgpu: there is no model \"%s\"; the models are", word);
	for (size_t i = 0; i < sizeof catalog / sizeof *catalog; i++)
		fprintf(stderr, " %s", catalog[i].word);
	fprintf(stderr, "\n");
	return -1;
}

static int add_devices(struct model *m, char *item, const char *list)
{
	long count = 1;
	char *x = strrchr(item, 'x');
	if (x && x > item && isdigit((unsigned char)x[1])) {
		char *end;
		count = strtol(x + 1, &end, 10);
		if (*end)
			count = 0;
		*x = '\0';
	}
	if (count < 1 || count + m->devices > SIM_MAX_DEVICES) {
		fprintf(stderr, "aliquot-simgpu: \"%s\" asks for more than %d devices or for none; write for example h200x2,a10x4\n", list,
			SIM_MAX_DEVICES);
		return -1;
	}
	while (count-- > 0)
		if (add_device(m, item) < 0)
			return -1;
	return 0;
}

/* Sets how devices are joined; 1: the name is none of that, -1: the number is none. */
static int joined_set(struct model *m, const char *name, const char *text)
{
	uint32_t *in = strcmp(name, "linked") == 0 ? &m->linked : strcmp(name, "numa") == 0 ? &m->local : NULL;
	uint64_t number;
	if (!in)
		return 1;
	if (parse_number(text, &number) < 0 || number < 1 || number > SIM_MAX_DEVICES)
		return -1;
	*in = (uint32_t)number;
	return 0;
}

int catalog_parse(struct model *m, const char *list)
{
	char copy[256], *rest = copy, *item;
	if (snprintf(copy, sizeof copy, "%s", list) >= (int)sizeof copy) {
		fprintf(stderr, "aliquot-simgpu: the list of devices is longer than %zu characters\n", sizeof copy);
		return -1;
	}
	while ((item = strsep(&rest, ","))) {
		char *number = strchr(item, '=');
		if (number) {
			*number++ = '\0';
			int joined = joined_set(m, item, number);
			if (joined < 0) {
				fprintf(stderr, "aliquot-simgpu: \"%s=%s\" joins no devices; write how many in a row belong together, from 1 to %d, for "
						"example linked=2\n", item, number, SIM_MAX_DEVICES);
				return -1;
			}
			if (joined == 0)
				continue;
			if (cost_set(&m->costs, item, number) < 0) {
				fprintf(stderr, "aliquot-simgpu: \"%s=%s\" is no cost; write for example switch_ns=100000, in whole numbers and with the "
						"names of native/simgpu/costs.h, or linked=2 or numa=4\n", item, number);
				return -1;
			}
		} else if (add_devices(m, item, list) < 0) {
			return -1;
		}
	}
	if (!m->devices) {
		fprintf(stderr, "aliquot-simgpu: \"%s\" names no device; write for example h200x2,a10x4\n", list);
		return -1;
	}
	for (uint32_t i = 0; i < m->devices; i++)
		m->device[i].info.reserved = m->costs.reserved_bytes;
	return 0;
}
