package local

import (
	"context"
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
		Launches: now.Launches, Processes: len(now.Processes),
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

// rate is part/whole in thousandths, rounded to the nearest, never below 0.
func rate(part, whole time.Duration) api.Milli {
	if part <= 0 || whole <= 0 {
		return 0
	}
	return api.Milli((int64(part)*1000 + int64(whole)/2) / int64(whole))
}
