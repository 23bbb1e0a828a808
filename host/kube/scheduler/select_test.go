package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
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
	s := &Scheduler{selections: map[string]*selection{}}
	for class, want := range map[int64][2]string{
		0: {"no device matches", "fails on device gpu-aa"}, 1: {}, 2: {}, 3: {"no device matches", "no device matches"},
	} {
		one := resourceapi.Device{Name: "gpu-aa", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: new("H200")}}}
		if class > 0 {
			one.Attributes["latencyClass"] = resourceapi.DeviceAttribute{IntValue: &class}
		}
		offers := map[string][]resourceapi.Device{"a": {one}}
		for i, expression := range []string{guarded, bare} {
			now, _ := s.selectionOf([]string{expression}).judge(context.Background(), []string{"a"}, offers, nil)
			if got := now["a"].why; (got == "") != (want[i] == "") || !strings.Contains(got, want[i]) {
				t.Errorf("of class %d by %s: %q, want something of %q", class, expression, got, want[i])
			}
		}
	}
}

// dear is a selector that costs about as much as upstream allows one, and matches.
func dear() string {
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 45), ",") + "]"
	return fmt.Sprintf("%[1]s.all(x, %[1]s.all(y, %[1]s.all(z, x + y + z < 7))) && device.driver != ''", list)
}

// selecting gives a pod's claim a selector.
func selecting(expression string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
		claim.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	}
}

// A selector that takes long does so beside the loop, and others are placed before it was tried on all devices; it is, then, and once.
func TestDearSelector(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for i := range 3 {
		c.node(fmt.Sprint("node-", i), 2)
	}
	s, _ := c.run()
	never := dear() + " && !has(device.attributes['gpu.aliquot.dev'].model)"
	judged := func() (nodes int) {
		heard := make(chan int, 1)
		s.inbox.put(func() {
			of := s.selections[never]
			if of == nil {
				heard <- -1
				return
			}
			heard <- len(of.said)
		})
		return <-heard
	}
	bound := make(chan int, 1) // on how many nodes the dear one was judged when the light one was bound
	c.refusing(func(write string, of metav1.Object) bool {
		if write == "bind pods" && of.GetName() == "light" {
			s.inbox.put(func() { bound <- len(s.selections[never].said) })
		}
		return false
	})
	c.pod("dear", 100, selecting(never))
	c.eventually("the dear one is being judged", func() bool { return judged() >= 0 })
	c.pod("light", 100)
	c.runs("light")
	if n := <-bound; n == 3 {
		t.Error("nobody was placed before it was judged on all nodes")
	}
	for nodes := range 3 { // each takes seconds of a processor, with the detector of races
		c.eventually("it is judged on one more node", func() bool { return judged() > nodes })
	}
	c.says("dear", "3 nodes: no device matches the selectors")
	c.sound(s)
	var before, after judgement
	c.idle(s, func() { before = s.selections[never].said["node-0"] })
	c.pod("dear-too", 100, selecting(never))
	c.says("dear-too", "3 nodes: no device matches the selectors")
	c.sound(s)
	if c.idle(s, func() { after = s.selections[never].said["node-0"] }); !sameDevices(before.devices, after.devices) || after.why != before.why {
		t.Errorf("it was %v and is %v", before, after)
	}
}

// Selectors are compiled again when a class of theirs comes back, and are not kept for ever.
func TestSelectionsAreForgotten(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.node("a", 1)
	s, _ := c.run()
	for i := range 3 * mostIdle {
		name := fmt.Sprint("p", i)
		c.pod(name, 100, selecting(fmt.Sprintf("device.driver != 'number %d'", i)))
		c.runs(name)
		c.remove(name)
	}
	c.sound(s)
	c.idle(s, func() {
		if n, classes := len(s.selections), len(s.classes)+len(s.left); n > classes || n > 2*mostIdle {
			t.Errorf("of %d selectors %d are kept, and %d classes", 3*mostIdle, n, classes)
		}
	})
}

// Where the devices of a node change nobody is placed there by what was said of those before.
func TestDevicesChange(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	s, _ := c.run()
	c.pod("before", 1000, selecting(`device.attributes['gpu.aliquot.dev'].model == 'H100'`))
	c.runs("before")
	c.pod("after", 1000, selecting(`device.attributes['gpu.aliquot.dev'].model == 'H100'`))
	c.sound(s)
	stored, err := c.client.Tracker().Get(slicesResource, "", "a-devices")
	if err != nil {
		t.Fatal(err)
	}
	slice := stored.(*resourceapi.ResourceSlice).DeepCopy()
	slice.Spec.Devices[0].Attributes["model"] = resourceapi.DeviceAttribute{StringValue: new("A10")}
	c.mu.Lock()
	err = c.store(slicesResource, slice)
	c.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	c.eventually("it has heard of that", func() bool {
		heard := make(chan string, 1)
		s.inbox.put(func() { heard <- *s.nodes["a"].offered[0].Attributes["model"].StringValue })
		return <-heard == "A10"
	})
	c.remove("before")
	c.says("after", "no device matches the selectors")
	if on := c.on("after"); on != "" {
		t.Errorf("it runs on %s, whose device is no H100 any more", on)
	}
	c.sound(s)
}

// of has a pod's claim ask for a device of a class.
func of(class string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
		claim.Spec.Devices.Requests[0].Exactly.DeviceClassName = class
	}
}

// classOfDevices makes a device class of ours with more selectors, or changes those, and waits until a scheduler has heard of it.
func (c *cluster) classOfDevices(name string, selectors ...string) {
	c.Helper()
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, one := range append(selectors, onlyOurs) {
		class.Spec.Selectors = append(class.Spec.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: one}})
	}
	if _, err := c.client.Tracker().Get(classResource, "", name); err != nil {
		c.add(classResource, class)
	} else {
		c.mu.Lock()
		err = c.store(classResource, class)
		c.mu.Unlock()
		if err != nil {
			c.Fatal(err)
		}
	}
	c.told("device class "+name, func(s *Scheduler) bool {
		known := s.deviceClasses[name]
		return known != nil && len(known.Spec.Selectors) == len(class.Spec.Selectors)
	})
}

// Who waits in line for a device of a class that is changed or deleted gets none that it does not give any more, alone or in a gang, whatever comes free.
func TestDeviceClassChanges(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.node("b", 1)
	s, _ := c.run()
	c.classOfDevices("fast")
	c.pod("first", 1000)
	c.pod("second", 1000)
	c.runs("first", "second")
	c.pod("alone", 1000, of("fast"))
	two := func(p *corev1.Pod, _ *resourceapi.ResourceClaim) {
		p.Labels = map[string]string{annotation.Gang: "two", annotation.GangMin: "2"}
	}
	c.pod("two-0", 400, of("fast"), two)
	c.pod("two-1", 400, of("fast"), two)
	c.stays(s, "alone")
	c.classOfDevices("fast", `device.attributes['gpu.aliquot.dev'].model == 'A10'`)
	c.remove("first")
	for _, name := range []string{"alone", "two-0", "two-1"} {
		c.says(name, "no device matches the selectors")
		c.stays(s, name)
	}
	if err := c.client.Tracker().Delete(classResource, "", "fast"); err != nil {
		t.Fatal(err)
	}
	c.says("alone", "there is no device class fast")
	c.says("two-0", "there is no device class fast")
	c.remove("second")
	c.stays(s, "alone")
	c.classOfDevices("fast")
	c.runs("alone", "two-0", "two-1")
	c.sound(s)
}

// So is who was being placed when the class was changed, where that fails.
func TestDeviceClassChangesMeanwhile(t *testing.T) {
	c := newCluster(t)
	c.mounted, c.unprepared = make(chan struct{}), 1
	c.node("a", 1)
	s, _ := c.run()
	c.classOfDevices("fast")
	c.pod("waits", 1000, of("fast"), func(p *corev1.Pod, _ *resourceapi.ResourceClaim) { mounts(p) })
	c.told("where the pod is to run", func(s *Scheduler) (is bool) {
		for _, w := range s.work {
			is = is || w.state == placing
		}
		return is
	})
	c.classOfDevices("fast", `device.attributes['gpu.aliquot.dev'].model == 'A10'`)
	close(c.mounted)
	c.says("waits", "no device matches the selectors")
	c.stays(s, "waits")
}

// What selectors cost on 40,000 devices, the first time and every other.
func BenchmarkJudge(b *testing.B) {
	offers, nodes := map[string][]resourceapi.Device{}, []string{}
	for i := range 5000 {
		name := fmt.Sprint("node-", i)
		nodes = append(nodes, name)
		for k := range 8 {
			offers[name] = append(offers[name], resourceapi.Device{Name: fmt.Sprint("gpu-", k), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"model": {StringValue: new("H100")}, "uuid": {StringValue: new(fmt.Sprint(i, k))},
			}, Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{driver.Memory: {Value: resource.MustParse("80Gi")}}})
		}
	}
	s := &Scheduler{selections: map[string]*selection{}}
	l := s.selectionOf([]string{`device.attributes['gpu.aliquot.dev'].model == 'H100'`})
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			if l.said, _ = l.judge(context.Background(), nodes, offers, nil); len(l.said) != len(nodes) {
				b.Fatalf("%d nodes were judged", len(l.said))
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			l.judge(context.Background(), nodes, offers, l.said)
		}
	})
	b.Run("dearest", func(b *testing.B) { // a device
		l := s.selectionOf([]string{dear()})
		cost := uint64(0)
		for b.Loop() {
			if why := l.match(context.Background(), offers["node-0"][:1], &cost); why != "" {
				b.Fatal(why)
			}
		}
		b.ReportMetric(float64(cost)/float64(b.N), "cost/op")
	})
}
