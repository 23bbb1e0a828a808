package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// recorder keeps the events that were given, as "on what: reason: message".
type recorder struct {
	record.EventRecorder
	mu   sync.Mutex
	said []string
}

func (r *recorder) Event(on runtime.Object, kind, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	object := on.(*corev1.ObjectReference)
	r.said = append(r.said, fmt.Sprintf("%s %s/%s: %s %s: %s", object.Kind, object.Namespace, object.Name, kind, reason, message))
}

func (a *agentOf) sets(health api.DeviceHealth, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.health, a.reason = health, reason
}

func (a *agentOf) EndStalled(_ context.Context, device string) { a.stalled = append(a.stalled, device) }

// noticing is a driver whose claims are in the cluster, with nobody who tells of them but the test.
func noticing(t *testing.T, s *site, uids ...string) (plugin, *recorder) {
	t.Helper()
	p := s.open()
	given := &recorder{}
	p.events = given
	var err error
	p.turn = &Turn{door: newDoor(Config{})}
	p.turn.helper, err = kubeletplugin.Start(t.Context(), p, kubeletplugin.DriverName(Name), kubeletplugin.NodeName(here), kubeletplugin.KubeClient(s.config.Client),
		kubeletplugin.DRAService(false), kubeletplugin.RegistrationService(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.turn.helper.Stop)
	t.Cleanup(p.troubles.claims.ShutDown)
	for _, claim := range claims(uids...) {
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod-" + string(claim.UID), UID: "1"}}
		if _, err := s.config.Client.ResourceV1().ResourceClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := s.prepare(p, claim)[claim.UID]; got.Err != nil {
			t.Fatal(got.Err)
		}
	}
	p.telling.Wait()
	return p, given
}

// tellAll tells of all claims that wait to be told of.
func (p plugin) tellAll(t *testing.T) {
	t.Helper()
	for p.troubles.claims.Len() > 0 {
		p.reportNext(t.Context())
	}
}

// ready is the condition of a claim's share.
func (s *site) ready(name string) metav1.Condition {
	s.Helper()
	claim, err := s.config.Client.ResourceV1().ResourceClaims("default").Get(s.Context(), name, metav1.GetOptions{})
	if err != nil || len(claim.Status.Devices) != 1 || len(claim.Status.Devices[0].Conditions) != 1 || claim.Status.Devices[0].Conditions[0].Type != "Ready" {
		s.Fatalf("%s has the status %+v (%v)", name, claim.Status.Devices, err)
	}
	return claim.Status.Devices[0].Conditions[0]
}

// What the agent sees of a claim stands in its condition, what is worst first, until it is over, and is told in events on it and its pod.
// The claim beside it is told of nothing but their device.
func TestNotices(t *testing.T) {
	s := newSite(t, t.TempDir())
	p, given := noticing(t, s, "a", "b")
	past := node.Notice{Kind: node.Unenforced, Device: h200.UUID, Task: "a", Message: "Process 7 (x) of task a computes on device GPU-aa past the shim, and is not held to a share."}
	sick := node.Notice{Kind: node.DeviceSick, Stall: true, Device: h200.UUID, Task: "a", Reason: "it is sick: work of task a (process 7) has not ended"}
	for i, step := range []struct {
		health  api.DeviceHealth
		notices []node.Notice
		reason  string // of a's condition
		beside  string // of b's
		message string // of a's condition and of the event
		events  []string
	}{
		{notices: []node.Notice{past, past, past}, reason: "Unenforced", message: "Process 7 (x) of claim default/claim-a computes", events: []string{"Warning Unenforced (2 more like it came before it)"}},
		{health: api.Draining, notices: []node.Notice{sick}, reason: "Stalled", message: "On device GPU-aa work of claim default/claim-a (process 7) has not ended; delete the pod, or run the agent with --unenforced stop", events: []string{"Warning Stalled"}},
		{health: api.Draining, notices: []node.Notice{{Kind: node.Stalled, Device: h200.UUID, Task: "a", Message: "Task a is to be ended: its work does not end."}}, reason: "Stalled", message: "Claim default/claim-a is to be ended", events: []string{"Warning Stalled"}},
		{health: api.Down, notices: []node.Notice{{Kind: node.DeviceDown, Device: h200.UUID, Message: "Device GPU-aa is down: it burns."}}, reason: "DeviceDown", beside: "DeviceDown", message: "it burns", events: []string{"Warning DeviceDown (1 more like it came before it)"}},
		{notices: []node.Notice{{Kind: node.DeviceBack, Device: h200.UUID}}, reason: "Unenforced", message: "computes on device"},
		{notices: []node.Notice{{Kind: node.Stopped, Task: "a", Message: "Process 7 (x) of task a is ended."}}, reason: "Unenforced", message: "Process 7 (x) of claim default/claim-a", events: []string{"Warning ProcessEnded"}},
		{notices: []node.Notice{{Kind: node.Enforced, Task: "a", Message: "Every process of task a is held."}}, reason: "Prepared", message: "0.25 of compute", events: []string{"Normal Enforced"}},
		{notices: []node.Notice{{Kind: node.Doubted, Task: "a", Message: "m"}, {Kind: node.UnknownCalls, Task: "a", Message: "m"}, {Kind: node.Unenforced, Device: h200.UUID}}, reason: "Prepared", events: []string{"Warning Doubted", "Warning UnknownCalls"}},
		{notices: []node.Notice{past, {Kind: node.Broken, Task: "a", Reason: "its book is no page"}}, reason: "Broken", message: "Claim default/claim-a: its book is no page; delete the pods", events: []string{"Warning Unenforced", "Warning Broken"}},
	} {
		s.agent.sets(step.health, "it burns")
		for _, notice := range step.notices {
			p.Notice(t.Context(), notice)
		}
		changes := slices.ContainsFunc(step.notices, func(n node.Notice) bool {
			return n.Kind == node.DeviceSick || n.Kind == node.DeviceDown || n.Kind == node.DeviceBack
		})
		if again := len(p.turn.door.anew) == 1; again != changes {
			t.Errorf("step %d: the devices are to be offered again: %v, want %v", i, again, changes)
		} else if again {
			<-p.turn.door.anew
		}
		p.tellAll(t)
		a, b := s.ready("claim-a"), s.ready("claim-b")
		if a.Reason != step.reason || (a.Status == metav1.ConditionTrue) != (step.reason == "Prepared") || !strings.Contains(a.Message, step.message) {
			t.Errorf("step %d: the condition is %+v, want %s with %q", i, a, step.reason, step.message)
		}
		if (step.beside == "") != (b.Status == metav1.ConditionTrue) {
			t.Errorf("step %d: the claim beside it has %+v", i, b)
		}
		given.check(t, i, step.events)
	}
	if !slices.Equal(s.agent.stalled, []string{h200.UUID}) {
		t.Errorf("work was ended on %v", s.agent.stalled)
	}
	// What is prepared anew is well.
	s.unprepare(p, "a")
	p.tellAll(t)
	s.prepare(p, claims("a")...)
	s.told(p, "claim-a", 250)
	if got := s.ready("claim-a"); got.Status != metav1.ConditionTrue {
		t.Errorf("prepared anew it has %+v", got)
	}
}

// check has seen these events, each on claim a and on its pod, and nothing of claim a by its UID.
func (r *recorder) check(t *testing.T, step int, want []string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, on := range []string{"ResourceClaim default/claim-a: ", "Pod default/pod-a: "} {
		var got []string
		for _, said := range r.said {
			if rest, ok := strings.CutPrefix(said, on); ok {
				got = append(got, rest)
			}
		}
		matches := slices.EqualFunc(got, want, func(said, want string) bool {
			head, tail, _ := strings.Cut(want, " (")
			return strings.HasPrefix(said, head+": ") && strings.HasSuffix(said, tail) && !strings.Contains(said, "ask a ")
		})
		if !matches {
			t.Errorf("step %d: the events on %s are %q, want %q", step, on, got, want)
		}
	}
	r.said = nil
}

// What is of no claim is told of the node, as are its devices.
func TestNoticesOfNode(t *testing.T) {
	p, given := noticing(t, newSite(t, t.TempDir()))
	for _, notice := range []node.Notice{
		{Kind: node.Unenforced, Device: h200.UUID, Message: "Process 7 computes."},
		{Kind: node.Stopped, Device: h200.UUID, Message: "Process 7 is ended."},
		{Kind: node.DeviceSick, Device: h200.UUID, Message: "It is sick."},
		{Kind: node.DeviceDown, Device: h200.UUID, Message: "It is down."},
		{Kind: node.DeviceBack, Device: h200.UUID, Message: "It is back."},
	} {
		p.Notice(t.Context(), notice)
	}
	want := []string{
		"Warning Unenforced: Process 7 computes.", "Warning ProcessEnded: Process 7 is ended.", "Warning DeviceSick: It is sick.", "Warning DeviceDown: It is down.",
		"Normal DeviceBack: It is back.",
	}
	for i, one := range want {
		want[i] = "Node /node1: " + one
	}
	if !slices.Equal(given.said, want) {
		t.Errorf("the events are %q, want %q", given.said, want)
	}
}

// Since when a share is as it is does not change while it is so, and what is over by the word of a new agent is over in the status of the last one.
func TestNoticesAfterAnother(t *testing.T) {
	s := newSite(t, t.TempDir())
	p, _ := noticing(t, s, "a")
	p.Notice(t.Context(), node.Notice{Kind: node.Unenforced, Device: h200.UUID, Task: "a", Message: "one"})
	p.tellAll(t)
	first := s.ready("claim-a")
	first.LastTransitionTime = metav1.Unix(1, 0)
	claims := s.config.Client.ResourceV1().ResourceClaims("default")
	claim, err := claims.Get(t.Context(), "claim-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.Status.Devices[0].Conditions[0] = first
	if _, err := claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Notice(t.Context(), node.Notice{Kind: node.Unenforced, Device: h200.UUID, Task: "a", Message: "two"})
	p.tellAll(t)
	if got := s.ready("claim-a"); !got.LastTransitionTime.Equal(&first.LastTransitionTime) || got.Message != "two" {
		t.Errorf("it is %+v, was %+v", got, first)
	}

	p = s.open()
	p.events = &recorder{}
	p.Notice(t.Context(), node.Notice{Kind: node.Enforced, Task: "a", Message: "held"})
	p.tellAll(t)
	if got := s.ready("claim-a"); got.Status != metav1.ConditionTrue {
		t.Errorf("a new agent says that it is held, and the claim that it is %+v", got)
	}
}

// A claim that a new agent finds broken is told so.
func TestBrokenWhenFound(t *testing.T) {
	s := newSite(t, t.TempDir())
	noticing(t, s, "a")
	s.agent.breaks = fmt.Errorf("prepare task a: %w: its book is no page", node.ErrBroken)
	p := s.open()
	p.events = &recorder{}
	p.tellAll(t)
	if got := s.ready("claim-a"); got.Reason != "Broken" || got.Message != "Claim default/claim-a: it cannot be held to its share any more: its book is no page; delete the pods that have it." {
		t.Errorf("it is %+v", got)
	}
}

// What could not be told is told again.
func TestNoticeAgain(t *testing.T) {
	s := newSite(t, t.TempDir())
	p, given := noticing(t, s, "a")
	claim, err := s.config.Client.ResourceV1().ResourceClaims("default").Get(t.Context(), "claim-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Notice(t.Context(), node.Notice{Kind: node.Unenforced, Device: h200.UUID, Task: "a", Message: "past"})
	answers := false
	s.config.Client.(*fake.Clientset).PrependReactor("get", "resourceclaims", func(ktesting.Action) (bool, runtime.Object, error) {
		before := answers
		answers = true
		return !before, nil, errors.New("no answer")
	})
	p.reportNext(t.Context()) // nobody answers
	if got := s.ready("claim-a"); got.Status != metav1.ConditionTrue {
		t.Fatalf("it is %+v although nobody took that", got)
	}
	conflict(s, claim)
	p.reportNext(t.Context()) // it comes back by itself, and then meets another writer
	if got := s.ready("claim-a"); got.Reason != "Unenforced" {
		t.Errorf("it is %+v", got)
	}
	given.check(t, 0, []string{"Warning Unenforced"})
}

// However often a device was sick, which is told of 25 times in a row at most, that it is down is told.
func TestEventsOfEachReason(t *testing.T) {
	of := record.NewEventCorrelatorWithOptions(correlator)
	tell := func(reason, message string) (told bool) {
		got, err := of.EventCorrelate(&corev1.Event{
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "node1"}, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		})
		if err != nil {
			t.Fatal(err)
		}
		return !got.Skip
	}
	for i := 0; tell("DeviceSick", fmt.Sprint("since ", i)); i++ {
		if i == 1000 {
			t.Fatal("events of one reason have no bound")
		}
	}
	if !tell(deviceDown, "it is down") {
		t.Error("after many others nobody is told that a device is down")
	}
}
