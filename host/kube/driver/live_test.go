package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/node"
)

// shared is a site with Shares, whose driver changes ceilings live.
type shared struct {
	*site
	plugin
	shares  dynamic.ResourceInterface
	watches atomic.Int32 // of them, that were begun
	end     func()       // ends the driver; nil: there was none yet
}

func newShared(t *testing.T) *shared {
	s := newSite(t, t.TempDir())
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{sharesResource: "ShareList"})
	// As the API server does it, and the fake does not: a write of the status changes nothing else.
	client.PrependReactor("update", "shares", func(action ktesting.Action) (bool, runtime.Object, error) {
		update := action.(ktesting.UpdateAction)
		if update.GetSubresource() != "status" {
			return false, nil, nil
		}
		written := update.GetObject().(*unstructured.Unstructured)
		known, err := client.Tracker().Get(sharesResource, written.GetNamespace(), written.GetName())
		if err != nil {
			return true, nil, err
		}
		now := known.(*unstructured.Unstructured).DeepCopy()
		now.Object["status"] = written.Object["status"]
		return true, now, client.Tracker().Update(sharesResource, now, now.GetNamespace())
	})
	s.config.Shares = client
	with := &shared{site: s, shares: client.Resource(sharesResource).Namespace("default")}
	client.PrependWatchReactor("shares", func(action ktesting.Action) (bool, watch.Interface, error) {
		defer with.watches.Add(1)
		begun, err := client.Tracker().Watch(sharesResource, action.GetNamespace(), action.(ktesting.WatchActionImpl).ListOptions)
		return true, begun, err
	})
	return with
}

// start is a driver that kubelet does not know, after the last one has ended. It watches: client-go's fake server tells nobody what is deleted
// before that.
func (s *shared) start() {
	s.Helper()
	if s.end != nil {
		s.end()
	}
	s.plugin = s.open()
	ctx, end := context.WithCancel(s.Context())
	d := s.plugin.Driver
	before := s.watches.Load()
	d.working.Go(func() { d.live.run(ctx) })
	s.end = sync.OnceFunc(func() {
		end()
		d.working.Wait()
		d.telling.Wait()
	})
	s.Cleanup(s.end)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	within := time.After(time.Minute)
	for s.watches.Load() == before {
		select {
		case <-within:
			s.Fatal("the driver does not watch Shares")
		case <-look.C:
		}
	}
}

// add has a claim allocated and prepared.
func (s *shared) add(claim *resourceapi.ResourceClaim) {
	s.Helper()
	if _, err := s.config.Client.ResourceV1().ResourceClaims("default").Create(s.Context(), claim, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	if got := s.prepare(s.plugin, claim)[claim.UID]; got.Err != nil {
		s.Fatal(got.Err)
	}
	s.telling.Wait() // the fake server lets what was read before a change be written after it
}

// patch changes a Share as a user does.
func (s *shared) patch(name, spec string, generation int) {
	s.Helper()
	change := fmt.Appendf(nil, `{"metadata":{"generation":%d},"spec":%s}`, generation, spec)
	if _, err := s.shares.Patch(s.Context(), name, types.MergePatchType, change, metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// becomes waits until a Share says what it should and its claim's task has that ceiling.
func (s *shared) becomes(name string, generation int64, reason, compute, memory string) *v1alpha1.Share {
	s.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	within := time.After(time.Minute)
	for {
		var share *v1alpha1.Share
		object, err := s.shares.Get(s.Context(), name, metav1.GetOptions{})
		if err == nil {
			if share, err = parseShare(object); err != nil {
				s.Fatal(err)
			}
			applied := meta.FindStatusCondition(share.Status.Conditions, v1alpha1.ShareApplied)
			if applied != nil && applied.Reason == reason && applied.ObservedGeneration == generation && share.Status.ObservedGeneration == generation &&
				share.Status.Compute.String() == compute && share.Status.Memory.String() == memory {
				return share
			}
		}
		select {
		case <-within:
			s.Fatalf("want Share %s to be %s at generation %d with %s and %s; it is %+v (%v)", name, reason, generation, compute, memory, share, err)
		case <-look.C:
		}
	}
}

const gi = 1 << 30

// A claim that is prepared gets a Share with its own ceiling. A change of that takes hold in place: for node, in the checkpoint and the claim's
// status; a driver that starts anew, kubelet that asks again and a reboot keep it. A Share that was deleted comes back with the claim's own ceiling.
func TestLiveCeiling(t *testing.T) {
	s := newShared(t)
	s.start()
	s.add(claimOf("a", 250, 4*gi, share(`,"ceiling":{"compute":"0.80","memory":"8Gi"}`)))
	made := s.becomes("claim-a", 0, v1alpha1.ReasonApplied, "0.25..0.80", "4Gi..8Gi")
	if made.Spec.NodeName != here || !belongs(made, "a") || made.Spec.Ceiling.Compute != 800 || made.Spec.Floor.Memory != 4*gi {
		t.Errorf("the Share that was made is %+v", made)
	}
	s.patch("claim-a", `{"ceiling":{"compute":"0.60","memory":"6Gi"}}`, 2)
	s.becomes("claim-a", 2, v1alpha1.ReasonApplied, "0.25..0.60", "4Gi..6Gi")
	s.ceilings("a", 600, 6*gi)
	claim, err := s.config.Client.ResourceV1().ResourceClaims("default").Get(t.Context(), "claim-a", metav1.GetOptions{})
	if err != nil || len(claim.Status.Devices) != 1 || !strings.Contains(string(claim.Status.Devices[0].Data.Raw), `"compute":"0.25..0.60","memory":"4Gi..6Gi"`) {
		t.Errorf("the claim says that it is held to %+v (%v)", claim.Status.Devices, err)
	}
	s.start()
	if got := s.prepare(s.plugin, claim)["a"]; got.Err != nil {
		t.Error(got.Err)
	}
	s.ceilings("a", 600, 6*gi)
	if err := s.agent.Unprepare(t.Context(), "a"); err != nil { // the machine starts anew
		t.Fatal(err)
	}
	s.start()
	s.ceilings("a", 600, 6*gi)

	if err := s.shares.Delete(t.Context(), "claim-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.becomes("claim-a", 0, v1alpha1.ReasonApplied, "0.25..0.80", "4Gi..8Gi")
	s.ceilings("a", 800, 8*gi)
}

// ceilings checks those of a claim's only share, for node and in the checkpoint.
func (s *shared) ceilings(uid string, compute, memory int) {
	s.Helper()
	one, _, err := s.checkpoints.read(uid)
	task := s.agent.tasks()[uid]
	for what, grants := range map[string][]node.Grant{"node": task.Grants, "the checkpoint": one.Task.Grants} {
		if err != nil || len(grants) != 1 || int(grants[0].Ceiling) != compute || int(grants[0].MemCeiling) != memory {
			s.Errorf("by %s it has %+v (%v), want ceilings of %d and %d", what, grants, err, compute, memory)
		}
	}
}

// What the node refuses is said with why, the ceiling of before holds, and it is tried again until it is taken.
func TestLiveCeilingRefused(t *testing.T) {
	s := newShared(t)
	s.start()
	s.add(claimOf("a", 250, 4*gi, share(`,"ceiling":{"compute":"0.80","memory":"8Gi"}`)))
	s.becomes("claim-a", 0, v1alpha1.ReasonApplied, "0.25..0.80", "4Gi..8Gi")
	s.agent.refuseChange(errors.New("it holds 7Gi there; ask for at least that"))
	s.patch("claim-a", `{"ceiling":{"memory":"5Gi"}}`, 2)
	refused := s.becomes("claim-a", 2, v1alpha1.ReasonRefused, "0.25..0.80", "4Gi..8Gi")
	if said := refused.Status.Conditions[0]; said.Status != metav1.ConditionFalse || !strings.Contains(said.Message, "it holds 7Gi there") {
		t.Errorf("it says %+v", said)
	}
	s.ceilings("a", 800, 8*gi)
	s.agent.refuseChange(nil)
	s.becomes("claim-a", 2, v1alpha1.ReasonApplied, "0.25..0.80", "4Gi..5Gi")
	s.ceilings("a", 800, 5*gi)

	s.patch("claim-a", `{"floor":{"compute":"0.50"}}`, 3) // which the API server would refuse
	other := s.becomes("claim-a", 3, v1alpha1.ReasonNotTheirs, "0.25..0.80", "4Gi..5Gi")
	if said := other.Status.Conditions[0]; said.Status != metav1.ConditionFalse || !strings.Contains(said.Message, "the claim consumes 0.25 of compute") {
		t.Errorf("it says %+v", said)
	}
	s.ceilings("a", 800, 5*gi)
}

// A Share that another node's agent made for the claim comes here with the claim, and its ceiling with it. One of an earlier claim of that name
// counts for nothing, and is not touched.
func TestLiveTakenOver(t *testing.T) {
	for name, test := range map[string]struct {
		owner   string
		ceiling int
		node    string
	}{"of this claim": {"a", 600, here}, "of an earlier claim": {"earlier", 800, "node2"}} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t)
			floor := v1alpha1.Limits{Compute: 250, Memory: 4 * gi}
			object, err := unstructuredOf(&v1alpha1.Share{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ShareKind},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim-a", OwnerReferences: []metav1.OwnerReference{{UID: types.UID(test.owner)}}},
				Spec:       v1alpha1.ShareSpec{NodeName: "node2", Floor: floor, Ceiling: v1alpha1.Limits{Compute: 600, Memory: 4 * gi}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.shares.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			s.start()
			s.add(claimOf("a", 250, 4*gi, share(`,"ceiling":{"compute":"0.80"}`)))
			s.add(claimOf("b", 250, 4*gi, "")) // looked at after it
			s.becomes("claim-b", 0, v1alpha1.ReasonApplied, "0.25", "4Gi")
			if test.owner == "a" {
				s.becomes("claim-a", 0, v1alpha1.ReasonApplied, "0.25..0.60", "4Gi")
			}
			s.ceilings("a", test.ceiling, 4*gi)
			if object, err = s.shares.Get(t.Context(), "claim-a", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			if share, err := parseShare(object); err != nil || share.Spec.NodeName != test.node {
				t.Errorf("it is of node %s (%v), want %s", share.Spec.NodeName, err, test.node)
			}
		})
	}
}

// Whoever tells a claim of its limits tells those that hold by then, also when they were others as it began.
func TestTellAfterACeilingChanged(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	claims := s.config.Client.ResourceV1().ResourceClaims("default")
	claim, err := claims.Create(t.Context(), claimOf("a", 250, 4*gi, share(`,"ceiling":{"compute":"0.80"}`)), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.prepare(p, claim)
	p.telling.Wait()
	before := s.agent.tasks()["a"]
	if _, refused, err := p.hold(t.Context(), "a", lowered); err != nil || refused != nil {
		t.Fatal(refused, err)
	}
	p.tellNow(t.Context(), claim, checkpoint{Task: before})
	now, err := claims.Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil || len(now.Status.Devices) != 1 || !strings.Contains(string(now.Status.Devices[0].Data.Raw), `"compute":"0.25..0.60"`) {
		t.Errorf("the claim says that it is held to %+v (%v)", now.Status.Devices, err)
	}
}

// What the API server knows of a Share is what we write of it, each with a description.
func TestShareSchema(t *testing.T) {
	raw, err := os.ReadFile("../../../deploy/chart/files/crds/shares.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema schemaNode }
			}
		}
	}
	if err := yaml.Unmarshal(raw, &definition); err != nil {
		t.Fatal(err)
	}
	if v := definition.Spec.Versions; len(v) != 1 || "aliquot.dev/"+v[0].Name != v1alpha1.APIVersion {
		t.Fatalf("it has the versions %+v, want one for %s", v, v1alpha1.APIVersion)
	}
	compareSchema(t, "share", definition.Spec.Versions[0].Schema.OpenAPIV3Schema, reflect.TypeFor[v1alpha1.Share]())
}

type schemaNode struct {
	Description string
	Properties  map[string]schemaNode
	Items       *schemaNode
}

// compareSchema compares an object's properties with the fields of a type, as JSON names them.
func compareSchema(t *testing.T, at string, is schemaNode, of reflect.Type) {
	t.Helper()
	if is.Description == "" && at != "share.metadata" { // the API server takes none there
		t.Errorf("%s has no description", at)
	}
	if is.Items != nil {
		is, of = *is.Items, of.Elem()
	}
	if len(is.Properties) == 0 {
		return
	}
	var fields []string
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" { // what every object has
			fields = append(fields, "apiVersion", "kind")
			continue
		}
		fields = append(fields, name)
		compareSchema(t, at+"."+name, is.Properties[name], field.Type)
	}
	for name := range is.Properties {
		if !slices.Contains(fields, name) {
			t.Errorf("%s.%s is no field of %v", at, name, of)
		}
	}
}

// Killed between the change and the record of it, a driver goes on with what node holds containers to.
func TestKilledWhileACeilingChanges(t *testing.T) {
	if folder := os.Getenv(crashFolder); folder != "" {
		p := newSite(t, folder).open()
		_, _, err := p.hold(t.Context(), "a", lowered)
		t.Fatal("it was not killed: ", err)
	}
	folder := t.TempDir()
	s := newSite(t, folder)
	claim := claimOf("a", 250, 4*gi, share(`,"ceiling":{"compute":"0.80"}`))
	s.prepare(s.open(), claim)
	killedIn(t, "TestKilledWhileACeilingChanges", folder, "kube.ceiling.held")
	p := s.open()
	if got := s.prepare(p, claim)["a"]; got.Err != nil {
		t.Error(got.Err)
	}
	if got := s.agent.tasks()["a"].Grants[0].Ceiling; got != 600 {
		t.Errorf("the ceiling is %d, want 600: it was told to the containers already", got)
	}
	if _, refused, err := p.hold(t.Context(), "a", lowered); err != nil || refused != nil {
		t.Error(refused, err)
	}
	if one, _, err := p.checkpoints.read("a"); err != nil || one.Task.Grants[0].Ceiling != 600 {
		t.Errorf("looked at again, the checkpoint says %+v (%v)", one, err)
	}
	s.unprepare(p, "a")
	s.has()
}

var lowered = v1alpha1.ShareSpec{Floor: v1alpha1.Limits{Compute: 250, Memory: 4 * gi}, Ceiling: v1alpha1.Limits{Compute: 600, Memory: 4 * gi}}
