package fleet

import (
	"fmt"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// A fleet whose devices are replaced again and again does not grow, nor does what it has to look at anew.
func TestReplacedDevicesLeaveNothing(t *testing.T) {
	f := New()
	for i := range 50 {
		if _, err := f.SetNode("n", []Device{{UUID: fmt.Sprintf("d%d", i), Model: "a", Memory: 8 * gi, Health: api.Healthy}}, nil); err != nil {
			t.Fatal(err)
		}
		n, _ := f.Node("n")
		f.Adjust(f.DevicesOf(n)[0], 500, gi, 1)
		f.Adjust(f.DevicesOf(n)[0], -500, -gi, -1)
		if f.freshen(); len(f.stale) > 0 {
			t.Fatalf("%d devices are to be looked at that were", len(f.stale))
		}
	}
	if len(f.devices) > 4 {
		t.Errorf("a fleet of one device keeps room for %d", len(f.devices))
	}
}
