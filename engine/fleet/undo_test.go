package fleet

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

const gi = api.Bytes(1) << 30

func draw(t *rapid.T) *Fleet {
	f := New()
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		var devices []Device
		for k := range rapid.IntRange(1, 4).Draw(t, "devices") {
			devices = append(devices, Device{
				UUID: fmt.Sprintf("n%d-%d", i, k), Index: k, Model: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "model"),
				Memory: 8 * gi, Health: rapid.SampledFrom([]api.DeviceHealth{api.Healthy, api.Healthy, api.Draining}).Draw(t, "health"),
			})
		}
		if _, err := f.SetNode(fmt.Sprintf("n%d", i), devices, []Resource{{"cpu", 100}}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// dump writes everything that can be read of a fleet, in the order in which it is read.
func dump(f *Fleet) string {
	f.freshen()
	var b strings.Builder
	for n := range f.Nodes {
		fmt.Fprintf(&b, "%s gone %v cpu %d of %d:", f.NodeName(n), f.NodeGone(n), f.Taken(n, f.Resource("cpu")), f.Capacity(n, f.Resource("cpu")))
		for _, d := range f.DevicesOf(n) {
			fmt.Fprintf(&b, " %+v %+v indexed %v", f.Device(d), f.BookOf(d), f.devices[d].indexed)
		}
		b.WriteString("\n")
	}
	for _, whole := range []bool{false, true} {
		for _, compute := range []api.Milli{0, 1, 500, 1000} {
			f.Walk(f.Needs(nil, "", Least{}, api.Amount{}), compute, whole, func(d DeviceID) bool {
				fmt.Fprintf(&b, "%s ", f.Device(d).UUID)
				return true
			})
			b.WriteString("\n")
		}
	}
	f.WithUntouched(1, func(n NodeID) bool {
		fmt.Fprintf(&b, "%s ", f.NodeName(n))
		return true
	})
	return fmt.Sprintf("%s gains %d changes %d", b.String(), f.gains, f.changes)
}

// TestUndo: after a rollback everything reads as it did, at any depth of marks.
func TestUndo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := draw(t)
		var marks []Mark
		var dumps []string
		grants := map[DeviceID][]Book{}
		saved := []map[DeviceID][]Book{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			d := DeviceID(rapid.IntRange(0, len(f.devices)-1).Draw(t, "device"))
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				marks, dumps = append(marks, f.Begin()), append(dumps, dump(f))
				copied := map[DeviceID][]Book{}
				for d, g := range grants {
					copied[d] = append([]Book{}, g...)
				}
				saved = append(saved, copied)
			case 1:
				last := len(marks) - 1
				if last < 0 {
					continue
				}
				f.Rollback(marks[last])
				if got := dump(f); got != dumps[last] {
					t.Fatalf("after a rollback the fleet is\n%s\ninstead of\n%s", got, dumps[last])
				}
				grants = saved[last]
				marks, dumps, saved = marks[:last], dumps[:last], saved[:last]
			case 2:
				if last := len(marks) - 1; last >= 0 {
					f.Commit(marks[last])
					marks, dumps, saved = marks[:last], dumps[:last], saved[:last]
				}
			case 3, 4:
				g := Book{api.Milli(rapid.IntRange(0, 600).Draw(t, "compute")), api.Milli(rapid.IntRange(0, 2).Draw(t, "busy")), api.Bytes(rapid.IntRange(0, 6).Draw(t, "memory")) * gi, 1}
				f.Adjust(d, g.Compute, g.Memory, 1)
				f.AddBusy(d, g.Busy)
				f.Take(f.NodeOf(d), []Amount{{f.Resource("cpu"), 3}})
				grants[d] = append(grants[d], g)
			default:
				if k := len(grants[d]); k > 0 {
					g := grants[d][k-1]
					grants[d] = grants[d][:k-1]
					f.Adjust(d, -g.Compute, -g.Memory, -1)
					f.AddBusy(d, -g.Busy)
					f.Give(f.NodeOf(d), []Amount{{f.Resource("cpu"), 3}})
				}
			}
		}
		for len(marks) > 0 {
			last := len(marks) - 1
			f.Rollback(marks[last])
			if got := dump(f); got != dumps[last] {
				t.Fatalf("after the last rollbacks the fleet is\n%s\ninstead of\n%s", got, dumps[last])
			}
			marks, dumps = marks[:last], dumps[:last]
		}
		if err := f.CheckIndex(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestOrderOfNames: nodes come in any order, go and come again, and are always walked by name.
func TestOrderOfNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := New()
		for _, name := range rapid.SliceOfN(rapid.StringMatching(`[a-c]{1,4}`), 1, 80).Draw(t, "names") {
			if _, ok := f.Node(name); ok {
				f.RemoveNode(name)
			} else if _, err := f.SetNode(name, []Device{{UUID: name, Model: "m", Memory: gi, Health: api.Healthy}}, nil); err != nil {
				t.Fatal(err)
			}
			if err := f.CheckIndex(); err != nil {
				t.Fatal(err)
			}
			last := ""
			f.Walk(f.Needs(nil, "m", Least{}, api.Amount{}), 1, false, func(d DeviceID) bool {
				if uuid := f.Device(d).UUID; uuid <= last {
					t.Fatalf("%s comes after %s", uuid, last)
				} else {
					last = uuid
				}
				return true
			})
		}
	})
}

// TestManyNodesInReverse spends the room between labels: the order must hold when all are numbered anew.
func TestManyNodesInReverse(t *testing.T) {
	f := New()
	for i := range 500 {
		name := fmt.Sprintf("n%04d", 500-i)
		if _, err := f.SetNode(name, []Device{{UUID: name, Model: "m", Memory: gi, Health: api.Healthy}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.CheckIndex(); err != nil {
		t.Fatal(err)
	}
}
