package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// Mix is a made trace of trainers and inference services, each on one device, for nodes of eight.
type Mix struct {
	Nodes int
	Seed  uint64
	// Load is for how long the jobs would hold devices of their own in all, over devices × Horizon; above 0.
	Load    float64
	Horizon engine.Time // in which they come, a third of them at the beginning; none runs for longer
	Memory  api.Bytes   // of a device
	// TrainerFloor is the floor of a trainer in thousandths of what it keeps busy alone; 1 to 1000. All ceilings are the whole device.
	TrainerFloor api.Milli
	// ServiceQuantile is what part of its samples before it comes the floor of a service covers, at most 1, and ServiceFloor the least that one asks for, in
	// thousandths of a device; 1 to 1000.
	ServiceQuantile float64
	ServiceFloor    api.Milli
	// ServiceWeight is the weight of services for what is over the floors, that of trainers being their floors in thousandths; 0: their floor.
	ServiceWeight int32
}

// DefaultMix is the mix of so many nodes that is measured: see docs/measurements.md. What its shares ask for was chosen on the seeds 100 to 103.
func DefaultMix(nodes int, seed uint64) Mix {
	return Mix{Nodes: nodes, Seed: seed, Load: 3, Horizon: 1440 * 57 * 1_000_000, Memory: 80 << 30, TrainerFloor: 420, ServiceQuantile: 0.7, ServiceFloor: 100, ServiceWeight: 1000}
}

// trainersOf is how many of a hundred jobs of a mix are trainers; the others are services.
const trainersOf = 52

// How long jobs of a mix run is distributed lognormally.
const (
	mixMedian    = 2 * 3_600_000_000 // µs
	mixDeviation = 1.0               // of the logarithm
)

// GenerateMix makes a trace of 52 % trainers, each one of the programs of an interference, and 48 % services, each one of a duty cycle that begins at a
// random sample, those before it being known when it comes. How long they run and when they come is random, and the same for both kinds, so that on devices of their own as many of the devices have
// trainers. Memory is what the program or service was seen to hold at the most.
func GenerateMix(m Mix, of *Sharing) (*Trace, error) {
	if of == nil {
		of = MadeSharing(m.Seed)
	}
	if of.Interference == nil || of.Duty == nil || len(of.Interference.programs) == 0 || len(of.Duty.Services) == 0 {
		return nil, errors.New("a mix is made of programs and services: give both, an interference and duty cycles, or neither")
	}
	r := newRandom(m.Seed)
	t := &Trace{Nodes: uniform(m.Nodes)}
	for i := range t.Nodes {
		for k := range t.Nodes[i].Devices {
			t.Nodes[i].Devices[k].Memory = m.Memory
		}
	}
	room := m.Load * float64(m.Horizon) * float64(m.Nodes*perNode) // µs × devices
	for i := 0; room > 0; i++ {
		j := Job{Workload: engine.Workload{ID: fmt.Sprintf("job-%06d", i), Tasks: 1, Devices: 1, Preemptible: true}}
		if i%3 > 0 {
			j.Submit = engine.Time(r.unit() * float64(m.Horizon))
		}
		memory := j.train(of, r, m.TrainerFloor)
		if r.below(100) >= trainersOf {
			j.Share.Weight = m.ServiceWeight
			memory = j.serve(of, r, &m)
		}
		if memory > m.Memory {
			return nil, fmt.Errorf("%s holds %v, and devices have %v: give them more memory", j.Name, memory, m.Memory)
		}
		memory = (memory + 1<<20 - 1) >> 20 << 20
		j.Share.Memory = api.Memory{Floor: api.Amount{Bytes: memory}, Ceiling: api.Amount{Bytes: memory}}
		j.Share.Compute.Ceiling = api.WholeDevice
		j.Duration = max(1, min(m.Horizon, engine.Time(mixMedian*math.Exp(mixDeviation*r.normal()))))
		room -= float64(j.Duration)
		t.Jobs = append(t.Jobs, j)
	}
	return sorted(t), nil
}

// MadeSharing is what programs and services do to devices by the built-in generator.
func MadeSharing(seed uint64) *Sharing {
	return &Sharing{Interference: MadeInterference(), Duty: MadeDuty(seed)}
}

// pastSamples is how many samples of a service are known at the least when it comes, if it has twice as many.
const pastSamples = 180

// train makes a job a trainer and says what memory it holds.
func (j *Job) train(of *Sharing, r *random, floor api.Milli) api.Bytes {
	p := of.Interference.programs[r.below(len(of.Interference.programs))]
	j.Class, j.Name, j.Program, j.Busy = api.Training, p.Name, p.Name, p.Busy
	j.Queue = []string{"research", "product"}[r.below(2)]
	j.User = j.Queue
	j.Share.Compute.Floor = max(1, p.Busy*floor/api.WholeDevice)
	return p.Memory
}

// serve makes it an inference service instead.
func (j *Job) serve(of *Sharing, r *random, m *Mix) api.Bytes {
	s := &of.Duty.Services[r.below(len(of.Duty.Services))]
	past := min(pastSamples, len(s.Busy)/2)
	past += r.below(len(s.Busy) - past)
	seen := slices.Clone(s.Busy[:past])
	slices.Sort(seen)
	j.Class, j.Name, j.Program, j.Busy = api.Inference, s.Name, "", 0
	j.Service, j.FirstSample = s.Name, past-int(j.Submit/of.Duty.Step)%len(s.Busy)
	if j.FirstSample < 0 {
		j.FirstSample += len(s.Busy)
	}
	j.Queue = []string{"search", "assistant"}[r.below(2)]
	j.User = j.Queue
	j.Share.Compute.Floor = max(m.ServiceFloor, seen[min(len(seen)-1, int(m.ServiceQuantile*float64(len(seen))))])
	return s.Memory
}

// OnOwn is a trace with the same jobs, each with whole devices for itself.
func (t *Trace) OnOwn() *Trace {
	own := *t
	own.Jobs = slices.Clone(t.Jobs)
	for i := range own.Jobs {
		own.Jobs[i].Share = api.Share{Compute: api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}}
	}
	return &own
}

// useResource is the resource of nodes that LimitUse counts by: thousandths of a device that are kept busy.
const useResource = "use"

// LimitUse is a trace with the same jobs that start only where all on a node together are expected to keep no more busy than a part of its devices. What a job is
// expected to keep busy is what it does alone, and of one that follows a service the mean of all services. It is a resource of the nodes to
// the engine, as CPU is.
func (t *Trace) LimitUse(part float64, of *Sharing) *Trace {
	limited := t.withResources(func(devices int) []engine.Resource {
		return []engine.Resource{{Name: useResource, Amount: int64(part * float64(api.WholeDevice) * float64(devices))}}
	})
	var service api.Milli
	if of.Duty != nil {
		service = of.Duty.Mean()
	}
	for i := range limited.Jobs {
		j := &limited.Jobs[i]
		use := service
		if j.Service == "" {
			use = of.alone(j)
		}
		j.Resources = append(slices.Clone(j.Resources), engine.Resource{Name: useResource, Amount: int64(use) * int64(j.Devices)})
	}
	return limited
}
