package plugin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

func ptr[T any](v T) *T { return &v }

// at is a time of a test's events.
func at(seconds int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 11, 22, 5, 0, seconds, 0, time.Local))
}

// claim is one of a pod, allocated and prepared; ready is the reason of its condition, empty: none was told yet.
func claim(namespace, name, pod, compute, memory, ready string) *resourceapi.ResourceClaim {
	share := types.UID("share-" + name)
	one := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("claim-" + name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: driverName, Count: 1, Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
				"compute": resource.MustParse("250"), "memory": resource.MustParse("4Gi"),
			}},
		}}}}},
		Status: resourceapi.ResourceClaimStatus{
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod}},
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Request: "nic", Driver: "other.example", Pool: "node1", Device: "nic0"},
				{Request: "gpu", Driver: driverName, Pool: "node1", Device: "gpu-aa", ShareID: &share, ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
					"compute": resource.MustParse("250"), "memory": resource.MustParse("4Gi"),
				}},
			}}},
			Devices: []resourceapi.AllocatedDeviceStatus{{
				Driver: driverName, Pool: "node1", Device: "gpu-aa", ShareID: ptr("another's"), Data: &runtime.RawExtension{Raw: []byte(`{"compute":"1.00"}`)},
			}},
		},
	}
	if ready == "" {
		return one
	}
	status := metav1.ConditionFalse
	if ready == "Prepared" {
		status = metav1.ConditionTrue
	}
	one.Status.Devices = append(one.Status.Devices, resourceapi.AllocatedDeviceStatus{
		Driver: driverName, Pool: "node1", Device: "gpu-aa", ShareID: ptr(string(share)),
		Data:       &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"uuid":"GPU-aa","compute":%q,"memory":%q}`, compute, memory)},
		Conditions: []metav1.Condition{{Type: "Ready", Status: status, Reason: ready, Message: "its process 7 computes past the shim"}},
	})
	return one
}

func pod(name string, claims ...string) *corev1.Pod {
	one := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID("pod-" + name)},
		Spec:       corev1.PodSpec{NodeName: "node1", SchedulerName: "aliquot-scheduler"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for i, name := range claims {
		own := fmt.Sprint("c", i)
		one.Spec.ResourceClaims = append(one.Spec.ResourceClaims, corev1.PodResourceClaim{Name: own, ResourceClaimTemplateName: ptr("quarter")})
		one.Status.ResourceClaimStatuses = append(one.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: own, ResourceClaimName: ptr(name)})
	}
	return one
}

func slice() *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "node1-gpus"},
		Spec: resourceapi.ResourceSliceSpec{Driver: driverName, Pool: resourceapi.ResourcePool{Name: "node1"}, Devices: []resourceapi.Device{
			{Name: "gpu-aa", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: ptr("H200")}}}, {Name: "gpu-bb"},
		}},
	}
}

// plugged is a plugin of a cluster with these objects, and what it says.
func plugged(objects ...runtime.Object) (Plugin, *bytes.Buffer) {
	var out bytes.Buffer
	return Plugin{Client: fake.NewClientset(objects...), Out: &out, Now: time.Now, Agents: "aliquot"}, &out
}

// agents are a node's agent and its metrics, each time a second later, or why it does not answer.
func (p *Plugin) agents(t *testing.T, wrong error) *corev1.Pod {
	t.Helper()
	p.Agents = "gpus"
	scrapes, now := 0, at(0).Time
	p.Now = func() time.Time {
		now = now.Add(time.Second)
		return now
	}
	p.Client.(*fake.Clientset).AddProxyReactor("pods", func(action clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		get := action.(clienttesting.ProxyGetAction)
		if get.GetNamespace() != "gpus" || get.GetName() != "agent-1" || get.GetPort() != "9999" || get.GetPath() != "metrics" {
			t.Errorf("it asks %+v", get)
		}
		scrapes++
		var said strings.Builder
		for _, one := range []struct {
			labels            string
			held, burst, lent float64
			memory            int64
		}{
			{`device="GPU-aa",index="0",namespace="ml",claim="train-x"`, 0.62, 0.37, 0, 5 << 30},
			{`device="GPU-aa",index="0",namespace="web",claim="chat-y"`, 0.13, 0, 0.37, 300 << 20},
		} {
			for name, value := range map[string]float64{"device": one.held, "burst": one.burst, "lent": one.lent} {
				fmt.Fprintf(&said, "# TYPE aliquot_share_%s_seconds_total counter\naliquot_share_%s_seconds_total{%s} %g\n", name, name, one.labels, 100+float64(scrapes)*value)
			}
			fmt.Fprintf(&said, "# TYPE aliquot_share_memory_bytes gauge\naliquot_share_memory_bytes{%s} %d\n", one.labels, one.memory)
		}
		return true, answered{[]byte(strings.Join(grouped(said.String()), "\n") + "\n"), wrong}, nil
	})
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "agent-1", Labels: map[string]string{"app.kubernetes.io/name": "aliquot-agent"}},
		Spec:       corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Args: []string{"agent", "--metrics=:9999"}}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// grouped are lines of metrics with all of a name together, and its type once.
func grouped(text string) []string {
	lines := slices.Collect(strings.SplitSeq(strings.TrimSpace(text), "\n"))
	slices.SortStableFunc(lines, func(a, b string) int {
		name := func(line string) string {
			return strings.Fields(strings.ReplaceAll(strings.TrimPrefix(line, "# TYPE "), "{", " "))[0]
		}
		return cmp.Or(cmp.Compare(name(a), name(b)), cmp.Compare(a[:1], b[:1]))
	})
	return slices.Compact(lines)
}

// answered is an answer that is there.
type answered struct {
	said  []byte
	wrong error
}

func (a answered) DoRaw(context.Context) ([]byte, error) { return a.said, a.wrong }
func (a answered) Stream(context.Context) (io.ReadCloser, error) {
	return nil, errors.New("nobody streams this")
}

func TestTop(t *testing.T) {
	pending := func(name string, seconds int, why string) *corev1.Pod {
		one := pod(name)
		one.Spec.NodeName, one.Status.Phase, one.CreationTimestamp = "", corev1.PodPending, at(seconds)
		if why != "" {
			one.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: why}}
		}
		return one
	}
	big, late, plain := pending("big", -120, "it is first in line"), pending("late", -5, ""), pending("plain", -500, "no CPU")
	big.Annotations = map[string]string{"aliquot.dev/gpu": "0.80", "aliquot.dev/memory": "8Gi", "aliquot.dev/devices": "2"}
	late.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "own", ResourceClaimName: ptr("mine")}}
	mine := claim("ml", "mine", "late", "", "", "")
	mine.Status = resourceapi.ResourceClaimStatus{}
	either := pending("either", -4, "")
	either.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "own", ResourceClaimName: ptr("choice")}}
	choice := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "choice"}}
	choice.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "any", DeviceClassName: "other"}, {Name: "fast", DeviceClassName: "fast"}}}}
	fast := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
		{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "gpu.aliquot.dev" && device.attributes["gpu.aliquot.dev"].model == "H200"`}},
	}}}
	objects := []runtime.Object{
		slice(), claim("ml", "train-x", "train", "0.25..0.80", "4Gi..8Gi", "Prepared"), claim("web", "chat-y", "chat", "0.50", "8Gi", "Unenforced"), claim("web", "new", "fresh", "", "", ""),
		&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "waits"}}, big, late, plain, mine, either, choice, fast,
	}
	for _, c := range []struct {
		namespace string
		wrong     error
		want      string
	}{
		{"", nil, `
NODE    DEVICE        POD        COMPUTE        USE   FLOW   MEMORY     HELD    STATE        CLAIM
node1   H200 gpu-aa   3 shares   1.00 of 1.00
                      train      0.25..0.80     62%   +37%   4Gi..8Gi   5.0Gi   Ready        ml/train-x
                      chat       0.50           13%   -37%   8Gi        300Mi   Unenforced   web/chat-y
                      fresh      0.25..?        -            4Gi..?     -       Preparing    web/new
node1   gpu-bb        nobody     0.00 of 1.00

WAITS       FOR    ASKS FOR                                               WHY
ml/big      2m3s   2 times 0.80, 8Gi                                      it is first in line
ml/late     9s     1 of gpu.aliquot.dev, 0.25 of compute, 4Gi of memory   no scheduler has said why yet
ml/either   9s     one of several kinds                                   no scheduler has said why yet
`},
		{"web", errors.New("no answer"), `
NODE    DEVICE        POD               COMPUTE        USE   FLOW   MEMORY   HELD   STATE        CLAIM
node1   H200 gpu-aa   2 shares in web   0.75 of 1.00
                      chat              0.50           -            8Gi      -      Unenforced   web/chat-y
                      fresh             0.25..?        -            4Gi..?   -      Preparing    web/new
What is used is not known: no answer. To see it takes the role aliquot-use in namespace gpus.
`},
		{"none", nil, "\nNobody in sight has a share of a device.\n"},
	} {
		p, out := plugged(objects...)
		agent := p.agents(t, c.wrong)
		if err := p.Client.(*fake.Clientset).Tracker().Add(agent); err != nil {
			t.Fatal(err)
		}
		if err := p.Top(t.Context(), c.namespace); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, strings.TrimRight(line, " \n"))
		}
		if said := "\n" + strings.Join(got, "\n") + "\n"; said != c.want {
			t.Errorf("of namespace %q it says%s\nwant%s", c.namespace, said, c.want)
		}
	}
}

func TestWhy(t *testing.T) {
	waiting := pod("big")
	waiting.Spec.NodeName, waiting.Status.Phase = "", corev1.PodPending
	waiting.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr("whole")}, {Name: "own", ResourceClaimName: ptr("mine")}}
	waiting.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "queue ml is over its quota"}}
	mine := claim("ml", "mine", "big", "", "", "")
	mine.Status = resourceapi.ResourceClaimStatus{}
	event := func(on types.UID, seconds int, reason, message string, times int32) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: fmt.Sprint(reason, seconds)}, InvolvedObject: corev1.ObjectReference{UID: on},
			Reason: reason, Message: message, Count: times, LastTimestamp: at(seconds),
		}
	}
	starting := pod("starts")
	starting.Status.Phase = corev1.PodPending
	starting.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
	stuck, crashed, ends := pod("stuck"), pod("crashed"), pod("ends")
	stuck.Status.Phase = corev1.PodPending
	crashed.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}}}}
	ends.DeletionTimestamp, ends.Finalizers = ptr(at(7)), []string{"example.com/kept"}
	objects := []runtime.Object{
		stuck, crashed, ends, event("pod-stuck", 2, "FailedPrepareDynamicResources", "leave hostUsers out", 22), event("pod-stuck", 1, "Scheduled", "here", 1),
		event("pod-train", 1, "FailedResourceClaimCreation", "no template yet", 1),
		waiting, mine, pod("train", "train-x"), starting, claim("ml", "train-x", "train", "0.25..0.80", "4Gi..8Gi", "Unenforced"),
		event("pod-big", 9, "FailedScheduling", "no room", 3), event("claim-mine", 4, "Looked", "at it", 1), event("pod-other", 5, "Nothing", "of ours", 1),
	}
	for _, c := range []struct{ pod, want string }{
		{"big", `big waits: queue ml is over its quota
  Claim      gpu, of template whole: not there yet
  Claim      mine: not allocated; it asks for 1 of gpu.aliquot.dev, 0.25 of compute, 4Gi of memory
  History    05:00:04  Looked: at it
             05:00:09  FailedScheduling: no room (3 times)
`},
		{"train", `train runs on node node1
  Claim      train-x: 0.25..0.80 of compute and 4Gi..8Gi of memory of gpu-aa on node1
  Not held   Unenforced: its process 7 computes past the shim
`},
		{"stuck", `stuck starts on node node1: FailedPrepareDynamicResources: leave hostUsers out
  Claim      none: it asks for no device
  History    05:00:01  Scheduled: here
             05:00:02  FailedPrepareDynamicResources: leave hostUsers out (22 times)
`},
		{"crashed", `crashed is on node node1, and container main does not run: CrashLoopBackOff: back-off 10s
  Claim      none: it asks for no device
`},
		{"ends", `ends is told to end by 05:00:07, on node node1: no container of it runs, and what is left is the node's to take back
  Claim      none: it asks for no device
`},
		{"starts", `starts starts on node node1: ImagePullBackOff: no such image
  Claim      none: it asks for no device
`},
	} {
		p, out := plugged(objects...)
		if err := p.Why(t.Context(), "ml", c.pod); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("of %s it says\n%s\nwant\n%s", c.pod, out, c.want)
		}
	}
	p, _ := plugged(objects...)
	if err := p.Why(t.Context(), "ml", "none"); err == nil || !strings.Contains(err.Error(), "there is no pod none in namespace ml") {
		t.Errorf("of a pod that is not there: %v", err)
	}
}

// shared is a plugin of a cluster where a pod has a Share of 0.25..0.80 and 4Gi..8Gi, with a node that answers each change with answer.
func shared(t *testing.T, answer metav1.ConditionStatus, objects ...runtime.Object) (Plugin, *bytes.Buffer) {
	t.Helper()
	p, out := plugged(objects...)
	share := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "aliquot.dev/v1alpha1", "kind": "Share", "metadata": map[string]any{"namespace": "ml", "name": "train-x", "generation": int64(1)},
		"spec": map[string]any{
			"nodeName": "node1", "floor": map[string]any{"compute": "0.25", "memory": "4Gi"}, "ceiling": map[string]any{"compute": "0.80", "memory": "8Gi"},
		},
		"status": map[string]any{
			"compute": "0.25..0.80", "memory": "4Gi..8Gi",
			"conditions": []any{map[string]any{"type": "Applied", "status": "True", "reason": "Applied", "observedGeneration": int64(1), "message": "", "lastTransitionTime": nil}},
		},
	}}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{sharesResource: "ShareList"}, share)
	answered := false
	// The API server counts generations, and then the node answers, as those who watch see.
	client.PrependReactor("patch", "shares", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := struct {
			Spec struct{ Ceiling map[string]any }
		}{}
		if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &patch); err != nil {
			return true, nil, err
		}
		changed := share.DeepCopy()
		changed.SetGeneration(2)
		if err := unstructured.SetNestedField(changed.Object, patch.Spec.Ceiling, "spec", "ceiling"); err != nil {
			return true, nil, err
		}
		if err := client.Tracker().Update(sharesResource, changed, "ml"); err != nil || answer == "" {
			return true, changed, err
		}
		if answered {
			return true, changed, nil // it is put back
		}
		answered = true
		go func() {
			told := changed.DeepCopy()
			_ = unstructured.SetNestedSlice(told.Object, []any{map[string]any{
				"type": "Applied", "status": string(answer), "reason": "Said", "observedGeneration": int64(2), "message": "it holds 7Gi there", "lastTransitionTime": nil,
			}}, "status", "conditions")
			if answer == metav1.ConditionTrue {
				_ = unstructured.SetNestedField(told.Object, fmt.Sprintf("0.25..%v", patch.Spec.Ceiling["compute"]), "status", "compute")
				_ = unstructured.SetNestedField(told.Object, fmt.Sprintf("4Gi..%v", patch.Spec.Ceiling["memory"]), "status", "memory")
			}
			if err := client.Tracker().Update(sharesResource, told, "ml"); err != nil {
				t.Error(err)
			}
		}()
		return true, changed, nil
	})
	p.Objects = client
	return p, out
}

func TestResize(t *testing.T) {
	compute := func(text string) Change {
		read, err := api.ParseCompute(text)
		if err != nil {
			t.Fatal(err)
		}
		return Change{Compute: read}
	}
	memory := func(text string) Change {
		read, err := api.ParseMemory(text)
		if err != nil {
			t.Fatal(err)
		}
		return Change{Memory: read}
	}
	objects := []runtime.Object{
		pod("train", "train-x"), pod("two", "train-x", "other"), pod("none"), pod("early", "other"),
		claim("ml", "train-x", "train", "0.25..0.80", "4Gi..8Gi", "Prepared"), claim("ml", "other", "two", "0.25", "4Gi", "Prepared"),
	}
	for _, c := range []struct {
		pod    string
		change Change
		answer metav1.ConditionStatus
		want   string // said, or the error's
		fails  bool
	}{
		{"train", compute("0.25..0.60"), metav1.ConditionTrue, "train has 0.25..0.60 of compute and 4Gi..8Gi of memory\n", false},
		{"train", memory("4Gi..6Gi"), metav1.ConditionTrue, "train has 0.25..0.80 of compute and 4Gi..6Gi of memory\n", false},
		{"two", Change{Claim: "train-x", Compute: compute("0.25..0.30").Compute, Memory: memory("4Gi..5Gi").Memory}, metav1.ConditionTrue, "two has 0.25..0.30 of compute and 4Gi..5Gi of memory\n", false},
		{"train", memory("4Gi..5Gi"), metav1.ConditionFalse, "its node refused (Said): it holds 7Gi there; it keeps 0.25..0.80 of compute and 4Gi..8Gi of memory", true},
		{"train", compute("0.25..0.60"), "", "node node1 has not said in time that it holds", true},
		{"train", compute("0.30..0.60"), "", "its compute floor is 0.25 and fixed for the claim's life; write --gpu 0.25..0.60", true},
		{"train", memory("6Gi"), "", "write --mem 4Gi..6Gi", true},
		{"train", memory("4Gi..50%"), "", "write both ends of --mem in bytes", true},
		{"train", Change{}, "", "nothing to change", true},
		{"two", compute("0.25..0.60"), "", "several claims (train-x, other); say which with --claim", true},
		{"two", Change{Claim: "third", Compute: compute("0.25").Compute}, "", "two has no claim third", true},
		{"none", compute("0.25"), "", "none has no share of a device", true},
		{"gone", compute("0.25"), "", "there is no pod gone in namespace ml", true},
		{"early", compute("0.25"), "", "claim ml/other has no Share yet", true},
	} {
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if c.answer == "" {
			ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
		}
		p, out := shared(t, c.answer, objects...)
		err := p.Resize(ctx, "ml", c.pod, c.change)
		cancel()
		if c.fails != (err != nil) || c.fails && !strings.Contains(err.Error(), c.want) || !c.fails && out.String() != c.want {
			t.Errorf("%s, %+v: it says %q, %v; want %q", c.pod, c.change, out, err, c.want)
		}
		if c.answer != metav1.ConditionFalse {
			continue
		}
		share, err := p.share(t.Context(), "ml", "train-x")
		if want := (v1alpha1.Limits{Compute: 800, Memory: 8 << 30}); err != nil || share.Spec.Ceiling != want {
			t.Errorf("%+v was refused, and the Share asks for %+v now (%v), want %+v as before", c.change, share.Spec.Ceiling, err, want)
		}
	}
}

func TestCheckpoint(t *testing.T) {
	waits, ends := pod("waits", "train-x"), pod("ends", "train-x")
	waits.Status.Phase = corev1.PodPending
	ends.DeletionTimestamp, ends.Finalizers = ptr(at(1)), []string{"example.com/kept"}
	objects := []runtime.Object{pod("train", "train-x"), pod("none"), waits, ends, claim("ml", "train-x", "train", "0.25..0.80", "4Gi..8Gi", "Prepared")}
	for _, c := range []struct{ pod, want, fails string }{
		{"train", "train has saved what it has done by 2026-11-22T05:00:09.25Z\n", ""},
		{"none", "", "none has no share of a device"},
		{"waits", "", "waits does not run (Pending): say so when it has saved something while it runs"},
		{"ends", "", "ends does not run (Terminating)"},
		{"gone", "", "there is no pod gone in namespace ml"},
	} {
		p, out := plugged(objects...)
		p.Now = func() time.Time {
			return time.Date(2026, 11, 22, 6, 0, 9, 250_000_000, time.FixedZone("CET", 3600))
		}
		err := p.Checkpoint(t.Context(), "ml", c.pod)
		if c.fails == "" && (err != nil || out.String() != c.want) || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s: it says %q, %v; want %q, %q", c.pod, out, err, c.want, c.fails)
		}
		said, err := p.Client.CoreV1().Pods("ml").Get(t.Context(), "train", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := said.Annotations["aliquot.dev/checkpointed-at"]; (got == "2026-11-22T05:00:09.25Z") != (c.pod == "train") {
			t.Errorf("after %s train has the annotation %q", c.pod, got)
		}
	}
}
