/* SPDX-License-Identifier: Apache-2.0 */
/* Costs that are set by name: from a file, or in the list of devices. costs.h has their names and what they are otherwise. */
#include "simgpu/server/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int parse_number(const char *text, uint64_t *out)
{
	char *end;
	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-')
		return -1;
	*out = v;
	return 0;
}

static uint64_t *cost_named(struct costs *c, const char *name)
{
	const struct {
		const char *name;
		uint64_t *value;
	} all[] = {{"slice_ns", &c->slice_ns},
		   {"switch_ns", &c->switch_ns},
		   {"kernel_min_ns", &c->kernel_min_ns},
		   {"kernel_default_ns", &c->kernel_default_ns},
		   {"copy_start_ns", &c->copy_start_ns},
		   {"context_bytes", &c->context_bytes},
		   {"reserved_bytes", &c->reserved_bytes}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(all[i].name, name) == 0)
			return all[i].value;
	return NULL;
}

int cost_set(struct costs *c, const char *name, const char *number)
{
	uint64_t *to = cost_named(c, name);
	return to ? parse_number(number, to) : -1;
}

int costs_read(struct costs *c, const char *path)
{
	FILE *f = fopen(path, "re");
	if (!f) {
		fprintf(stderr, "aliquot-simgpu: cannot read the costs in %s: %s\n", path, strerror(errno));
		return -1;
	}
	char line[256], name[64], number[64], excess[2];
	int n = 0, bad = 0;
	while (fgets(line, sizeof line, f) && !bad) {
		n++;
		line[strcspn(line, "#\n")] = '\0';
		int fields = sscanf(line, " %63[a-z_] = %63[0-9] %1s", name, number, excess);
		if (line[strspn(line, " \t")] == '\0')
			continue;
		if (fields != 2 || cost_set(c, name, number) < 0) {
			fprintf(stderr, "aliquot-simgpu: %s:%d: \"%s\" is not `name = integer` with a name of native/simgpu/costs.h\n", path, n, line);
			bad = 1;
		}
	}
	fclose(f);
	return bad ? -1 : 0;
}
