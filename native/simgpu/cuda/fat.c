/* SPDX-License-Identifier: Apache-2.0 */
/* Fat binaries: what compilers put machine code for several GPUs into, and the text that it was made from. */
#include "simgpu/cuda/internal.h"

/* A fat binary: this, then its entries one behind the other, each with a header of its own. */
struct fat {
	uint32_t magic;
	uint16_t version, header; /* header: bytes of it */
	uint64_t bytes;           /* of all entries */
};
struct fat_entry {
	uint16_t kind, version;
	uint32_t header;
	uint64_t bytes;  /* behind its header */
	uint32_t packed; /* of these, compressed; 0: they are not */
};
#define FAT_MAGIC 0xba55ed50u
#define FAT_PTX 1

bool fat_is(const char *image)
{
	const uint32_t magic = FAT_MAGIC;
	return strncmp(image, (const char *)&magic, sizeof magic) == 0;
}

char *fat_text(const char *image)
{
	struct fat head;
	struct fat_entry e;
	memcpy(&head, image, sizeof head);
	for (uint64_t at = 0; at + sizeof e <= head.bytes; at += e.header + e.bytes) {
		const char *entry = image + head.header + at;
		memcpy(&e, entry, sizeof e);
		if (e.header < sizeof e || e.bytes > head.bytes - at)
			return NULL;
		if (e.kind == FAT_PTX && !e.packed)
			return strndup(entry + e.header, e.bytes);
	}
	return NULL;
}
