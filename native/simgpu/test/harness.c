/* SPDX-License-Identifier: Apache-2.0 */
#include "simgpu/test/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

char test_socket[256], test_control[256], test_record[256];
static const char *server_path;

const char kernels_ptx[] = ".version 7.0\n"
			   ".target sm_50\n"
			   ".address_size 64\n"
			   "// a comment with { in it\n"
			   ".global .align 8 .b8 table[4096];\n"
			   ".visible .entry busy_100us() { ret; }\n"
			   ".visible .entry busy_500us() { ret; }\n"
			   ".visible .entry busy_5ms() { ret; }\n"
			   ".visible .entry plain(.param .u32 a, .param .align 16 .b8 b[24]) { ret; }\n"
			   ".visible .entry timed(.param .u32 other, .param .u64 ns) { ret; }\n";

struct bench bench_open(void)
{
	struct bench b;
	OK(cuInit(0));
	OK(cuCtxCreate(&b.context, 0, 0));
	OK(cuModuleLoadData(&b.module, kernels_ptx));
	OK(cuModuleGetFunction(&b.us100, b.module, "busy_100us"));
	OK(cuModuleGetFunction(&b.us500, b.module, "busy_500us"));
	OK(cuModuleGetFunction(&b.ms5, b.module, "busy_5ms"));
	OK(cuModuleGetFunction(&b.plain, b.module, "plain"));
	OK(cuModuleGetFunction(&b.timed, b.module, "timed"));
	OK(cuStreamCreate(&b.stream, CU_STREAM_NON_BLOCKING));
	return b;
}

void launch(CUfunction f, CUstream s)
{
	OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL));
}

void launch_ns(CUfunction timed, uint64_t ns, CUstream s)
{
	unsigned other = 0;
	void *params[] = {&other, &ns};
	OK(cuLaunchKernel(timed, 1, 1, 1, 32, 1, 1, 0, s, params, NULL));
}

static void read_gate(void *data)
{
	char byte;
	while (read((int)(intptr_t)data, &byte, 1) < 0 && errno == EINTR) {
	}
}

struct gate gate_close(CUstream s)
{
	struct gate g;
	CHECK(pipe(g.pipe) == 0);
	OK(cuLaunchHostFunc(s, read_gate, (void *)(intptr_t)g.pipe[0]));
	return g;
}

void gate_open(struct gate *g)
{
	CHECK(write(g->pipe[1], "", 1) == 1);
	close(g->pipe[1]); /* the reading end goes with the process: it may not have been read yet */
}

/* -------------------------------------------------------------------------------------------------------------- servers */

int simgpu(const char *first, ...)
{
	const char *arguments[16] = {server_path, first};
	int n = 2, status;
	va_list list;
	va_start(list, first);
	for (const char *a; (a = va_arg(list, const char *));)
		arguments[n++] = a;
	va_end(list);
	arguments[n++] = "--socket";
	arguments[n++] = test_socket;
	arguments[n++] = "--control";
	arguments[n++] = test_control;
	pid_t pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, 1);
		dup2(null, 2);
		execv(server_path, (char *const *)arguments);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Starts a server and returns when it says that it serves. */
static pid_t start_server(const char *devices)
{
	int out[2];
	char line[128];
	CHECK(pipe2(out, O_CLOEXEC) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		execl(server_path, server_path, "serve", "--devices", devices, "--socket", test_socket, "--control", test_control, "--record", test_record,
		      (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	CHECK(read(out[0], line, sizeof line) > 0);
	close(out[0]);
	return pid;
}

struct sim_record *record_now(void)
{
	static struct sim_record copy;
	static const struct sim_record *map;
	CHECK(simgpu("sync", NULL) == 0);
	if (!map) {
		int fd = open(test_record, O_RDONLY);
		CHECK(fd >= 0);
		map = mmap(NULL, sizeof *map, PROT_READ, MAP_SHARED, fd, 0);
		CHECK(map != MAP_FAILED);
		close(fd);
	}
	for (;;) {
		uint32_t seq = __atomic_load_n(&map->seq, __ATOMIC_ACQUIRE);
		for (size_t i = 0; i < sizeof copy / 8; i++)
			((uint64_t *)&copy)[i] = __atomic_load_n((const uint64_t *)map + i, __ATOMIC_ACQUIRE);
		if (!(seq & 1) && seq == __atomic_load_n(&map->seq, __ATOMIC_RELAXED))
			return &copy;
	}
}

/* ------------------------------------------------------------------------------------------------------------------ runs */

static bool run(const struct test *t, const char *folder)
{
	snprintf(test_socket, sizeof test_socket, "%s/sock", folder);
	snprintf(test_control, sizeof test_control, "%s/control", folder);
	snprintf(test_record, sizeof test_record, "%s/record", folder);
	setenv("ALIQUOT_SIMGPU", test_socket, 1);
	pid_t server = t->devices ? start_server(t->devices) : 0;
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(120); /* far more than any test needs, on any machine */
		t->run();
		exit(0);
	}
	int status;
	waitpid(pid, &status, 0);
	bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	if (server) {
		int ended;
		kill(server, SIGTERM);
		waitpid(server, &ended, 0);
		if (!WIFEXITED(ended) || WEXITSTATUS(ended)) {
			fprintf(stderr, "    the server ended with %#x\n", ended);
			good = false;
		}
	}
	unlink(test_socket);
	unlink(test_control);
	unlink(test_record);
	printf("%s %s", good ? "ok  " : "FAIL", t->name);
	if (WIFSIGNALED(status))
		printf(" (signal %d)", WTERMSIG(status));
	printf("\n");
	return good;
}

int main(int argc, char **argv)
{
	static const struct test *const all[] = {time_tests, memory_tests, graph_tests, process_tests, api_tests, nvml_tests, shared_tests};
	char folder[] = "/tmp/simgpu-test-XXXXXX";
	int failed = 0, passed = 0;
	if (argc < 2 || !mkdtemp(folder)) {
		fprintf(stderr, "usage: %s PATH-OF-ALIQUOT-SIMGPU [TEST]\n", argv[0]);
		return 2;
	}
	server_path = argv[1];
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		for (const struct test *t = all[i]; t->name; t++) {
			if (argc > 2 && strcmp(argv[2], t->name) != 0)
				continue;
			if (run(t, folder))
				passed++;
			else
				failed++;
		}
	rmdir(folder);
	printf("simgpu: %d passed, %d failed\n", passed, failed);
	return failed || !passed;
}
