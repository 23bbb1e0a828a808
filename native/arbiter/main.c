/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the arbiter's beginning, its loop and its end. */
#include "arbiter.h"
#include "prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 64
#define LOCK_WAIT_NS 3000000000ull /* for a predecessor that was told to quit */
#define ABSENT_NS 100000000ull     /* later than this it was not there */

uint64_t clock_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void complain(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "aliquot-arbiter: ");
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

int watch(struct node *node, struct source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};
	return epoll_ctl(node->epoll, EPOLL_CTL_ADD, source->fd, &event);
}

void unwatch(struct node *node, struct source *source)
{
	if (source->fd < 0)
		return;
	epoll_ctl(node->epoll, EPOLL_CTL_DEL, source->fd, NULL);
	close(source->fd);
	source->fd = -1;
}

static int take_lock(const struct node *node)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/arbiter.lock", node->run);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		complain("cannot open %s: %s", path, strerror(errno));
		return -1;
	}
	uint64_t until = clock_now() + LOCK_WAIT_NS;
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (clock_now() > until) {
			complain("another arbiter serves %s and holds %s; end it first", node->run, path);
			return -1;
		}
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* flock has no deadline */
	}
	return 0; /* held until the process ends */
}

/* Looks whether any process' work does not end. */
static void look_at_work(struct node *node)
{
	publish_stalls(node);
	node->look_at = stalls_watch(&node->stalls, &node->core) ? node->now + STALL_LOOK_NS : CORE_NEVER;
}

static void heartbeat(struct node *node)
{
	bool any = false;
	devices_look(node);
	for (int i = 0; i < CORE_TASKS; i++) {
		struct task *task = node->task[i];
		if (!task || !task->live)
			continue;
		any = true;
		store(&task->ctl->heartbeat_ns, node->now);
		task_policy(node, task);
		memory_give_back(node, task);
		core_touch(&node->core, task->core, node->now); /* in case a bell was lost */
	}
	memory_look(node);
	look_at_work(node);
	if (any)
		publish_all(node);
	node->heartbeat_at = any ? node->now + HEARTBEAT_NS : CORE_NEVER;
}

static void handle(struct node *node, struct source *source)
{
	uint64_t expired;
	ssize_t n;
	switch (source->kind) {
	case SOURCE_TIMER:
		n = read(source->fd, &expired, sizeof expired);
		(void)n; /* that it woke us is all */
		break;
	case SOURCE_SIGNAL:
		node->ending = true;
		break;
	case SOURCE_CONTROL:
		control_accept(node);
		break;
	case SOURCE_CONTROL_LINE:
		control_read(node, source);
		break;
	case SOURCE_TASK:
		process_accept(node, source->owner);
		break;
	case SOURCE_PROCESS:
		if (!((struct process *)source->owner)->gone)
			process_read(node, source->owner);
		break;
	case SOURCE_BELL:
		process_rang(node, source->owner);
		break;
	case SOURCE_PIDFD:
		process_end(node, source->owner);
		break;
	}
}

static void arm(struct node *node, uint64_t at)
{
	struct itimerspec when = {.it_value = {0}};
	if (at != CORE_NEVER) {
		when.it_value.tv_sec = (time_t)(at / 1000000000ull);
		when.it_value.tv_nsec = (long)(at % 1000000000ull) + (at == 0);
	}
	timerfd_settime(node->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/*
 * This process did not run since `due`: it was stopped, or the machine was. What nobody watched is booked as for a predecessor that died: gates
 * closed by themselves, and programs that have heard nothing for long keep to their floors. Nobody is charged for it or owed it.
 */
static void was_absent(struct node *node, uint64_t due)
{
	static bool live[CORE_GRANTS];
	bool paced = node->now > due + ALQ_ARBITER_LOST_NS;
	for (int i = 0; i < CORE_DEVICES; i++) {
		const struct core_device *d = &node->core.device[i];
		if (!node->device[i].page || (d->grants == 1 && node->core.grant[d->grant[0]].phase == CORE_UNGATED))
			continue; /* one that is ungated ran on */
		for (int k = 0; k < d->grants; k++)
			live[d->grant[k]] = paced && node->of_grant[d->grant[k]].task->live;
		core_settle(&node->core, i, due);
		core_away(&node->core, i, node->now, live);
	}
	stalls_anew(node); /* nor is work late that nobody could hear of */
}

/* Looks at the clock, which should not be far beyond `due`. */
static void look_up(struct node *node, uint64_t due)
{
	node->now = clock_now();
	if (due != CORE_NEVER && node->now > due + ABSENT_NS)
		was_absent(node, due);
}

static void serve(struct node *node)
{
	struct epoll_event events[EVENTS];
	uint64_t armed = CORE_NEVER;
	while (!node->ending) {
		look_up(node, node->now);
		if (node->heartbeat_at <= node->now)
			heartbeat(node);
		if (node->look_at <= node->now)
			look_at_work(node);
		if (node->unmute_at <= node->now)
			processes_unmute(node);
		if (owed_due(node) <= node->now)
			owed_look(node);
		uint64_t next = core_run(&node->core, node->now);
		publish_gates(node);
		next = next < node->heartbeat_at ? next : node->heartbeat_at;
		next = next < node->look_at ? next : node->look_at;
		next = next < node->unmute_at ? next : node->unmute_at;
		next = next < owed_due(node) ? next : owed_due(node);
		if (next != armed || next != CORE_NEVER)
			arm(node, armed = next);
		int n = epoll_wait(node->epoll, events, EVENTS, -1);
		look_up(node, armed);
		for (int i = 0; i < n; i++)
			handle(node, events[i].data.ptr);
		collect_garbage(node);
	}
}

static int set_up(struct node *node)
{
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	page_guard();
	node->epoll = epoll_create1(EPOLL_CLOEXEC);
	node->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	node->timer_source = (struct source){.kind = SOURCE_TIMER, .fd = node->timer};
	node->signal = (struct source){.kind = SOURCE_SIGNAL, .fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC)};
	if (node->epoll < 0 || node->timer < 0 || node->signal.fd < 0 || watch(node, &node->timer_source, EPOLLIN) ||
	    watch(node, &node->signal, EPOLLIN)) {
		complain("cannot start: %s", strerror(errno));
		return -1;
	}
	struct rlimit files;
	if (!getrlimit(RLIMIT_NOFILE, &files)) { /* three a process, and there may be thousands */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	node->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	node->heartbeat_at = node->look_at = node->unmute_at = node->owed_at = CORE_NEVER;
	node->now = clock_now();
	node->epoch = node->now;
	return 0;
}

static const char usage[] =
	"Usage: aliquot-arbiter --run RUN [--lease-us N] [--idle-cap-us N] [--burst-us N]\n"
	"Shares the devices of a node among the tasks under RUN (see docs/architecture.md).\n"
	"  --lease-us N     length of a lease, 1000 to 10000 (4000)\n"
	"  --idle-cap-us N  credit that an idle owner keeps, 1000 to 50000 (5000)\n"
	"  --burst-us N     what an idle share may use at once beyond its ceiling, 20000 at most and at least two leases (20000)\n"
	"  --version, --help\n";

/* A time in µs between low and high, in ns; exits otherwise. */
static uint64_t microseconds(const char *option, const char *text, uint64_t low, uint64_t high)
{
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-' || value < low || value > high) {
		complain("--%s is \"%s\"; it must be a whole number of microseconds from %llu to %llu", option, text, (unsigned long long)low,
			(unsigned long long)high);
		exit(2);
	}
	return value * 1000;
}

static void read_arguments(int argc, char **argv, struct node *node, struct core_config *config)
{
	static const struct option options[] = {
		{"run", required_argument, NULL, 'r'}, {"lease-us", required_argument, NULL, 'l'},
		{"idle-cap-us", required_argument, NULL, 'i'}, {"burst-us", required_argument, NULL, 'b'},
		{"version", no_argument, NULL, 'v'}, {"help", no_argument, NULL, 'h'}, {0},
	};
	const char *run = NULL;
	for (int c, at = 0; (c = getopt_long(argc, argv, "", options, &at)) >= 0;)
		switch (c) {
		case 'r': run = optarg; break;
		case 'l': config->lease_ns = microseconds("lease-us", optarg, 1000, 10000); break;
		case 'i': config->idle_cap_ns = microseconds("idle-cap-us", optarg, 1000, 50000); break;
		case 'b': config->burst_ns = microseconds("burst-us", optarg, 2000, 20000); break;
		case 'v': printf("aliquot-arbiter %s\n", ARBITER_VERSION); exit(0);
		case 'h': fputs(usage, stdout); exit(0);
		default: fputs(usage, stderr); exit(2);
		}
	if (!run || optind != argc) {
		complain("%s; it needs --run RUN, the folder of the running server", run ? "unexpected argument" : "no folder was named");
		exit(2);
	}
	if (config->burst_ns < 2 * config->lease_ns) {
		complain("--burst-us is less than two leases, so that no ceiling could be reached; raise it or lower --lease-us");
		exit(2);
	}
	if (strlen(run) >= sizeof node->run) {
		complain("the path %s is too long", run);
		exit(2);
	}
	strcpy(node->run, run);
}

int main(int argc, char **argv)
{
	static struct node node;
	struct core_config config;
	core_defaults(&config);
	config.context = &node;
	config.observe = observe;
	read_arguments(argc, argv, &node, &config);
	core_init(&node.core, &config);
	if (take_lock(&node) || set_up(&node))
		return 1;
	be_prompt(1, -10);
	adopt_all(&node);
	if (control_open(&node))
		return 1;
	serve(&node);
	node.now = clock_now();
	publish_all(&node);
	ALQ_POINT("arbiter.quit.written");
	return 0;
}
