package local

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

const (
	meanSpan   = 10 * time.Second       // what rates are means over, as far as it was watched: a ceiling holds over any 10 s
	sampleAge  = 900 * time.Millisecond // a sample as old as this is taken again for who looks
	firstPause = 200 * time.Millisecond // between the two samples of one who looks before there is any of a grant
)

// meter keeps the samples of the last meanSpan, of which rates are made. They are taken when someone looks, and at a slow pace while
// tasks hold grants: so who looks once sees more than what happened in that moment.
type meter struct {
	agent Agent
	now   func() time.Time

	mu   sync.Mutex
	seen []node.Sample // oldest first
	err  error         // why the latest could not be taken
}

func newMeter(agent Agent, now func() time.Time) *meter { return &meter{agent: agent, now: now} }

// read returns the samples to judge by, oldest first. It waits until there are two of each grant: one that began just now is not
// shown as one of which nothing is known.
func (m *meter) read(ctx context.Context) ([]node.Sample, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh(ctx)
	if m.err == nil && m.begun() {
		select {
		case <-time.After(firstPause):
			m.take(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return slices.Clone(m.seen), m.err
}

// begun says that the latest sample has a grant, as it is now, that the one before it has not.
func (m *meter) begun() bool {
	var before map[grantKey]node.Usage
	last := len(m.seen) - 1
	if last < 0 {
		return false
	}
	if last > 0 {
		before = byGrant(m.seen[last-1])
	}
	return slices.ContainsFunc(m.seen[last].Tasks, func(now node.Usage) bool {
		earlier, known := before[grantKey{now.Task, now.Grant.Device}]
		return !known || earlier.Grant != now.Grant
	})
}

// watch takes samples at a pace while tasks hold grants, until ctx ends.
func (m *meter) watch(ctx context.Context, pace time.Duration) {
	again := time.NewTicker(pace)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			if len(m.agent.Prepared()) > 0 {
				m.mu.Lock()
				m.refresh(ctx)
				m.mu.Unlock()
			}
		case <-ctx.Done():
			return
		}
	}
}

// refresh takes a sample where the latest is old.
func (m *meter) refresh(ctx context.Context) {
	if n := len(m.seen); n > 0 {
		if age := m.now().Sub(m.seen[n-1].At); age >= 0 && age <= sampleAge {
			return
		}
	}
	m.take(ctx)
}

func (m *meter) take(ctx context.Context) {
	sample, err := m.agent.Sample(ctx)
	if m.err = err; err != nil {
		return
	}
	m.seen = append(slices.DeleteFunc(m.seen, func(one node.Sample) bool {
		age := sample.At.Sub(one.At)
		return age <= 0 || age > meanSpan
	}), sample)
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
		Workload: workload, Grant: grant, Memory: &memory, MemoryByDriver: now.MemoryByDriver, DeviceTime: now.Held, Own: now.Own, Burst: now.Burst,
		MemoryPeak: now.MemPeak, Launches: now.Launches, Processes: len(now.Processes), UnknownCalls: now.UnknownCalls,
	}
	if before == nil || over <= 0 {
		return usage
	}
	compute := rate(now.Held-before.Held, over)
	usage.Compute, usage.Over = &compute, over
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
		usage.MemoryByDriver = nil
		usage.Memory, usage.Processes, usage.Enforced, usage.UnknownCalls = nil, 0, enforced, 0
		all = append(all, usage)
	}
	return all
}

// meters are samples by grant, oldest first, with their times.
type meters struct {
	seen []map[grantKey]node.Usage
	at   []time.Time
}

// meters reads the samples. Where they cannot be read, nothing is known of any grant.
func (h *Host) meters(ctx context.Context) (meters, []node.DeviceUsage, error) {
	samples, err := h.meter.read(ctx)
	if ctx.Err() != nil {
		return meters{}, nil, ctx.Err()
	}
	if err != nil {
		h.Log.Warn("the meters cannot be read", "error", err)
		return meters{}, nil, nil // what is not known is not shown
	}
	var read meters
	for _, sample := range samples {
		read.seen = append(read.seen, byGrant(sample))
		read.at = append(read.at, sample.At)
	}
	return read, samples[len(samples)-1].Devices, nil
}

// usage is what the grants of a workload use now, in their order. A grant whose meters are not known is shown without them.
func (m meters) usage(w *work) []api.Usage {
	var all []api.Usage
	for _, grant := range w.shown.Status.Grants {
		usage := api.Usage{Workload: w.shown.Spec.Name, Grant: grant}
		if metered, before, over := m.find(grantKey{w.shown.UID, grant.Device}); metered != nil {
			usage = usageOf(grant, w.shown.Spec.Name, before, *metered, over)
		}
		usage.Enforced = !w.evaded()
		all = append(all, usage)
	}
	return all
}

// find is what a grant has used by now, and what it had used at the first sample of it as it is now: before a change of the share it
// was held to something else. Where there is none before is nil.
func (m meters) find(key grantKey) (now, before *node.Usage, over time.Duration) {
	last := len(m.seen) - 1
	if last < 0 {
		return nil, nil, 0
	}
	latest, known := m.seen[last][key]
	if !known {
		return nil, nil, 0
	}
	for i, seen := range m.seen[:last] {
		if one, known := seen[key]; known && one.Grant == latest.Grant {
			return &latest, &one, m.at[last].Sub(m.at[i])
		}
	}
	return &latest, nil, 0
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
