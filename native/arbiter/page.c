/* SPDX-License-Identifier: Apache-2.0 */
/* page.c: pages are checked before they are believed, and one that is cut short under our feet harms its owner alone. */
#include "arbiter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

size_t page_size(enum alq_kind kind)
{
	switch (kind) {
	case ALQ_KIND_CTL: return sizeof(struct alq_ctl);
	case ALQ_KIND_TEL: return sizeof(struct alq_tel);
	case ALQ_KIND_BOOK: return sizeof(struct alq_book);
	case ALQ_KIND_DEVICE: return sizeof(struct alq_device);
	}
	return 0;
}

/* Where pages are mapped, for the handler. Slots are written before `size` is, and never while the handler runs (one thread). */
#define RANGES (CORE_TASKS * 3 + CORE_DEVICES)
static struct {
	uintptr_t start;
	size_t size;
} ranges[RANGES];
static uintptr_t memory_page;

static void on_bus_error(int signal, siginfo_t *info, void *context)
{
	(void)context;
	uintptr_t at = (uintptr_t)info->si_addr & ~(memory_page - 1);
	for (int i = 0; i < RANGES; i++) {
		if (!ranges[i].size || at < ranges[i].start || at >= ranges[i].start + ranges[i].size)
			continue;
		void *zeros = mmap((void *)at, memory_page, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (zeros != MAP_FAILED)
			return;
	}
	sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL); /* a fault of our own: die of it */
}

void page_guard(void)
{
	memory_page = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
	sigaction(SIGBUS, &action, NULL);
}

static int check(const struct alq_header *h, enum alq_kind kind, char *why, size_t why_size)
{
	if (h->magic != ALQ_ABI_MAGIC)
		snprintf(why, why_size, "no page of Aliquot (magic %#x)", h->magic);
	else if (h->version != ALQ_ABI_VERSION)
		snprintf(why, why_size, "version %u, this arbiter speaks version %u", h->version, ALQ_ABI_VERSION);
	else if (h->kind != (uint32_t)kind || h->size != page_size(kind))
		snprintf(why, why_size, "kind %u with %u bytes, not kind %d with %zu", h->kind, h->size, kind, page_size(kind));
	else if (kind == ALQ_KIND_DEVICE ? h->grants != 0 : h->grants < 1 || h->grants > ALQ_MAX_GRANTS)
		snprintf(why, why_size, "%u grants", h->grants);
	else if (!memchr(h->uid, 0, sizeof h->uid))
		snprintf(why, why_size, "its UID has no end");
	else
		return 0;
	return -1;
}

void *page_map(int folder, const char *name, enum alq_kind kind, char *why, size_t why_size, uid_t *owner)
{
	char what[256];
	size_t size = page_size(kind);
	struct stat st;
	int slot = 0, fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		snprintf(why, why_size, "page %s: %s", name, strerror(errno));
		return NULL;
	}
	while (slot < RANGES && ranges[slot].size)
		slot++;
	void *page = MAP_FAILED;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (size_t)st.st_size != size)
		snprintf(why, why_size, "page %s: not a file of %zu bytes", name, size);
	else if (slot == RANGES)
		snprintf(why, why_size, "page %s: too many pages are mapped", name);
	else if ((page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		snprintf(why, why_size, "page %s: %s", name, strerror(errno));
	close(fd);
	if (page == MAP_FAILED)
		return NULL;
	ranges[slot].start = (uintptr_t)page;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	ranges[slot].size = (size + memory_page - 1) & ~(memory_page - 1);
	struct alq_header header;
	memcpy(&header, page, sizeof header);
	if (check(&header, kind, what, sizeof what)) {
		snprintf(why, why_size, "page %s: %s", name, what);
		page_unmap(page, kind);
		return NULL;
	}
	if (owner)
		*owner = st.st_uid;
	return page;
}

void *page_zeros(enum alq_kind kind)
{
	void *page = mmap(NULL, page_size(kind), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return page == MAP_FAILED ? NULL : page;
}

void page_unmap(void *page, enum alq_kind kind)
{
	if (!page)
		return;
	for (int i = 0; i < RANGES; i++)
		if (ranges[i].size && ranges[i].start == (uintptr_t)page)
			ranges[i].size = 0;
	munmap(page, page_size(kind));
}
