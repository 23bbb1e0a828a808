package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"
)

// prints compares what a plugin prints as JSON, whatever its spaces, and that it says the same as YAML.
func prints(t *testing.T, what string, print func(format string) (said string, err error), want string) {
	t.Helper()
	said, err := print(JSON)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if got, want := flat(t, said), flat(t, want); got != want {
		t.Errorf("%s prints\n%s\nwant\n%s", what, got, want)
	}
	asYAML, err := print(YAML)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if strings.HasPrefix(asYAML, "{") || strings.HasPrefix(asYAML, "[{") {
		t.Errorf("%s prints as YAML\n%s", what, asYAML)
	}
	back, err := yaml.YAMLToJSON([]byte(asYAML))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if got, want := flat(t, string(back)), flat(t, want); got != want {
		t.Errorf("%s prints as YAML\n%s\nwant\n%s", what, got, want)
	}
}

// flat is JSON without spaces, its fields by name, numbers as they are written.
func flat(t *testing.T, text string) string {
	t.Helper()
	var value any
	read := json.NewDecoder(strings.NewReader(text))
	read.UseNumber()
	if err := read.Decode(&value); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	out, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// utc is a time of a test's events as it is printed.
func utc(seconds int) string { return at(seconds).UTC().Format(time.RFC3339) }

func TestTopEncoded(t *testing.T) {
	waits := pod("big")
	waits.Spec.NodeName, waits.Status.Phase, waits.CreationTimestamp = "", corev1.PodPending, at(-120)
	waits.Annotations = map[string]string{"aliquot.dev/gpu": "0.80", "aliquot.dev/memory": "8Gi"}
	offered := slice()
	offered.Spec.Devices[0].Attributes["uuid"] = resourceapi.DeviceAttribute{StringValue: ptr("GPU-aa")}
	offered.Spec.Devices[0].Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}}
	administers := claim("web", "sees", "eyes", "1.00", "80Gi", "Prepared")
	administers.Status.Allocation.Devices.Results[1].AdminAccess = ptr(true)
	objects := []runtime.Object{offered, claim("ml", "train-x", "train", "0.25..0.80", "4Gi..8Gi", "Prepared"), claim("web", "new", "fresh", "", "", ""), administers, waits}
	top := func(namespace string, wrong error) func(format string) (string, error) {
		return func(format string) (string, error) {
			p, out := plugged(objects...)
			p.Format = format
			if err := p.Client.(*fake.Clientset).Tracker().Add(p.agents(t, wrong)); err != nil {
				t.Fatal(err)
			}
			err := p.Top(t.Context(), namespace)
			return out.String(), err
		}
	}
	prints(t, "top", top("", nil), fmt.Sprintf(`{"at":%q,"devices":[
		{"node":"node1","name":"gpu-aa","uuid":"GPU-aa","model":"H200","memory":85899345920,"grants":[
			{"namespace":"ml","claim":"train-x","pods":["train"],"state":"Ready","compute":0.62,"borrowing":0.37,"lending":0,"memory":5368709120,"grant":{
				"node":"node1","name":"gpu-aa","device":"GPU-aa","computeFloor":0.25,"computeCeiling":0.8,"memoryFloor":4294967296,"memoryCeiling":8589934592}},
			{"namespace":"web","claim":"new","pods":["fresh"],"state":"Preparing","grant":{"node":"node1","name":"gpu-aa"}},
			{"namespace":"web","claim":"sees","pods":["eyes"],"state":"Ready","grant":{"node":"node1","name":"gpu-aa","device":"GPU-aa","administrator":true}}]},
		{"node":"node1","name":"gpu-bb","grants":[]}],
		"waiting":[{"namespace":"ml","pod":"big","since":%q,"asksFor":"0.80, 8Gi","message":"no scheduler has said why yet"}]}`, utc(3), utc(-120)))
	prints(t, "top of a namespace", top("web", errors.New("no answer")), fmt.Sprintf(`{"at":%q,"useUnknown":"no answer","devices":[
		{"node":"node1","name":"gpu-aa","uuid":"GPU-aa","model":"H200","memory":85899345920,"grants":[
			{"namespace":"web","claim":"new","pods":["fresh"],"state":"Preparing","grant":{"node":"node1","name":"gpu-aa"}},
			{"namespace":"web","claim":"sees","pods":["eyes"],"state":"Ready","grant":{"node":"node1","name":"gpu-aa","device":"GPU-aa","administrator":true}}]}],
		"waiting":[]}`, utc(2)))
	prints(t, "top of an empty namespace", top("none", nil), fmt.Sprintf(`{"at":%q,"devices":[],"waiting":[]}`, utc(1)))
}

func TestWhyEncoded(t *testing.T) {
	waiting := pod("big")
	waiting.Spec.NodeName, waiting.Status.Phase = "", corev1.PodPending
	waiting.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr("whole")}, {Name: "own", ResourceClaimName: ptr("mine")}, {Name: "lost", ResourceClaimName: ptr("gone")}}
	waiting.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "queue ml is over its quota"}}
	mine := claim("ml", "mine", "big", "", "", "")
	mine.Status = resourceapi.ResourceClaimStatus{}
	objects := []runtime.Object{
		waiting, mine, pod("train", "train-x"), pod("none"), claim("ml", "train-x", "train", "0.25..0.80", "4Gi..8Gi", "Unenforced"),
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "one"}, InvolvedObject: corev1.ObjectReference{UID: "pod-big"}, Reason: "FailedScheduling", Message: "no room ", Count: 3, LastTimestamp: at(9)},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "two"}, InvolvedObject: corev1.ObjectReference{UID: "claim-mine"}, Reason: "Looked", Message: "at it", EventTime: metav1.NewMicroTime(at(4).Time)},
	}
	why := func(name string) func(format string) (string, error) {
		return func(format string) (string, error) {
			p, out := plugged(objects...)
			p.Format = format
			err := p.Why(t.Context(), "ml", name)
			return out.String(), err
		}
	}
	prints(t, "why a pod waits", why("big"), fmt.Sprintf(`{"namespace":"ml","pod":"big","phase":"Pending","message":"big waits: queue ml is over its quota",
		"claims":[
			{"name":"gpu","template":"whole","there":false,"allocated":false,"grants":[]},
			{"name":"gone","there":false,"allocated":false,"grants":[]},
			{"name":"mine","there":true,"allocated":false,"asksFor":"1 of gpu.aliquot.dev, 0.25 of compute, 4Gi of memory","grants":[]}],
		"history":[{"at":%q,"reason":"Looked","message":"at it","times":1},{"at":%q,"reason":"FailedScheduling","message":"no room","times":3}]}`, utc(4), utc(9)))
	prints(t, "why a share is not held", why("train"), `{"namespace":"ml","pod":"train","phase":"Running","node":"node1","message":"train runs on node node1",
		"claims":[{"name":"train-x","there":true,"allocated":true,"asksFor":"1 of gpu.aliquot.dev, 0.25 of compute, 4Gi of memory","grants":[
			{"namespace":"ml","claim":"train-x","pods":["train"],"state":"Unenforced","message":"its process 7 computes past the shim","grant":{
				"node":"node1","name":"gpu-aa","device":"GPU-aa","computeFloor":0.25,"computeCeiling":0.8,"memoryFloor":4294967296,"memoryCeiling":8589934592}}]}],
		"history":[]}`)
	prints(t, "why of one without devices", why("none"), `{"namespace":"ml","pod":"none","phase":"Running","node":"node1","message":"none runs on node node1","claims":[],"history":[]}`)
}

func TestQueuesEncoded(t *testing.T) {
	print := func(name string) func(format string) (string, error) {
		return func(format string) (string, error) {
			p, out := tenants(t)
			p.Format = format
			var err error
			if name == "" {
				err = p.Queues(t.Context())
			} else {
				err = p.Queue(t.Context(), name)
			}
			return out.String(), err
		}
	}
	when := func(ago time.Duration) string { return noon.Add(-ago).UTC().Format(time.RFC3339) }
	const none = `"order":"fair+priority"`
	uses := func(ago time.Duration) string {
		return fmt.Sprintf(`"at":%q,"running":3,"waiting":1,"held":2.5,"use":{"compute":2.5,"memory":42949672960,"devices":4},"fair":{"compute":2,"memory":42949672960,"devices":4},
			"borrowed":{"compute":0.5,"memory":0,"devices":0},"atRisk":{"compute":0.25,"memory":0,"devices":0},"lent":{"compute":0,"memory":0,"devices":0}`, when(ago))
	}
	vision := `{"name":"vision","quota":2,"quotaMemory":343597383680,"limit":{"compute":3},"longestRun":"8h","priority":5,"maxPriority":100000,"hours":"100/week",` + none + `,
		"hoursUsed":{"amount":37.5,"begin":"2026-11-23T00:00:00Z","end":"2026-11-30T00:00:00Z"},` + uses(10*time.Second) + `}`
	prints(t, "a queue", print("vision"), vision)
	prints(t, "a queue of which nothing is known", print("night"), `{"name":"night","quota":1,`+none+`}`)
	prints(t, "all queues", print(""), `[{"name":"default",`+none+`},{"name":"fresh","parent":"vision",`+none+`},{"name":"night","quota":1,`+none+`},
		{"name":"old",`+none+`,`+uses(time.Hour)+`},`+vision+`,{"name":"wrong","refused":"queue wrong: there is no queue nobody to be its parent: make that one, or name another"}]`)
}

func TestFormats(t *testing.T) {
	for _, format := range Formats {
		if err := CheckFormat(format); err != nil {
			t.Error(err)
		}
	}
	if err := CheckFormat("xml"); err == nil || err.Error() != "-o xml: there is no such format: use table, json or yaml" {
		t.Errorf("of xml: %v", err)
	}
}
