// Package doctor says what works on this machine, what does not, and what to do about it. What comes in are facts, gathered from the
// kernel, the driver and the server; what goes out are findings as data. It changes nothing on the machine but for the
// self test, which is a workload like others, and works without a server.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// Severity says how bad a finding is.
type Severity string

// The severities. A Fail keeps Aliquot from doing its work; a Warn costs something that Detail names.
const (
	OK   Severity = "ok"
	Warn Severity = "warn"
	Fail Severity = "fail"
)

// Finding is one thing that was looked at.
type Finding struct {
	Code     string   `json:"code"` // stable
	Title    string   `json:"title"`
	Severity Severity `json:"severity"`
	Detail   string   `json:"detail"`
	Do       string   `json:"do,omitempty"` // what to do; empty when there is nothing
}

// Worst is the worst severity among findings.
func Worst(findings []Finding) Severity {
	worst := OK
	for _, one := range findings {
		if one.Severity == Fail || one.Severity == Warn && worst == OK {
			worst = one.Severity
		}
	}
	return worst
}

// Limits that the judgement goes by.
const (
	oldestKernel  = "5.4" // pidfd_open and clone3, by which tasks are watched
	littleSpace   = 1 << 30
	noSpace       = 64 << 20
	lateTimer     = 2 * time.Millisecond
	littleMemlock = 64 << 10
)

// Judge turns facts into findings, most basic first.
func Judge(f Facts) []Finding {
	var out []Finding
	add := func(code, title string, severity Severity, detail, do string) {
		if severity == OK {
			do = ""
		}
		out = append(out, Finding{code, title, severity, detail, do})
	}
	judgeMachine(f, add)
	if f.ofAnother() {
		judgeUser(f, add)
	} else {
		judgeOwn(f, add)
		judgeFolders(f, add)
	}
	judgeDriver(f, add)
	judgeServer(f, add)
	return out
}

type adder func(code, title string, severity Severity, detail, do string)

func judgeMachine(f Facts, add adder) {
	add("kernel", "Kernel", pick(kernelAtLeast(f.Kernel, oldestKernel), OK, Fail), f.Kernel+" on "+f.Arch,
		"Run on Linux "+oldestKernel+" or newer: tasks are watched through file descriptors that older kernels lack.")
	add("timer", "Timers", pick(f.TimerLate <= lateTimer, OK, Warn), fmt.Sprintf("1 ms sleeps end at most %s late in this process now", f.TimerLate.Round(10*time.Microsecond)),
		"The machine is busy or its clock is coarse: give-back takes that much longer unless the arbiter has real-time priority.")
}

// ofAnother says that the server that answers is root's, and who asks is another user: what this process may do is no word about what
// the server may.
func (f Facts) ofAnother() bool { return f.Server == nil && f.Info.AllUsers && f.UID != 0 }

// judgeUser says so, in place of what a server of this user would be permitted and where it would have its folders.
func judgeUser(f Facts, add adder) {
	add("user", "User", OK, fmt.Sprintf("%s (%d): root's server serves every user of this machine", f.User, f.UID), "")
	add("permissions", "Permissions", OK, "those of root's server, with its folders, which `aliquot doctor` as root judges; what it lacks it says below", "")
}

// judgeOwn judges what a server of this user is permitted.
func judgeOwn(f Facts, add adder) {
	if f.UID == 0 {
		add("user", "User", OK, "root: the server serves every user of this machine", "")
	} else {
		add("user", "User", OK, fmt.Sprintf("%s (%d): the server serves you alone", f.User, f.UID), "")
	}
	switch {
	case f.MountNamespace == nil:
		add("namespaces", "Private mounts", OK, "permitted: where a driver is, the shim is mounted over it", "")
	default:
		add("namespaces", "Private mounts", Warn, fmt.Sprintf(
			"not permitted (%s): programs find the shim through LD_LIBRARY_PATH, so one that resets it or opens the driver by its full path is not held to its share",
			f.MountNamespace), "Run the server as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0).")
	}
	switch {
	case f.Cgroup == 0:
		add("cgroups", "Control groups", Warn, "none are mounted: limits of CPU and memory are not kept", "Mount cgroup v2 at /sys/fs/cgroup.")
	case f.CgroupWrite != nil:
		add("cgroups", "Control groups", Warn, fmt.Sprintf("v%d, but %s: limits of CPU and memory are not kept", f.Cgroup, f.CgroupWrite),
			"Run the server as root, or as a systemd user service with Delegate=yes.")
	default:
		add("cgroups", "Control groups", OK, fmt.Sprintf("v%d, and groups can be made: limits of CPU and memory are kept", f.Cgroup), "")
	}
	judgeRealtime(f, add)
	add("memlock", "Locked memory", pick(f.Memlock >= littleMemlock, OK, Warn), "limit "+bytesOrAll(f.Memlock),
		"Raise `memlock` in /etc/security/limits.conf: the arbiter locks its pages.")
}

// judgeRealtime judges whether the arbiter may run before everything else. Root may, unless a container or its control group keeps it from that.
func judgeRealtime(f Facts, add adder) {
	const code, title, late = "realtime", "Real-time priority", "on a busy machine leases come late"
	switch {
	case f.Realtime == nil:
		add(code, title, OK, "permitted: the arbiter decides on time on a busy machine", "")
	case f.UID != 0:
		add(code, title, Warn, fmt.Sprintf("not permitted (%s): %s", f.Realtime, late),
			"Run the server as root, or give its user `rtprio 10` in /etc/security/limits.conf.")
	case !f.MayNice:
		add(code, title, Warn, fmt.Sprintf("not permitted (%s), also to root, who lacks CAP_SYS_NICE here, as in a container: %s", f.Realtime, late),
			"Start the server outside of the container, or give the container that capability (docker run --cap-add SYS_NICE).")
	case f.Cgroup == 1:
		add(code, title, Warn, fmt.Sprintf("not permitted (%s), also to root, whose control group has no real-time budget here: %s", f.Realtime, late),
			"Write one into cpu.rt_runtime_us of the server's control group, and before that of those above it.")
	default:
		add(code, title, Warn, fmt.Sprintf("not permitted (%s), also to root: with CONFIG_RT_GROUP_SCHED the kernel permits it in the root control group only: %s", f.Realtime, late),
			"Start the server in the root control group, or run a kernel without CONFIG_RT_GROUP_SCHED.")
	}
}

func judgeFolders(f Facts, add adder) {
	for _, folder := range f.Folders {
		code, title := "folder."+folder.Name, "Folder "+strings.ToUpper(folder.Name)
		switch {
		case folder.Err != nil:
			add(code, title, Fail, fmt.Sprintf("%s: %s", folder.Path, folder.Err), "Make it writable for the server's user, or name another with --"+folder.Name+".")
		case folder.Open:
			add(code, title, Fail, folder.Path+" can be written by other users", "chmod go-w "+folder.Path)
		case folder.Free < noSpace:
			add(code, title, Fail, fmt.Sprintf("%s: only %s free, so what happens cannot be stored", folder.Path, size(folder.Free)), "Free some space.")
		case folder.Free < littleSpace:
			add(code, title, Warn, fmt.Sprintf("%s: only %s free", folder.Path, size(folder.Free)), "Free some space before logs fill it.")
		default:
			add(code, title, OK, fmt.Sprintf("%s, %s free", folder.Path, size(folder.Free)), "")
		}
	}
	if len(f.StaleSockets) > 0 {
		add("sockets", "Sockets", Warn, "nobody serves "+strings.Join(f.StaleSockets, ", "), "The next `aliquot up` replaces them.")
	}
}

func judgeDriver(f Facts, add adder) {
	if f.Driver != nil {
		add("driver", "NVIDIA driver", Warn, f.Driver.Error(), "Nothing, to try Aliquot on simulated devices; else install the driver and start the server again.")
		return
	}
	add("driver", "NVIDIA driver", OK, "found", "")
	switch {
	case f.NVML != nil:
		add("nvml", "NVML", Fail, f.NVML.Error(), "Make `nvidia-smi` work first.")
	case f.NVMLDevices == 0:
		add("nvml", "NVML", Fail, "answers, and knows no devices", "Look at `nvidia-smi -L` and the kernel's log.")
	case f.NVMLDevices == 1:
		add("nvml", "NVML", OK, "answers, and knows 1 device", "")
	default:
		add("nvml", "NVML", OK, fmt.Sprintf("answers, and knows %d devices", f.NVMLDevices), "")
	}
}

func judgeServer(f Facts, add adder) {
	if f.Server != nil {
		add("server", "Server", Fail, f.Server.Error(), "aliquot up")
		return
	}
	switch {
	case f.Info.Version != f.Version:
		add("server", "Server", Warn, fmt.Sprintf("version %s answers, and this program is %s", f.Info.Version, f.Version),
			"aliquot down, then aliquot up: tasks run on meanwhile.")
	default:
		add("server", "Server", OK, fmt.Sprintf("version %s answers as %s", f.Info.Version, cmp.Or(f.Info.User, "-")), "")
	}
	if f.OtherRun != "" {
		add("server.other", "Another server", Warn, fmt.Sprintf("commands talk to your own at %s, and root's at %s serves this user too: what runs there is not seen here", f.Socket, f.OtherRun),
			fmt.Sprintf("Name root's with --run %s, or end your own with `aliquot down --all` and have root's alone.", f.OtherRun))
	}
	judgeArbiter(f, add)
	judgeShim(f, add)
	judgeDevices(f, add)
	for i, warning := range f.Info.Warnings {
		add(fmt.Sprintf("server.warning.%d", i+1), "Server says", Warn, warning, "")
	}
	judgeProbe(f, add)
}

func judgeArbiter(f Facts, add adder) {
	switch {
	case f.ArbiterHidden:
		add("arbiter", "Arbiter", OK, "not looked at: only the server's user may ask it", "")
	case f.Arbiter != nil:
		add("arbiter", "Arbiter", Fail, fmt.Sprintf("does not answer (%s): programs pace themselves at their floors", f.Arbiter),
			"The server replaces it, within seconds also where it hangs; if this stays, look into arbiter.log in the server's RUN folder.")
	default:
		add("arbiter", "Arbiter", OK, "answers: "+f.ArbiterSays, "")
	}
}

func judgeShim(f Facts, add adder) {
	if f.Info.Simulated {
		add("shim", "Shim", Warn, "found through LD_LIBRARY_PATH, because simulated devices have no driver to mount it over: a program that resets it finds no device",
			"Nothing, as long as devices are simulated.")
		return
	}
	if f.Info.ShimMode == "library path" {
		add("shim", "Shim", Warn, "found through LD_LIBRARY_PATH: a program that resets it, a static program, or one that opens the driver by its full path is not held to its share, which `aliquot devices -o wide` then shows",
			"Run the server as root, or allow user namespaces, so that the shim is mounted over the driver.")
		return
	}
	add("shim", "Shim", OK, cmp.Or(f.Info.ShimMode, "-")+": a program that talks to the kernel driver past the library is "+
		pick(f.Info.Unenforced == api.StopUnenforced, "seen and ended", "seen, not prevented"), "")
}

func judgeDevices(f Facts, add adder) {
	if f.Devices == nil {
		return
	}
	healthy := 0
	for _, device := range f.Devices {
		if device.Health == api.Healthy {
			healthy++
			continue
		}
		add("device."+device.UUID, fmt.Sprintf("Device %d", device.Index), Fail,
			fmt.Sprintf("%s is %s: %s", device.Model, device.Health, cmp.Or(device.HealthReason, "-")),
			pick(device.Simulated, "Its workloads were told; `aliquot down --all` and `aliquot up` simulate it anew.",
				"Its workloads were told; look at the kernel's log, and reset or replace it."))
	}
	says := fmt.Sprintf("%d of %d healthy", healthy, len(f.Devices))
	if f.Info.Simulated {
		says += "; they are simulated: nothing runs on a real GPU"
	}
	switch {
	case len(f.Devices) == 0:
		add("devices", "Devices", Fail, says, "Start the server with --simulate h200x2, or make `nvidia-smi -L` show a device.")
	case healthy == 0:
		add("devices", "Devices", Fail, says, "Nothing can start before one of them is healthy again.")
	default:
		add("devices", "Devices", pick(healthy == len(f.Devices), OK, Warn), says, "What needs more devices than are healthy waits.")
	}
	for _, device := range f.Devices {
		for _, process := range device.Unenforced {
			add(fmt.Sprintf("unenforced.%d", process.PID), "Outside any share", Warn,
				fmt.Sprintf("%s (pid %d) of %s uses device %d", process.Name, process.PID, cmp.Or(process.User, "-"), device.Index),
				aroundShare(device))
		}
	}
	judgeUnseen(f, add)
	judgeUnknown(f, add)
}

// judgeUnseen names the devices whose drivers do not say what shares are held against.
func judgeUnseen(f Facts, add adder) {
	for _, device := range f.Devices {
		switch device.Unseen {
		case api.UnseenProcesses:
			add(fmt.Sprintf("unseen.%d", device.Index), fmt.Sprintf("Device %d", device.Index), Warn,
				string(device.Unseen)+": who uses it outside any share, or holds more memory than its share may, is not seen there",
				"Give tenants who do not trust each other whole devices.")
		case api.UnseenMemory:
			add(fmt.Sprintf("unseen.%d", device.Index), fmt.Sprintf("Device %d", device.Index), Warn,
				string(device.Unseen)+": of memory the shares' own word is taken there",
				"Give tenants who do not trust each other whole devices.")
		}
	}
}

// aroundShare says what to do about a process on a device that is held to no share.
func aroundShare(device api.Device) string {
	var open []string
	for _, one := range device.Grants {
		if !one.Enforced && !slices.Contains(open, one.Workload) {
			open = append(open, one.Workload)
		}
	}
	if len(open) == 0 {
		return "Start it with `aliquot run`, or end it."
	}
	return fmt.Sprintf("Workloads go around their shares there: %s. `aliquot why` names the processes; end them, or start them so that they find the shim.", strings.Join(open, ", "))
}

// judgeUnknown names the workloads whose programs know functions of the driver that the shim does not, each once.
func judgeUnknown(f Facts, add adder) {
	var said []string
	for _, device := range f.Devices {
		for _, one := range device.Grants {
			if one.UnknownCalls == 0 || slices.Contains(said, one.Workload) {
				continue
			}
			said = append(said, one.Workload)
			add("unknown."+one.Workload, "Past the shim", Warn,
				fmt.Sprintf("programs of %s looked up functions of the driver that this version does not know, %d times: what they do by those is not held to the share", one.Workload, one.UnknownCalls),
				"Runtime libraries look up more than they call; hold what the device does against what is charged (`aliquot devices -o wide`), or install an aliquot that knows this driver.")
		}
	}
}

func judgeProbe(f Facts, add adder) {
	switch {
	case !f.Probed && f.Devices != nil && !slices.ContainsFunc(f.Devices, func(one api.Device) bool { return one.Health == api.Healthy }):
		add("probe", "Self test", Warn, "not made: no device is healthy", "Run `aliquot doctor` again when one is.")
	case !f.Probed:
		add("probe", "Self test", OK, "not made: "+cmp.Or(f.ProbeSkipped, "not asked for"), "")
	case f.Probe != nil:
		add("probe", "Self test", Fail, f.Probe.Error(), "Look at `aliquot show` and `aliquot logs` of the workload, and report it.")
	default:
		add("probe", "Self test", OK, "a program that was started with a share sees that share, not the device: "+f.ProbeSays+"; it stays in the history as "+f.ProbeName, "")
	}
}

func pick[T any](good bool, yes, no T) T {
	if good {
		return yes
	}
	return no
}
