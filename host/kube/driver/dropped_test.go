package driver

import (
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/aliquot-dev/aliquot/api"
)

// Each feature that the API server lacks has its own event on the node, with what goes wrong without it: devices are whole ones only where the fields of
// shares are dropped.
func TestDroppedFields(t *testing.T) {
	p, given := noticing(t, newSite(t, t.TempDir()))
	sick := h200
	sick.Health = api.Draining
	const (
		whole  = "Warning WholeDevices: The API server drops fields that shares need; this node's devices are whole ones until this feature is on: DRAConsumableCapacity."
		taints = "Warning TaintsDropped: The API server drops the taints of devices; those of this node that are sick or down are not kept from new pods, which do not start there, and pods are not evicted from one that is down. Turn this feature on, and cordon the node until then: DRADeviceTaints."
		fields = "Warning FieldsDropped: The API server drops fields of this node's ResourceSlices, and not all is known of its devices; turn this feature on: "
	)
	for name, test := range map[string]struct {
		drop func(*resourceapi.Device)
		want []string
	}{
		"shares":        {func(d *resourceapi.Device) { d.AllowMultipleAllocations = nil }, []string{whole}},
		"taints":        {func(d *resourceapi.Device) { d.Taints = nil }, []string{taints}},
		"both":          {func(d *resourceapi.Device) { d.AllowMultipleAllocations, d.Taints = nil, nil }, []string{taints, whole}},
		"another":       {func(d *resourceapi.Device) { d.BindingConditions = nil }, []string{fields + "DRADeviceBindingConditions."}},
		"nobody's word": {func(d *resourceapi.Device) { d.Attributes = nil }, []string{fields + "unknown."}},
	} {
		desired := Published(sick)
		desired.BindingConditions = []string{"ready"}
		actual := *desired.DeepCopy()
		test.drop(&actual)
		slice := func(device resourceapi.Device) *resourceapi.ResourceSlice {
			return &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{device}}}
		}
		given.said = nil
		p.HandleError(t.Context(), &resourceslice.DroppedFieldsError{DesiredSlice: slice(desired), ActualSlice: slice(actual)}, "publish")
		for i, one := range test.want {
			test.want[i] = "Node /node1: " + one
		}
		if !slices.Equal(given.said, test.want) {
			t.Errorf("%s: the events are %q, want %q", name, given.said, test.want)
		}
	}
}
