package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// saying is a Conditions that runs, and its API server.
type saying struct {
	*testing.T
	client *dynamicfake.FakeDynamicClient
}

func says(t *testing.T) *saying {
	s := &saying{t, dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.Queues: "QueueList", v1alpha1.Policies: "PolicyList"})}
	// As an API server, it takes a status of a spec that is the last one only, and of it nothing but the status.
	s.client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "status" {
			return false, nil, nil
		}
		written := action.(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured)
		now, err := s.client.Tracker().Get(action.GetResource(), "", written.GetName())
		if err != nil {
			return true, nil, err
		}
		if now.(*unstructured.Unstructured).GetGeneration() != written.GetGeneration() {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), written.GetName(), errors.New("it has changed"))
		}
		return false, nil, nil
	})
	c, err := NewConditions(ConditionsConfig{Client: s.client, Clock: clocktesting.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// set makes an object, or changes its spec; generations count as an API server's do.
func (s *saying) set(kind schema.GroupVersionResource, name, spec string) {
	s.Helper()
	names := map[string]string{v1alpha1.Queues.Resource: "Queue", v1alpha1.Policies.Resource: "Policy"}
	object := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"aliquot.dev/v1alpha1","kind":%q,"metadata":{"name":%q,"generation":1},"spec":%s,"status":{"use":"another's"}}`, names[kind.Resource], name, spec)
	if err := json.Unmarshal([]byte(text), object); err != nil {
		s.Fatal(err)
	}
	client := s.client.Resource(kind)
	before, err := client.Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		_, err = client.Create(s.Context(), object, metav1.CreateOptions{})
	} else {
		object.Object["status"] = before.Object["status"]
		object.SetGeneration(before.GetGeneration() + 1)
		_, err = client.Update(s.Context(), object, metav1.UpdateOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
}

// said waits until an object's condition has a reason and says these words, of its spec as it is now.
func (s *saying) said(kind schema.GroupVersionResource, name, reason, words string) {
	s.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	within := time.After(time.Minute)
	for {
		object, err := s.client.Resource(kind).Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			s.Fatal(err)
		}
		q, err := v1alpha1.Read[v1alpha1.Queue](&unstructured.Unstructured{Object: map[string]any{"apiVersion": "x/y", "kind": "z", "metadata": map[string]any{"generation": object.GetGeneration()}, "status": object.Object["status"]}})
		if err != nil {
			s.Fatal(err)
		}
		found := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.Accepted)
		if found != nil && found.Reason == reason && strings.Contains(found.Message, words) && q.Status.ObservedGeneration == q.Generation && found.ObservedGeneration == q.Generation {
			if (found.Status == metav1.ConditionTrue) != (reason == v1alpha1.ReasonAccepted) || found.LastTransitionTime.IsZero() {
				s.Errorf("of %s it says %+v", name, found)
			}
			if use, _, _ := unstructured.NestedString(object.Object, "status", "use"); use != "another's" {
				s.Errorf("what another said of %s is lost: %v", name, object.Object["status"])
			}
			return
		}
		select {
		case <-within:
			s.Fatalf("waited a minute until it is said of %s: %s %q; instead: %v", name, reason, words, object.Object["status"])
		case <-look.C:
		}
	}
}

func TestConditions(t *testing.T) {
	s := says(t)
	s.set(v1alpha1.Queues, "org", `{"quota":{"compute":"4"}}`)
	s.said(v1alpha1.Queues, "org", v1alpha1.ReasonAccepted, "holds")
	s.set(v1alpha1.Queues, "team", `{"parent":"org","quota":{"compute":"5"}}`)
	s.said(v1alpha1.Queues, "team", v1alpha1.ReasonDoesNotAddUp, "add up to 5 devices, and its own is 4")
	s.set(v1alpha1.Queues, "org", `{"quota":{"compute":"6"}}`)
	s.said(v1alpha1.Queues, "team", v1alpha1.ReasonAccepted, "holds")
	s.set(v1alpha1.Queues, "team", `{"parent":"nobody"}`)
	s.said(v1alpha1.Queues, "team", v1alpha1.ReasonNoParent, "there is no queue nobody")
	s.set(v1alpha1.Queues, "nobody", `{"parent":"team"}`)
	s.said(v1alpha1.Queues, "team", v1alpha1.ReasonCycle, "which is under it")
	s.set(v1alpha1.Queues, "nobody", `{"order":"fastest"}`)
	s.said(v1alpha1.Queues, "nobody", v1alpha1.ReasonInvalid, "is no word of an order")
	s.said(v1alpha1.Queues, "team", v1alpha1.ReasonParentRefused, "nobody does not hold")
	s.set(v1alpha1.Queues, "nobody", `{"order":7}`)
	s.said(v1alpha1.Queues, "nobody", v1alpha1.ReasonInvalid, "read Queue nobody")

	s.set(v1alpha1.Policies, "default", `{"text":"aliquot policy 1\nqueue org quota=8\n"}`)
	s.said(v1alpha1.Policies, "default", v1alpha1.ReasonAccepted, "holds")
	s.set(v1alpha1.Policies, "default", `{"text":"aliquot policy 1\nqueue org quota=a\n"}`)
	s.said(v1alpha1.Policies, "default", v1alpha1.ReasonInvalid, "policy:2: quota=a")
	s.set(v1alpha1.Policies, "default", `{"text":"aliquot policy 1\nqueue org quota=8\nwindow a days=mon from=08:00 to=12:00\nqueue org quota=1\nwindow b days=mon from=11:00 to=13:00\nqueue org quota=2\n"}`)
	s.said(v1alpha1.Policies, "default", v1alpha1.ReasonInvalid, "window b overlaps window a")
	s.set(v1alpha1.Policies, "default", `{"text":"aliquot policy 1\nqueue org quota=1\n"}`)
	s.said(v1alpha1.Policies, "default", v1alpha1.ReasonAccepted, "holds")
	// What becomes of queues tells of the policy, too.
	s.set(v1alpha1.Queues, "team", `{"parent":"org","quota":{"compute":"5"}}`)
	s.said(v1alpha1.Policies, "default", v1alpha1.ReasonDoesNotAddUp, "policy:2: the quotas of the queues under org add up to 5 devices")
}
