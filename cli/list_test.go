package cli

import (
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// A device is linked with those of its group, and one that is in none with nobody.
func TestLinkedWith(t *testing.T) {
	devices := []api.Device{{UUID: "a", Link: "a"}, {UUID: "b", Index: 1}, {UUID: "c", Index: 2, Link: "a"}, {UUID: "d", Index: 3}, {UUID: "e", Index: 4, Link: "a"}}
	for i, want := range []string{"2, 4", "", "0, 4", "", "0, 2"} {
		if got := linkedWith(devices, devices[i]); got != want {
			t.Errorf("device %d is linked with %q, want %q", i, got, want)
		}
	}
}
