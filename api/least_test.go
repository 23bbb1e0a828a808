package api

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCapability(t *testing.T) {
	for text, want := range map[string]Capability{"9.0": 90, "12.1": 121, "7.5": 75} {
		got, err := ParseCapability(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s is read as %d, written %s: %v", text, got, got, err)
		}
	}
	for text, want := range map[string]string{"": "from 1 to 99", "9": "a point and a digit", "9.": "one digit", "9.10": "one digit", "x.1": "from 1 to 99", "0.5": "from 1 to 99", "9.0.1": "one digit", "-1.0": "from 1 to 99", "9.x": "one digit"} {
		if got, err := ParseCapability(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), capabilityAdvice) {
			t.Errorf("%q is read as %d: %v, want something of %q", text, got, err, want)
		}
	}
	spec := WorkloadSpec{MinCapability: 80, MinBandwidth: 900, MaxLatencyClass: 2}
	text, err := json.Marshal(spec)
	if err != nil || !strings.Contains(string(text), `"minCapability":"8.0","minBandwidth":900,"maxLatencyClass":2`) {
		t.Errorf("%s: %v", text, err)
	}
	var back WorkloadSpec
	if err := json.Unmarshal(text, &back); err != nil || back.MinCapability != 80 || back.MinBandwidth != 900 || back.MaxLatencyClass != 2 {
		t.Errorf("%+v: %v", back, err)
	}
	if text, _ := json.Marshal(WorkloadSpec{}); strings.Contains(string(text), "min") || strings.Contains(string(text), "max") {
		t.Errorf("what is not asked for is written: %s", text)
	}
}
