package scheduler

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// inParts is the selector that devices must match of which a part is asked for.
const inParts = `device.allowMultipleAllocations == true`

// judgeMost is what selectors may cost in CEL's own units until something else is judged, beyond the node at which that is reached: what upstream allows
// them for one device, half a second or so. As they usually are, that is more than a hundred thousand devices.
const judgeMost = resourceapi.CELSelectorExpressionMaxCost

// What is said of a node whose devices were not judged yet, and of one whose devices are others since they were.
const (
	notJudged = "its devices are still to be matched with the selectors"
	judgeAnew = "its devices have changed, and are matched with the selectors anew"
)

// someMatch is why the engine leaves a node out of which some devices match and others do not: it chooses among all of a node. See secondChance.
const someMatch = "some devices do not match the selectors"

// selection is what selectors say of the devices of nodes. Classes with the same selectors have the same one, and it goes with the last of them.
type selection struct {
	selectors []string // CEL
	compile   func() []cel.CompilationResult
	said      map[string]judgement // by node; it is never changed, but replaced
}

// judgement is what was said of a node's devices.
type judgement struct {
	devices []resourceapi.Device // at that time
	why     string               // they do not do; empty: they do
}

// selectionOf finds or makes what selectors say; nil: there are none.
func (s *Scheduler) selectionOf(selectors []string) *selection {
	if len(selectors) == 0 {
		return nil
	}
	key := strings.Join(selectors, "\n")
	if s.selections[key] == nil {
		s.selections[key] = &selection{selectors: selectors, compile: sync.OnceValue(func() (all []cel.CompilationResult) {
			for _, expression := range selectors {
				all = append(all, cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{}))
			}
			return all
		})}
	}
	return s.selections[key]
}

// forgetSelections forgets those that no class has.
func (s *Scheduler) forgetSelections() {
	used := map[*selection]bool{}
	for _, all := range []map[string]*class{s.classes, s.left} {
		for _, c := range all {
			used[c.selection] = true
		}
	}
	for key, one := range s.selections {
		if !used[one] {
			delete(s.selections, key)
		}
	}
}

// offers are the devices of all nodes.
func (s *Scheduler) offers() map[string][]resourceapi.Device {
	all := make(map[string][]resourceapi.Device, len(s.nodes))
	for name, n := range s.nodes {
		all[name] = n.offered
	}
	return all
}

// judge has selectors say of the devices of some nodes whether they do. They are their users' programs, and may take long: it is for beside the loop, what
// was said before counts until the devices change, and it stops at what it may cost; then it is not whole.
func (l *selection) judge(ctx context.Context, nodes []string, offers map[string][]resourceapi.Device, before map[string]judgement) (now map[string]judgement, whole bool) {
	now = make(map[string]judgement, len(offers))
	for name, said := range before {
		if devices, there := offers[name]; there && sameDevices(said.devices, devices) {
			now[name] = said
		}
	}
	cost := uint64(0)
	for _, name := range nodes {
		if _, known := now[name]; known {
			continue
		}
		if cost >= judgeMost || ctx.Err() != nil {
			return now, false
		}
		now[name] = judgement{offers[name], l.match(ctx, offers[name], &cost)}
	}
	return now, true
}

// why is why a node's devices do not do, as was said last; empty: they do.
func (l *selection) why(name string) string {
	if l == nil {
		return ""
	}
	if said, known := l.said[name]; known {
		return said.why
	}
	return notJudged
}

// stands says whether the devices of a node do, as they are now.
func (l *selection) stands(n *node) bool {
	if l == nil {
		return true
	}
	said, known := l.said[n.name]
	return known && said.why == "" && sameDevices(said.devices, n.offered)
}

// match is why devices do not all match; empty: they do. A node on which some match and others do not is left out whole: which of its devices a pod
// gets is the engine's choice. It adds what it costs.
func (l *selection) match(ctx context.Context, devices []resourceapi.Device, cost *uint64) string {
	for i, program := range l.compile() {
		if program.Error != nil {
			return fmt.Sprintf("the selector %s cannot be understood: %v", l.selectors[i], program.Error)
		}
		matching := 0
		for _, d := range devices {
			matches, details, err := program.DeviceMatches(ctx, cel.Device{
				Driver: driver.Name, Attributes: d.Attributes, Capacity: d.Capacity, AllowMultipleAllocations: d.AllowMultipleAllocations,
			})
			if details != nil && details.ActualCost() != nil {
				*cost += *details.ActualCost()
			}
			if err != nil {
				return fmt.Sprintf("the selector %s fails on device %s: %v", l.selectors[i], d.Name, err)
			}
			if matches {
				matching++
			}
		}
		switch matching {
		case len(devices):
		case 0:
			if l.selectors[i] == inParts {
				return "its devices are handed out whole alone, for the API server drops what is said of parts; ask for whole ones, or have it enable DRAConsumableCapacity"
			}
			return "no device matches the selectors"
		default:
			return someMatch
		}
	}
	return ""
}

// sameDevices says whether devices are of the same objects of the cluster, which are never changed.
func sameDevices(a, b []resourceapi.Device) bool {
	is := func(x, y any) bool { return reflect.ValueOf(x).Pointer() == reflect.ValueOf(y).Pointer() }
	return slices.EqualFunc(a, b, func(x, y resourceapi.Device) bool {
		return x.Name == y.Name && is(x.Attributes, y.Attributes) && is(x.Capacity, y.Capacity) && x.AllowMultipleAllocations == y.AllowMultipleAllocations
	})
}
