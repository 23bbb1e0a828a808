package driver

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	cdi "tags.cncf.io/container-device-interface/specs-go"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

const here = "node1"

var h200 = node.Device{UUID: "GPU-aa", Model: "H200", Memory: 140 << 30, Health: api.Healthy}

// claimOf is an allocated claim with a part of the device, and a ShareConfig where one is given.
func claimOf(uid string, compute, memory int64, config string) *resourceapi.ResourceClaim {
	share := types.UID("share-" + uid)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim-" + uid, UID: types.UID(uid)}}
	allocation := &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Request: "nic", Driver: "other.example", Pool: "elsewhere", Device: "nic0"},
		{
			Request: "gpu", Driver: Name, Pool: here, Device: "gpu-aa", ShareID: &share,
			ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
				Compute: *resource.NewQuantity(compute, resource.DecimalSI), Memory: *resource.NewQuantity(memory, resource.BinarySI),
			},
		},
	}}}
	if config != "" {
		allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{Requests: []string{"gpu"}, DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: Name, Parameters: runtime.RawExtension{Raw: []byte(config)}},
		}}}
	}
	claim.Status.Allocation = allocation
	return claim
}

func share(fields string) string {
	return `{"apiVersion":"aliquot.dev/v1alpha1","kind":"ShareConfig"` + fields + `}`
}

func TestTaskOf(t *testing.T) {
	const gi = 1 << 30
	for name, test := range map[string]struct {
		claim *resourceapi.ResourceClaim
		want  node.Grant
		error string
	}{
		"floor alone":       {claim: claimOf("a", 250, 4*gi, ""), want: node.Grant{Floor: 250, Ceiling: 250, Weight: 250, MemFloor: 4 * gi, MemCeiling: 4 * gi}},
		"a thousandth":      {claim: claimOf("a", 1, gi, ""), want: node.Grant{Floor: 1, Ceiling: 1, Weight: 1, MemFloor: gi, MemCeiling: gi}},
		"ceilings":          {claim: claimOf("a", 250, 4*gi, share(`,"ceiling":{"compute":"0.80","memory":"50%"}`)), want: node.Grant{Floor: 250, Ceiling: 800, Weight: 250, MemFloor: 4 * gi, MemCeiling: 70 * gi}},
		"only borrows":      {claim: claimOf("a", 0, gi, share(`,"ceiling":{"compute":"0.5"},"weight":7`)), want: node.Grant{Ceiling: 500, Weight: 7, MemFloor: gi, MemCeiling: gi}},
		"nothing":           {claim: claimOf("a", 0, gi, ""), error: "neither a compute floor nor a ceiling"},
		"ceiling too low":   {claim: claimOf("a", 500, gi, share(`,"ceiling":{"compute":"0.4"}`)), error: "below its floor 0.50"},
		"memory too low":    {claim: claimOf("a", 500, 4*gi, share(`,"ceiling":{"memory":"2Gi"}`)), error: "below its floor 4Gi"},
		"misspelt":          {claim: claimOf("a", 500, gi, share(`,"cieling":{"compute":"0.8"}`)), error: "unknown field"},
		"of another kind":   {claim: claimOf("a", 500, gi, `{"apiVersion":"v1","kind":"Pod"}`), error: "write kind: ShareConfig"},
		"over a device":     {claim: claimOf("a", 1001, gi, ""), error: "a device has 1000"},
		"an unknown class":  {claim: claimOf("a", 500, gi, share(`,"class":"urgent"`)), error: "it is one of"},
		"no such device":    {claim: moved(claimOf("a", 500, gi, ""), here, "gpu-bb"), error: "has no such device"},
		"of another's pool": {claim: moved(claimOf("a", 500, gi, ""), "node2", "gpu-aa"), error: "has no such device"},
		"no memory":         {claim: claimOf("a", 250, 0, ""), error: "neither memory nor a memory ceiling"},
		"whole, ceiling":    {claim: unshared(claimOf("a", 0, 0, share(`,"ceiling":{"compute":"0.8","memory":"8Gi"},"weight":7`))), want: node.Grant{Floor: 1000, Ceiling: 1000, Weight: 1000, MemFloor: h200.Memory, MemCeiling: h200.Memory}},
		"whole device":      {claim: unshared(claimOf("a", 0, 0, "")), want: node.Grant{Floor: 1000, Ceiling: 1000, Weight: 1000, MemFloor: h200.Memory, MemCeiling: h200.Memory}},
		"twice on a device": {claim: twice(claimOf("a", 500, gi, "")), error: "at most one share of a device"},
	} {
		task, err := taskOf(test.claim, here, []node.Device{h200})
		if test.error != "" {
			if err == nil || !strings.Contains(err.Error(), test.error) {
				t.Errorf("%s: got %v, want an error with %q", name, err, test.error)
			}
			continue
		}
		test.want.UID, test.want.Device = "share-a", h200.UUID
		if err != nil || task.UID != "a" || len(task.Grants) != 1 || task.Grants[0] != test.want {
			t.Errorf("%s: got %+v, %v; want the grant %+v", name, task, err, test.want)
		}
	}
}

func moved(claim *resourceapi.ResourceClaim, pool, device string) *resourceapi.ResourceClaim {
	claim.Status.Allocation.Devices.Results[1].Pool, claim.Status.Allocation.Devices.Results[1].Device = pool, device
	return claim
}

func unshared(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	claim.Status.Allocation.Devices.Results[1].ConsumedCapacity = nil
	return claim
}

func twice(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	results := &claim.Status.Allocation.Devices.Results
	*results = append(*results, (*results)[1])
	return claim
}

// site is a driver's folders and agent, which outlive it.
type site struct {
	*testing.T
	config Config
	agent  *agentOf
}

func newSite(t *testing.T, folder string) *site {
	agent := &agentOf{TB: t, folder: filepath.Join(folder, "tasks")}
	if err := os.MkdirAll(agent.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "aliquot-cover")
	if err := os.WriteFile(program, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &site{T: t, agent: agent, config: Config{
		Node: here, Client: fake.NewClientset(), Agent: agent, Run: "/run/aliquot", State: filepath.Join(folder, "state"), CDI: filepath.Join(folder, "cdi"),
		Kubelet: filepath.Join(folder, "kubelet"), Cover: program,
	}}
}

// open is a driver that has recovered and is not registered.
func (s *site) open() plugin {
	s.Helper()
	d, err := prepareDriver(s.Context(), s.config)
	if err != nil {
		s.Fatal(err)
	}
	return plugin{Driver: d}
}

// has checks which claims are there: for node, as CDI files, as checkpoints.
func (s *site) has(want ...string) {
	s.Helper()
	d := &Driver{config: s.config, specs: specs(s.config.CDI), checkpoints: checkpoints(filepath.Join(s.config.State, "claims"))}
	files, _ := d.specs.list()
	known, _ := d.checkpoints.list()
	for what, got := range map[string][]string{"tasks": slices.Collect(maps.Keys(s.agent.tasks())), "CDI files": files, "checkpoints": known} {
		slices.Sort(got)
		if !slices.Equal(got, want) {
			s.Errorf("there are %s of %v, want %v", what, got, want)
		}
	}
}

func (s *site) prepare(p plugin, claims ...*resourceapi.ResourceClaim) map[types.UID]kubeletplugin.PrepareResult {
	s.Helper()
	results, err := p.PrepareResourceClaims(s.Context(), claims)
	if err != nil || len(results) != len(claims) {
		s.Fatalf("got %v, %v", results, err)
	}
	return results
}

func (s *site) unprepare(p plugin, uid string) {
	s.Helper()
	results, err := p.UnprepareResourceClaims(s.Context(), []kubeletplugin.NamespacedObject{{UID: types.UID(uid)}})
	if err != nil || results[types.UID(uid)] != nil {
		s.Fatalf("got %v, %v", results, err)
	}
}

func TestPrepare(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	for range 2 { // kubelet may ask twice
		got := s.prepare(p, claimOf("a", 250, 1<<30, ""))["a"]
		if got.Err != nil || len(got.Devices) != 1 || !slices.Equal(got.Devices[0].CDIDeviceIDs, []string{"gpu.aliquot.dev/claim=a"}) ||
			got.Devices[0].ShareID == nil || *got.Devices[0].ShareID != "share-a" || !slices.Equal(got.Devices[0].Requests, []string{"gpu"}) {
			t.Fatalf("got %+v", got)
		}
		s.has("a")
	}
	raw, err := os.ReadFile(p.specs.path("a"))
	if err != nil {
		t.Fatal(err)
	}
	var spec cdi.Spec
	if err := json.Unmarshal(raw, &spec); err != nil {
		t.Fatal(err)
	}
	same := []string{"rbind", "rprivate", "nosuid", "nodev"}
	named := map[string]string{"gpu.aliquot.dev/claim": summedName("a", "default", "claim-a")}
	want := cdi.Spec{Version: "0.7.0", Kind: "gpu.aliquot.dev/claim", Devices: []cdi.Device{{Name: "a", Annotations: named, ContainerEdits: cdi.ContainerEdits{
		Env: []string{"ALIQUOT_TASK=/run/aliquot/tasks/a"},
		Mounts: []*cdi.Mount{
			{HostPath: "/run/aliquot/lib", ContainerPath: "/lib", Options: append([]string{"ro"}, same...)},
			{HostPath: "/run/aliquot/tasks/a/tel", ContainerPath: "/tel", Options: append([]string{"rw"}, same...)},
		},
		DeviceNodes: []*cdi.DeviceNode{{Path: "/dev/nvidia0", Permissions: "rw"}},
		Hooks:       s.hooksOf(p, "a"), // TestCovers
	}}}}
	if !reflect.DeepEqual(spec, want) {
		t.Errorf("the CDI file is\n%s\nwant\n%+v", raw, want)
	}
	// It was allocated anew while kubelet was away: what it has now counts.
	if got := s.prepare(p, claimOf("a", 500, 1<<30, ""))["a"]; got.Err != nil {
		t.Fatal(got.Err)
	}
	s.has("a")
	if one, _, err := p.checkpoints.read("a"); err != nil || one.Phase != prepared || one.Task.Grants[0].Floor != 500 || s.agent.Prepared()[0].Grants[0].Floor != 500 {
		t.Errorf("the claim of 500 thousandths has %+v, in the checkpoint %+v (%v)", s.agent.Prepared(), one, err)
	}
	for range 2 {
		s.unprepare(p, "a")
		s.has()
	}
	s.unprepare(p, "never-there")
}

// One claim that is refused leaves nothing of itself, and the others are prepared.
func TestPrepareRefused(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	got := s.prepare(p, claimOf("bad", 0, 1<<30, ""), claimOf("good", 250, 1<<30, ""))
	if got["bad"].Err == nil || got["good"].Err != nil {
		t.Errorf("got %+v", got)
	}
	s.has("good")
	s.agent.hides = errors.New("no device file")
	if got := s.prepare(p, claimOf("hidden", 250, 1<<30, ""))["hidden"]; got.Err == nil || !strings.Contains(got.Err.Error(), "no device file") {
		t.Errorf("of a container that cannot be made: %+v", got)
	}
	s.has("good")
	s.agent.hides, s.agent.refuses = nil, errors.New("no room")
	if got := s.prepare(p, claimOf("later", 250, 1<<30, ""))["later"]; got.Err == nil || !strings.Contains(got.Err.Error(), "no room") {
		t.Errorf("got %+v", got)
	}
	s.has("good")
}

// A new driver finishes whatever the last one was at.
func TestRecover(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	s.prepare(p, claimOf("keep", 250, 1<<30, ""), claimOf("begun", 100, 1<<30, ""), claimOf("leaving", 100, 1<<30, ""), claimOf("damaged", 100, 1<<30, ""))
	for uid, at := range map[string]phase{"begun": preparing, "leaving": unpreparing} {
		one, _, err := p.checkpoints.read(uid)
		one.Phase = at
		if err := errors.Join(err, p.checkpoints.write(one)); err != nil {
			t.Fatal(err)
		}
	}
	// Killed before it had a checkpoint renamed into place; a task and a file that nobody knows of; a checkpoint spoilt.
	s.agent.put(node.Task{UID: "stray"})
	for path, content := range map[string]string{
		p.checkpoints.path("x" + unfinished): "half", p.specs.path("lost"): "{}", p.checkpoints.path("damaged"): "rubbish", p.checkpoints.path("gone"): "rubbish",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.open()
	s.has("damaged", "keep")
	// After a reboot neither node nor the runtime's folder has anything.
	for _, task := range s.agent.Prepared() {
		_ = s.agent.Unprepare(t.Context(), task.UID)
	}
	if err := os.RemoveAll(s.config.CDI); err != nil {
		t.Fatal(err)
	}
	p = s.open()
	s.has("damaged", "keep")
	if got := s.agent.tasks()["keep"].Grants[0].Floor; got != 250 {
		t.Errorf("made again it has a floor of %d", got)
	}
	s.unprepare(p, "keep")
	s.unprepare(p, "damaged")
	s.has()
}

// A state folder that was lost, or another's, does not have what runs taken back.
func TestStateLost(t *testing.T) {
	s := newSite(t, t.TempDir())
	s.prepare(s.open(), claimOf("a", 250, 1<<30, ""))
	kept := s.config
	s.config.State = t.TempDir()
	if _, err := prepareDriver(t.Context(), s.config); err == nil || !strings.Contains(err.Error(), "knows of no claim, and 1 are prepared") {
		t.Errorf("got %v", err)
	}
	s.config = kept
	s.open()
	s.has("a")
}
