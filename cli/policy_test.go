package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/sim"
)

const officePolicy = `aliquot policy 1
zone Europe/Berlin
queue research quota=4
queue product parent=research quota=3 order=fair+priority:1h

window night days=mon-fri from=22:00 to=06:00
queue product quota=1
placement stranded_device=90 whole=-2
`

// A policy file is checked and explained without a server; what is wrong is one sentence with file and line.
func TestPolicyFiles(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	office, wrong := file("office.policy", officePolicy), file("wrong.policy", strings.Replace(officePolicy, "quota=1", "quota=5", 1))
	models := file("models.policy", strings.Replace(officePolicy, "quota=4", "quota=4 limit@h200=4", 1))
	weekend := file("weekend.policy", strings.Replace(officePolicy, "days=mon-fri from=22:00 to=06:00", "days=sat,sun", 1))
	always := file("always.policy", strings.Replace(officePolicy, "days=mon-fri from=22:00 to=06:00", "days=mon-sun", 1))
	moves := file("moves.policy", "aliquot policy 1\ndefragment free=1 moves-per-hour=6\n")
	nodes := file("nodes.policy", "aliquot policy 1\npool a nodes=gpu1,gpu2 classes=batch\n")
	nothing := file("nothing.policy", "aliquot policy 1\nplacement whole=0\n")
	empty, unnamed, drawn := file("empty.json", `{"name": "mine", "weights": {}}`), file("unnamed.json", `{"weight": {"whole": 1}}`), file("drawn.json", `{"device": "draw"}`)
	early := file("early.policy", "aliquot policy 1\nbackfill predicted\n")
	fast := file("fast.policy", "aliquot policy 1\nplacement latency=500 cost=100\n")
	half := file("half.policy", "aliquot policy 1\nhalf-life 3d\n")
	night := func() time.Time { return time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		line   []string
		status int
		says   string
	}{
		{[]string{"policy", "check", office}, 0, "office.policy is right: 2 queues, 1 window."},
		{[]string{"policy", "check", models}, 0, "models.policy is right: 2 queues, 1 window. It can be set where there are devices of h200."},
		{[]string{"policy", "check", nodes}, 0, "Its pools name nodes gpu1, gpu2: that they are there is not looked at here, and where it is set a pool that no device is in is a warning."},
		{[]string{"policy", "check", nodes, "-o", "json"}, 0, `"gpu2"`},
		{[]string{"policy", "check", fast}, 0, "fast.policy is right"},
		{[]string{"policy", "explain", fast}, 0, "cost=100 latency=500"},
		{[]string{"policy", "check", nothing}, ExitFailed, "nothing.policy:2: no feature of the placement counts"},
		{[]string{"sim", "run", "--trace", "generated-jobs:1", "--policy", nodes}, ExitFailed, "nodes.policy:2: pool a has no device: no device is on node gpu1 or gpu2 (there are node-0000); it has none until one comes"},
		{[]string{"sim", "run", "--trace", "generated-jobs:1", "--policy", empty}, ExitFailed, "empty.json: no feature counts"},
		{[]string{"sim", "run", "--trace", "generated-jobs:1", "--policy", unnamed}, ExitFailed, "unnamed.json: no feature counts"},
		{[]string{"sim", "run", "--trace", "generated-jobs:1", "--policy", drawn}, 0, ""},
		{[]string{"policy", "check", wrong}, ExitFailed, "wrong.policy:7: in window night the quotas of the queues under research add up to 5 devices, and its own is 4 devices"},
		{[]string{"policy", "check", folder + "/none"}, ExitFailed, "read the policy: open"},
		{[]string{"policy", "check"}, ExitUsage, "needs a policy file"},
		{[]string{"policy", "explain", wrong, office}, ExitUsage, "takes only a policy file"},
		{[]string{"policy", "explain", wrong}, ExitFailed, "wrong.policy:7:"},
		{[]string{"policy", "explain", office}, 0, "night    mon-fri 22:00-06:00 Europe/Berlin   now, until Sat 21 Nov 06:00 CET   places by stranded_device=90 whole=-2"},
		{[]string{"policy", "explain", weekend}, 0, "now, until Mon 23 Nov 00:00 CET   places by"},
		{[]string{"policy", "explain", always}, 0, "Europe/Berlin   now    places by"},
		{[]string{"policy", "explain", half}, 0, "what queues used counts half after 72h, where they hold the same part of their fair shares"},
		{[]string{"policy", "explain", moves}, 0, "defragment moves-per-hour=6 free=1: at most 6 moves in any hour, of work that may be preempted and comes again, for the first in line or so that a device is free as a whole while fewer than 1 are; a plan loses 1h of a device at the most"},
		{[]string{"policy", "explain", early}, 0, "work starts before the first in line where its time limit is over before that starts, or where it is preemptible and predicted to be; it is evicted for the first in line if it then runs on"},
		{[]string{"policy", "explain", office, "-o", "json"}, 0, `"queue product, quota=3: it is guaranteed floors of 3 devices of compute: `},
		{[]string{"sim", "run", "--trace", "generated-jobs:1", "--policy", wrong}, ExitFailed, "wrong.policy:7:"},
		{[]string{"sim", "run", "--trace", "generated-jobs:1", "--policy", office, "--order", "fair"}, ExitUsage, "leave --order out"},
		{[]string{"sim", "run", "--trace", "generated-jobs:1", "--policy", office, "--start", "soon"}, ExitUsage, `--start: "soon" is no time`},
		{[]string{"sim", "run", "--trace", "generated:2", "--policy", office}, ExitUsage, "is a policy file, and a trace of pods has no time"},
	} {
		got := invoke(t, Program{Now: night}, c.line...)
		if got.exit.Status != c.status || !strings.Contains(got.out+got.err, c.says) {
			t.Errorf("%v: status %d, %s%s\nwant %d, %s", c.line, got.exit.Status, got.out, got.err, c.status, c.says)
		}
	}
	short := file("short.policy", "aliquot policy 1\nqueue students longest-run=1s\n")
	if got := invoke(t, Program{}, "sim", "run", "--trace", "generated-jobs:1", "--policy", short); !strings.Contains(got.err, "short.policy: ") || !strings.Contains(got.err, "time limits ended ") {
		t.Errorf("%s%s", got.out, got.err)
	}
	got := invoke(t, Program{}, "sim", "run", "--trace", "generated-jobs:1", "--policy", office+",default", "-o", "json")
	var f sim.File
	if err := json.Unmarshal([]byte(got.out), &f); err != nil || len(f.Jobs) != 2 || f.Jobs[0].Policy != office || f.Jobs[0].Jobs != 100 {
		t.Errorf("%v: %s%s", err, got.out, got.err)
	}
}

// A policy file is set on a server, shown and explained from there, and removed.
func TestPolicyOfServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "office.policy")
	if err := os.WriteFile(path, []byte(officePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFakeServer(t)
	night := func() time.Time { return time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		line   []string
		status int
		says   string
	}{
		{[]string{"policy", "explain"}, ExitFailed, "no policy is set on the server"},
		{[]string{"policy", "show"}, 0, "no policy is set: `aliquot policy set FILE` sets one"},
		{[]string{"policy", "set", path + "x"}, ExitFailed, "read the policy: open"},
		{[]string{"policy", "set", path}, 0, "office.policy is set: its window night holds now, until Sat 21 Nov 06:00 CET (Europe/Berlin)."},
		{[]string{"policy", "show"}, 0, officePolicy + "aliquot: this is " + path + ": its window night holds now, until Sat 21 Nov 06:00 CET (Europe/Berlin)."},
		{[]string{"policy", "show", "-o", "json"}, 0, `"window": "night"`},
		{[]string{"policy", "explain"}, 0, "now, until Sat 21 Nov 06:00 CET"},
		{[]string{"policy", "remove"}, 0, "The policy is removed."},
		{[]string{"policy", "show"}, 0, "no policy is set"},
	} {
		got := invoke(t, Program{Now: night}, append(c.line, "--run", f.run)...)
		if got.exit.Status != c.status || !strings.Contains(got.out+got.err, c.says) {
			t.Errorf("%v: status %d, %s%s\nwant %d, %s", c.line, got.exit.Status, got.out, got.err, c.status, c.says)
		}
	}
	f.warning = "a pool has no device"
	if got := invoke(t, Program{Now: night}, "policy", "set", path, "--run", f.run); got.exit.Status != 0 || got.err != "aliquot: a pool has no device\n" {
		t.Errorf("with a warning it says %q, %q", got.out, got.err)
	}
	for text, want := range map[string]string{
		officePolicy: "window night holds now, until Sat 21 Nov 06:00 CET (Europe/Berlin).",
		strings.Replace(officePolicy, "to=06:00", "to=06:00 zone=Asia/Tokyo", 1): "window night holds now, until Sat 21 Nov 14:00 JST (Asia/Tokyo).",
		strings.Replace(officePolicy, "zone Europe/Berlin\n", "", 1):             "window night holds now, until Sat 21 Nov 05:00 UTC.",
	} {
		set := api.Policy{Name: "office", Text: text, Window: "night", Until: ptr(time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC))}
		if got := holding(set); !strings.HasSuffix(got, want) {
			t.Errorf("%s: want %s", got, want)
		}
	}
	f.policy = api.Policy{Name: "moves", Text: "aliquot policy 1\nzone Europe/Berlin\nhalf-life 3d\n", Moved: []api.Moved{
		{At: now, Workload: "w1", Frees: "device 0 is free as a whole", Plan: 4}, {At: now.Add(time.Minute), Workload: "w2", Frees: "big, which waits first, fits where it is", Plan: 7},
	}}
	got := invoke(t, Program{}, "policy", "show", "--run", f.run)
	if want := "It had 2 workloads moved in the last hour, the last one Fri 20 Nov 15:01 CET (Europe/Berlin), so that big, which waits first, fits where it is."; !strings.Contains(got.err, want) {
		t.Errorf("it says %q, want %q", got.err, want)
	}
	if got := invoke(t, Program{}, "policy", "show", "-o", "json", "--run", f.run); !strings.Contains(got.out, `"frees": "device 0 is free as a whole"`) {
		t.Errorf("as JSON it is %s", got.out)
	}
}
