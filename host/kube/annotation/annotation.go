// Package annotation is how a pod asks for a share in a few words, by annotations of its own or labels that become those, and the claim that says the same.
// What comes in are a pod's annotations; what goes out is what they ask for, or in one sentence what is wrong with them, and a ResourceClaimTemplate with
// a name that is made from what it says. It reads and writes nothing: the webhook names the template in the pod, the controller makes it.
package annotation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
)

// The annotations of a pod.
const (
	Prefix = "aliquot.dev/"

	GPU        = Prefix + "gpu"        // compute floor and ceiling, "0.25..0.80"; with it the pod asks for a share
	Memory     = Prefix + "memory"     // memory floor and ceiling, "4Gi..8Gi"
	Devices    = Prefix + "devices"    // how many devices, each with such a share; 1 where it is left out
	Class      = Prefix + "class"      // interactive, inference, training or batch
	Weight     = Prefix + "weight"     // how what is lent is divided
	Containers = Prefix + "containers" // who has it, "main,worker"; all of spec.containers where it is left out
	Queue      = Prefix + "queue"      // whose quota it counts against; also the label of a namespace

	Latency = Prefix + "max-latency-class" // the slowest latency class of devices that will do; any where it is left out

	// Preemptible is whether it may hold more than quotas, and is evicted when others want theirs: true, as where it is left out, or false.
	Preemptible = Prefix + "preemptible"

	RestartTime    = Prefix + "restart-time"    // what it takes after a start until it goes on where it was, "5m"; a minute where it is left out
	CheckpointedAt = Prefix + "checkpointed-at" // when it last said that what it has done is saved, in RFC 3339: the only one that changes while it runs
)

// asked are the annotations that say something of a share, beside GPU.
var asked = []string{Memory, Devices, Class, Weight, Containers, Latency}

// beside are those that hold however a pod asks for its share.
var beside = []string{Queue, Preemptible, SameTopology, PreferTopology, RestartTime, CheckpointedAt}

// Labels of a pod that is of a gang: the gang's name in its namespace, and how many of its pods start together, or none of them.
const (
	Gang    = Prefix + "gang"
	GangMin = Prefix + "gang-min"
)

// Fixed are the annotations that say what a pod asks for when it is made, and so do not change while it is there.
func Fixed() []string {
	return slices.DeleteFunc(slices.Concat([]string{GPU}, asked, beside), func(key string) bool { return key == CheckpointedAt })
}

// Labelled are the annotations that a pod's labels stand for, where it has no such annotation. A label with our prefix that stands for nothing, or says something
// else than the annotation, is an error.
func Labelled(labels, annotations map[string]string) (map[string]string, error) {
	said, fixed := map[string]string{}, Fixed()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !strings.HasPrefix(key, Prefix) || key == Gang || key == GangMin {
			continue
		}
		value, is := annotations[key]
		switch {
		case !slices.Contains(fixed, key):
			return nil, fmt.Errorf("the label %s is not known, and what is misspelt would not hold; there are %s, and of gangs %s and %s", key, strings.Join(fixed, ", "), Gang, GangMin)
		case is && value != labels[key]:
			return nil, fmt.Errorf("the label %s: %s is not what the annotation of that name says, %s; leave one of the two out", key, labels[key], value)
		case !is:
			said[key] = labels[key]
		}
	}
	return said, nil
}

// Ask is what a pod asks for by its annotations.
type Ask struct {
	Share      api.Share // a memory floor in bytes, or all of a device's
	Devices    int       // 1 to api.MaxDevices
	Class      api.Class // empty: not said
	Containers []string  // names; none: all
	Latency    int       // the slowest latency class that will do, 1 to api.SlowestLatency; 0: any device does
}

// Parse reads a pod's annotations; those of others are left alone. Without GPU it is nil: nothing is asked for in this way.
func Parse(annotations map[string]string) (*Ask, error) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, Prefix) && key != GPU && !slices.Contains(asked, key) && !slices.Contains(beside, key) {
			return nil, fmt.Errorf("the annotation %s is not known, and what is misspelt would not hold; there are %s, %s and %s", key, GPU, strings.Join(asked, ", "), strings.Join(beside, ", "))
		}
	}
	if _, err := IsPreemptible(annotations); err != nil {
		return nil, err
	}
	if _, _, err := Topology(annotations); err != nil {
		return nil, err
	}
	if _, err := Restart(annotations); err != nil {
		return nil, err
	}
	if _, err := Checkpointed(annotations); err != nil {
		return nil, err
	}
	text, ok := annotations[GPU]
	if !ok {
		for _, key := range asked {
			if value, ok := annotations[key]; ok {
				return nil, fmt.Errorf("the annotation %s: %s says something of a share, and none is asked for; write %s beside it, for example 0.25..0.80", key, value, GPU)
			}
		}
		return nil, nil
	}
	ask := &Ask{Devices: 1}
	var err error
	if ask.Share.Compute, err = api.ParseCompute(text); err != nil {
		return nil, in(GPU, err)
	}
	if ask.Share.Memory, err = memory(annotations, ask.Share.Compute); err != nil {
		return nil, err
	}
	return ask, ask.rest(annotations)
}

// IsPreemptible says whether a pod is preemptible by its annotations, in whatever way it asks for devices: unless it says false.
func IsPreemptible(annotations map[string]string) (bool, error) {
	switch text, ok := annotations[Preemptible]; {
	case !ok || text == "true":
		return true, nil
	case text == "false":
		return false, nil
	default:
		return false, fmt.Errorf("the annotation %s: %q; write false for work that fits in quotas alone and is not evicted for others, or true, as where it is left out", Preemptible, text)
	}
}

// memory reads how much memory a share has. Its floor is capacity that a claim consumes, which is bytes, or all.
func memory(annotations map[string]string, compute api.Compute) (api.Memory, error) {
	text, ok := annotations[Memory]
	switch {
	case !ok && compute.Floor == api.WholeDevice:
		whole := api.Amount{Part: api.WholeDevice}
		return api.Memory{Floor: whole, Ceiling: whole}, nil
	case !ok:
		return api.Memory{}, fmt.Errorf("the annotation %s asks for %s of a device, and for no memory there; write how much beside it, for example %s: 4Gi..8Gi", GPU, compute, Memory)
	}
	m, err := api.ParseMemory(text)
	switch {
	case err != nil:
		return m, in(Memory, err)
	case m.Floor.Part != 0 && m.Floor.Part != api.WholeDevice:
		return m, fmt.Errorf("the annotation %s: %s asks for a floor of %s, and a claim consumes bytes; write for example 4Gi, or 100%% for all (a ceiling may be a part: 4Gi..50%%)", Memory, text, m.Floor)
	case m.Ceiling.Part == 0 && m.Ceiling.Bytes < api.LeastMemory:
		return m, fmt.Errorf("the annotation %s: %s is less than any context takes (%s); write for example 1Gi", Memory, text, api.LeastMemory)
	case m.Floor.Part == api.WholeDevice && m.Ceiling != m.Floor:
		return m, fmt.Errorf("the annotation %s: %s has a ceiling below the floor, which is all of a device's; write 100%%", Memory, text)
	}
	return m, nil
}

// rest reads what may be left out.
func (a *Ask) rest(annotations map[string]string) error {
	if text, ok := annotations[Devices]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > api.MaxDevices {
			return fmt.Errorf("the annotation %s: %q; write how many devices, 1 to %d, or leave it out for one", Devices, text, api.MaxDevices)
		}
		a.Devices = n
	}
	if text, ok := annotations[Weight]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > api.MaxWeight {
			return fmt.Errorf("the annotation %s: %q; write 1 to %d, or leave it out for the floor", Weight, text, api.MaxWeight)
		}
		a.Share.Weight = int32(n)
	}
	if text, ok := annotations[Latency]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > api.SlowestLatency {
			return fmt.Errorf("the annotation %s: %q; write 1, the fastest, to %d, or leave it out for any device", Latency, text, api.SlowestLatency)
		}
		a.Latency = n
	}
	if text, ok := annotations[Class]; ok {
		a.Class = api.Class(text)
		switch a.Class {
		case api.Interactive, api.Inference, api.Training, api.Batch:
		default:
			return fmt.Errorf("the annotation %s: %q is no class; write interactive, inference, training or batch", Class, text)
		}
	}
	if text, ok := annotations[Containers]; ok {
		for name := range strings.SplitSeq(text, ",") {
			name = strings.TrimSpace(name)
			if name == "" || slices.Contains(a.Containers, name) {
				return fmt.Errorf("the annotation %s: %q; write the names of containers with commas between them, each once, or leave it out for all", Containers, text)
			}
			a.Containers = append(a.Containers, name)
		}
	}
	return nil
}

// in says in which annotation a text is wrong.
func in(key string, err error) error {
	var wrong *api.ParseError
	if errors.As(err, &wrong) {
		there := *wrong
		there.Advice = strings.ReplaceAll(there.Advice, "--devices", "the annotation "+Devices)
		err = &there
	}
	return fmt.Errorf("the annotation %s: %w", key, err)
}
