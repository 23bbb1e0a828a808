package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// making is a Templates that runs, and its API server.
type making struct {
	*testing.T
	client *fake.Clientset
	clock  *clocktesting.FakeClock
	events *record.FakeRecorder
	keep   time.Duration
	made   *Templates

	counted *Metrics
}

// makes begins one once these were made of the API server.
func makes(t *testing.T, before func(*fake.Clientset), objects ...runtime.Object) *making {
	m := &making{T: t, client: fake.NewClientset(objects...), clock: clocktesting.NewFakeClock(time.Now()), events: record.NewFakeRecorder(100), keep: 10 * time.Minute, counted: NewMetrics()}
	if before != nil {
		before(m.client)
	}
	made, err := NewTemplates(TemplatesConfig{Client: m.client, Events: m.events, Clock: m.clock, Keep: m.keep, Metrics: m.counted, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	m.made = made
	var watches atomic.Int32
	for _, kind := range []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("pods"), resourceapi.SchemeGroupVersion.WithResource("resourceclaimtemplates")} {
		m.client.PrependWatchReactor(kind.Resource, func(action clienttesting.Action) (bool, watch.Interface, error) {
			defer watches.Add(1)
			begun, err := m.client.Tracker().Watch(kind, action.GetNamespace(), action.(clienttesting.WatchActionImpl).ListOptions)
			return true, begun, err
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- made.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	// Client-go's fake server tells nobody what is deleted before it is watched.
	m.eventually("both are watched", func() (bool, string) { return watches.Load() >= 2, fmt.Sprint(watches.Load()) })
	return m
}

// asking is a pod as the webhook lets it through.
func asking(name, gpu string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: name, Annotations: map[string]string{annotation.GPU: gpu, annotation.Memory: "4Gi"}}}
	ask, err := annotation.Parse(pod.Annotations)
	if err != nil {
		panic(err)
	}
	template := ask.Name()
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: annotation.ClaimName, ResourceClaimTemplateName: &template}}
	return pod
}

func templateNamed(pod *corev1.Pod) string {
	return *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName
}

// eventually waits for what nobody tells of.
func (m *making) eventually(what string, is func() (bool, string)) {
	m.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	within := time.After(time.Minute)
	for {
		ok, instead := is()
		if ok {
			return
		}
		select {
		case <-within:
			m.Fatalf("waited a minute until %s; instead: %s", what, instead)
		case <-look.C:
		}
	}
}

// there waits until there are these templates and no others, and that they say what their names do.
func (m *making) there(asked ...*corev1.Pod) {
	m.Helper()
	m.eventually(fmt.Sprintf("there are the templates of %d pods", len(asked)), func() (bool, string) {
		have, err := m.client.ResourceV1().ResourceClaimTemplates("space").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			m.Fatal(err)
		}
		named := map[string]bool{}
		for _, pod := range asked {
			named[templateNamed(pod)] = true
			ask, err := annotation.Parse(pod.Annotations)
			if err != nil {
				m.Fatal(err)
			}
			spec, err := ask.Spec()
			if err != nil {
				m.Fatal(err)
			}
			found := false
			for _, template := range have.Items {
				found = found || template.Name == templateNamed(pod) && annotation.Same(template.Spec.Spec, spec)
			}
			if !found {
				return false, fmt.Sprintf("%+v", have.Items)
			}
		}
		return len(have.Items) == len(named), fmt.Sprintf("%+v", have.Items)
	})
}

func (m *making) create(pods ...*corev1.Pod) {
	m.Helper()
	for _, pod := range pods {
		if _, err := m.client.CoreV1().Pods("space").Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
			m.Fatal(err)
		}
	}
}

// A template is made for the pods that ask for the same, made again when somebody removes it, and removed once nobody has named it for long.
func TestTemplates(t *testing.T) {
	first, second, other := asking("first", "0.25"), asking("second", "25%"), asking("other", "0.50")
	var m *making
	removed := make(chan time.Time, 10)
	m = makes(t, func(client *fake.Clientset) { // before anybody calls it: its reactors are read without a lock
		client.PrependReactor("delete", "resourceclaimtemplates", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.DeleteAction).GetName() == templateNamed(other) {
				removed <- m.clock.Now()
			}
			return false, nil, nil
		})
	}, first)
	m.there(first)
	m.create(second, other, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "asks-for-nothing"}})
	m.there(first, other)
	if err := m.client.ResourceV1().ResourceClaimTemplates("space").Delete(context.Background(), templateNamed(first), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.there(first, other)

	ended := first.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	if _, err := m.client.CoreV1().Pods("space").UpdateStatus(context.Background(), ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := m.client.CoreV1().Pods("space").Delete(context.Background(), "other", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.unnamed(other)
	since := m.clock.Now()
	m.eventually("it is removed", func() (bool, string) {
		m.clock.Step(m.keep / 20)
		return len(removed) > 0, "nobody has removed it"
	})
	if waited := (<-removed).Sub(since); waited < m.keep {
		t.Errorf("it was removed %v after the last pod that names it, want %v at least", waited, m.keep)
	}
	m.counts("aliquot_controller_templates_total/removed", 1)
	m.there(second) // one pod still names it
	third := asking("third", "0.50")
	m.create(third)
	m.there(second, third)
}

// unnamed waits until the controller knows that no pod names a template.
func (m *making) unnamed(pod *corev1.Pod) {
	m.Helper()
	m.eventually("it is known that no pod names a template", func() (bool, string) {
		m.made.mu.Lock()
		defer m.made.mu.Unlock()
		_, known := m.made.unnamed[types.NamespacedName{Namespace: "space", Name: templateNamed(pod)}]
		return known, fmt.Sprint(m.made.unnamed)
	})
}

// One that was unnamed for a while and is named again stays as long as any other.
func TestNamedAgain(t *testing.T) {
	first := asking("first", "0.25")
	m := makes(t, func(client *fake.Clientset) {
		client.PrependReactor("delete", "resourceclaimtemplates", func(clienttesting.Action) (bool, runtime.Object, error) {
			t.Error("it was removed, and never unnamed for so long")
			return false, nil, nil
		})
	}, first)
	m.there(first)
	pods := m.client.CoreV1().Pods("space")
	for range 3 {
		if err := pods.Delete(context.Background(), "first", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		m.unnamed(first)
		m.clock.Step(m.keep / 2)
		m.create(first)
		m.eventually("it is named again", func() (bool, string) {
			m.made.mu.Lock()
			defer m.made.mu.Unlock()
			return len(m.made.unnamed) == 0, fmt.Sprint(m.made.unnamed)
		})
	}
	m.there(first)
}

// A template under the name of another's content is replaced; what is nobody's of ours is left alone.
func TestForged(t *testing.T) {
	first, larger := asking("first", "0.25"), asking("larger", "1")
	ask, err := annotation.Parse(larger.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := ask.Template("space")
	if err != nil {
		t.Fatal(err)
	}
	forged.Name, forged.Labels = templateNamed(first), nil
	m := makes(t, nil, forged, first)
	m.there(first)
	m.counts("aliquot_controller_templates_total/replaced", 1)

	own := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "their-own"}}
	foreign := asking("foreign", "0.75")
	foreign.Spec.ResourceClaims[0].ResourceClaimTemplateName = &own.Name
	if _, err := m.client.ResourceV1().ResourceClaimTemplates("space").Create(context.Background(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.create(foreign, larger)
	m.eventually("the last of them has its template, and theirs is untouched", func() (bool, string) {
		have, err := m.client.ResourceV1().ResourceClaimTemplates("space").List(context.Background(), metav1.ListOptions{})
		return err == nil && len(have.Items) == 3, fmt.Sprintf("%+v, %v", have, err)
	})
}

// An API server that knows of no shares keeps a template without what they are of: it is made once, its pod is told, and it stays.
func TestKeptOtherwise(t *testing.T) {
	var made atomic.Int32
	m := makes(t, func(client *fake.Clientset) {
		client.PrependReactor("create", "resourceclaimtemplates", func(action clienttesting.Action) (bool, runtime.Object, error) {
			template := action.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceClaimTemplate)
			template.UID = types.UID(fmt.Sprint(made.Add(1)))
			for i := range template.Spec.Spec.Devices.Requests {
				template.Spec.Spec.Devices.Requests[i].Exactly.Capacity = nil
			}
			return false, nil, nil
		})
	}, asking("first", "0.25"))
	told := func() {
		t.Helper()
		m.eventually("a pod is told", func() (bool, string) { return len(m.events.Events) > 0, "no event" })
		if told := <-m.events.Events; !containsAll(told, "TemplateChanged", "is kept otherwise than it was made") {
			t.Errorf("it is told %q", told)
		}
	}
	told()
	other := asking("other", "0.50") // which is seen to after what came of the first
	if _, err := m.client.CoreV1().Pods("space").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	told()
	if times := made.Load(); times != 2 {
		t.Errorf("two templates were made %d times", times)
	}
	for _, action := range m.client.Actions() {
		if action.Matches("delete", "resourceclaimtemplates") {
			t.Error("a template was replaced by its like")
		}
	}
}

// What cannot be made is told to the pod, and tried again.
func TestNotMade(t *testing.T) {
	first := asking("first", "0.25")
	refused := 0
	m := makes(t, func(client *fake.Clientset) {
		client.PrependReactor("create", "resourceclaimtemplates", func(clienttesting.Action) (bool, runtime.Object, error) {
			if refused++; refused <= 2 {
				return true, nil, apierrors.NewForbidden(resourceapi.Resource("resourceclaimtemplates"), "x", errors.New("the namespace has too many"))
			}
			return false, nil, nil
		})
	}, first)
	// Its turn comes again by the clock, which is moved until it has come.
	m.eventually("the pod is told", func() (bool, string) {
		m.clock.Step(time.Second)
		return len(m.events.Events) > 0, "no event"
	})
	if told := <-m.events.Events; told == "" || !containsAll(told, "NoTemplate", "the namespace has too many") {
		t.Errorf("it was told %q", told)
	}
	m.eventually("it is made after all", func() (bool, string) {
		m.clock.Step(time.Second)
		have, err := m.client.ResourceV1().ResourceClaimTemplates("space").List(context.Background(), metav1.ListOptions{})
		return err == nil && len(have.Items) == 1, fmt.Sprintf("%+v, %v", have, err)
	})
	m.counts("aliquot_controller_failures_total/templates", 2)
	m.counts("aliquot_controller_templates_total/made", 1)
}

// counts waits until a metric has a value.
func (m *making) counts(metric string, want float64) {
	m.Helper()
	m.eventually("it is counted", func() (bool, string) {
		all := values(m.T, m.counted)
		return all[metric] == want, fmt.Sprint(all)
	})
}

func containsAll(text string, words ...string) bool {
	for _, word := range words {
		if !contains([]byte(text), []byte(word)) {
			return false
		}
	}
	return true
}
