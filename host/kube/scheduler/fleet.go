package scheduler

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	component "k8s.io/component-helpers/resource"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/models"
)

// node is what is known of a node, and what the engine was told.
type node struct {
	name    string
	object  *corev1.Node                          // nil: not there
	slices  map[string]*resourceapi.ResourceSlice // of our devices, by name
	offered []resourceapi.Device                  // of the newest pool that was whole
	taken   map[string]int64                      // requested by pods on it beside what the engine counts; negative: it counts more than they request
	told    *engine.NodeSet                       // nil: nothing, or that it is gone
	whole   bool                                  // of its devices some are handed out whole alone
}

// node returns a node by its name, made known if it was not.
func (s *Scheduler) node(name string) *node {
	n := s.nodes[name]
	if n == nil {
		n = &node{name: name, slices: map[string]*resourceapi.ResourceSlice{}, taken: map[string]int64{}}
		s.nodes[name] = n
	}
	return n
}

// sameNode says whether nothing has changed that decides what a node takes.
func sameNode(a, b *corev1.Node) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

// tellNodes tells the engine of the nodes that have changed.
func (s *Scheduler) tellNodes() {
	if !s.began || len(s.dirty) == 0 {
		return
	}
	changed := slices.SortedFunc(maps.Keys(s.dirty), func(a, b *node) int { return strings.Compare(a.name, b.name) })
	clear(s.dirty)
	for _, n := range changed {
		if n.object == nil {
			delete(s.wholes, n)
			if n.told != nil {
				n.told = nil
				s.step(engine.NodeGone{At: s.at(), Node: n.name})
			}
			if len(n.slices) == 0 && len(n.taken) == 0 {
				delete(s.nodes, n.name)
			}
			continue
		}
		now := engine.NodeSet{Node: n.name, Devices: n.devices(), Resources: n.resources(s.extended), Domains: s.domains(n)}
		if delete(s.wholes, n); n.whole {
			s.wholes[n] = true
		}
		if n.told != nil && reflect.DeepEqual(*n.told, now) {
			continue
		}
		n.told = &now
		now.At = s.at()
		s.step(now)
		n.told.At = engine.At{}
	}
}

// devices are a node's, as the newest of its pools offers them that is whole.
func (n *node) devices() []engine.Device {
	newest := int64(0)
	for _, slice := range n.slices {
		newest = max(newest, slice.Spec.Pool.Generation)
	}
	var offered []resourceapi.Device // what a slice has is never changed: of one alone they are not copied
	have, want := int64(0), int64(0)
	for _, slice := range n.slices {
		if slice.Spec.Pool.Generation == newest {
			have, want = have+1, slice.Spec.Pool.ResourceSliceCount
			if offered == nil {
				offered = slices.Clip(slice.Spec.Devices)
			} else {
				offered = append(offered, slice.Spec.Devices...)
			}
		}
	}
	if have == want {
		byName := func(a, b resourceapi.Device) int { return strings.Compare(a.Name, b.Name) }
		if !slices.IsSortedFunc(offered, byName) {
			offered = slices.SortedFunc(slices.Values(offered), byName)
		}
		n.offered = offered
		n.whole = slices.ContainsFunc(offered, func(d resourceapi.Device) bool { return !shareable(d) })
	}
	var devices []engine.Device
	for i, d := range n.offered {
		compute, memory := d.Capacity[driver.Compute], d.Capacity[driver.Memory]
		if compute.Value.Value() != int64(api.WholeDevice) {
			continue // it is not of a node agent of ours
		}
		one := engine.Device{UUID: deviceID(n.name, d.Name), Index: i, Memory: api.Bytes(memory.Value.Value()), Health: api.Healthy}
		if model := d.Attributes["model"].StringValue; model != nil {
			one.Model = *model
		}
		attributed(&one, d.Attributes)
		for _, taint := range d.Taints {
			if taint.Effect == resourceapi.DeviceTaintEffectNoSchedule || taint.Effect == resourceapi.DeviceTaintEffectNoExecute {
				one.Health, one.Reason = api.Draining, strings.TrimSuffix("it has the taint "+taint.Key+"="+taint.Value, "=")
			}
		}
		devices = append(devices, one)
	}
	return devices
}

// shareable says whether parts of a device are handed out. Where the API server drops that field, none are: each is had whole.
func shareable(d resourceapi.Device) bool {
	return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
}

// attributed is what else the attributes say of a device, as the driver writes them, and what is known of its model.
func attributed(one *engine.Device, all map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) {
	capability := ""
	if version := all["computeCapability"].VersionValue; version != nil {
		capability = strings.TrimSuffix(*version, ".0") // 9.0.0
	}
	one.Traits = models.Told(one.Model, capability)
	if class := all["latencyClass"].IntValue; class != nil && *class >= 1 && *class <= api.SlowestLatency { // what is none is not known
		one.Traits.Latency = int32(*class)
	}
	for _, name := range []resourceapi.QualifiedName{"links", "linkDomain"} { // what reaches beyond the node counts, if both are said
		if of := all[name].StringValue; of != nil {
			one.Link = *of
		}
	}
	if numa := all["numaNode"].IntValue; numa != nil {
		one.NUMA = strconv.FormatInt(*numa, 10)
	}
}

// deviceID is what the engine knows a device by: its pool, which is its node, and its name there.
func deviceID(pool, name string) string { return pool + "/" + name }

// unbounded is how much the engine is told that a node has of what is not counted there: more than pods could ask for.
const unbounded = 1 << 40

// resources are what a node has for pods that the engine places. Of these names, each of a device class, those that it has none of stand for devices
// there, which the filters see to: the engine is to bar it for none of them.
func (n *node) resources(extended []string) []engine.Resource {
	has := n.object.Status.Allocatable
	if len(extended) > 0 {
		has = corev1.ResourceList{}
		maps.Copy(has, n.object.Status.Allocatable)
	}
	for _, name := range extended {
		if counted := has[corev1.ResourceName(name)]; counted.Sign() <= 0 {
			has[corev1.ResourceName(name)] = *resource.NewQuantity(unbounded, resource.DecimalSI)
		}
	}
	return amounts(has, func(name string, amount int64) int64 { return max(0, amount-n.taken[name]) })
}

// take counts what pods request of a node that the engine does not count, or with sign -1 takes that back. No node counts nothing.
func (n *node) take(charge []engine.Resource, sign int64) {
	if n == nil {
		return
	}
	for _, r := range charge {
		if n.taken[r.Name] += sign * r.Amount; n.taken[r.Name] == 0 {
			delete(n.taken, r.Name)
		}
	}
}

// extend has nodes told anew where device classes give themselves other names by which limits of their devices are asked for.
func (s *Scheduler) extend() {
	var names []string
	for _, class := range s.deviceClasses {
		if name := class.Spec.ExtendedResourceName; name != nil {
			names = append(names, *name)
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); slices.Equal(names, s.extended) {
		return
	}
	s.extended = names
	for _, n := range s.nodes {
		s.dirty[n] = true
	}
	s.outdate()
}

// amounts is a list of resources as the engine has it: CPU in thousandths of a core, all else in its own unit, sorted by name.
func amounts(list corev1.ResourceList, each func(name string, amount int64) int64) []engine.Resource {
	var all []engine.Resource
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		amount := quantity.Value()
		if name == corev1.ResourceCPU {
			amount = quantity.MilliValue()
		}
		if amount = each(string(name), amount); amount >= 0 {
			all = append(all, engine.Resource{Name: string(name), Amount: amount})
		}
	}
	return all
}

// requestsOf are what a pod requests of its node: its place among the node's pods, too. One that has a node counts as upstream's scheduler counts it: what it
// has and what it is to have by a resize, whichever is more, as its node says it.
func requestsOf(pod *corev1.Pod) []engine.Resource {
	placed := pod.Spec.NodeName != ""
	list := component.PodRequests(pod, component.PodResourcesOptions{UseStatusResources: placed, InPlacePodLevelResourcesVerticalScalingEnabled: placed})
	all := amounts(list, func(name string, amount int64) int64 {
		if strings.HasPrefix(name, resourceapi.ResourceDeviceClassPrefix) || amount == 0 {
			return -1 // devices, which are not the node's
		}
		return amount
	})
	return append(all, engine.Resource{Name: string(corev1.ResourcePods), Amount: 1})
}
