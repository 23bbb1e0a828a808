package filter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
)

// Random pods in random clusters where both count at once: what nodes have, allow and keep apart, and devices, ours and another driver's, by claims of their
// own and by claims that they share. One pod after the other runs on each node that our scheduler, which runs, gives it, and is then kept from that node, until
// it has to wait: these are the nodes on which upstream's filters, with its DRA plugin, would have it. What neither test of the two by itself has, is not here, either:
// see TestSameDevicesAsTheStockScheduler and TestRunsWhereTheStockSchedulerWould.
func TestSameNodesWithDevicesAsTheStockScheduler(t *testing.T) {
	if placed, waited := inClusters(t, 4, 71, sameNodesWithDevices); placed < 20 || waited < 20 {
		t.Error("the clusters show too little")
	}
}

// sameNodesWithDevices tries one cluster. What was placed is counted by the node, and what waited on it by those that were left.
func sameNodesWithDevices(t *testing.T, r *rand.Rand) (placed, waited int) {
	nodes, there, counts := mixedCluster(r)
	c := newDeviceCluster(t, there...)
	var running []*v1.Pod
	for i := range 12 {
		if i%4 == 3 { // a node gets other labels, resources or taints
			at := r.IntN(len(nodes))
			nodes[at] = mixedNode(r, nodes[at].Name, counts)
			c.change(nodes[at])
		}
		if len(running) > 0 && r.IntN(2) == 0 {
			at := r.IntN(len(running))
			c.leave(running[at])
			running = slices.Delete(running, at, at+1)
		}
		one := randomMixed(r, i)
		var had []string
		for {
			p := c.run(one, had, len(running))
			node := c.pod(p.Name).Spec.NodeName
			for _, entry := range p.Spec.ResourceClaims {
				c.sound(there, entry.Name)
			}
			c.leave(p)
			if node == "" {
				break
			}
			had = append(had, node)
		}
		placed, waited = placed+len(had), waited+len(nodes)-len(had)
		if len(had) == 0 {
			continue
		}
		at := r.IntN(len(had)) // where it stays
		if p := c.run(one, slices.Delete(had, at, at+1), len(running)); c.pod(p.Name).Spec.NodeName == "" {
			c.leave(p)
		} else {
			running = append(running, p)
		}
	}
	return placed, waited
}

// mixed is a pod with claims of its own. Each time that it is run it and these are new objects.
type mixed struct {
	pod    *v1.Pod
	claims []*resourceapi.ResourceClaim
	runs   int
}

// run has our scheduler place a pod beside so many that run, on none of some nodes, and waits until it is bound or told why not: where upstream's would.
func (c *deviceCluster) run(one *mixed, not []string, running int) *v1.Pod {
	c.Helper()
	p := one.pod.DeepCopy()
	p.Name = fmt.Sprintf("%s-%d", p.Name, one.runs)
	p.UID = types.UID(p.Name)
	one.runs++
	keptFrom(p, not)
	for i, claim := range one.claims {
		claim = claim.DeepCopy()
		claim.Name = fmt.Sprintf("%s-%d", p.Name, i)
		claim.UID = types.UID(claim.Name)
		uses(claim.Name)(p)
		c.create(claimsResource, claim)
	}
	c.bothKnow(running)
	until(c.T, "our scheduler knows all claims", func() bool { return c.known(c.filters.claims.manager) })
	want := c.asked(p)
	c.create(podsResource, p)
	until(c.T, fmt.Sprintf("%s is bound, or told why not; upstream would have it on %v: %+v; its claims: %+v", p.Name, want, p.Spec, one.claims), func() bool {
		bound, why := c.told(p.Name)
		return bound || len(want) == 0 && why != ""
	})
	if node := c.pod(p.Name).Spec.NodeName; node != "" && !slices.Contains(want, node) {
		c.Fatalf("%s is on %s, and upstream would have it on %v: %+v; its claims: %+v", p.Name, node, want, p.Spec, one.claims)
	}
	return p
}

// keptFrom has a pod run on none of some nodes.
func keptFrom(p *v1.Pod, nodes []string) {
	if len(nodes) == 0 {
		return
	}
	required := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{}}}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: host, Operator: v1.NodeSelectorOpNotIn, Values: nodes})
	}
	affinity(p).NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
}

// leave deletes a pod with its own claims, and takes it out of those that it shares, as the cluster's controller does: what nobody has any more is free.
func (c *deviceCluster) leave(p *v1.Pod) {
	c.Helper()
	made := c.pod(p.Name).Status.ExtendedResourceClaimStatus
	c.removePod(p.Name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if made != nil { // for its limit
		if err := c.client.Tracker().Delete(claimsResource, p.Namespace, made.ResourceClaimName); err != nil {
			c.Fatal(err)
		}
	}
	for _, entry := range p.Spec.ResourceClaims {
		if !strings.HasPrefix(entry.Name, common) {
			if err := c.client.Tracker().Delete(claimsResource, p.Namespace, entry.Name); err != nil {
				c.Fatal(err)
			}
			continue
		}
		stored, err := c.client.Tracker().Get(claimsResource, p.Namespace, entry.Name)
		if err != nil {
			c.Fatal(err)
		}
		claim := stored.(*resourceapi.ResourceClaim).DeepCopy()
		claim.Status.ReservedFor = slices.DeleteFunc(claim.Status.ReservedFor, func(by resourceapi.ResourceClaimConsumerReference) bool { return by.UID == p.UID })
		if len(claim.Status.ReservedFor) == 0 {
			claim.Status.Allocation = nil
		}
		c.next(claim)
		if err := c.client.Tracker().Update(claimsResource, claim, p.Namespace); err != nil {
			c.Fatal(err)
		}
	}
}

// change has a node be another, and waits until both schedulers know.
func (c *deviceCluster) change(node *v1.Node) {
	c.Helper()
	c.mu.Lock()
	c.next(node)
	err := c.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), node, "")
	c.mu.Unlock()
	if err != nil {
		c.Fatal(err)
	}
	for name, of := range map[string]cache.Cache{"the stock scheduler": c.stock.scheduler.Cache, "ours": c.filters.cache} {
		until(c.T, name+" knows what a node is now", func() bool {
			return of.Dump().Nodes[node.Name].Node().ResourceVersion == node.ResourceVersion
		})
	}
}

// common is how claims are called that pods share.
const common = "shared-"

// mixedCluster are nodes of all kinds, with devices of both drivers on some, network cards that several nodes reach, volumes, and claims that pods share. What limits
// call a network card nodes count, or the class of such devices is called: not both, for upstream's plugin (1.36) binds no pod with a claim to a node that
// counts what a class is called, too ("nil or empty request mappings").
func mixedCluster(r *rand.Rand) (nodes []*v1.Node, all []runtime.Object, counts bool) {
	counts = r.IntN(2) == 0
	class := deviceClass(network, network, card)
	if counts {
		class = deviceClass(network, network, "")
	}
	all = append(append(storage(), untold()...), deviceClass(driver.Name, driver.Name, ""), class)
	for i := range 4 + r.IntN(3) {
		name := fmt.Sprint("n", i)
		n := mixedNode(r, name, counts)
		nodes = append(nodes, n)
		all = append(append(append(all, n), randomGPUs(r, name)...), randomCards(r, name)...)
	}
	all = append(all, reached(r))
	little := deviceClaim(common+"0", driver.Name)
	little.Spec.Devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
		driver.Compute: *resource.NewQuantity(10, resource.DecimalSI), driver.Memory: resource.MustParse("1Gi"),
	}}
	return nodes, append(all, little, randomClaim(r, common+"1")), counts
}

// mixedNode is a node of any kind, which may count network cards as a device plugin would have them.
func mixedNode(r *rand.Rand, name string, counts bool) *v1.Node {
	n := randomNode(r, name)
	if counts {
		n.Status.Allocatable[card] = list("n", one(r, "0", "1", "4"))["n"]
	}
	return n
}

// randomCards are a node's network cards, some of which take nothing new but what tolerates that, some are handed out in parts, and some exclude each other.
func randomCards(r *rand.Rand, name string) []runtime.Object {
	own := cards(name, r.IntN(4))
	all := []runtime.Object{own}
	ports := r.IntN(3) == 0
	if ports { // fewer than the cards would use
		own.Spec.Pool.ResourceSliceCount = 2
		set := cards(name, 0)
		set.Name += "-ports"
		set.Spec.Pool.ResourceSliceCount = 2
		set.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "ports", Counters: map[string]resourceapi.Counter{"port": {Value: resource.MustParse("2")}}}}
		all = append(all, set)
	}
	for k := range own.Spec.Devices {
		device := &own.Spec.Devices[k]
		if ports {
			uses := map[string]resourceapi.Counter{"port": {Value: resource.MustParse(one(r, "1", "2"))}}
			device.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "ports", Counters: uses}}
		}
		if yes, most := true, resource.MustParse("4"); !ports && r.IntN(4) == 0 {
			device.AllowMultipleAllocations = &yes
			device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"bandwidth": {Value: resource.MustParse("10"), RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: &most}}}
		}
	}
	tainted(r, own)
	return all
}

// tainted has some of these devices take nothing new but what tolerates that, and some be usable only when their driver says so.
func tainted(r *rand.Rand, slice *resourceapi.ResourceSlice) {
	for k := range slice.Spec.Devices {
		if r.IntN(5) == 0 {
			slice.Spec.Devices[k].BindingConditions, slice.Spec.Devices[k].BindingFailureConditions = []string{attached}, []string{failed}
		}
		if r.IntN(5) == 0 {
			slice.Spec.Devices[k].Taints = []resourceapi.DeviceTaint{{Key: "down", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
	}
}

// reached are network cards beside no node: each is for one, for those of a zone, or for all.
func reached(r *rand.Rand) *resourceapi.ResourceSlice {
	all, each := true, true
	far := cards("far", 1+r.IntN(3))
	far.Spec.NodeName, far.Spec.PerDeviceNodeSelection = nil, &each
	for k := range far.Spec.Devices {
		switch device := &far.Spec.Devices[k]; r.IntN(3) {
		case 0:
			device.AllNodes = &all
		case 1:
			device.NodeSelector = where(zone, one(r, "east", "west"), false)
		default:
			name := fmt.Sprint("n", r.IntN(3))
			device.NodeName = &name
		}
	}
	tainted(r, far)
	return far
}

// randomMixed is a pod with some of all that there is.
func randomMixed(r *rand.Rand, number int) *mixed {
	p := randomPod(r, fmt.Sprint("p", number), func(p *v1.Pod) {
		p.Namespace, p.Spec.SchedulerName, p.Spec.Priority = "default", scheduler.Name, nil // nobody is evicted
		// Volumes that wait for a node are bound by nobody here, and for one that is missing no node does.
		p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v v1.Volume) bool { return strings.HasPrefix(v.Name, "late") || v.Name == "missing" })
	})
	m := &mixed{pod: p}
	if r.IntN(4) > 0 {
		m.claims = append(m.claims, randomClaim(r, ""))
	}
	if r.IntN(6) == 0 { // two, which may have parts of one device
		m.claims = append(m.claims, randomClaim(r, ""))
		if r.IntN(2) == 0 {
			m.claims[0] = m.claims[len(m.claims)-1]
		}
	}
	if r.IntN(6) == 0 {
		m.claims = append(m.claims, deviceClaim("", network))
		if r.IntN(3) == 0 {
			m.claims[len(m.claims)-1].Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: "down", Operator: resourceapi.DeviceTolerationOpExists}}
		}
	}
	if r.IntN(3) == 0 {
		uses(fmt.Sprint(common, r.IntN(2)))(p)
	}
	if r.IntN(5) == 0 { // a limit, of what nodes count or of devices
		p.Spec.Containers[0].Resources.Limits = list(card, one(r, "1", "2"))
		p.Spec.Containers[0].Resources.Requests[card] = p.Spec.Containers[0].Resources.Limits[card]
	}
	return m
}
