package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/internal/proc"
)

// Process is one process, told apart from a later one with the same number by when it started.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // field 22 of /proc/PID/stat
	// Where and since when the two mean this process; empty: here and now. A record outlives the machine's boot.
	Boot string `json:"boot,omitempty"`
}

// stat is what is needed of /proc/PID/stat.
type stat struct {
	Process
	parent, group, session int
	state                  byte
}

func readStat(pid int) (stat, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	// The name, field 2, may hold anything; the last ')' ends it.
	end := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[end+1:]))
	if end < 0 || len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat has an unknown form", pid)
	}
	found := stat{Process: Process{PID: pid}, state: fields[0][0]}
	var broken error
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		broken = errors.Join(broken, err)
		return n
	}
	found.parent, found.group, found.session = number(fields[1]), number(fields[2]), number(fields[3])
	found.Start, err = strconv.ParseUint(fields[19], 10, 64)
	return found, errors.Join(broken, err)
}

// Find returns the process that has this number now.
func Find(pid int) (Process, error) {
	found, err := readStat(pid)
	found.Boot = thisBoot()
	return found.Process, err
}

// thisBoot names what process numbers are counted from: the boot of the machine, and the namespace of this process. What a sandbox
// does not show of it is left out.
func thisBoot() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(boot) + namespace)
}

// here says that the process is one of this boot.
func (p Process) here() bool {
	return p.Boot == "" || p.Boot == thisBoot()
}

// Alive says that the process is there and has not ended.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	found, err := readStat(p.PID)
	return err == nil && found.Start == p.Start && found.state != 'Z' && found.state != 'X' && p.here()
}

// Open returns a descriptor of the process that becomes readable when it ends; false if it has ended already.
func (p Process) Open() (int, bool, error) {
	if p.PID <= 0 {
		return -1, false, nil
	}
	fd, err := proc.Open(p.PID)
	if errors.Is(err, unix.ESRCH) {
		return -1, false, nil
	}
	if err != nil {
		return -1, false, fmt.Errorf("watch process %d: %w", p.PID, err)
	}
	// The number may have been given to another process before it was opened; not after.
	if !p.Alive() {
		_ = unix.Close(fd)
		return -1, false, nil
	}
	return fd, true, nil
}

// Send sends a signal to exactly this process; it is no error if it has ended.
func (p Process) Send(sig unix.Signal) error {
	fd, there, err := p.Open()
	if err != nil || !there {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), p.PID, err)
	}
	return nil
}

// all lists the processes of the machine.
func all() ([]stat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var list []stat
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if found, err := readStat(pid); err == nil { // else it ended meanwhile
			list = append(list, found)
		}
	}
	return list, nil
}

// descendants lists the processes that come from pid, itself left out, those that have ended left out.
func descendants(pid int) ([]Process, error) {
	list, err := all()
	if err != nil {
		return nil, err
	}
	return belonging(list, func(one stat) bool { return one.parent == pid }), nil
}

// belonging lists the processes of list for which root holds and all that descend from them.
func belonging(list []stat, root func(stat) bool) []Process {
	in := map[int]bool{}
	for grown := true; grown; {
		grown = false
		for _, one := range list {
			if !in[one.PID] && (in[one.parent] || root(one)) {
				in[one.PID], grown = true, true
			}
		}
	}
	var found []Process
	for _, one := range list {
		if in[one.PID] && one.state != 'Z' && one.state != 'X' {
			found = append(found, one.Process)
		}
	}
	return found
}

// environmentWithin is how long a process may take to show its environment, before it is taken to have none.
const environmentWithin = 2 * time.Second

// marked says that a process was started with the marker of a workload in its environment.
func marked(pid int, uid string) bool {
	environment, err := proc.Environment(pid, environmentWithin)
	return err == nil && slices.Contains(environment, Marker+"="+uid)
}
