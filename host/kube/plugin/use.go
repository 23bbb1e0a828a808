package plugin

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/api"
)

// usage is what a share used of its device over a moment, by its node's meters: times are in thousandths of the device.
type usage struct {
	compute  api.Milli
	borrowed api.Milli // of compute, above the floor
	lent     api.Milli // of the floor, to others
	memory   api.Bytes
}

// flow is what a share borrows or lends, where it is a hundredth of the device at least: a share that borrows lends nothing.
func (u usage) flow() string {
	const shown = api.WholeDevice / 100
	switch {
	case u.borrowed >= shown:
		return "+" + percent(u.borrowed)
	case u.lent >= shown:
		return "-" + percent(u.lent)
	}
	return ""
}

// rounded is memory in two or three digits.
func rounded(memory api.Bytes) string {
	const mebi, gibi = 1 << 20, 1 << 30
	switch {
	case memory >= 10*gibi:
		return fmt.Sprintf("%dGi", (memory+gibi/2)/gibi)
	case memory >= gibi:
		return fmt.Sprintf("%d.%dGi", memory/gibi, memory%gibi*10/gibi)
	}
	return fmt.Sprintf("%dMi", memory/mebi)
}

func percent(part api.Milli) string { return fmt.Sprintf("%d%%", (part+5)/10) }

// metered names a share in the agents' metrics.
type metered struct{ device, namespace, claim string }

// meters are what agents count of a share, since its claim was prepared.
type meters struct {
	held, burst, lent float64 // seconds
	memory            float64
	at                time.Time // when it was read
}

// agentWithin is how long a node's agent has to answer.
const agentWithin = 5 * time.Second

// uses asks the agents of these nodes twice, what their shares have used. Agents that do not answer are passed over; the error is why none could be asked.
func (p Plugin) uses(ctx context.Context, nodes map[string]bool) (map[metered]usage, error) {
	pods, err := p.Client.CoreV1().Pods(p.Agents).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=aliquot-agent"})
	if err != nil {
		return nil, err
	}
	agents := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !nodes[pod.Spec.NodeName] || pod.Status.Phase != corev1.PodRunning })
	if len(agents) == 0 {
		return nil, fmt.Errorf("there is no agent's pod in namespace %s for any of them", p.Agents)
	}
	before, err := p.scrape(ctx, agents)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(p.Over):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := p.scrape(ctx, agents)
	if err != nil {
		return nil, err
	}
	all := map[metered]usage{}
	for share, now := range after {
		then, is := before[share]
		over := now.at.Sub(then.at).Seconds()
		if !is || over <= 0 {
			continue
		}
		rate := func(before, after float64) api.Milli {
			return api.Milli(math.Round(max(0, after-before) / over * float64(api.WholeDevice)))
		}
		all[share] = usage{compute: rate(then.held, now.held), borrowed: rate(then.burst, now.burst), lent: rate(then.lent, now.lent), memory: api.Bytes(now.memory)}
	}
	return all, nil
}

// scrape reads the meters of all these agents, through the API server.
func (p Plugin) scrape(ctx context.Context, agents []corev1.Pod) (map[metered]meters, error) {
	ctx, cancel := context.WithTimeout(ctx, agentWithin)
	defer cancel()
	var mu sync.Mutex
	var failed []error
	all, places := map[metered]meters{}, make(chan struct{}, 32)
	var asked sync.WaitGroup
	for _, agent := range agents {
		asked.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			said, err := p.Client.CoreV1().Pods(agent.Namespace).ProxyGet("http", agent.Name, portOf(agent), "metrics", nil).DoRaw(ctx)
			at := p.Now()
			var read map[string]*dto.MetricFamily
			if err == nil {
				parser := expfmt.NewTextParser(model.UTF8Validation)
				read, err = parser.TextToMetricFamilies(bytes.NewReader(said))
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
				return
			}
			gather(all, read, at)
		})
	}
	asked.Wait()
	if len(failed) == len(agents) {
		return nil, failed[0] // as the others will have it
	}
	return all, nil
}

// gather adds what one agent says of its shares.
func gather(all map[metered]meters, said map[string]*dto.MetricFamily, at time.Time) {
	for name, put := range map[string]func(*meters, float64){
		"aliquot_share_device_seconds_total": func(m *meters, v float64) { m.held = v },
		"aliquot_share_burst_seconds_total":  func(m *meters, v float64) { m.burst = v },
		"aliquot_share_lent_seconds_total":   func(m *meters, v float64) { m.lent = v },
		"aliquot_share_memory_bytes":         func(m *meters, v float64) { m.memory = v },
	} {
		for _, one := range said[name].GetMetric() {
			var share metered
			for _, label := range one.GetLabel() {
				switch label.GetName() {
				case "device":
					share.device = label.GetValue()
				case "namespace":
					share.namespace = label.GetValue()
				case "claim":
					share.claim = label.GetValue()
				}
			}
			have := all[share]
			have.at = at
			put(&have, one.GetCounter().GetValue()+one.GetGauge().GetValue())
			all[share] = have
		}
	}
}

// portOf is where an agent serves its metrics, by its own arguments.
func portOf(agent corev1.Pod) string {
	for _, container := range agent.Spec.Containers {
		for _, argument := range container.Args {
			if port, is := strings.CutPrefix(argument, "--metrics=:"); is {
				return port
			}
		}
	}
	return "9464"
}
