package sim

import (
	"fmt"
	"math"
	"strconv"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// generated is the mix of the built-in trace: kinds of pods with how often each comes among a thousand. It is made up, in the manner
// of a company that shares its devices: mostly parts, whole devices, some several, some that want none.
var generated = []struct {
	count, cpu, memory, devices, compute int64
	class                                string
}{
	{220, 8_000, 32, 1, 1000, ""},
	{60, 16_000, 64, 1, 1000, "large"},
	{90, 4_000, 16, 1, 500, ""},
	{120, 4_000, 12, 1, 450, ""},
	{110, 3_000, 8, 1, 800, ""},
	{80, 2_000, 8, 1, 200, ""},
	{60, 6_000, 24, 1, 650, ""},
	{70, 4_000, 16, 1, 330, "small"},
	{25, 24_000, 96, 2, 1000, ""},
	{20, 48_000, 192, 4, 1000, ""},
	{15, 90_000, 380, 8, 1000, "large"},
	{130, 12_000, 48, 1, 0, ""},
}

// Generate makes a trace of as many nodes and four pods for each of their devices, with no file: a third of the nodes has two
// small devices, the others eight large ones.
func Generate(nodes int, seed uint64) *Openb {
	r := newRandom(seed)
	o := &Openb{model: map[string]string{}}
	devices := 0
	for i := range nodes {
		n := engine.NodeSet{Node: fmt.Sprintf("node-%05d", i)}
		count, model, cpu, memory := 8, "large", int64(96_000), int64(384)
		if i%3 == 0 {
			count, model, cpu, memory = 2, "small", 64_000, 256
		}
		o.model[n.Node] = model
		for k := range count {
			n.Devices = append(n.Devices, engine.Device{
				UUID: n.Node + "-" + strconv.Itoa(k), Index: k, Model: model, Memory: 16 << 30, Health: api.Healthy,
			})
		}
		devices += count
		n.Resources = []engine.Resource{{Name: "cpu", Amount: cpu}, {Name: "memory", Amount: memory << 30}}
		o.Nodes = append(o.Nodes, n)
	}
	for i := range devices * 4 {
		x := int64(r.below(1000))
		for _, kind := range generated {
			if x -= kind.count; x >= 0 {
				continue
			}
			floor := api.Milli(kind.compute)
			o.Pods = append(o.Pods, Job{Workload: engine.Workload{
				ID: fmt.Sprintf("pod-%06d", i), Class: api.Batch, Tasks: 1, Devices: int(kind.devices), Feasibility: kind.class,
				Share:     api.Share{Compute: api.Compute{Floor: floor, Ceiling: max(1, floor)}},
				Resources: []engine.Resource{{Name: "cpu", Amount: kind.cpu}, {Name: "memory", Amount: kind.memory << 30}},
			}, Submit: engine.Time(i) * 10_000_000, Duration: engine.Time(600+r.below(36_000)) * 1_000_000})
			break
		}
	}
	return o
}

// GenerateJobs makes a trace of jobs for so many nodes of eight devices, with no file: a hundred for each node, of three tenants, most
// of them short and small, coming at random times so that the load is a part of the devices.
func GenerateJobs(nodes int, load float64, seed uint64) *Trace {
	return generateJobs(nodes, load, seed, uniform(nodes))
}

// generateJobs is GenerateJobs to run on given nodes.
func generateJobs(nodes int, load float64, seed uint64, on []engine.NodeSet) *Trace {
	r := newRandom(seed)
	t := &Trace{Nodes: on}
	each := mostOnOne(on)
	sizes := []int64{1, 1, 1, 1, 1, 1, 2, 2, 4, 8}
	var held float64 // µs × devices
	for i := range nodes * 100 {
		devices := sizes[r.below(len(sizes))]
		j, _ := wholeDevices(fmt.Sprintf("job-%06d", i), devices, each) // sizes and names are right
		j.Queue = []string{"research", "research", "product", "students"}[r.below(4)]
		j.Duration = engine.Time(60_000_000 * math.Exp(1.5+1.5*r.normal()))
		held += float64(j.Duration) * float64(devices)
		t.Jobs = append(t.Jobs, j)
	}
	span := held / float64(nodes*perNode) / load
	for i := range t.Jobs {
		t.Jobs[i].Submit = engine.Time(r.unit() * span)
	}
	return sorted(t)
}
