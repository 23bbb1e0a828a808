package api

import (
	"strings"
	"testing"
)

// TestOnReclaim: what is done with borrowed memory is said in one of the words there are, of a share that can borrow any.
func TestOnReclaim(t *testing.T) {
	for _, one := range []struct{ memory, rule, says string }{
		{"4Gi..8Gi", "", ""},
		{"4Gi..8Gi", "stop", ""},
		{"4Gi..", "stop", ""},
		{"4Gi", "stop", "4Gi is both floor and ceiling; give --mem a higher ceiling"},
		{"4Gi..8Gi", "park", "park cannot be had yet; give stop"},
		{"4Gi..8Gi", "Stop", "unknown on-reclaim"},
	} {
		spec := WorkloadSpec{Name: "w", Command: []string{"true"}, Dir: "/", OnReclaim: ReclaimRule(one.rule)}
		var err error
		if spec.Share.Memory, err = ParseMemory(one.memory); err != nil {
			t.Fatal(err)
		}
		err = spec.Default().Validate()
		if one.says == "" && err != nil || one.says != "" && (err == nil || !strings.Contains(err.Error(), one.says)) {
			t.Errorf("%s on-reclaim %q: %v", one.memory, one.rule, err)
		}
	}
}
