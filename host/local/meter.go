package local

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// The meters are read only while someone looks.
const (
	sampleAge  = 900 * time.Millisecond // a sample as old as this is taken again
	rateStale  = 5 * time.Second        // two samples further apart make no rate
	firstPause = 200 * time.Millisecond // between the two samples of one who looks for the first time
)

// meter reads the node's meters and makes rates of them.
type meter struct {
	agent Agent
	now   func() time.Time

	mu       sync.Mutex
	old, new node.Sample // of which rates are made; old.At zero: only one was taken
	err      error
}

func newMeter(agent Agent, now func() time.Time) *meter { return &meter{agent: agent, now: now} }

// read returns the two samples to judge by. With rates it waits, the first time, until there are two.
func (m *meter) read(ctx context.Context, rates bool) (old, latest node.Sample, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if age := m.now().Sub(m.new.At); age < 0 || age > sampleAge {
		m.take(ctx)
	}
	if rates && m.err == nil && m.old.At.IsZero() && len(m.new.Tasks) > 0 {
		select {
		case <-time.After(firstPause):
			m.take(ctx)
		case <-ctx.Done():
			return node.Sample{}, node.Sample{}, ctx.Err()
		}
	}
	return m.old, m.new, m.err
}

func (m *meter) take(ctx context.Context) {
	sample, err := m.agent.Sample(ctx)
	if err != nil {
		m.err = err
		return
	}
	m.old, m.new, m.err = m.new, sample, nil
	if m.new.At.Sub(m.old.At) > rateStale {
		m.old = node.Sample{}
	}
}

// grantKey names one grant of a sample.
type grantKey struct{ task, device string }

func byGrant(sample node.Sample) map[grantKey]node.Usage {
	found := make(map[grantKey]node.Usage, len(sample.Tasks))
	for _, usage := range sample.Tasks {
		found[grantKey{usage.Task, usage.Grant.Device}] = usage
	}
	return found
}

// usageOf is one grant's use as the API shows it. Rates that cannot be known stay nil or absent.
func usageOf(grant api.Grant, workload string, before *node.Usage, now node.Usage, over time.Duration) api.Usage {
	memory := now.Memory
	usage := api.Usage{
		Workload: workload, Grant: grant, Memory: &memory, DeviceTime: now.Held, Own: now.Own, Burst: now.Burst,
		MemoryPeak: now.MemPeak, Launches: now.Launches, Processes: len(now.Processes),
	}
	if before == nil || over <= 0 {
		return usage
	}
	compute := rate(now.Held-before.Held, over)
	usage.Compute = &compute
	usage.Borrowing = rate(now.Burst-before.Burst, over)
	usage.Lending = rate(now.Lent-before.Lent, over)
	usage.WaitedShare = min(rate(now.Waited-before.Waited, over), api.WholeDevice)
	return usage
}

// usageInAll is what a workload that ends has used of its grants; none where that is not known.
func usageInAll(work api.Workload, used []node.Usage, enforced bool) []api.Usage {
	var all []api.Usage
	for _, grant := range work.Status.Grants {
		i := slices.IndexFunc(used, func(one node.Usage) bool { return one.Grant.Device == grant.Device })
		if i < 0 {
			continue
		}
		usage := usageOf(grant, work.Spec.Name, nil, used[i], 0)
		usage.Memory, usage.Processes, usage.Enforced = nil, 0, enforced
		all = append(all, usage)
	}
	return all
}

// meters are two samples that rates are made of.
type meters struct {
	before, now map[grantKey]node.Usage
	over        time.Duration
}

// meters reads the samples. Where they cannot be read, nothing is known of any grant.
func (h *Host) meters(ctx context.Context) (meters, []node.DeviceUsage, error) {
	old, latest, err := h.meter.read(ctx, true)
	if ctx.Err() != nil {
		return meters{}, nil, ctx.Err()
	}
	if err != nil {
		h.Log.Warn("the meters cannot be read", "error", err)
		return meters{}, nil, nil // what is not known is not shown
	}
	read := meters{before: byGrant(old), now: byGrant(latest)}
	if !old.At.IsZero() {
		read.over = latest.At.Sub(old.At)
	}
	return read, latest.Devices, nil
}

// usage is what the grants of a workload use now, in their order. A grant whose meters are not known is shown without them.
func (m meters) usage(w *work) []api.Usage {
	var all []api.Usage
	for _, grant := range w.shown.Status.Grants {
		key := grantKey{w.shown.UID, grant.Device}
		usage := api.Usage{Workload: w.shown.Spec.Name, Grant: grant}
		if metered, known := m.now[key]; known {
			var earlier *node.Usage
			if one, ok := m.before[key]; ok {
				earlier = &one
			}
			usage = usageOf(grant, w.shown.Spec.Name, earlier, metered, m.over)
		}
		usage.Enforced = !w.evaded()
		all = append(all, usage)
	}
	return all
}

// addUse puts what they use now on workloads that hold grants.
func (h *Host) addUse(ctx context.Context, works []api.Workload) error {
	holds := func(work api.Workload) bool { return work.Status.Phase != api.Ended && len(work.Status.Grants) > 0 }
	if !slices.ContainsFunc(works, holds) {
		return nil
	}
	metered, _, err := h.meters(ctx)
	if err != nil {
		return err
	}
	return h.look(ctx, func() {
		for i := range works {
			if w := h.work[works[i].UID]; w != nil && holds(works[i]) {
				works[i].Status.Usage = metered.usage(w)
			}
		}
	})
}

// rate is part/whole in thousandths, rounded to the nearest, never below 0.
func rate(part, whole time.Duration) api.Milli {
	if part <= 0 || whole <= 0 {
		return 0
	}
	return api.Milli((int64(part)*1000 + int64(whole)/2) / int64(whole))
}
