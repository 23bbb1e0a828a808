package scheduler

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/models"
)

// What a device's attributes say of it the engine is told, beside what is known of its model; what they do not say is not known.
func TestAttributed(t *testing.T) {
	version, domain, numa, class := "9.0.0", "ab-cd.7", int64(1), int64(2)
	told := engine.Device{Model: "a new one"}
	attributed(&told, map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"computeCapability": {VersionValue: &version}, "linkDomain": {StringValue: &domain}, "numaNode": {IntValue: &numa}, "latencyClass": {IntValue: &class},
	})
	if told.Traits.Capability != 90 || told.Traits.Bandwidth != 0 || told.Link != "ab-cd.7" || told.NUMA != "1" || told.Traits.Latency != 2 {
		t.Errorf("told is %+v", told)
	}
	for _, none := range []int64{-1, 0, 10, 1 << 40} {
		odd := engine.Device{}
		if attributed(&odd, map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"latencyClass": {IntValue: &none}}); odd.Traits.Latency != 0 {
			t.Errorf("latency class %d, which there is none of, is told as %d", none, odd.Traits.Latency)
		}
	}
	first, linked := "GPU-aa", engine.Device{}
	attributed(&linked, map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"links": {StringValue: &first}})
	if linked.Link != "GPU-aa" {
		t.Errorf("of a device that is linked on its node alone, told is %+v", linked)
	}
	attributed(&linked, map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"links": {StringValue: &first}, "linkDomain": {StringValue: &domain}})
	if linked.Link != "ab-cd.7" {
		t.Errorf("of a device that is linked beyond its node, told is %+v", linked)
	}
	known := engine.Device{Model: "NVIDIA L4"}
	attributed(&known, nil)
	if of, _ := models.Of("L4"); known.Traits != of || known.Link != "" || known.NUMA != "" {
		t.Errorf("of a known model without attributes this is known: %+v", known)
	}
}
