package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// busyWorld is a world in which everything that a snapshot holds is there: what waits, was refused, runs, is being started,
// resized and evicted, a node that is gone and a class.
func busyWorld(t testing.TB) *world {
	w := newWorld(t, Config{})
	share := func(floor, ceiling api.Milli) api.Share {
		return api.Share{Compute: api.Compute{Floor: floor, Ceiling: ceiling}, Memory: api.Memory{Floor: api.Amount{Bytes: gi}, Ceiling: api.Amount{Part: 500}}}
	}
	work := func(id string, floor api.Milli) Workload {
		return Workload{ID: id, Queue: "vision", Tasks: 1, Devices: 1, Share: share(floor, 1000), Resources: []Resource{{"cpu", 1}}, TimeLimit: 5e6}
	}
	gang := work("gang", 300)
	gang.Tasks, gang.Devices = 2, 2
	w.step(NodeSet{w.at(), "n1", devices("n1", 4, "m", 80*gi), []Resource{{"cpu", 16}}, nil})
	w.step(NodeSet{w.at(), "n2", devices("n2", 1, "m", 80*gi), []Resource{{"cpu", 16}}, nil})
	w.step(QueueSet{w.at(), api.QueueSpec{Name: "vision", Quota: 4500}})
	w.step(Feasibility{At: w.at(), Class: "zone", Allowed: []string{"n2"}, Barred: []NodeReason{{"n1", "taint"}}})
	w.step(Submit{At: w.at(), Workload: gang})
	w.settle()
	for _, id := range []string{"a", "b", "c"} {
		w.step(Submit{At: w.at(), Workload: work(id, 500)})
	}
	w.settle()
	w.step(Usage{w.at(), []GrantUsage{{"a.0.0-2", 3 * gi}}})
	next := share(400, 900)
	w.step(Change{At: w.at(), ID: "gang", Share: &next})
	w.step(Cancel{w.at(), "b", "asked"})
	w.step(NodeGone{w.at(), "n2"})
	w.step(Submit{At: w.at(), Workload: work("d", 1000)})
	w.step(Submit{At: w.at(), Workload: work("e", 900)})
	w.now += 1000
	open := w.engine.Unanswered()
	w.step(Refused{At: w.at(), ID: open[len(open)-1].Action(), Reason: "disk full"})
	w.step(Submit{At: w.at(), Workload: work("big", 1000)})
	w.step(Adopt{At: w.at(), Workload: work("adopted", 100), Tasks: []Placing{{0, "n9", []Grant{{
		UID: "adopted.0.0", Device: "n9-0", Compute: api.Compute{Floor: 100, Ceiling: 100}, Ceiling: gi, Weight: 1,
	}}}}})
	return w
}

func TestSnapshotDamage(t *testing.T) {
	good := busyWorld(t).engine.Snapshot()
	if _, err := Restore(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := Restore(bad); err == nil {
			t.Fatalf("byte %d of %d is damaged and nobody said so", i, len(good))
		}
		if _, err := Restore(good[:i]); err == nil {
			t.Fatalf("only %d of %d bytes are there and nobody said so", i, len(good))
		}
	}
	if _, err := Restore(append(bytes.Clone(good), '\n')); err == nil {
		t.Fatal("a snapshot with something after it was taken")
	}
}

// TestSnapshotContradictions: a snapshot whose checksum is right and whose books are not is refused.
func TestSnapshotContradictions(t *testing.T) {
	body := strings.SplitN(string(busyWorld(t).engine.Snapshot()), "\n", 2)[1]
	for _, change := range [][2]string{
		{`"heldCompute":400`, `"heldCompute":100`},
		{`"device":"n1-0"`, `"device":"nowhere"`},
		{`"queue":"vision"`, `"queue":"nowhere"`},
		{`"tasks":2`, `"tasks":3`},
		{`"action":`, `"action":1`},
		{`"uid":"a.0.0-2"`, `"uid":"c.0.0-4"`},
		{`"used":3221225472`, `"used":-1`},
		{`"seq":1,`, `"seq":1000,`},
		{`"name":"n1"`, `"name":"n2"`},
		{`"now"`, `"then"`},
		{`"now"`, `"policy":{"pools":[{"name":"of no device","classes":["batch"]}]},"now"`},
	} {
		bad := strings.Replace(body, change[0], change[1], 1)
		if bad == body {
			t.Errorf("%s is not in the snapshot", change[0])
		}
		if _, err := Restore(seal([]byte(bad))); err == nil {
			t.Errorf("a snapshot with %s for %s was taken", change[1], change[0])
		}
	}
}

// seal makes a snapshot of a body.
func seal(body []byte) []byte {
	return append(fmt.Appendf(nil, "%s%08x\n", snapshotHeader, crc32.Checksum(body, castagnoli)), body...)
}

func TestLogTorn(t *testing.T) {
	w := busyWorld(t)
	whole := w.log.Bytes()
	first := bytes.IndexByte(whole[len(logHeader):], '\n') + len(logHeader) + 1
	ends := map[int64]int{} // length of the log after each record, and records
	for i, b := range whole {
		if b == '\n' && i >= first-1 {
			ends[int64(i)+1] = len(ends)
		}
	}
	for cut := first; cut <= len(whole); cut++ {
		// Every byte near the end of a record, every seventh inside.
		if near := slices.Contains(whole[max(first, cut-2):min(len(whole), cut+2)], '\n'); !near && cut%7 != 0 {
			continue
		}
		replayed, err := Replay(bytes.NewReader(whole[:cut]))
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", cut, len(whole), err)
		}
		steps, ok := ends[replayed.Length]
		if !ok || steps != replayed.Steps || replayed.Length+replayed.Torn != int64(cut) {
			t.Fatalf("cut at %d: %d steps, %d whole bytes and %d torn", cut, replayed.Steps, replayed.Length, replayed.Torn)
		}
	}
	for cut := range first {
		if _, err := Replay(bytes.NewReader(whole[:cut])); err == nil {
			t.Fatalf("a log cut at %d, without its snapshot, was taken", cut)
		}
	}
}

// TestLogContinues: what was torn is cut off, the next record follows, and the whole replays.
func TestLogContinues(t *testing.T) {
	w := busyWorld(t)
	torn := bytes.Clone(w.log.Bytes()[:w.log.Len()-3])
	replayed, err := Replay(bytes.NewReader(torn))
	if err != nil || replayed.Torn == 0 {
		t.Fatalf("%v, %d bytes torn", err, replayed.Torn)
	}
	file := bytes.NewBuffer(torn[:replayed.Length])
	log := ContinueLog(file)
	ev := Tick{At{w.now + 1e9}}
	if err := log.Append(ev, replayed.Engine.Step(ev)); err != nil {
		t.Fatal(err)
	}
	again, err := Replay(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if again.Torn != 0 || again.Steps != replayed.Steps+1 || !bytes.Equal(again.Engine.Snapshot(), replayed.Engine.Snapshot()) {
		t.Fatalf("%d torn, %d steps", again.Torn, again.Steps)
	}
}

// TestLogDamagedInTheMiddle: damage before the last record is an error that names its place.
func TestLogDamagedInTheMiddle(t *testing.T) {
	w := busyWorld(t)
	whole := w.log.Bytes()
	last := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for at := len(logHeader); at < last; at += 7 {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x04
		_, err := Replay(bytes.NewReader(bad))
		if err == nil || !strings.Contains(err.Error(), "damaged at byte ") {
			t.Fatalf("byte %d is damaged: %v", at, err)
		}
		begin := bytes.LastIndexByte(bad[:at], '\n') + 1
		if bad[at] != '\n' && whole[at] != '\n' && !strings.Contains(err.Error(), fmt.Sprintf("at byte %d,", begin)) {
			t.Fatalf("byte %d of the record at %d is damaged: %v", at, begin, err)
		}
	}
}

// TestReplayFindsTheDifference: a log that says another decision was made is told from one that is damaged.
func TestReplayFindsTheDifference(t *testing.T) {
	w := busyWorld(t)
	lines := strings.SplitAfter(w.log.String(), "\n")
	i := -1
	for n, line := range lines {
		if strings.Contains(line, `"place"`) && strings.Contains(line, "n1-0") {
			i = n
			break
		}
	}
	if i < 0 {
		t.Fatal("nothing was placed on n1-0")
	}
	changed := strings.Replace(lines[i][9:len(lines[i])-1], "n1-0", "n1-3", 1)
	lines[i] = fmt.Sprintf("%08x %s\n", crc32.Checksum([]byte(changed), castagnoli), changed)
	_, err := Replay(strings.NewReader(strings.Join(lines, "")))
	var diff *DiffError
	if !errors.As(err, &diff) {
		t.Fatalf("replay says %v", err)
	}
	offset := int64(len(strings.Join(lines[:i], "")))
	if diff.Record != i-1 || diff.Offset != offset || !strings.Contains(diff.Want, "n1-3") || !strings.Contains(diff.Got, "n1-0") {
		t.Fatalf("record %d at %d, want %d at %d: %v", diff.Record, diff.Offset, i-1, offset, diff)
	}
}

// TestEventsReadBack: every kind of event and action reads back as it was written.
func TestEventsReadBack(t *testing.T) {
	share := api.Share{Compute: api.Compute{Floor: 250, Ceiling: 800}, Memory: api.Memory{Floor: api.Amount{Bytes: gi}, Ceiling: api.Amount{Part: 333}}, Weight: 3}
	priority, queue, at := int32(-3), "q", At{17}
	work := Workload{"w", "u", "n", "q", api.Batch, 2, true, true, true, 3, 7, 4, share, "m", fleet.Least{Capability: 80, Bandwidth: 900, Latency: 2}, []Resource{{"cpu", 1}}, "rack", "link", "zone", 99, 98, []Role{{"launcher", 1, 2, share, "m", []Resource{{"cpu", 2}}, "leaders"}}}
	grant := Grant{"w.0.0", "d", share.Compute, gi, 2 * gi, 5}
	placing := []Placing{{1, "n", []Grant{grant}}}
	for _, ev := range []Event{
		NodeSet{at, "n", []Device{{"d", 3, "m", gi, api.Draining, "why", fleet.Traits{Capability: 90, Bandwidth: 3350, Cost: 100, Idle: 70, Peak: 700, Latency: 1}, "l", "0"}}, []Resource{{"cpu", 3}}, []fleet.Domain{{Level: "rack", Name: "r1"}}},
		NodeGone{at, "n"},
		DeviceHealth{at, "n", "d", api.Down, "XID 79"},
		Checkpoint{at, "w", 3},
		Usage{at, []GrantUsage{{"w.0.0-1", gi}}},
		QueueSet{at, api.QueueSpec{Name: "q", Parent: "p", Quota: 1500, Disruptions: api.DisruptionBudget{Most: 2, Per: api.Duration(3600e9)}}},
		QueueGone{at, "q"},
		Submit{at, work, 7, "v", 6, []Time{3, 9}},
		QueuesUsed{at, 7, []QueueUsed{{"q", 9, 8}}},
		Learn{at, []Past{{work, 9, 8, true, &Used{250, gi}}}},
		Change{at, "w", &share, &priority, &queue},
		Cancel{at, "w", "why"},
		Started{at, "w", 1},
		Ended{at, "w", 1, &Used{250, gi}},
		Shrunk{at, "w", 1, []Holding{{"d", 250, gi}}},
		Feasibility{at, "zone", []string{"a"}, []NodeReason{{"b", "c"}}, "near"},
		FeasibilityGone{at, []string{"zone", "near"}},
		Done{at, 4},
		Refused{at, 4, "n", "why", 5},
		Adopt{at, work, placing, 6, 5, []Time{2}, 9},
		Tick{at},
	} {
		data, err := MarshalEvent(ev)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := UnmarshalEvent(data); err != nil || !reflect.DeepEqual(got, ev) {
			t.Errorf("%s reads as %+v (%v)", data, got, err)
		}
	}
	for _, a := range []Action{
		Place{1, "w", placing, 9}, Evict{2, "w", 1, "code", "why"}, Resize{3, "w", 1, []Grant{grant}}, Reject{4, "w", "code", "why"},
	} {
		data, err := MarshalAction(a)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := UnmarshalAction(data); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%s reads as %+v (%v)", data, got, err)
		}
	}
}

// TestNotWritten: what would not read back as it was is refused when it is written.
func TestNotWritten(t *testing.T) {
	upsideDown := Submit{Workload: Workload{ID: "w", Tasks: 1, Devices: 1, Share: api.Share{Compute: api.Compute{Floor: 500, Ceiling: 100}}}}
	for _, ev := range []Event{upsideDown, Usage{Grants: []GrantUsage{{"g", -1}}}, QueueSet{Queue: api.QueueSpec{Name: "q", Quota: -7}}, nil} {
		if data, err := MarshalEvent(ev); err == nil {
			t.Errorf("%+v was written as %s", ev, data)
		}
	}
	for _, text := range []string{
		``, `null`, `{}`, `{"kind":"nothing"}`, `{"kind":"tick","data":{"at":1,"more":2}}`, `{"kind":"tick","data":{"at":1}} x`,
		`{"kind":"tick","data":{"at":1.5}}`, `{"kind":"tick","data":{"at":99999999999999999999}}`,
	} {
		if ev, err := UnmarshalEvent([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, ev)
		}
		if a, err := UnmarshalAction([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, a)
		}
	}
}

// TestTextOfAnyBytes: reasons and names that are not UTF-8 are decided upon as they are logged, so that the log replays.
func TestTextOfAnyBytes(t *testing.T) {
	w := newWorld(t, Config{})
	w.step(NodeSet{w.at(), "n\xff", devices("n\xff", 1, "m\xfe", gi), []Resource{{"c\xff", 1}}, nil})
	work := Workload{ID: "w\xff", Tasks: 1, Devices: 1, Model: "m\xfe", Share: api.Share{Compute: api.Compute{Floor: 500, Ceiling: 500}}}
	w.step(Submit{At: w.at(), Workload: work})
	w.settle()
	work.ID = "w2 �\\ufffd"
	w.step(Submit{At: w.at(), Workload: work})
	w.settle()
	w.step(Refused{At: w.at(), ID: 99, Node: "n\xff", Reason: "bad\xff"})
	w.step(Cancel{w.at(), "w\xff", "asked\xff"})
	w.step(DeviceHealth{w.at(), "n\xff", "n\xff-0", api.Down, "XID\xff"})
	replayed, err := Replay(bytes.NewReader(w.log.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if replayed.Steps != 10 || !bytes.Equal(replayed.Engine.Snapshot(), w.engine.Snapshot()) {
		t.Fatalf("after %d steps the replayed engine is another", replayed.Steps)
	}
}

// TestWriterFails: an error of the file is passed on.
func TestWriterFails(t *testing.T) {
	full := errors.New("no space left")
	if _, err := NewLogWriter(failing{full}, New(Config{}).Snapshot()); !errors.Is(err, full) {
		t.Errorf("beginning a log says %v", err)
	}
	if err := ContinueLog(failing{full}).Append(Tick{}, nil); !errors.Is(err, full) {
		t.Errorf("appending says %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func FuzzEvent(f *testing.F) {
	for line := range strings.SplitSeq(busyWorld(f).log.String(), "\n") {
		var r record
		if len(line) > 9 && json.Unmarshal([]byte(line[9:]), &r) == nil && r.Event != nil {
			f.Add([]byte(r.Event))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ev, err := UnmarshalEvent(data)
		if err != nil {
			return
		}
		// Whatever it says, the engine must take it and stay whole.
		w := busyWorld(t)
		w.step(ev)
		written, err := MarshalEvent(ev)
		if err != nil {
			return
		}
		again, err := UnmarshalEvent(written)
		if err != nil {
			t.Fatalf("%s was written and cannot be read: %v", written, err)
		}
		if twice, err := MarshalEvent(again); err != nil || !bytes.Equal(written, twice) {
			t.Fatalf("%s reads back as %s (%v)", written, twice, err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte(strings.SplitN(string(busyWorld(f).engine.Snapshot()), "\n", 2)[1]))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := Restore(seal(body)) // with a checksum that is right, so that it gets to what is inside
		if err != nil {
			return
		}
		w := newWorld(t, Config{})
		w.engine = e
		w.begin()
		w.step(Submit{At: w.at(), Workload: Workload{ID: "fuzz", Tasks: 1, Devices: 1, Share: api.Share{Compute: api.Compute{Floor: 1, Ceiling: 1}}}})
	})
}

func FuzzReplay(f *testing.F) {
	f.Add(busyWorld(f).log.Bytes(), 0, byte(0))
	f.Fuzz(func(t *testing.T, log []byte, at int, with byte) {
		log = bytes.Clone(log)
		if at > 0 && at < len(log) {
			log[at] = with
		}
		replayed, err := Replay(bytes.NewReader(log))
		if err == nil && (replayed.Engine == nil || replayed.Length+replayed.Torn != int64(len(log))) {
			t.Fatalf("%+v of %d bytes", replayed, len(log))
		}
	})
}
