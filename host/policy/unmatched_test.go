package policy

import (
	"slices"
	"testing"
)

// TestUnmatched: a pool that no device is in is told with its line, and what of it matches nothing.
func TestUnmatched(t *testing.T) {
	devices := []Device{{"n1", "H200", 0}, {"n1", "H200", 1}, {"n2", "A10", 0}}
	for text, want := range map[string][]string{
		"pool a nodes=n1 classes=training\npool b models=A10 classes=batch\n": nil,
		"pool a nodes=n3,n4 classes=training\n":                               {"a.policy:2: pool a has no device: no device is on node n3 or n4 (there are n1, n2); it has none until one comes"},
		"pool a nodes=n3,n2 classes=training\n":                               nil,
		"pool a models=B300 classes=training\n":                               {"a.policy:2: pool a has no device: no device is of model B300 (there are A10, H200); it has none until one comes"},
		"pool a nodes=n2 devices=1-3 classes=training\n":                      {"a.policy:2: pool a has no device: none of the devices there are matches all that it says; it has none until one comes"},
		"pool a nodes=n1,n2 classes=training\npool b models=A10 classes=batch\n": {
			"a.policy:3: pool b has no device: those that it matches are in a, before it: name others, or put it in front",
		},
		"pool a nodes=n1 classes=training\nwindow w days=sat\npool a nodes=n3\nwindow v days=sun\npool a classes=batch\n": {
			"a.policy:4: in window w pool a has no device: no device is on node n3 (there are n1, n2); it has none until one comes",
		},
		"pool a nodes=n1 classes=training\npool b models=H200 classes=batch\nwindow w days=sat\npool a nodes=n2\n": {
			"a.policy:3: pool b has no device: those that it matches are in a, before it: name others, or put it in front",
		},
		"pool a nodes=n1 classes=training\npool b nodes=n2 classes=batch\nwindow w days=sat\npool a nodes=n1,n2\n": {
			"a.policy:3: in window w pool b has no device: those that it matches are in a, before it: name others, or put it in front",
		},
		"pool a nodes=n3 classes=training\nwindow w days=sat\npool a nodes=n4\nwindow v days=sun\npool a lends=yes\n": {
			"a.policy:2: pool a has no device: no device is on node n3 (there are n1, n2); it has none until one comes",
			"a.policy:4: in window w pool a has no device: no device is on node n4 (there are n1, n2); it has none until one comes",
		},
	} {
		var got []string
		for _, err := range parsed(t, FormatLine+"\n"+text).Unmatched(devices) {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is told %q, want %q", text, got, want)
		}
	}
}
