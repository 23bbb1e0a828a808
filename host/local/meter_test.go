package local

import (
	"context"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// metered is a meter of one task with one grant, and what it is told next.
type metered struct {
	*meter
	agent *fakeAgent
	at    time.Time
	next  node.Usage
}

func newMetered() *metered {
	one := &metered{agent: &fakeAgent{}, at: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)}
	one.meter = newMeter(one.agent, func() time.Time { return one.at })
	one.next = node.Usage{Task: "w1", Grant: node.Grant{UID: "w1.0", Device: "GPU-0", Floor: 250, Ceiling: 800}}
	return one
}

// after lets time pass in which the task holds the device for held of it, and looks.
func (m *metered) after(t *testing.T, pass, held time.Duration) api.Usage {
	t.Helper()
	m.at = m.at.Add(pass)
	m.next.Held += held
	m.agent.samples = []node.Sample{{At: m.at, Tasks: []node.Usage{m.next}}}
	read := m.meters(t)
	grant := api.Grant{UID: "w1.0", Device: "GPU-0"}
	one := newWork(1, api.Workload{UID: "w1", Spec: api.WorkloadSpec{Name: "one"}, Status: api.WorkloadStatus{Grants: []api.Grant{grant}}}, keep{})
	return read.usage(one)[0]
}

// meters looks, and gives what rates are made of.
func (m *metered) meters(t *testing.T) (read meters) {
	t.Helper()
	samples, err := m.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range samples {
		read.seen, read.at = append(read.seen, byGrant(sample)), append(read.at, sample.At)
	}
	return read
}

// What is shown is the mean of the last 10 s, as far as they were watched under this share; a program that works in bursts is not
// shown as idle because it rested in the moment of the look.
func TestUseIsTheMeanOfTenSeconds(t *testing.T) {
	m := newMetered()
	check := func(what string, usage api.Usage, compute api.Milli, over time.Duration) {
		t.Helper()
		if usage.Compute == nil || *usage.Compute != compute || usage.Over != over {
			t.Errorf("%s: %+v of compute over %s, want %d over %s", what, usage.Compute, usage.Over, compute, over)
		}
	}
	m.after(t, 0, 0)
	check("the first second", m.after(t, time.Second, 600*time.Millisecond), 600, time.Second)
	check("too soon for another sample", m.after(t, 500*time.Millisecond, time.Hour), 600, time.Second)
	m.next.Held -= time.Hour
	for range 8 {
		m.after(t, time.Second, 0)
	}
	check("at rest since", m.after(t, 500*time.Millisecond, 0), 63, 9500*time.Millisecond)
	check("what came before is forgotten", m.after(t, time.Second, 100*time.Millisecond), 10, 10*time.Second)
	m.next.Grant.Ceiling = 500
	if usage := m.after(t, time.Second, 400*time.Millisecond); usage.Compute != nil || usage.Over != 0 {
		t.Errorf("right after a change of the share: %+v", usage)
	}
	check("under the new share", m.after(t, 2*time.Second, time.Second), 500, 2*time.Second)
	if usage := m.after(t, time.Minute, time.Second); usage.Compute != nil {
		t.Errorf("what was a minute ago is not now: %+v", usage)
	}
}

// Who looks at a task that began after the last look sees what it uses, not that nothing is known of it.
func TestUseOfATaskThatBeganJustNow(t *testing.T) {
	m := newMetered()
	m.after(t, 0, 0)
	m.after(t, time.Second, 0)
	begun := node.Usage{Task: "w2", Grant: node.Grant{UID: "w2.0", Device: "GPU-0", Ceiling: 500}}
	m.at = m.at.Add(time.Second)
	later := begun
	later.Held = 100 * time.Millisecond
	m.agent.samples = []node.Sample{
		{At: m.at, Tasks: []node.Usage{m.next, begun}},
		{At: m.at.Add(200 * time.Millisecond), Tasks: []node.Usage{m.next, later}},
	}
	read := m.meters(t)
	now, before, over := read.find(grantKey{"w2", "GPU-0"})
	if before == nil || now.Held-before.Held != 100*time.Millisecond || over != 200*time.Millisecond {
		t.Errorf("%+v after %+v, over %s", now, before, over)
	}
}

// While a task holds grants the meters are looked at, so that who looks once sees the last seconds; without tasks they are not.
func TestMetersAreLookedAtWhileTasksHoldGrants(t *testing.T) {
	looked := make(chan struct{}, 100)
	s := newSite(t, func(config *Config) {
		config.SamplePace = time.Millisecond
		config.Agent = &watchedAgent{config.Agent, looked}
	})
	s.running(s.submit(spec("1", "sleep 1000")).UID)
	select {
	case <-looked:
	case <-time.After(time.Minute):
		t.Error("the meters were not looked at in a minute")
	}
}

// watchedAgent tells when its meters are looked at.
type watchedAgent struct {
	Agent
	looked chan<- struct{}
}

func (a *watchedAgent) Sample(ctx context.Context) (node.Sample, error) {
	select {
	case a.looked <- struct{}{}:
	default:
	}
	return a.Agent.Sample(ctx)
}
