package scheduler

import (
	"context"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// What is made of the annotation that asks for a latency class matches devices of that class and faster ones, and none of which nothing is declared. A
// selector that does not ask whether it is fails there, and says so.
func TestSelectedByLatencyClass(t *testing.T) {
	ask, err := annotation.Parse(map[string]string{annotation.GPU: "1", annotation.Latency: "2"})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ask.Spec()
	if err != nil {
		t.Fatal(err)
	}
	guarded := spec.Devices.Requests[0].Exactly.Selectors[0].CEL.Expression
	_, bare, _ := strings.Cut(guarded, " && ")
	s := &Scheduler{ctx: context.Background(), programs: map[string]cel.CompilationResult{}}
	for class, want := range map[int64][2]string{
		0: {"no device matches", "fails on device gpu-aa"}, 1: {}, 2: {}, 3: {"no device matches", "no device matches"},
	} {
		one := resourceapi.Device{Name: "gpu-aa", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: new("H200")}}}
		if class > 0 {
			one.Attributes["latencyClass"] = resourceapi.DeviceAttribute{IntValue: &class}
		}
		n := &node{offered: []resourceapi.Device{one}}
		for i, expression := range []string{guarded, bare} {
			if got := s.selected([]string{expression}, n); (got == "") != (want[i] == "") || !strings.Contains(got, want[i]) {
				t.Errorf("of class %d by %s: %q, want something of %q", class, expression, got, want[i])
			}
		}
	}
}
