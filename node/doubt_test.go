package node

import (
	"os"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/page"
)

// TestDoubt: a device that is busy for much longer than was charged is found after half a minute of looks, and no other.
func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		name    string
		busy    func(look int) api.Milli
		charged api.Milli // a look
		gap     int       // after this look nobody looks for a while
		want    int       // doubts in 30 looks
	}{
		{"agree", func(int) api.Milli { return 600 }, 600, -1, 0},
		{"a little more", func(int) api.Milli { return 780 }, 600, -1, 0},
		{"much more", func(int) api.Milli { return 850 }, 600, -1, 2},
		{"less, as when others use the rest", func(int) api.Milli { return 100 }, 900, -1, 0},
		{"now and then", func(i int) api.Milli { return api.Milli(i%4) / 3 * 1000 }, 200, -1, 0},
		{"looks that pause", func(int) api.Milli { return 1000 }, 0, 10, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, at, charged, doubts := doubt{}, time.Unix(1000, 0), time.Duration(0), 0
			for i := range 30 {
				at, charged = at.Add(lookEvery), charged+lookEvery*time.Duration(c.charged)/whole
				if i == c.gap {
					at = at.Add(doubtRest)
				}
				if d.look(at, c.busy(i), charged) {
					doubts++
				}
			}
			if doubts != c.want {
				t.Errorf("%d doubts, want %d", doubts, c.want)
			}
		})
	}
}

// TestDoubtedTask: a task whose word does not agree with its device's is charged by the clock from then on, also after a change and by the
// next agent; one without live processes is not.
func TestDoubtedTask(t *testing.T) {
	folder := fakeRun(t)
	devices := newFakeDevices("GPU-a")
	a := openFake(t, folder, devices)
	for _, uid := range []string{"liar", "asleep"} {
		if _, err := a.Prepare(testContext(t), aTask(uid, 250, 800, "GPU-a")); err != nil {
			t.Fatal(err)
		}
	}
	flags := func(uid string) uint32 {
		t.Helper()
		a.mu.Lock()
		defer a.mu.Unlock()
		var p page.Policy
		if err := a.tasks[uid].ctl.View(func(c *page.Ctl) error { p, _ = c.Grant[0].Policy(); return nil }); err != nil {
			t.Fatal(err)
		}
		return p.Flags
	}
	shares := []Usage{
		{Task: "liar", Grant: Grant{Device: "GPU-a"}, Processes: []int{os.Getpid()}},
		{Task: "asleep", Grant: Grant{Device: "GPU-a"}},
	}
	doubts := map[string]*doubt{} // not those of the agent, which looks at the same device meanwhile
	for i := range doubtLooks + 1 {
		a.doubtShares(testContext(t), doubts, time.Unix(1000, 0).Add(time.Duration(i)*lookEvery), "GPU-a", 700, shares)
	}
	if n := nextNotice(t, a, Doubted); n.Task != "liar" || n.Device != "GPU-a" {
		t.Errorf("notice %+v", n)
	}
	if flags("liar")&page.PolicyClock == 0 || flags("asleep")&page.PolicyClock != 0 {
		t.Errorf("flags %b and %b, want only the first charged by the clock", flags("liar"), flags("asleep"))
	}
	changed := aTask("liar", 250, 600, "GPU-a")
	if err := a.Update(testContext(t), "liar", changed.Grants, Flags{}); err != nil {
		t.Fatal(err)
	}
	if flags("liar")&page.PolicyClock == 0 {
		t.Error("a change made it be believed again")
	}
	closeAgent(t, a)
	a = openFake(t, folder, newFakeDevices("GPU-a"))
	if flags("liar")&page.PolicyClock == 0 {
		t.Error("the next agent believes it")
	}
}
