/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paths_test.c: every function that paths.def calls gated or accounted is called through the finished shim on simulated devices, and what the
 * task's page says of it (launches, device time, bytes) is held against what the simulated devices record. Each that is gated is called with the
 * gate closed too, and must wait. A name that no test here calls so fails.
 */
#include "paths.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static const char *simgpu_path;
static char *self;
static const struct sim_record *record;
struct arbiter arbiter;
struct tenant tenant;

static struct name {
	const char *symbol, *kind;
	bool called, held;
} names[] = {
#define HOOK(name, base, version, per_thread, kind) {#name, #kind, false, false},
#include "../paths.def"
};

static struct name *name_of(const char *symbol)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i].symbol, symbol) == 0)
			return &names[i];
	}
	fprintf(stderr, "%s is called here and is not in paths.def\n", symbol);
	exit(1);
}

void name_called(const char *symbol)
{
	name_of(symbol)->called = true;
}

/* ------------------------------------------------------------------------------------------------- what is and what is said */

struct said said_now(void)
{
	struct said s = {0};
	for (int g = 0; g < GRANTS; g++) {
		const struct alq_tel_grant *t = &arbiter.tel->slot[0].grant[g];
		s.launched += get_acquire(&t->launched);
		s.measured += get_acquire(&t->device_launches);
		s.device_ns += get_acquire(&t->device_ns);
		s.busy_ns += __atomic_load_n(&record->device[g].busy_ns, __ATOMIC_ACQUIRE);
	}
	return s;
}

/* Until everything launched has ended and been counted. */
void come_to_rest(void)
{
	for (int g = 0; g < GRANTS; g++) {
		const struct alq_tel_grant *t = &arbiter.tel->slot[0].grant[g];
		CHECK_EQ(cuCtxSetCurrent(tenant.context[g]), CUDA_SUCCESS);
		CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
		WAIT(get_acquire(&t->completed) == get_acquire(&t->launched));
	}
	CHECK_EQ(cuCtxSetCurrent(tenant.context[0]), CUDA_SUCCESS);
}

/* The host's delays fall between the events that measure, so one try in many must come near: to a tenth and 200 µs. */
bool charged_right(const char *symbol, const struct said *before, uint64_t launches, uint64_t host_ns, int tries)
{
	struct said now = said_now();
	name_called(symbol);
	if (now.launched - before->launched != launches) {
		fprintf(stderr, "%s: %llu launches were counted, not %llu\n", symbol, (unsigned long long)(now.launched - before->launched),
			(unsigned long long)launches);
		exit(1);
	}
	uint64_t is = now.busy_ns - before->busy_ns, charged = now.device_ns - before->device_ns;
	uint64_t near = is / 10 + 200 * NS_PER_US;
	if (now.measured - before->measured == launches && charged + near >= is && charged <= is + near + host_ns)
		return true;
	if (tries < 200)
		return false;
	fprintf(stderr, "%s: the device was busy for %llu ns, charged were %llu ns for %llu launches\n", symbol, (unsigned long long)is,
		(unsigned long long)charged, (unsigned long long)(now.measured - before->measured));
	exit(1);
}

uint64_t bytes_used(void)
{
	return get_seq(&arbiter.tel->slot[0].grant[0].mem_used);
}

uint64_t bytes_of_other(void)
{
	const struct alq_tel_grant *t = &arbiter.tel->slot[1].grant[0];
	return get_seq(&t->mem_used) + get_seq(&t->mem_overhead);
}

uint64_t bytes_charged(void)
{
	return bytes_used() + get_seq(&arbiter.tel->slot[0].grant[0].mem_overhead);
}

uint64_t bytes_held(pid_t pid)
{
	for (uint32_t i = 0; i < __atomic_load_n(&record->rows, __ATOMIC_ACQUIRE); i++) {
		const struct sim_record_row *r = &record->row[i];
		if (r->pid == pid && r->device == 0 && r->ended_ns == 0)
			return __atomic_load_n(&r->bytes, __ATOMIC_ACQUIRE);
	}
	return 0;
}

/* ------------------------------------------------------------------------------------------------------- a closed gate */

static void *opener(void *held)
{
	struct held *h = held;
	const struct alq_tel_grant *t = &arbiter.tel->slot[0].grant[h->grant];
	WAIT(get_seq(&t->wait_since_ns) != 0 || get_acquire(&h->returned) != 0);
	h->waited = get_seq(&t->wait_since_ns) != 0;
	for (int g = 0; g < GRANTS; g++) {
		CHECK_EQ(cuCtxSetCurrent(tenant.context[g]), CUDA_SUCCESS);
		CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
	}
	h->busy_ns = said_now().busy_ns - h->before.busy_ns;
	gate_open(&arbiter, h->grant, UINT64_MAX - 1);
	return NULL;
}

void held_begin(struct held *h, uint32_t grant)
{
	come_to_rest();
	*h = (struct held){.before = said_now(), .grant = grant};
	gate_close(&arbiter, grant);
	CHECK(pthread_create(&h->opener, NULL, opener, h) == 0);
}

void held_end(struct held *h, const char *symbol, uint64_t launches, bool works)
{
	put_release(&h->returned, 1);
	pthread_join(h->opener, NULL);
	come_to_rest();
	struct said now = said_now();
	if (!h->waited || h->busy_ns != 0) {
		fprintf(stderr, "%s: with the gate of grant %u closed it %s, and kept the devices busy for %llu ns\n", symbol, h->grant,
			h->waited ? "waited" : "did not wait", (unsigned long long)h->busy_ns);
		exit(1);
	}
	CHECK_EQ(now.launched - h->before.launched, launches);
	CHECK(!works || now.busy_ns > h->before.busy_ns);
	name_of(symbol)->held = true;
}

/* ------------------------------------------------------------------------------------------------------------- processes */

struct other other_start(const char *role)
{
	int to[2], from[2];
	char in[16], out[16];
	/* Its own ends alone are for it: what others of its kind are told ends when this one lets go. */
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to) == 0 && pipe2(from, O_CLOEXEC) == 0);
	snprintf(in, sizeof(in), "%d", to[0]);
	snprintf(out, sizeof(out), "%d", from[1]);
	struct other o = {.pid = fork(), .to = to[1], .from = from[0]};
	CHECK(o.pid >= 0);
	if (o.pid == 0) {
		fcntl(to[0], F_SETFD, 0);
		fcntl(from[1], F_SETFD, 0);
		execl(self, self, role, in, out, (char *)NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	return o;
}

void other_end(struct other *o)
{
	int status, slot = 0;
	while (slot < ALQ_MAX_PROCS && get(&arbiter.tel->slot[slot].pid) != o->pid)
		slot++;
	close(o->to);
	CHECK(waitpid(o->pid, &status, 0) == o->pid);
	CHECK_EQ(status, 0);
	/* What it held is nobody's once the arbiter has seen that it ended. */
	WAIT(slot == ALQ_MAX_PROCS || get_acquire(&arbiter.tel->slot[slot].state) == ALQ_SLOT_FREE);
	close(o->from);
}

#define PIECES 24 /* that a racer holds at most, before it presses */
#define TRIES 5000

/* Allocates and frees on the second device beside its like, pieces of all sizes; then takes all that is left and holds it. */
static int role_races(int in, int out)
{
	CUdeviceptr held[PIECES] = {0}, last;
	uint64_t random = (uint64_t)getpid();
	CUcontext ctx;
	char byte;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxCreate_v2(&ctx, 0, 1), CUDA_SUCCESS);
	CHECK(write(out, "", 1) == 1 && read(in, &byte, 1) == 1);
	for (int i = 0; i < TRIES; i++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		CUdeviceptr *p = &held[(random >> 33) % PIECES];
		uint64_t size = (random >> 40 & 1) != 0 ? 512 + (random >> 41) % (MI - 512) : MI + (random >> 41) % (128 * MI);
		if (*p != 0) {
			CHECK_EQ(cuMemFree_v2(*p), CUDA_SUCCESS);
			*p = 0;
		} else if (cuMemAlloc_v2(p, size) != CUDA_SUCCESS) {
			*p = 0;
		}
	}
	while (cuMemAlloc_v2(&last, 2 * MI) == CUDA_SUCCESS)
		;
	CHECK(write(out, "", 1) == 1);
	CHECK(read(in, &byte, 1) == 0); /* what is held goes with the process */
	return 0;
}

uint64_t bytes_peak(int device)
{
	return __atomic_load_n(&record->device[device].peak_bytes, __ATOMIC_ACQUIRE);
}

/* ----------------------------------------------------------------------------------------------------------- the machine */

static pid_t devices_start(void)
{
	static char socket[300], file[300];
	char line[128];
	int out[2];
	snprintf(socket, sizeof(socket), "%s/simgpu.sock", arbiter.folder);
	snprintf(file, sizeof(file), "%s/record", arbiter.folder);
	CHECK(pipe(out) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], STDOUT_FILENO);
		execl(simgpu_path, simgpu_path, "serve", "--devices", "b200x2", "--socket", socket, "--record", file, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	CHECK(read(out[0], line, sizeof(line)) > 0); /* it says that it serves */
	close(out[0]);
	setenv("ALIQUOT_SIMGPU", socket, 1);
	int fd = open(file, O_RDONLY);
	CHECK(fd >= 0);
	record = mmap(NULL, sizeof(*record), PROT_READ, MAP_SHARED, fd, 0);
	CHECK(record != MAP_FAILED);
	close(fd);
	return pid;
}

static void devices_end(pid_t pid)
{
	char path[300];
	int status;
	kill(pid, SIGTERM);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
	snprintf(path, sizeof(path), "%s/record", arbiter.folder);
	unlink(path);
}

static void tenant_open(void)
{
	CHECK_EQ(cuInit(0), CUDA_SUCCESS);
	for (int g = GRANTS - 1; g >= 0; g--) {
		CHECK_EQ(cuCtxCreate_v2(&tenant.context[g], 0, g), CUDA_SUCCESS);
		CHECK_EQ(cuModuleLoadData(&tenant.module[g], tenant_ptx), CUDA_SUCCESS);
		CHECK_EQ(cuModuleGetFunction(&tenant.kernel[g], tenant.module[g], "busy_2ms"), CUDA_SUCCESS);
		CHECK_EQ(cuStreamCreate(&tenant.stream[g], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	}
	/* Contexts and modules: nothing that the device holds for us is charged to nobody. */
	CHECK_EQ(bytes_charged(), bytes_held(getpid()));
	CHECK(get_seq(&arbiter.tel->slot[0].grant[0].mem_overhead) >= 256 * MI);
}

static void all_called(void)
{
	int missing = 0, called = 0, held = 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct name *n = &names[i];
		bool wanted = strcmp(n->kind, "GATED") == 0 || strcmp(n->kind, "ACCOUNTED") == 0 || strcmp(n->kind, "REFUSED") == 0;
		called += n->called;
		held += n->held;
		if (wanted && !n->called) {
			fprintf(stderr, "paths.def calls %s %s, and nothing here calls it\n", n->symbol, n->kind);
			missing++;
		} else if (strcmp(n->kind, "GATED") == 0 && !n->held) {
			fprintf(stderr, "paths.def calls %s %s, and nothing here calls it with the gate closed\n", n->symbol, n->kind);
			missing++;
		}
	}
	CHECK_EQ(missing, 0);
	printf("paths on simulated devices: ok (%d functions, %d held by a closed gate)\n", called, held);
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (argc == 4)
		return (strcmp(argv[1], "races") == 0 ? role_races : strcmp(argv[1], "late") == 0 ? role_late : role_shares)(atoi(argv[2]), atoi(argv[3]));
	CHECK(argc == 2);
	simgpu_path = argv[1];
	arbiter_make(&arbiter, GRANTS, LIMIT, LIMIT);
	arbiter.ahead_ns = 60 * NS_PER_S; /* it is never away, on however busy a machine */
	pid_t devices = devices_start();
	for (int g = 0; g < GRANTS; g++)
		snprintf(arbiter.ctl->grant[g].device, sizeof(arbiter.ctl->grant[g].device), "%s", record->device[g].uuid);
	arbiter_serve(&arbiter);
	for (uint32_t g = 0; g < GRANTS; g++)
		gate_open(&arbiter, g, UINT64_MAX - 1);
	setenv("ALIQUOT_TASK", arbiter.folder, 1);
	tenant_open();
	test_memory();
	test_launches();
	test_copies();
	test_changes();
	test_refused();
	all_called();
	arbiter_remove(&arbiter);
	devices_end(devices);
	rmdir(arbiter.folder);
	return 0;
}
