package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// Facts is what was found out. An error says why something is not so; nil that it is.
type Facts struct {
	Version string // of this program
	Kernel  string // release
	Arch    string
	UID     int
	User    string

	MountNamespace error // why a private mount namespace cannot be had
	Cgroup         int   // version; 0: none
	CgroupWrite    error // why no group can be made
	Realtime       error // why SCHED_FIFO cannot be had
	MayNice        bool  // it has CAP_SYS_NICE, and on the machine, not in a user namespace only
	Memlock        uint64
	TimerLate      time.Duration // worst of a few

	Folders      []Folder
	StaleSockets []string

	Driver      error // why there is none
	NVML        error
	NVMLDevices int

	Server        error  // why none answers
	Socket        string // that it was asked at
	OtherRun      string // RUN folder of root's server, which the user's own hides; empty: it does not
	Info          api.Info
	Devices       []api.Device // nil: not known
	Arbiter       error
	ArbiterSays   string
	ArbiterHidden bool // this user may not ask

	Probed       bool
	ProbeSkipped string // why not
	Probe        error
	ProbeSays    string
	ProbeName    string // of its workload, which stays in the history
}

// Folder is a folder of the server.
type Folder struct {
	Name, Path string
	Free       uint64 // bytes
	Open       bool   // others may write
	Err        error  // why it cannot be used
}

// unlimited is a resource limit that is none.
const unlimited = ^uint64(0)

func bytesOrAll(limit uint64) string {
	if limit == unlimited {
		return "none"
	}
	return size(limit)
}

// size prints an amount of memory or space for reading.
func size(b uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(b), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	if value == float64(int64(value)) {
		return fmt.Sprintf("%.0f %s", value, units[unit])
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

// kernelAtLeast compares a release (`6.1.0-18-amd64`) with a version (`5.4`).
func kernelAtLeast(release, version string) bool {
	have, want := leading(release), leading(version)
	for i := range want {
		if i >= len(have) || have[i] < want[i] {
			return false
		}
		if have[i] > want[i] {
			return true
		}
	}
	return true
}

// leading are the numbers that a version begins with.
func leading(version string) []int {
	var out []int
	for _, field := range strings.SplitN(version, ".", 3)[:min(2, strings.Count(version, ".")+1)] {
		digits := field[:len(field)-len(strings.TrimLeft(field, "0123456789"))]
		n, err := strconv.Atoi(digits)
		if err != nil {
			return out
		}
		out = append(out, n)
	}
	return out
}
