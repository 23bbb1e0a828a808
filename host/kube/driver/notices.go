package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// Why a share is not ready, as the condition Ready in the claim's status.devices says. What is first here is said first.
const (
	broken     = "Broken"     // it cannot be held to any more
	deviceDown = "DeviceDown" // its device has gone or failed
	stalled    = "Stalled"    // its work does not end and takes others' floors
	unenforced = "Unenforced" // processes of it pass the shim, or hold more memory than they may
)

// trouble is what is wrong with a claim.
type trouble struct {
	reason  string
	device  string // UUID; empty: whichever it has
	message string
}

// event is something to be told in the cluster's events of a claim and its pods.
type event struct {
	kind    string // Normal or Warning
	reason  string
	message string
	more    int // like it, before it and not told of
}

// troubles is what is wrong with claims, by their UIDs, and what was not told of them yet: a program can be at fault more often than an
// API server is to be told, so of what waits to be told only the last of each reason is kept, and counted.
type troubles struct {
	mu     sync.Mutex
	known  map[string][]trouble
	events map[string][]event
	claims workqueue.TypedRateLimitingInterface[string] // to be told of
}

func newTroubles() *troubles {
	return &troubles{
		known: map[string][]trouble{}, events: map[string][]event{},
		claims: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](liveAgainAfter, liveAgainAtMost)),
	}
}

// add notes a trouble of a claim, in place of the one of the same reason and device, and that it is to be told.
func (t *troubles) add(claim string, one trouble) {
	t.mu.Lock()
	t.known[claim] = append(slices.DeleteFunc(t.known[claim], one.same), one)
	t.mu.Unlock()
	t.say(claim, event{kind: corev1.EventTypeWarning, reason: one.reason, message: one.message})
}

func (one trouble) same(other trouble) bool {
	return one.reason == other.reason && one.device == other.device
}

// say has an event told of a claim, and its conditions written.
func (t *troubles) say(claim string, one event) {
	t.mu.Lock()
	at := slices.IndexFunc(t.events[claim], func(e event) bool { return e.reason == one.reason })
	if at < 0 {
		t.events[claim] = append(t.events[claim], one)
	} else {
		one.more = t.events[claim][at].more + 1
		t.events[claim][at] = one
	}
	t.mu.Unlock()
	t.claims.Add(claim)
}

// over forgets troubles, and has the event told of the claims that had them.
func (t *troubles) over(is func(claim string, one trouble) bool, told event) {
	t.mu.Lock()
	var had []string
	for uid, known := range t.known {
		left := slices.DeleteFunc(slices.Clone(known), func(one trouble) bool { return is(uid, one) })
		if len(left) < len(known) {
			t.known[uid] = left
			had = append(had, uid)
		}
	}
	t.mu.Unlock()
	for _, uid := range had {
		t.say(uid, told)
	}
}

// forget drops all that is known of a claim.
func (t *troubles) forget(claim string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, claim)
	delete(t.events, claim)
}

// take returns the events that were not told yet.
func (t *troubles) take(claim string) []event {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := t.events[claim]
	delete(t.events, claim)
	return waiting
}

// worst is what is most wrong with a claim's share of a device; nil: nothing is.
func (t *troubles) worst(claim string, device node.Device) *trouble {
	t.mu.Lock()
	all := slices.Clone(t.known[claim])
	t.mu.Unlock()
	if device.Health == api.Down {
		all = append(all, trouble{reason: deviceDown, device: device.UUID, message: fmt.Sprintf("Device %s is down: %s.", device.UUID, device.Reason)})
	}
	for _, reason := range []string{broken, deviceDown, stalled, unenforced} {
		for _, one := range all {
			if one.reason == reason && (one.device == "" || one.device == device.UUID) {
				return &one
			}
		}
	}
	return nil
}

// Notice takes in what the agent saw. The cluster is told of devices at once, and of claims, by conditions and events, as soon as the API
// server takes it: nothing waits for that.
func (d *Driver) Notice(ctx context.Context, notice node.Notice) {
	warn := func(reason string) event {
		return event{kind: corev1.EventTypeWarning, reason: reason, message: notice.Message}
	}
	switch notice.Kind {
	case node.DeviceDown, node.DeviceSick, node.DeviceBack:
		d.deviceChanged(ctx, notice)
	case node.Broken:
		d.breaks(notice.Task, notice.Reason)
	case node.Stalled:
		d.troubles.add(notice.Task, trouble{reason: stalled, device: notice.Device, message: notice.Message})
		d.config.Agent.EndStalled(ctx, notice.Device)
	case node.Unenforced:
		if notice.Task == "" {
			d.tellOf("", warn(unenforced))
		} else {
			d.troubles.add(notice.Task, trouble{reason: unenforced, device: notice.Device, message: notice.Message})
		}
	case node.Administers:
		d.tellOfNode(corev1.EventTypeNormal, "Administers", notice.Message)
	case node.Enforced:
		d.troubles.over(func(claim string, one trouble) bool { return claim == notice.Task && one.reason == unenforced },
			event{kind: corev1.EventTypeNormal, reason: "Enforced", message: notice.Message})
		d.troubles.claims.Add(notice.Task) // the status may say otherwise from an earlier agent
	case node.Stopped:
		d.tellOf(notice.Task, warn("ProcessEnded"))
	case node.Doubted:
		d.tellOf(notice.Task, warn("Doubted"))
	case node.UnknownCalls:
		d.tellOf(notice.Task, warn("UnknownCalls"))
	}
}

// tellOf has an event told of a claim; what is about none is told of the node.
func (d *Driver) tellOf(claim string, one event) {
	if claim == "" {
		d.tellOfNode(one.kind, one.reason, one.message)
		return
	}
	d.troubles.say(claim, one)
}

// tellOfNode gives an event of the node: kubelet and kubectl know it there by its name for a UID.
func (d *Driver) tellOfNode(kind, reason, message string) {
	on := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: d.config.Node, UID: types.UID(d.config.Node)}
	d.events.Event(on, kind, reason, message)
}

// breaks notes that a claim cannot be held to any more.
func (d *Driver) breaks(claim, reason string) {
	d.troubles.add(claim, trouble{reason: broken, message: fmt.Sprintf("Task %s: %s; delete the pods that have it.", claim, reason)})
}

// deviceChanged tells of a device that failed or came back: all the cluster by its slice, and the claims that have a part of it.
func (d *Driver) deviceChanged(ctx context.Context, notice node.Notice) {
	d.health.now()
	if err := d.publish(ctx); err != nil {
		d.log.Error("the devices could not be told of", "error", err)
	}
	d.turn.door.again()
	kind, reason := corev1.EventTypeWarning, map[node.NoticeKind]string{node.DeviceDown: deviceDown, node.DeviceSick: "DeviceSick", node.DeviceBack: "DeviceBack"}[notice.Kind]
	if notice.Kind == node.DeviceBack {
		kind = corev1.EventTypeNormal
	}
	d.tellOfNode(kind, reason, notice.Message)
	d.troubles.over(func(claim string, one trouble) bool {
		return one.reason == stalled && one.device == notice.Device && (!notice.Stall || claim != notice.Task)
	}, event{kind: kind, reason: reason, message: notice.Message})
	if notice.Stall && notice.Task != "" {
		d.troubles.add(notice.Task, trouble{reason: stalled, device: notice.Device, message: fmt.Sprintf(
			"On device %s %s; delete the pod, or run the agent with --unenforced stop.", notice.Device, strings.TrimPrefix(notice.Reason, "it is sick: "))})
	}
	if notice.Kind == node.DeviceSick {
		return // what runs there runs on
	}
	all, err := d.preparedClaims()
	if err != nil {
		d.log.Error("the claims of a device could not be told of it", "device", notice.Device, "error", err)
	}
	for _, one := range all {
		if !one.has(notice.Device) {
			continue
		}
		if notice.Kind == node.DeviceDown {
			d.troubles.say(one.Task.UID, event{kind: corev1.EventTypeWarning, reason: deviceDown, message: notice.Message})
		} else {
			d.troubles.claims.Add(one.Task.UID)
		}
	}
}

// reportUntil tells of claims until the context ends.
func (d *Driver) reportUntil(ctx context.Context) {
	defer context.AfterFunc(ctx, d.troubles.claims.ShutDown)()
	for d.reportNext(ctx) {
	}
}

// reportNext waits for a claim that is to be told of, and tells; false: none comes any more.
func (d *Driver) reportNext(ctx context.Context) bool {
	uid, ended := d.troubles.claims.Get()
	if ended {
		return false
	}
	defer d.troubles.claims.Done(uid)
	if err := d.report(ctx, uid); err != nil {
		d.log.Warn("what is wrong with a claim could not be told; it is tried again", "uid", uid, "error", err)
		d.troubles.claims.AddRateLimited(uid)
	} else {
		d.troubles.claims.Forget(uid)
	}
	return true
}

// report gives the events of a claim and writes its conditions as they are now.
func (d *Driver) report(ctx context.Context, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	one, found, err := d.checkpoints.read(uid)
	switch {
	case err != nil:
		return err
	case !found || one.Phase == unpreparing:
		d.troubles.forget(uid)
		return nil
	case one.Phase == preparing || one.Name == "":
		return errors.New("it is being prepared, or its name is not known")
	}
	claim, err := d.config.Client.ResourceV1().ResourceClaims(one.Namespace).Get(ctx, one.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && string(claim.UID) != uid {
		d.troubles.forget(uid) // kubelet, or reconcile, has it taken back
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range d.troubles.take(uid) {
		d.emit(claim, e)
	}
	return d.write(ctx, claim, one)
}

// emit gives an event of a claim and of the pods that have it.
func (d *Driver) emit(claim *resourceapi.ResourceClaim, e event) {
	message := named(claim, e.message)
	if e.more > 0 {
		message = fmt.Sprintf("%s (%d more like it came before it)", message, e.more)
	}
	on := []*corev1.ObjectReference{{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}}
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			on = append(on, &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: claim.Namespace, Name: consumer.Name, UID: consumer.UID})
		}
	}
	for _, object := range on {
		d.events.Event(object, e.kind, e.reason, message)
	}
}

// named has a sentence of node's speak of the claim by its name, where node knows no more than the UID.
func named(claim *resourceapi.ResourceClaim, sentence string) string {
	uid, name := string(claim.UID), fmt.Sprintf("claim %s/%s", claim.Namespace, claim.Name)
	return strings.NewReplacer("task "+uid, name, "Task "+uid, "C"+name[1:]).Replace(sentence)
}

// correlator bounds how many events of an object are given, of each reason by itself: a device that is sick and back again all the time keeps nobody from being told that it is down.
var correlator = record.CorrelatorOptions{SpamKeyFunc: func(e *corev1.Event) string {
	return strings.Join([]string{e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, string(e.InvolvedObject.UID), e.Type, e.Reason}, "\n")
}}

// recordEvents begins to give events as this node's; what it returns ends that.
func (d *Driver) recordEvents() (end func()) {
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(correlator))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: d.config.Client.CoreV1().Events("")})
	d.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Name, Host: d.config.Node})
	return broadcaster.Shutdown
}

// deviceNow is a device as the agent sees it now; one that it does not have has gone.
func (d *Driver) deviceNow(uuid string) node.Device {
	for _, device := range d.config.Agent.Devices() {
		if device.UUID == uuid {
			return device
		}
	}
	return node.Device{UUID: uuid, Health: api.Down, Reason: "it is not there any more"}
}
