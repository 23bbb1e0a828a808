package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The layout of native/simgpu/record.h, as far as it is read here: the simulated driver's own record of device time, which neither
// arbiter nor tenant can write.
const (
	recordMagic = 0x31524d53
	atSeq       = 16
	atRows      = 20
	atUpdated   = 24
	atRow       = 64 + 16*128
	rowSize     = 64
	rowBusy     = 16
)

// reading is what each process has used of the devices, by its number, at one moment.
type reading struct {
	at   time.Duration // of the monotonic clock
	busy map[int]time.Duration
}

// read brings the record up to now and reads it.
func (w *world) read() reading {
	w.Helper()
	sync := exec.CommandContext(w.ctx, filepath.Join(root, "native", "dist", "bin", "aliquot-simgpu"), "sync", "--socket", filepath.Join(w.sims, "simgpu.sock"))
	if said, err := sync.CombinedOutput(); err != nil {
		w.Fatalf("bring the record up to now: %v\n%s", err, said)
	}
	order := binary.LittleEndian
	got := reading{busy: map[int]time.Duration{}}
	w.eventually("the record can be read whole", func() (bool, string) {
		before, err := os.ReadFile(filepath.Join(w.sims, "record"))
		w.no(err)
		after, err := os.ReadFile(filepath.Join(w.sims, "record"))
		w.no(err)
		if magic := order.Uint32(before); magic != recordMagic {
			w.Fatalf("the record begins with %#x", magic)
		}
		seq := order.Uint32(before[atSeq:])
		if seq%2 != 0 || seq != order.Uint32(after[atSeq:]) {
			return false, "it was written meanwhile"
		}
		got.at = time.Duration(order.Uint64(before[atUpdated:]))
		clear(got.busy)
		for i := range int(order.Uint32(before[atRows:])) {
			row := before[atRow+i*rowSize:]
			if pid := int(int32(order.Uint32(row))); pid != 0 {
				got.busy[pid] += time.Duration(order.Uint64(row[rowBusy:]))
			}
		}
		return true, ""
	})
	return got
}

// pids are the processes of a pod's containers, by the control groups that kubelet put them in.
func (w *world) pids(name string) map[int]bool {
	w.Helper()
	pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
	w.no(err)
	return w.processesOf(string(pod.UID))
}

// runOn checks that pods have all processes that they had. One that has ended does not come back, so that it may be looked again: of some thousand looks at all processes one
// misses some.
func (w *world) runOn(had map[int]bool, names ...string) {
	w.Helper()
	if len(had) == 0 {
		w.Fatalf("%v had no processes", names)
	}
	w.eventually(fmt.Sprintf("%v have the processes %v, which they had", names, slices.Sorted(maps.Keys(had))), func() (bool, string) {
		now := map[int]bool{}
		for _, name := range names {
			maps.Copy(now, w.pids(name))
		}
		return !slices.ContainsFunc(slices.Collect(maps.Keys(had)), func(pid int) bool { return !now[pid] }), fmt.Sprint(slices.Sorted(maps.Keys(now)))
	})
}

// processesOf are those of a pod's containers, by its UID.
func (w *world) processesOf(uid string) map[int]bool {
	w.Helper()
	all, err := w.ProcessesOf(uid)
	w.no(err)
	found := map[int]bool{}
	for _, pid := range all {
		found[pid] = true
	}
	return found
}

// processesIn are those in control groups with this in their names.
func (w *world) processesIn(group string) map[int]bool {
	w.Helper()
	all, err := os.ReadDir("/proc")
	w.no(err)
	found := map[int]bool{}
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue // no process
		}
		switch of, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cgroup")); {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH): // it has ended
		case err != nil:
			w.Fatalf("the control groups of process %d: %v", pid, err)
		case strings.Contains(string(of), group):
			found[pid] = true
		}
	}
	return found
}

// part is what a pod may use of a device, in thousandths of it, but for what is tolerated.
type part struct{ least, most int64 }

// shares measures for three seconds whether pods use of a device what they may.
func (w *world) shares(when string, want map[string]part) {
	w.Helper()
	w.sharesOver(3*time.Second, when, want, nil)
}

// sharesOver is shares over another time, with more to judge (or nil) of the thousandths that each used. What is found wrong while something on the machine waited for a processor
// for longer than the part of the time that is tolerated is measured again, for programs that wait do not use the device: five times at most, and as long as there is patience while
// it waits for a quarter of the time or more. Where nothing waited, once is all; and so it is where a pod used more than it may, which no waiting explains.
func (w *world) sharesOver(span time.Duration, when string, want map[string]part, judge func(used map[string]int64) error) {
	w.Helper()
	begun, tries := time.Now(), 0
	for {
		used, waited := w.usedOnce(span, slices.Collect(maps.Keys(want))...)
		var wrong error
		passed := false
		for name, part := range want {
			if used[name] < part.least-tolerated || used[name] > part.most+tolerated {
				wrong = errors.Join(wrong, fmt.Errorf("%s is to use %d to %d", name, part.least, part.most))
			}
			passed = passed || used[name] > part.most+tolerated
		}
		if judge != nil {
			wrong = errors.Join(wrong, judge(used))
		}
		w.Logf("%s, thousandths of the device: %v, while something waited for a processor for %v of %v", when, used, waited, span)
		busy := waited >= span/4 && time.Since(begun) < patience && !passed
		if !busy {
			tries++
		}
		switch {
		case wrong == nil:
			return
		case busy:
		case passed, tries > 5, waited < span*tolerated/1000:
			w.Errorf("%s, of a thousand of the device they used %v: %v", when, used, wrong)
			return
		}
	}
}

// wanting is for how long something on this machine has waited for a processor, by the kernel's pressure stall information, and for how long the processors were
// another machine's where this is a virtual one, which that does not count; 0: the kernel keeps neither.
func wanting() time.Duration {
	said, err := os.ReadFile("/proc/pressure/cpu")
	_, total, found := strings.Cut(strings.SplitN(string(said), "\n", 2)[0], "total=")
	microseconds, wrong := strconv.ParseInt(total, 10, 64)
	if err != nil || !found || wrong != nil {
		microseconds = 0
	}
	return time.Duration(microseconds)*time.Microsecond + stolen()
}

// stolen is for how long this machine's processors had something to do and were another machine's, all of them together.
func stolen() time.Duration {
	const tick, at = 10 * time.Millisecond, 8 // in hundredths of a second, by proc_stat(5) the eighth number of the first line
	said, err := os.ReadFile("/proc/stat")
	fields := strings.Fields(strings.SplitN(string(said), "\n", 2)[0])
	if err != nil || len(fields) <= at {
		return 0
	}
	ticks, err := strconv.ParseInt(fields[at], 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(ticks) * tick
}

// usedOnce is the part of a device that each pod used in a time, by the device's own record, in thousandths, and for how long something waited for a processor meanwhile.
func (w *world) usedOnce(span time.Duration, names ...string) (used map[string]int64, waited time.Duration) {
	w.Helper()
	var first, last reading
	still.measure(w.ctx, w.shared, func() {
		before := wanting()
		first = w.read()
		select { // the time that is measured
		case <-time.After(span):
		case <-w.ctx.Done():
			w.Fatal(w.ctx.Err())
		}
		last = w.read()
		waited = wanting() - before
	})
	used = map[string]int64{}
	for _, name := range names {
		used[name] = int64(1000 * (w.busy(name, last) - w.busy(name, first)) / (last.at - first.at))
	}
	return used, waited
}

// busy is what the processes of a pod have used of the device at a reading.
func (w *world) busy(name string, at reading) (sum time.Duration) {
	w.Helper()
	for pid := range w.pids(name) {
		sum += at.busy[pid]
	}
	return sum
}

// trains waits until a pod runs and its program has used the device.
func (w *world) trains(name string) {
	w.Helper()
	_, err := w.AwaitPod(w.ctx, "default", name, corev1.PodRunning)
	w.no(err)
	w.eventually(name+" uses the device", func() (bool, string) {
		now := w.read()
		if w.busy(name, now) > 0 {
			return true, ""
		}
		said, err := w.PodLog(w.ctx, "default", name)
		instead := fmt.Sprint(now.busy, w.pids(name), said, err)
		pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
		w.no(err)
		if pod.Status.Phase != corev1.PodRunning {
			w.Fatalf("%s is %s: %s", name, pod.Status.Phase, instead)
		}
		return false, instead
	})
}
