/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes on a device, their deaths, and faults. */
#include "simgpu/test/harness.h"

#include <signal.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "simgpu/proto.h"

#define MIB (1ull << 20)
#define ENDLESS (1ull << 62)

struct hog {
	pid_t pid;
	int go, ready;
};

/* A process that, when told to, holds `bytes` of the device and runs one kernel without end. Made before this process touches the driver: a
 * forked child could not use it afterwards. */
static struct hog hog_make(size_t bytes)
{
	int go[2], ready[2];
	char byte;
	CHECK(pipe(go) == 0 && pipe(ready) == 0);
	fflush(NULL);
	struct hog h = {.pid = fork(), .go = go[1], .ready = ready[0]};
	if (h.pid == 0) {
		close(go[1]);
		if (read(go[0], &byte, 1) != 1)
			_exit(1); /* the test has ended */
		struct bench b = bench_open();
		CUdeviceptr p;
		if (bytes)
			OK(cuMemAlloc(&p, bytes));
		launch_ns(b.timed, ENDLESS, b.stream);
		CHECK(write(ready[1], "", 1) == 1);
		cuStreamSynchronize(b.stream);
		_exit(1); /* it does not end */
	}
	close(go[0]);
	close(ready[1]);
	return h;
}

static void hog_go(struct hog *h)
{
	char byte;
	CHECK(write(h->go, "", 1) == 1);
	CHECK(read(h->ready, &byte, 1) == 1);
}

static pid_t start_hog(size_t bytes)
{
	struct hog h = hog_make(bytes);
	hog_go(&h);
	return h.pid;
}

static void stop_hog(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static const struct sim_record_row *row_of(const struct sim_record *r, pid_t pid)
{
	for (uint32_t i = 0; i < r->rows; i++)
		if (r->row[i].pid == pid)
			return &r->row[i];
	FAIL("no row for process %d", pid);
}

static void turns(void)
{
	enum { N = 4 };
	pid_t hog[N];
	uint64_t before[N], total, least = UINT64_MAX, most = 0;
	for (int i = 0; i < N; i++)
		hog[i] = start_hog(0);
	struct sim_record *r;
	for (bool all = false; !all;) { /* each has had a turn */
		r = record_now();
		all = true;
		for (int i = 0; i < N; i++) {
			before[i] = row_of(r, hog[i])->busy_ns;
			all = all && before[i] > 0;
		}
	}
	do {
		r = record_now();
		total = 0;
		for (int i = 0; i < N; i++)
			total += row_of(r, hog[i])->busy_ns - before[i];
	} while (total < 100000000);
	for (int i = 0; i < N; i++) {
		uint64_t had = row_of(r, hog[i])->busy_ns - before[i];
		least = had < least ? had : least;
		most = had > most ? had : most;
	}
	CHECK(most - least <= 2000000); /* a slice: nothing but turns decides */
	for (int i = 0; i < N; i++)
		stop_hog(hog[i]);
}

static void switch_cost(void)
{
	pid_t a = start_hog(0), b = start_hog(0);
	struct sim_record *r;
	do
		r = record_now();
	while (r->device[0].switches < 20);
	CHECK(r->device[0].switch_ns == 0); /* the default, said in costs.h */
	stop_hog(a);
	stop_hog(b);
}

/* As long as two have work, all time is one's or goes into switching. */
static void switch_cost_listed(void)
{
	pid_t a = start_hog(0), b = start_hog(0);
	struct sim_record *r;
	do
		r = record_now();
	while (r->device[0].switches < 20);
	uint64_t all = r->device[0].switches * 100000;
	CHECK(r->device[0].switch_ns <= all && r->device[0].switch_ns + 100000 >= all); /* the last may be going on */
	stop_hog(a);
	stop_hog(b);
	static const char *const wrong[] = {"h200,sneeze_ns=1", "h200,switch_ns=", "h200,switch_ns=-1", "h200,switch_ns=1us", "h200,=1", "switch_ns=1",
					     "h200,linked=0", "h200,linked=two", "h200,numa=99", "linked=2"};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		if (simgpu("serve", "--devices", wrong[i], "--record", test_record, NULL) != 2)
			FAIL("a list of devices was taken: %s", wrong[i]);
}

static void killed(void)
{
	struct hog h = hog_make(1000 * MIB);
	struct bench b = bench_open();
	size_t before, available, total;
	OK(cuMemGetInfo(&before, &total));
	hog_go(&h);
	pid_t hog = h.pid;
	OK(cuMemGetInfo(&available, &total));
	CHECK(before - available == (1000 + 256 + 2) * MIB);
	struct sim_record *r = record_now();
	CHECK(row_of(r, hog)->bytes == (1000 + 256 + 2) * MIB && row_of(r, hog)->ended_ns == 0);
	stop_hog(hog);
	do /* the server is told of the death like anyone else; it needs a moment */
		OK(cuMemGetInfo(&available, &total));
	while (available != before);
	r = record_now();
	CHECK(row_of(r, hog)->ended_ns != 0 && row_of(r, hog)->bytes == 0);
	uint64_t busy = r->device[0].busy_ns;
	launch(b.us500, b.stream); /* the device is this process' alone */
	OK(cuStreamSynchronize(b.stream));
	CHECK(record_now()->device[0].busy_ns == busy + 500000);
}

/* A child that inherited the connection does not keep its parent's memory alive. */
static void inherited(void)
{
	int out[2], hold[2];
	pid_t child;
	CHECK(pipe(out) == 0 && pipe(hold) == 0);
	pid_t parent = fork();
	if (parent == 0) {
		struct bench b = bench_open();
		(void)b;
		pid_t mine = fork();
		if (mine == 0) {
			char byte;
			int is = cuMemAlloc(&(CUdeviceptr){0}, 100);
			if (is != CUDA_ERROR_NOT_INITIALIZED || cuInit(0) != CUDA_ERROR_NOT_INITIALIZED)
				_exit(1);
			close(hold[1]);
			_exit(read(hold[0], &byte, 1) < 0); /* until the test ends */
		}
		CHECK(write(out[1], &mine, sizeof mine) == sizeof mine);
		pause();
	}
	CHECK(read(out[0], &child, sizeof child) == sizeof child);
	struct sim_record *r = record_now();
	CHECK(row_of(r, parent)->ended_ns == 0);
	stop_hog(parent);
	do
		r = record_now();
	while (row_of(r, parent)->ended_ns == 0);
	close(hold[1]);
}

static void no_server(void)
{
	int count;
	IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
	IS(CUDA_ERROR_NO_DEVICE, cuInit(0));
	IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
}

static void gone_and_back(void)
{
	struct bench b = bench_open();
	launch_ns(b.timed, ENDLESS, b.stream);
	CHECK(simgpu("sync", NULL) == 0);
	CUcontext other;
	CHECK(simgpu("inject", "gone", "--device", "0", NULL) == 0);
	IS(CUDA_ERROR_UNKNOWN, cuStreamSynchronize(b.stream));
	IS(CUDA_ERROR_DEVICE_UNAVAILABLE, cuCtxCreate(&other, 0, 0));
	CHECK(simgpu("inject", "back", "--device", "0", NULL) == 0);
	OK(cuCtxCreate(&other, 0, 0));
}

/* The status that a user's request is answered with; a process of its own asks. */
static int ask_as(uid_t uid, const struct sim_request *r)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		struct sockaddr_un to = {.sun_family = AF_UNIX};
		struct sim_answer a;
		CHECK(strlen(test_socket) < sizeof to.sun_path);
		strcpy(to.sun_path, test_socket);
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (fd < 0 || setresuid(uid, uid, uid) || connect(fd, (struct sockaddr *)&to, sizeof to) || send(fd, r, sizeof *r, 0) != sizeof *r ||
		    recv(fd, &a, sizeof a, 0) != sizeof a)
			_exit(1);
		_exit(a.status == CUDA_SUCCESS ? 0 : a.status == CUDA_ERROR_NOT_PERMITTED ? 2 : 3);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) != 1);
	return WEXITSTATUS(status);
}

/* Root's server is for all users; another's is for nobody else. Faults are taken over the control socket alone, which is its user's: on the
 * other they are refused to root as well, as whom programs in containers run. */
static void strangers(void)
{
	struct sim_request memory = {.call = SIM_MEMORY}, gone = {.call = SIM_INJECT, .arg[0] = SIM_FAULT_GONE};
	struct stat st;
	CHECK(stat(test_socket, &st) == 0 && (st.st_mode & 0777) == (geteuid() == 0 ? 0666 : 0600));
	CHECK(stat(test_control, &st) == 0 && (st.st_mode & 0777) == 0600);
	if (geteuid() == 0) { /* no other user can be another */
		char folder[sizeof test_socket];
		snprintf(folder, sizeof folder, "%s", test_socket);
		*strrchr(folder, '/') = '\0';
		CHECK(chmod(folder, 0711) == 0);
		CHECK(ask_as(65534, &memory) == 0);
		CHECK(ask_as(65534, &gone) == 2);
	}
	struct bench b = bench_open();
	launch(b.us100, b.stream);
	OK(cuStreamSynchronize(b.stream)); /* it is there */
	CHECK(ask_as(geteuid(), &gone) == 2);
	launch(b.us100, b.stream);
	OK(cuStreamSynchronize(b.stream)); /* it is there still */
	CHECK(simgpu("inject", "gone", "--device", "0", NULL) == 0);
	CUcontext other;
	IS(CUDA_ERROR_DEVICE_UNAVAILABLE, cuCtxCreate(&other, 0, 0));
}

static void xids(void)
{
	struct hog h = hog_make(0);
	struct bench b = bench_open();
	CUcontext fresh;
	CUdeviceptr p;
	char pid[16];
	hog_go(&h);
	pid_t hog = h.pid;
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	CHECK(simgpu("inject", "xid", "63", "--device", "0", NULL) == 0);
	OK(cuMemAlloc(&p, 100)); /* noted, nothing more */
	CHECK(simgpu("inject", "xid", "31", "--device", "0", "--pid", pid, NULL) == 0);
	IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(b.stream));
	IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&p, 100)); /* it stays */
	OK(cuCtxDestroy(b.context));
	OK(cuCtxCreate(&fresh, 0, 0)); /* the device is well, and so is the other process */
	uint64_t busy = row_of(record_now(), hog)->busy_ns;
	while (row_of(record_now(), hog)->busy_ns == busy) {
	}
	CHECK(simgpu("inject", "xid", "79", "--device", "0", NULL) == 0);
	IS(CUDA_ERROR_UNKNOWN, cuMemAlloc(&p, 100));
	IS(CUDA_ERROR_DEVICE_UNAVAILABLE, cuCtxCreate(&fresh, 0, 0));
	OK(cuCtxCreate(&fresh, 0, 1)); /* the other device is well */
	stop_hog(hog);
}

static void hangs(void)
{
	struct bench b = bench_open();
	CHECK(simgpu("inject", "hang", "--device", "0", NULL) == 0);
	launch(b.us100, b.stream);
	uint64_t busy;
	do /* busy for longer than the kernel takes, and it has not ended */
		busy = record_now()->device[0].busy_ns;
	while (busy < 1000000);
	IS(CUDA_ERROR_NOT_READY, cuStreamQuery(b.stream));
	CHECK(simgpu("inject", "back", "--device", "0", NULL) == 0);
	OK(cuStreamSynchronize(b.stream));
	CHECK(simgpu("inject", "oom", "--device", "0", NULL) == 0);
	CUdeviceptr p;
	IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, 10 * MIB));
	CHECK(simgpu("inject", "back", "--device", "0", NULL) == 0);
	OK(cuMemAlloc(&p, 10 * MIB));
	CHECK(simgpu("inject", "gone", "--device", "7", NULL) != 0);
	CHECK(simgpu("inject", "sneeze", "--device", "0", NULL) != 0);
}

const struct test process_tests[] = {{"contexts of processes take turns", "h200", turns},
				     {"switches cost what costs.h says", "h200", switch_cost},
				     {"switches cost what the list of devices says", "h200,switch_ns=100000", switch_cost_listed},
				     {"a killed process leaves nothing", "h200", killed},
				     {"a forked child has no driver, and keeps nothing", "h200", inherited},
				     {"no server is no device", NULL, no_server},
				     {"a device that is gone, and back", "h200", gone_and_back},
				     {"faults are made by the server's user alone", "h200", strangers},
				     {"XIDs", "h200x2", xids},
				     {"hang and out of memory", "h200", hangs},
				     {0}};
