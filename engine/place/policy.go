package place

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// Feature is one term of the score. Every feature is an integer that is larger where a place is better.
type Feature uint8

// The features. "Milli" are thousandths of a device.
const (
	// FragmentationStep is the decrease of the node's fragmentation pressed into 0..100: 100/(1+exp(-decrease/1 device)), rounded
	// down, as FGD does (Weng et al., USENIX ATC'23, section 5).
	FragmentationStep Feature = iota
	// Fragmentation is the decrease itself, in sixteenths of a milli.
	Fragmentation
	// Remainder is what is left of the chosen devices afterwards, in milli, negated.
	Remainder
	// Exact is 1000 where nothing is left of the chosen device.
	Exact
	// Untouched is -1000 where a part of a device goes on one that is wholly free.
	Untouched
	// Outlook is the decrease of what is expected to stay unused of the device if the workload seen lately fills it in the order of
	// its coming, less what is taken, in sixteenths of a milli.
	Outlook
	// PatientOutlook is the same if the device may choose among the next dozen that come.
	PatientOutlook
	// NodeDevices is what is left of the node's devices, in thousandths of the largest node's, negated.
	NodeDevices
	// NodeCPU is what is left of the node's resource cpu, in thousandths of the largest node's, negated.
	NodeCPU
	// NodeMemory is what is left of the node's resource memory, in thousandths of the largest node's, negated.
	NodeMemory
	// StrandedDevice is the decrease of what of the node's devices lacks CPU, at the ratio of the workload seen lately, in milli.
	StrandedDevice
	// StrandedCPU is the decrease of the node's CPU that lacks devices, at the same ratio, in milli of devices.
	StrandedCPU
	// Fitness is how much of the workload seen lately may run on such a node, against how many such nodes there are, negated: the
	// least device that serves comes first. In thousandths.
	Fitness
	// Whole is the number of wholly free devices that the node would have left, negated.
	Whole
	// HastyOutlook is Outlook if the device may choose among the next few that come.
	HastyOutlook
	// DistantOutlook is Outlook if the device may choose among the next four dozen that come.
	DistantOutlook
	// Interference is what all on the chosen devices are predicted to use, with what comes, beyond what the devices have, in milli, negated.
	Interference
	// Cost is what an hour of the chosen devices costs, in thousandths of the dearest device's, negated: the least that serves comes first.
	Cost
	// Bandwidth is the bandwidth of their memory, in thousandths of the widest device's, negated.
	Bandwidth
	// Capability is their compute capability, in thousandths of the newest device's, negated.
	Capability
	// DeviceMemory is the memory that they have in all, in thousandths of the largest device's, negated.
	DeviceMemory
	// Power is by how many watts the draw of those with nothing on them may rise, in thousandths of the device whose draw rises most, negated.
	Power
	// Wake is -1000 where nothing is on any device of the node.
	Wake
	// Linked is how many of the pairs of several chosen devices are linked with each other, in thousandths.
	Linked
	// SameNUMA is how many of them are at the same memory node of their node, in thousandths.
	SameNUMA
	// Latency is how quickly they answer by their latency classes, in thousandths of class 1, where the slowest class there is counts one class: negated.
	// So work leaves fast devices to whom they serve. Of an unknown class it is 0.
	Latency
	// StrandedMemory is the decrease of the node's memory that lacks devices, at the ratio of the workload seen lately, in milli of devices.
	StrandedMemory

	featureCount
)

var featureNames = [featureCount]string{
	"fragmentation_step", "fragmentation", "remainder", "exact", "untouched", "outlook", "patient_outlook", "node_devices",
	"node_cpu", "node_memory", "stranded_device", "stranded_cpu", "fitness", "whole", "hasty_outlook", "distant_outlook", "interference",
	"cost", "bandwidth", "capability", "device_memory", "power", "wake", "linked", "same_numa",
	"latency",
}

// String is the feature's name in a policy.
func (f Feature) String() string { return featureNames[f] }

// Features are all features, in order.
func Features() []Feature {
	all := make([]Feature, featureCount)
	for i := range all {
		all[i] = Feature(i)
	}
	return all
}

// MaxWeight is the largest weight, up or down: with it no score leaves its integer.
const MaxWeight = 1_000_000

// Weights are what each feature counts. In JSON an object by the features' names, without those that count nothing.
type Weights [featureCount]int32

// Named are the features that count something, in order.
func (p *Policy) Named() iter.Seq2[Feature, int32] {
	return func(yield func(Feature, int32) bool) {
		for f, weight := range p.Weights {
			if weight != 0 && !yield(Feature(f), weight) {
				return
			}
		}
	}
}

// MarshalJSON writes an object by name.
func (w Weights) MarshalJSON() ([]byte, error) {
	named := map[string]int32{} // written in the order of the names
	for f, weight := range w {
		if weight != 0 {
			named[featureNames[f]] = weight
		}
	}
	return json.Marshal(named)
}

// UnmarshalJSON reads an object by name.
func (w *Weights) UnmarshalJSON(text []byte) error {
	var named map[string]int32
	if err := json.Unmarshal(text, &named); err != nil {
		return fmt.Errorf("weights are whole numbers by feature: %w", err)
	}
	*w = Weights{}
	for f, name := range featureNames {
		w[f] = named[name]
		delete(named, name)
	}
	for name := range named {
		return fmt.Errorf("there is no feature %q: the features are %s", name, strings.Join(featureNames[:], ", "))
	}
	return nil
}

// DeviceRule is how the device is chosen on a node.
type DeviceRule string

const (
	// ByScore takes the device with the highest score, the first by index of equal ones.
	ByScore DeviceRule = ""
	// ByLeastLeft takes the one that has the least left and room enough.
	ByLeastLeft DeviceRule = "least_left"
	// ByDraw draws the node and the device. Its draws begin anew after Restore: it is for comparisons, not for production.
	ByDraw DeviceRule = "draw"
)

// Popular is a kind of request and how often it came.
type Popular struct {
	Compute   api.Milli   `json:"compute"`
	Memory    api.Amount  `json:"memory,omitzero"`
	Model     string      `json:"model,omitempty"`
	Least     fleet.Least `json:"least,omitzero"`
	Class     string      `json:"class,omitempty"`
	Devices   int         `json:"devices"`
	Resources []Resource  `json:"resources,omitempty"`
	Count     int64       `json:"count"`
}

// Resource is an amount of a named resource.
type Resource struct {
	Name   string `json:"name"`
	Amount int64  `json:"amount"`
}

// Policy is how a place is chosen among those that fit. It is data.
type Policy struct {
	Name    string     `json:"name"`
	Weights Weights    `json:"weights"`
	Device  DeviceRule `json:"device,omitempty"`
	// Quantum is what scores are divided by, rounding down, before they are compared; 0 and 1: not.
	Quantum int64 `json:"quantum,omitempty"`
	// Seed makes the fixed random order of nodes in which the first of equal ones is taken.
	Seed uint64 `json:"seed,omitempty"`
	// Workload is what fragmentation is measured against; none: the workload seen lately.
	Workload []Popular `json:"workload,omitempty"`
}

// Prefers says that a policy has any place be better than another: one without weights takes the first that fits, by its order of nodes.
func (p *Policy) Prefers() bool { return p.Weights != Weights{} || p.Device != ByScore }

// Clone is a policy that shares nothing with this one; nil for nil.
func (p *Policy) Clone() *Policy {
	if p == nil {
		return nil
	}
	c := *p
	c.Workload = slices.Clone(p.Workload)
	for i := range c.Workload {
		c.Workload[i].Resources = slices.Clone(c.Workload[i].Resources)
	}
	return &c
}

// Validate says what is wrong with a policy.
func (p *Policy) Validate() error {
	for f, weight := range p.Weights {
		if weight < -MaxWeight || weight > MaxWeight {
			return fmt.Errorf("placement policy %s: the weight of %s is %d: give one from -%d to %d", p.Name, featureNames[f], weight, MaxWeight, MaxWeight)
		}
	}
	switch {
	case p.Device != ByScore && p.Device != ByLeastLeft && p.Device != ByDraw:
		return fmt.Errorf("placement policy %s: there is no device rule %q: leave it out or use %s or %s", p.Name, p.Device, ByLeastLeft, ByDraw)
	case p.Quantum < 0:
		return fmt.Errorf("placement policy %s: a quantum of %d is less than nothing: give a positive one", p.Name, p.Quantum)
	}
	for i, w := range p.Workload {
		if w.Count < 1 || w.Devices < 1 || w.Compute < 0 || w.Compute > api.WholeDevice {
			return fmt.Errorf("placement policy %s: kind %d of its workload needs a count and devices of at least 1 and compute of 0 to 1000", p.Name, i+1)
		}
		if m := w.Memory; m.Bytes < 0 || m.Part < 0 || m.Part > api.WholeDevice || m.Bytes > 0 && m.Part > 0 {
			return fmt.Errorf("placement policy %s: kind %d of its workload has memory that is neither bytes nor a part of a device", p.Name, i+1)
		}
	}
	return nil
}

// Random places anywhere that fits.
func Random() Policy { return Policy{Name: "random", Device: ByDraw} }

// BestFit takes the node that has least left, devices and CPU counting the same, in hundredths; on it the device with least left.
func BestFit() Policy {
	return Policy{Name: "best_fit", Device: ByLeastLeft, Quantum: 20, Weights: Weights{NodeDevices: 1, NodeCPU: 1}}
}

// FGD is fragmentation gradient descent (Weng et al., USENIX ATC'23), which knows the workload that comes.
func FGD(workload []Popular) Policy {
	return Policy{Name: "fgd", Weights: Weights{FragmentationStep: 1}, Workload: workload}
}

// Default is the policy with the weights that `aliquot sim tune` found on six openb lists with the seeds 101 to 107, chosen by hand
// among its last ones on the same seeds.
func Default() Policy {
	return Policy{Name: "default", Weights: Weights{
		FragmentationStep: -2559, Fragmentation: 22, Remainder: -10, Outlook: -15, PatientOutlook: 2,
		NodeDevices: 11, NodeCPU: -30, NodeMemory: 40, StrandedDevice: 90, StrandedCPU: 30,
		Fitness: 107, Whole: 2000, HastyOutlook: 1, DistantOutlook: 145,
	}}
}
