package sim

import (
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// Stages are what part of its time a job that is alone spends on the host's CPUs and storage, on its devices and on the network, in thousandths; all 0: it is not
// known. They follow each other in each of its iterations, so that another job can have what one does not use then.
type Stages struct{ Host, Device, Network api.Milli }

// The resources of nodes that Interleave counts stages by: thousandths of what belongs to a device.
const (
	hostResource    = "host"
	networkResource = "network"
)

// interleaving is what jobs keep of their speed, in millionths, when as many are on a device: that many were measured to take 1.33 and 1.5 times as long as
// their stages say, and one alone 1.015 times (Muri's artifact, as published with Zhao et al., SIGCOMM'22).
var interleaving = []int64{fullSpeed, fullSpeed * 1015 / 1330, fullSpeed * 1015 / 1500}

// Interleave is a trace with the same jobs, which share devices as far as their stages together need no more than all of host, device and network, and what then
// happens. A job is sure of what its own stage on the device takes and may use all of it; what the others take are resources of nodes to the engine, as CPU is. A job of
// which no stages are known keeps its devices for itself.
func (t *Trace) Interleave() (*Trace, *Sharing, error) {
	if !slices.ContainsFunc(t.Jobs, func(j Job) bool { return j.Stages != Stages{} }) {
		return nil, nil, fmt.Errorf("nothing is known of the stages of any job of the trace, so none can run in between another's: give a trace of Muri's, or one of jobs: that says stages=")
	}
	out := t.withResources(func(devices int) []engine.Resource {
		all := int64(api.WholeDevice) * int64(devices)
		return []engine.Resource{{Name: hostResource, Amount: all}, {Name: networkResource, Amount: all}}
	})
	for i := range out.Jobs {
		out.Jobs[i].interleave()
	}
	return out, &Sharing{Beside: interleaving}, nil
}

// interleave has a job of whole devices ask for what its stages take; one with roles, or of which they are not known, keeps what it asks for.
func (j *Job) interleave() {
	s := j.Stages
	if s == (Stages{}) || len(j.Roles) > 0 || j.Share.Compute.Floor < api.WholeDevice {
		return
	}
	j.Alone, j.Busy = j.Compute(), max(1, s.Device)
	j.Share.Compute = api.Compute{Floor: j.Busy, Ceiling: api.WholeDevice}
	j.Resources = slices.Clone(j.Resources)
	for _, r := range []engine.Resource{{Name: hostResource, Amount: int64(s.Host) * int64(j.Devices)}, {Name: networkResource, Amount: int64(s.Network) * int64(j.Devices)}} {
		if r.Amount > 0 {
			j.Resources = append(j.Resources, r)
		}
	}
}
