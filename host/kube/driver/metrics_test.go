package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// metered is an agent with the meters of a test.
type metered struct {
	Agent
	sample node.Sample
	err    error
}

func (m *metered) Sample(context.Context) (node.Sample, error) { return m.sample, m.err }

// scraped are the values of a scrape by name and labels.
func scraped(t *testing.T, p plugin) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.Metrics())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, one := range family.GetMetric() {
			var labels []string
			for _, label := range one.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			got[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
		}
	}
	return got
}

// Shares are told by their claims' names and units of Prometheus; what is not known is absent; whom a task belongs to that has no claim is not guessed.
func TestMetrics(t *testing.T) {
	s := newSite(t, t.TempDir())
	meters := &metered{Agent: s.agent} // before the driver opens: what it tells of a claim runs beside the test
	s.config.Agent = meters
	p := s.open()
	if got := s.prepare(p, claimOf("a", 250, 4<<30, share(`,"ceiling":{"compute":"0.80"}`)))["a"]; got.Err != nil {
		t.Fatal(got.Err)
	}
	grant := s.agent.tasks()["a"].Grants[0]
	used := api.Bytes(5 << 30)
	meters.sample = node.Sample{
		Tasks: []node.Usage{
			{Task: "a", Grant: grant, Held: 3 * time.Second, Own: 2 * time.Second, Burst: time.Second, Lent: 4 * time.Second, Waited: 500 * time.Millisecond, Launches: 7, Memory: 1 << 30, Processes: []int{4, 5}, UnknownCalls: 2},
			{Task: "nobody's", Grant: grant},
		},
		Devices: []node.DeviceUsage{{UUID: h200.UUID, MemoryUsed: &used, Stopped: 1, MemoryDoubts: 3}},
	}
	const device, claim = "{device=GPU-aa,index=0,model=H200}", "{claim=claim-a,device=GPU-aa,index=0,namespace=default}"
	want := map[string]float64{
		"aliquot_agent_up{}":                                                                         1,
		"aliquot_device_memory_bytes" + device:                                                       140 << 30,
		"aliquot_device_memory_used_bytes" + device:                                                  5 << 30,
		"aliquot_device_healthy" + device:                                                            1,
		"aliquot_device_unenforced_processes" + device:                                               0,
		"aliquot_device_stopped_processes_total" + device:                                            1,
		"aliquot_device_memory_doubts_total" + device:                                                3,
		"aliquot_share_compute_floor_ratio" + claim:                                                  0.25,
		"aliquot_share_compute_ceiling_ratio" + claim:                                                0.8,
		"aliquot_share_memory_floor_bytes" + claim:                                                   4 << 30,
		"aliquot_share_memory_ceiling_bytes" + claim:                                                 4 << 30,
		"aliquot_share_memory_bytes" + claim:                                                         1 << 30,
		"aliquot_share_processes" + claim:                                                            2,
		"aliquot_share_device_seconds_total" + claim:                                                 3,
		"aliquot_share_own_seconds_total" + claim:                                                    2,
		"aliquot_share_burst_seconds_total" + claim:                                                  1,
		"aliquot_share_lent_seconds_total" + claim:                                                   4,
		"aliquot_share_waited_seconds_total" + claim:                                                 0.5,
		"aliquot_share_launches_total" + claim:                                                       7,
		"aliquot_claim_unknown_calls{claim=claim-a,namespace=default}":                               2,
		"aliquot_share_ready{claim=claim-a,device=GPU-aa,index=0,namespace=default,reason=Prepared}": 1,
	}
	same := func(got map[string]float64) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if value, is := got[name]; !is || value != want[name] {
				t.Errorf("%s is %v (there: %t), want %v", name, value, is, want[name])
			}
			delete(got, name)
		}
		if len(got) > 0 {
			t.Errorf("there is also %v", fmt.Sprint(got))
		}
	}
	same(scraped(t, p))

	// What is wrong with it has its reason.
	p.Notice(t.Context(), node.Notice{Kind: node.Broken, Task: "a", Reason: "its book is no page"})
	got := scraped(t, p)
	if value, is := got["aliquot_share_ready{claim=claim-a,device=GPU-aa,index=0,namespace=default,reason=Broken}"]; !is || value != 0 || len(got) != len(want) {
		t.Errorf("with a broken claim there is %v", got)
	}

	// Meters that do not answer are no zeros.
	meters.err = errors.New("no answer")
	want = map[string]float64{"aliquot_agent_up{}": 0, "aliquot_device_memory_bytes" + device: 140 << 30, "aliquot_device_healthy" + device: 1}
	same(scraped(t, p))
}
