package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/sim"
)

// node adds a node with devices.
func (c *cluster) node(name string, devices int, changes ...func(*corev1.Node)) {
	c.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}}}
	for _, change := range changes {
		change(n)
	}
	c.add(nodesResource, n)
	if devices == 0 {
		return
	}
	shared := true
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-devices"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: driver.Name, NodeName: &name, Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range devices {
		model, index, uuid := "H100", int64(i), fmt.Sprint(name, "-", i)
		device := resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d", i), AllowMultipleAllocations: &shared,
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}, "number": {IntValue: &index}, "uuid": {StringValue: &uuid}},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				driver.Compute: {Value: *resource.NewQuantity(1000, resource.DecimalSI)}, driver.Memory: {Value: *resource.NewQuantity(c.memory, resource.BinarySI)},
			},
		}
		if c.device != nil {
			c.device(name, i, &device)
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	c.add(slicesResource, slice)
}

// pod adds a pod with a claim of its own for a share, as templates make them.
func (c *cluster) pod(name string, compute int64, changes ...func(*corev1.Pod, *resourceapi.ResourceClaim)) {
	c.Helper()
	claimName, uid := name+"-share", types.UID("pod-"+name)
	if c.made[name] {
		c.uids++
		uid += types.UID(fmt.Sprint("-", c.uids)) // one of that name was there before
	}
	c.made[name] = true
	c.recipes[name] = func() { c.pod(name, compute, changes...) }
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid, CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{
			SchedulerName: Name, Containers: []corev1.Container{{Name: "main"}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "share", ResourceClaimTemplateName: &name}},
		},
		Status: corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "share", ResourceClaimName: &claimName}}},
	}
	claim := claimFor(claimName, compute)
	controller := true
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID, Controller: &controller}}
	for _, change := range changes {
		change(pod, claim)
	}
	c.add(claimsResource, claim)
	c.add(podsResource, pod)
}

// claimFor is a claim for a share with a GiB of memory.
func claimFor(name string, compute int64) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: driver.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
				Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
					driver.Compute: *resource.NewQuantity(compute, resource.DecimalSI), driver.Memory: resource.MustParse("1Gi"),
				}},
			},
		}}}},
	}
}

// remove deletes a pod, and does with its claims what the cluster's controller does.
func (c *cluster) remove(name string) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	stored, err := c.client.Tracker().Get(podsResource, "default", name)
	if err != nil {
		c.Fatal(err)
	}
	pod := stored.(*corev1.Pod)
	if err := c.client.Tracker().Delete(podsResource, "default", name); err != nil {
		c.Fatal(err)
	}
	c.release(pod)
}

// run starts a scheduler and waits until it watches: client-go's fake server tells nobody what is deleted before that. It returns what ends the
// scheduler and waits for that.
func (c *cluster) run() (s *Scheduler, end func()) {
	c.Helper()
	before := c.watches()
	factory := Follow(c.Context(), c.client)
	filters := newPlain(factory)
	filters.failing.Store(c.unprepared)
	filters.classed, filters.open, filters.mounted = c.classed, c.open, c.mounted
	record, err := os.CreateTemp(c.TempDir(), "record")
	if err != nil {
		c.Fatal(err)
	}
	s = New(Config{
		Client: c.client, Objects: c.objects, Informers: factory, Tainted: c.follows(factory), Filters: filters, Also: c.also, Writers: 4, Spare: c.spare, UsesPace: 20 * time.Millisecond, AskEvery: c.askEvery, Now: c.now, Record: record, Log: slog.New(slog.NewTextHandler(c.Output(), nil)),
	})
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var once sync.Once
	end = func() {
		once.Do(func() {
			cancel()
			err := <-ended
			if c.scheduler == s {
				c.scheduler = nil
			}
			if err == nil {
				c.replays(record)
			} else if !strings.Contains(err.Error(), "before it had seen") {
				c.Error(err)
			}
		})
	}
	c.Cleanup(end)
	c.eventually("the scheduler watches", func() bool {
		now := c.watches()
		return !slices.ContainsFunc(c.watched(), func(resource string) bool { return now[resource] <= before[resource] })
	})
	c.scheduler = s
	return s, end
}

// on is the node that a pod is bound to; empty: none.
func (c *cluster) on(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	stored, err := c.client.Tracker().Get(podsResource, "default", name)
	if err != nil {
		return ""
	}
	return stored.(*corev1.Pod).Spec.NodeName
}

// runs waits until pods are bound.
func (c *cluster) runs(names ...string) {
	c.Helper()
	for _, name := range names {
		c.eventually(name+" is bound", func() bool { return c.on(name) != "" })
	}
}

// replays checks that the simulator decides on a scheduler's events as the scheduler did.
func (c *cluster) replays(record *os.File) {
	c.Helper()
	read, err := sim.ReadLog(record.Name())
	switch {
	case err != nil:
		c.Errorf("replay what was recorded: %v", err)
	case read.Differs != nil:
		c.Errorf("the simulator decides otherwise: %v", read.Differs)
	case read.Steps == 0:
		c.Error("nothing was recorded")
	}
	if err := record.Close(); err != nil {
		c.Error(err)
	}
}

// idle waits until a scheduler has dealt with everything that it was told, and looks at its state.
func (c *cluster) idle(s *Scheduler, look func()) {
	c.Helper()
	last := "it has not begun"
	c.Cleanup(func() {
		if c.Failed() && last != "" {
			c.Logf("the scheduler was never idle: %s", last)
		}
	})
	c.eventually("the scheduler is idle", func() bool {
		busy := make(chan string, 1)
		s.inbox.put(func() {
			with := c.busy(s)
			if with == "" {
				look()
			}
			busy <- with
		})
		select {
		case last = <-busy:
			return last == ""
		case <-c.Context().Done():
			return true
		}
	})
}

// busy is what a scheduler still has to do; empty: nothing.
func (c *cluster) busy(s *Scheduler) string {
	switch {
	case !s.began || s.classifying:
		return "it looks for nodes"
	case s.seeks:
		return "it looks for room"
	case s.evictions > 0:
		return "it evicts pods"
	}
	for _, claim := range s.claims {
		if claim.writing {
			return "it writes claim " + claim.key
		}
	}
	for _, class := range s.classes {
		if class.waiting > 0 && class.stale {
			return "it is to look for nodes for " + class.key
		}
	}
	for _, p := range s.pods {
		if p.searching {
			return "it looks for devices for " + p.name()
		}
		if p.busy || p.bound != "" && p.bound != p.object.Spec.NodeName {
			return "it binds pod " + p.name()
		}
	}
	return c.unseen(s)
}

// unseen is what a scheduler does not know as it is.
func (c *cluster) unseen(s *Scheduler) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	stored := c.stored()
	for _, claim := range stored {
		if known := s.claims[claim.Namespace+"/"+claim.Name]; known == nil || known.object == nil || known.object.ResourceVersion != claim.ResourceVersion {
			return "it has not seen claim " + claim.Name
		}
	}
	list, err := c.client.Tracker().List(podsResource, corev1.SchemeGroupVersion.WithKind("Pod"), "")
	if err != nil {
		return err.Error()
	}
	pods := list.(*corev1.PodList).Items
	for _, pod := range pods {
		if c.ends && pod.DeletionTimestamp != nil {
			return "pod " + pod.Name + " is to end"
		}
		if known := s.pods[pod.UID]; known == nil || known.object.ResourceVersion != pod.ResourceVersion {
			return "it has not seen pod " + pod.Name
		}
	}
	for key, known := range s.claims {
		if c.find(key) == nil {
			return fmt.Sprintf("it knows claim %s, which is gone: %+v", key, *known)
		}
	}
	if len(s.claims) != len(stored) || len(s.pods) != len(pods) {
		return fmt.Sprintf("it knows of %d claims and %d pods, and there are %d and %d", len(s.claims), len(s.pods), len(stored), len(pods))
	}
	return ""
}

// sound checks what must always hold, and that the engine's books are the claims.
func (c *cluster) sound(s *Scheduler) {
	c.Helper()
	c.idle(s, func() {
		if err := s.engine.CheckInvariants(); err != nil {
			c.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, wrong := range c.broken {
			c.Error(wrong)
		}
		allocated := map[string]int64{}
		for _, claim := range c.stored() {
			if claim.Status.Allocation == nil {
				continue
			}
			for _, r := range claim.Status.Allocation.Devices.Results {
				compute, _ := consumed(r)
				allocated[deviceID(r.Pool, r.Device)] += compute
			}
			c.checkUsers(&claim)
		}
		c.checkGangs(s)
		for _, book := range s.engine.Devices() {
			if held := 1000 - int64(book.ComputeFree); allocated[book.Device.UUID] != held {
				c.Errorf("of %s claims hold %d thousandths, and the engine's books %d", book.Device.UUID, allocated[book.Device.UUID], held)
			}
		}
	})
}

// checkGangs checks that gangs run whole or not at all, beside what is being ended or has ended.
func (c *cluster) checkGangs(s *Scheduler) {
	for _, g := range s.gangs {
		bound, there := 0, 0
		for p := range g.members {
			if p.leaves() || over(p.object) {
				continue
			}
			if there++; p.object.Spec.NodeName != "" {
				bound++
			}
		}
		if bound > 0 && bound < there {
			c.Errorf("of gang %s %d of %d pods run", g.key, bound, there)
		}
	}
}

// checkUsers checks that an allocated claim is for pods that run.
func (c *cluster) checkUsers(claim *resourceapi.ResourceClaim) {
	if len(claim.Status.ReservedFor) == 0 {
		c.Errorf("claim %s is allocated and nobody has it", claim.Name)
	}
	for _, r := range claim.Status.ReservedFor {
		stored, err := c.client.Tracker().Get(podsResource, claim.Namespace, r.Name)
		if err != nil || stored.(*corev1.Pod).Spec.NodeName == "" {
			c.Errorf("claim %s is allocated for pod %s, which does not run: %v", claim.Name, r.Name, err)
		}
	}
}

// breakAt has each such write stand still until its scheduler is told to end, and then be lost. What it returns waits for the first of them and ends
// that scheduler; writes succeed from then on.
func (c *cluster) breakAt(is func(write string) bool) func(s *Scheduler, end func()) {
	reached, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fails := func(write string) fault {
		if !is(write) {
			return none
		}
		once.Do(func() { close(reached) })
		<-ended
		return lostly
	}
	c.mu.Lock()
	c.fails = fails
	c.mu.Unlock()
	return func(s *Scheduler, end func()) {
		<-reached
		stopped := make(chan struct{})
		go func() { end(); close(stopped) }()
		<-s.ctx.Done()
		close(ended)
		<-stopped
		c.mu.Lock()
		c.fails = func(string) fault { return none }
		c.mu.Unlock()
	}
}
