package filter

import (
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// Which nodes pods alike may use is asked of one of them. That it goes, with its claim, keeps none of the others from any node.
func TestSampleGoes(t *testing.T) {
	a := machine("a")
	c := newDeviceCluster(t, deviceClass(driver.Name, driver.Name, ""), a, gpus("a", 1))
	for _, name := range []string{"first", "second", "third"} {
		c.add(deviceClaim(name, driver.Name))
		if name == "first" {
			until(t, "it is bound", func() bool { bound, _ := c.told(name); return bound })
		} else {
			until(t, "it is told why it waits", func() bool { _, why := c.told(name); return why != "" })
		}
	}
	c.remove("third")
	changed := a.DeepCopy()
	changed.Labels = map[string]string{host: "a", "more": "yes"}
	c.change(changed) // so that it is asked anew
	until(t, "the other is told of the first", func() bool { _, why := c.told("second"); return strings.Contains(why, "not enough is free") })
	c.remove("first")
	until(t, "it is bound", func() bool { bound, _ := c.told("second"); return bound })
}
