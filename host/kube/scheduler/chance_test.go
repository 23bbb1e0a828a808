package scheduler

import (
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// Devices that the engine passes over are had by who waits in line: those that match on a node where others do not, and tainted ones by who tolerates
// that. What they hold is in the books, also those of the next scheduler.
func TestSecondChance(t *testing.T) {
	c := newCluster(t)
	c.device = func(_ string, i int, d *resourceapi.Device) {
		if i == 2 {
			d.Taints = []resourceapi.DeviceTaint{{Key: "worn", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
	}
	c.node("a", 3)
	s, end := c.run()
	tolerant := part("gpu", 700, 1)
	tolerant.Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: "worn", Operator: resourceapi.DeviceTolerationOpExists}}
	c.pod("picky", 1, requests(part("gpu", 700, 1, numbered("== 1"))))
	c.runs("picky")
	if got := c.devicesOf("picky"); !slices.Equal(got, []string{"gpu:a/gpu-1 700"}) {
		t.Errorf("it has %q", got)
	}
	c.pod("plain", 700)
	c.runs("plain")
	c.pod("too-much", 700)
	c.pod("tolerant", 1, requests(tolerant))
	c.runs("tolerant")
	if got := c.devicesOf("tolerant"); !slices.Equal(got, []string{"gpu:a/gpu-2 700"}) {
		t.Errorf("it has %q", got)
	}
	c.sound(s)
	end()
	s, _ = c.run()
	c.sound(s)
	if on := c.on("too-much"); on != "" {
		t.Errorf("it runs on %s", on)
	}
	c.remove("plain")
	c.runs("too-much")
	c.sound(s)
}
