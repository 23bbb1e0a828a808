/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

struct peer {
	int fd, bell;
	uint32_t slot;
	bool welcomed, waits;
	struct alq_mem_ask kept; /* while it waits */
};

static struct {
	pthread_t thread;
	bool running;
	int listener, stop;
	struct peer peer[ALQ_MAX_PROCS + 8];
	int peers;
} server;

static void *page(const struct arbiter *a, const char *name, uint32_t kind, size_t size, uint32_t grants)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/%s", a->folder, name);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	struct alq_header *h = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(h != MAP_FAILED);
	close(fd);
	*h = (struct alq_header){.magic = ALQ_ABI_MAGIC, .version = ALQ_ABI_VERSION, .kind = kind, .size = (uint32_t)size, .grants = grants};
	return h;
}

void arbiter_make(struct arbiter *a, uint32_t grants, uint64_t granted, uint64_t ceiling)
{
	*a = (struct arbiter){.last_slot_asked = -2};
	const char *tmp = getenv("TMPDIR");
	snprintf(a->folder, sizeof(a->folder), "%s/shim-test-XXXXXX", tmp == NULL ? "/tmp" : tmp);
	CHECK(mkdtemp(a->folder) != NULL);
	a->ctl = page(a, "ctl", ALQ_KIND_CTL, sizeof(*a->ctl), grants);
	a->tel = page(a, "tel", ALQ_KIND_TEL, sizeof(*a->tel), grants);
	for (uint32_t g = 0; g < grants; g++) {
		struct alq_ctl_grant *c = &a->ctl->grant[g];
		int n = snprintf(c->device, sizeof(c->device), "GPU-");
		for (int i = 0; i < 16; i++)
			n += snprintf(c->device + n, sizeof(c->device) - (size_t)n, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
				      0x11 * (g + 1));
		c->compute_floor = 250;
		c->compute_ceiling = 1000;
		c->weight = 250;
		c->mem_floor = granted;
		c->mem_granted = granted;
		c->mem_ceiling = ceiling;
		c->mem_device = 64ull << 30;
		c->run_ahead_ns = NS_PER_MS;
		c->run_ahead_share_ns = NS_PER_MS;
		c->run_ahead_launches = 10;
	}
}

static void welcome(struct arbiter *a, struct peer *p, const struct alq_hello *hello)
{
	struct alq_welcome w = {.type = ALQ_WELCOME, .status = ALQ_OK};
	struct ucred who;
	socklen_t n = sizeof(who);
	getsockopt(p->fd, SOL_SOCKET, SO_PEERCRED, &who, &n);
	put(&a->last_slot_asked, hello->slot);
	uint32_t slot = hello->slot >= 0 ? (uint32_t)hello->slot : 0;
	while (hello->slot < 0 && slot < ALQ_MAX_PROCS && a->tel->slot[slot].state != ALQ_SLOT_FREE)
		slot++;
	if (slot == ALQ_MAX_PROCS) {
		w.status = ALQ_ERR_FULL;
		send(p->fd, &w, sizeof(w), MSG_NOSIGNAL);
		return;
	}
	w.slot = p->slot = slot;
	p->welcomed = true;
	p->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	put(&a->tel->slot[slot].pid, who.pid);
	put_release(&a->tel->slot[slot].state, ALQ_SLOT_LIVE);
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {&w, sizeof(w)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &p->bell, sizeof(int));
	/* Before it is answered: whoever has its welcome has been counted. */
	__atomic_fetch_add(&a->hellos, 1, __ATOMIC_SEQ_CST);
	sendmsg(p->fd, &msg, MSG_NOSIGNAL);
}

static void answer(struct arbiter *a, struct peer *p, const struct alq_mem_ask *ask)
{
	struct alq_ctl_grant *c = &a->ctl->grant[ask->grant];
	struct alq_mem_answer r = {.type = ALQ_MEM_ANSWER, .status = ALQ_ERR_NO_MEM};
	uint64_t granted = get_seq(&c->mem_granted), lendable = get(&a->lendable);
	if (ask->want <= granted) {
		r.status = ALQ_OK;
	} else if (ask->want - granted <= lendable && ask->want <= c->mem_ceiling) {
		put(&a->lendable, lendable - (ask->want - granted));
		put_seq(&c->mem_granted, ask->want);
		r.status = ALQ_OK;
	} else if (get(&a->patient)) {
		if (!p->waits)
			__atomic_fetch_add(&a->kept, 1, __ATOMIC_SEQ_CST);
		p->waits = true;
		p->kept = *ask;
		return;
	}
	p->waits = false;
	r.granted = get_seq(&c->mem_granted);
	__atomic_fetch_add(&a->asks, 1, __ATOMIC_SEQ_CST);
	send(p->fd, &r, sizeof(r), MSG_NOSIGNAL);
}

static void peer_end(struct arbiter *a, struct peer *p, bool dead)
{
	close(p->fd);
	if (p->welcomed) {
		close(p->bell);
		if (dead) {
			struct alq_slot *s = &a->tel->slot[p->slot];
			memset((char *)s + sizeof(s->state), 0, sizeof(*s) - sizeof(s->state));
			put_release(&s->state, ALQ_SLOT_FREE);
		}
	}
	*p = server.peer[--server.peers];
}

static void peer_read(struct arbiter *a, struct peer *p)
{
	union {
		uint32_t type;
		struct alq_hello hello;
		struct alq_mem_ask ask;
	} m;
	ssize_t n = recv(p->fd, &m, sizeof(m), MSG_DONTWAIT);
	if (n <= 0)
		peer_end(a, p, true);
	else if (m.type == ALQ_HELLO)
		welcome(a, p, &m.hello);
	else if (m.type == ALQ_MEM_ASK)
		answer(a, p, &m.ask);
}

static void *serve(void *arg)
{
	struct arbiter *a = arg;
	for (;;) {
		struct pollfd fds[2 + 2 * (ALQ_MAX_PROCS + 8)] = {{.fd = server.listener, .events = POLLIN}, {.fd = server.stop, .events = POLLIN}};
		int peers = server.peers;
		for (int i = 0; i < peers; i++) {
			fds[2 + 2 * i] = (struct pollfd){.fd = server.peer[i].fd, .events = POLLIN};
			fds[3 + 2 * i] = (struct pollfd){.fd = server.peer[i].welcomed ? server.peer[i].bell : -1, .events = POLLIN};
		}
		if (!get(&a->silent))
			put_release(&a->ctl->heartbeat_ns, clock_now() + a->ahead_ns);
		poll(fds, (nfds_t)(2 + 2 * peers), 50);
		if (fds[1].revents != 0)
			return NULL;
		for (int i = peers - 1; i >= 0; i--) {
			uint64_t count;
			if (server.peer[i].waits)
				answer(a, &server.peer[i], &server.peer[i].kept);
			if (fds[3 + 2 * i].revents != 0 && read(server.peer[i].bell, &count, sizeof(count)) == (ssize_t)sizeof(count))
				__atomic_fetch_add(&a->rings, (uint32_t)count, __ATOMIC_SEQ_CST);
			if (fds[2 + 2 * i].revents != 0)
				peer_read(a, &server.peer[i]);
		}
		if (fds[0].revents != 0) {
			int fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
			if (fd >= 0)
				server.peer[server.peers++] = (struct peer){.fd = fd, .bell = -1};
		}
	}
}

void arbiter_serve(struct arbiter *a)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	snprintf(at.sun_path, sizeof(at.sun_path), "%.90s/arbiter.sock", a->folder);
	unlink(at.sun_path);
	server.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	server.stop = eventfd(0, EFD_CLOEXEC);
	CHECK(bind(server.listener, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(server.listener, 64) == 0);
	put_release(&a->ctl->heartbeat_ns, clock_now() + a->ahead_ns);
	put(&a->ctl->arbiter_epoch, get(&a->ctl->arbiter_epoch) + 1);
	CHECK(pthread_create(&server.thread, NULL, serve, a) == 0);
	server.running = true;
}

void arbiter_die(struct arbiter *a)
{
	uint64_t one = 1;
	CHECK(write(server.stop, &one, sizeof(one)) == (ssize_t)sizeof(one));
	pthread_join(server.thread, NULL);
	close(server.stop);
	close(server.listener);
	while (server.peers > 0)
		peer_end(a, &server.peer[server.peers - 1], false);
	server.running = false;
}

void arbiter_remove(struct arbiter *a)
{
	const char *names[] = {"ctl", "tel", "arbiter.sock", "memory"};
	char path[300];
	if (server.running)
		arbiter_die(a);
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", a->folder, names[i]);
		unlink(path);
	}
	rmdir(a->folder);
}

static void word_set(struct arbiter *a, uint32_t grant, uint32_t bits)
{
	struct alq_ctl_grant *c = &a->ctl->grant[grant];
	uint32_t count = get(&c->gate) & ~(ALQ_GATE_OPEN | ALQ_GATE_UNGATED);
	put_seq(&c->gate, (count + ALQ_GATE_STEP) | bits);
	futex_wake(&c->gate, INT_MAX, true);
}

void gate_open(struct arbiter *a, uint32_t grant, uint64_t lease_end)
{
	struct alq_ctl_grant *c = &a->ctl->grant[grant];
	put(&c->lease_id, get(&c->lease_id) + 1);
	put(&c->lease_start_ns, clock_now());
	put_seq(&c->lease_end_ns, lease_end);
	word_set(a, grant, ALQ_GATE_OPEN);
}

void gate_ungate(struct arbiter *a, uint32_t grant)
{
	put_seq(&a->ctl->grant[grant].lease_end_ns, UINT64_MAX);
	word_set(a, grant, ALQ_GATE_OPEN | ALQ_GATE_UNGATED);
}

void gate_close(struct arbiter *a, uint32_t grant)
{
	put_seq(&a->ctl->grant[grant].lease_end_ns, 0);
	word_set(a, grant, 0);
}

void lease_move(struct arbiter *a, uint32_t grant, uint64_t lease_end)
{
	struct alq_ctl_grant *c = &a->ctl->grant[grant];
	bool later = lease_end > get(&c->lease_end_ns);
	put_seq(&c->lease_end_ns, lease_end);
	if (later)
		word_set(a, grant, ALQ_GATE_OPEN);
}

void tenant_start(struct arbiter *a)
{
	CUcontext ctx;
	CUdevice device;
	setenv("ALIQUOT_TASK", a->folder, 1);
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	CHECK_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxCreate_v2(&ctx, 0, device), CUDA_SUCCESS);
}
