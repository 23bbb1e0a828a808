package local

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// What a workload used is known after its end, also to the next daemon.
func TestWhatWasUsedIsKept(t *testing.T) {
	s := newSite(t, nil)
	s.agent.used = func(grant node.Grant) node.Usage {
		return node.Usage{
			Grant: grant, Held: 3 * time.Second, Own: 2 * time.Second, Burst: time.Second, Launches: 42, Memory: 1 << 20, MemPeak: 1 << 30, Processes: []int{1},
		}
	}
	asked := spec("0.25..0.80", "true")
	asked.Name, asked.Devices = "one", 2
	s.submit(asked)
	work := s.ended("one")
	if len(work.Status.Usage) != 2 {
		t.Fatalf("usage %+v", work.Status.Usage)
	}
	for i, grant := range work.Status.Grants {
		want := api.Usage{
			Workload: "one", Grant: grant, DeviceTime: 3 * time.Second, Own: 2 * time.Second, Burst: time.Second, Launches: 42, MemoryPeak: 1 << 30, Enforced: true,
		}
		if got := work.Status.Usage[i]; !reflect.DeepEqual(got, want) {
			t.Errorf("on device %d it used %+v, want %+v", grant.DeviceIndex, got, want)
		}
	}
	s.restart()
	if again := s.ended("one"); !reflect.DeepEqual(again.Status.Usage, work.Status.Usage) {
		t.Errorf("after a restart %+v, before %+v", again.Status.Usage, work.Status.Usage)
	}
	list, err := s.Workloads(context.Background(), true)
	if err != nil || len(list) != 1 || !reflect.DeepEqual(list[0].Status.Usage, work.Status.Usage) {
		t.Errorf("listed as %+v, %v", list, err)
	}
}

// Lists and answers of one workload say what it uses now.
func TestUseIsShownWithTheWorkload(t *testing.T) {
	at := time.Now() // and it stays so: a sample does not grow old
	s := newSite(t, func(config *Config) { config.Now = func() time.Time { return at } })
	asked := spec("0.25..0.80", "sleep 1000")
	asked.Name = "one"
	uid := s.submit(asked).UID
	grant := s.running("one").Status.Grants[0]
	waiting := spec("1", "true")
	waiting.Name, waiting.Devices = "two", 2
	s.submit(waiting)
	sample := func(after, held time.Duration) node.Sample {
		return node.Sample{At: at.Add(after), Tasks: []node.Usage{{Task: uid, Grant: node.Grant{UID: grant.UID, Device: grant.Device}, Held: held, Launches: 7, UnknownCalls: 5}}}
	}
	s.agent.mu.Lock()
	s.agent.samples = []node.Sample{sample(-time.Second, 0), sample(0, 600*time.Millisecond)}
	s.agent.mu.Unlock()
	list, err := s.Workloads(context.Background(), false)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for name, work := range map[string]api.Workload{"in the list": list[0], "alone": s.wait("one")} {
		usage := work.Status.Usage
		if len(usage) != 1 || usage[0].Compute == nil || *usage[0].Compute != 600 || usage[0].Launches != 7 || usage[0].UnknownCalls != 5 || usage[0].Grant.Device != grant.Device || !usage[0].Enforced {
			t.Errorf("%s: %+v", name, usage)
		}
	}
	if list[1].Status.Usage != nil {
		t.Errorf("one that waits uses %+v", list[1].Status.Usage)
	}
}
