/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record FILE: what the simulated devices' own record says: a line with the time that it is of, then one for each process on each device with
 * device, pid and the time that the device ran for it. All times in ns.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simgpu/record.h"

int main(int argc, char **argv)
{
	static struct sim_record copy;
	int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	const struct sim_record *record = mmap(NULL, sizeof *record, PROT_READ, MAP_SHARED, fd, 0);
	if (fd < 0 || record == MAP_FAILED) {
		perror(argc == 2 ? argv[1] : "usage: record FILE");
		return 1;
	}
	for (uint32_t seq = 1; seq % 2 != 0 || __atomic_load_n(&record->seq, __ATOMIC_ACQUIRE) != seq;) {
		seq = __atomic_load_n(&record->seq, __ATOMIC_ACQUIRE);
		memcpy(&copy, record, sizeof copy);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	}
	if (copy.magic != SIM_RECORD_MAGIC || copy.version != SIM_RECORD_VERSION || copy.rows > SIM_RECORD_ROWS) {
		fprintf(stderr, "%s is no record of version %u\n", argv[1], SIM_RECORD_VERSION);
		return 1;
	}
	printf("%" PRIu64 "\n", copy.updated_ns);
	for (uint32_t i = 0; i < copy.rows; i++)
		if (copy.row[i].pid != 0)
			printf("%" PRIu32 " %" PRId32 " %" PRIu64 "\n", copy.row[i].device, copy.row[i].pid, copy.row[i].busy_ns);
	return 0;
}
