package api_test

import (
	"encoding/json"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

func TestParseReplicas(t *testing.T) {
	for text, want := range map[string]api.Replicas{"2..8": {Min: 2, Max: 8}, "4": {Min: 4, Max: 4}, "1..1": {Min: 1, Max: 1}, "1..1024": {Min: 1, Max: 1024}} {
		got, err := api.ParseReplicas(text)
		if err != nil || got != want {
			t.Errorf("ParseReplicas(%q) = %v, %v; want %v", text, got, err, want)
		}
		if again, err := api.ParseReplicas(got.String()); err != nil || again != got {
			t.Errorf("%q is written as %q, which reads as %v, %v", text, got, again, err)
		}
	}
	for text, offset := range map[string]int{"": 0, "0": 0, "-1": 0, "8..2": 3, "2..": 3, "..3": 0, "2..8..9": 3, "+2": 0, "2..+3": 3, "1..1025": 3, "1025": 0, "two": 0, "2 ..3": 0} {
		_, err := api.ParseReplicas(text)
		if failed, ok := err.(*api.ParseError); !ok || failed.Offset != offset {
			t.Errorf("ParseReplicas(%q) gives %v, not an error at byte %d", text, err, offset)
		}
	}
}

func TestReplicasOfSpec(t *testing.T) {
	spec := api.WorkloadSpec{Command: []string{"true"}, Dir: "/"}.Default()
	for _, one := range []struct {
		change func(*api.WorkloadSpec)
		valid  bool
	}{
		{func(s *api.WorkloadSpec) {}, true},
		{func(s *api.WorkloadSpec) { s.Replicas = api.Replicas{Min: 2, Max: 8} }, true},
		{func(s *api.WorkloadSpec) { s.Replicas = api.Replicas{Min: 1, Max: 1}; s.Attach = true }, true},
		{func(s *api.WorkloadSpec) { s.Replicas = api.Replicas{Min: 1, Max: 2}; s.Attach = true }, true},
		{func(s *api.WorkloadSpec) { s.Attach, s.Requeue = true, true }, false},
		{func(s *api.WorkloadSpec) { s.Replicas = api.Replicas{Min: 2, Max: 2}; s.Requeue = true }, true},
		{func(s *api.WorkloadSpec) { s.Replicas = api.Replicas{Min: 3, Max: 2} }, false},
		{func(s *api.WorkloadSpec) { s.Replicas = api.Replicas{Max: 2} }, false},
		{func(s *api.WorkloadSpec) { s.Replicas = api.Replicas{Min: 1, Max: 1025} }, false},
	} {
		changed := spec
		one.change(&changed)
		if err := changed.Validate(); (err == nil) != one.valid {
			t.Errorf("replicas %+v, attached %t, requeued %t: %v", changed.Replicas, changed.Attach, changed.Requeue, err)
		}
	}
	spec.Replicas = api.Replicas{Min: 2, Max: 8}
	text, err := json.Marshal(spec)
	var back api.WorkloadSpec
	if err != nil || json.Unmarshal(text, &back) != nil || back.Replicas != spec.Replicas {
		t.Errorf("%s reads back as %v (%v)", text, back.Replicas, err)
	}
}
