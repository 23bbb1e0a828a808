package queues_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/queue"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/queues"
)

// made is a queue with a quota in devices, -1 for none, made at a minute.
func made(minute int, name, parent string, quota int64) *v1alpha1.Queue {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(int64(minute)*60, 0)}, Spec: v1alpha1.QueueSpec{Parent: parent}}
	if quota >= 0 {
		q.Spec.Quota.Compute = new(api.Quota(quota * 1000))
	}
	return q
}

func TestTree(t *testing.T) {
	broken := made(1, "broken", "", -1)
	broken.Spec.Order = "fastest"
	narrow := made(1, "narrow", "", 5)
	narrow.Spec.Limit.Compute = new(api.Quota(4000))
	for name, test := range map[string]struct {
		given   []*v1alpha1.Queue
		holds   string            // names, in the order of names
		refused map[string]string // reasons, and after a colon what is said
	}{
		"none":                        {nil, "default", nil},
		"a tree":                      {[]*v1alpha1.Queue{made(2, "team", "org", 3), made(1, "org", "", 4), made(1, "default", "org", 1)}, "default org team", nil},
		"the child is older":          {[]*v1alpha1.Queue{made(1, "team", "org", 3), made(2, "org", "", 4)}, "default org team", nil},
		"the last is too much":        {[]*v1alpha1.Queue{made(1, "org", "", 4), made(2, "a", "org", 3), made(3, "b", "org", 2)}, "a default org", map[string]string{"b": "DoesNotAddUp: add up to 5 devices, and its own is 4"}},
		"whichever was made first":    {[]*v1alpha1.Queue{made(1, "org", "", 4), made(3, "a", "org", 3), made(2, "b", "org", 2)}, "b default org", map[string]string{"a": "DoesNotAddUp"}},
		"a smaller one fits":          {[]*v1alpha1.Queue{made(1, "org", "", 4), made(2, "a", "org", 5), made(3, "b", "org", 2)}, "b default org", map[string]string{"a": "DoesNotAddUp"}},
		"no parent":                   {[]*v1alpha1.Queue{made(1, "a", "nobody", 1), made(2, "b", "", 1)}, "b default", map[string]string{"a": "NoParent: there is no queue nobody"}},
		"under a refused one":         {[]*v1alpha1.Queue{made(1, "org", "", 4), made(2, "a", "org", 5), made(3, "b", "a", 2), made(4, "c", "b", 1)}, "default org", map[string]string{"a": "DoesNotAddUp", "b": "ParentRefused: its parent a does not hold", "c": "ParentRefused"}},
		"a cycle":                     {[]*v1alpha1.Queue{made(1, "a", "c", 1), made(2, "b", "a", 1), made(3, "c", "b", 1), made(4, "under", "a", 1), made(5, "aside", "", 1)}, "aside default", map[string]string{"a": "Cycle: a cannot be under c", "b": "Cycle", "c": "Cycle", "under": "ParentRefused"}},
		"a default queue of too much": {[]*v1alpha1.Queue{made(1, "org", "", 4), made(2, "default", "org", 5)}, "default org", map[string]string{"default": "DoesNotAddUp"}},
		"no queues by themselves":     {[]*v1alpha1.Queue{broken, narrow, made(2, "b", "broken", 1)}, "default", map[string]string{"broken": "Invalid: spec.order", "narrow": "Invalid: over its limit", "b": "ParentRefused"}},
	} {
		specs, refused := queues.Tree(test.given)
		var holds []string
		for _, spec := range specs {
			holds = append(holds, spec.Name)
		}
		slices.Sort(holds)
		if got := strings.Join(holds, " "); got != test.holds || len(refused) != len(test.refused) {
			t.Errorf("%s: %s hold and %v do not, want %s and %v", name, got, refused, test.holds, test.refused)
		}
		for queue, want := range test.refused {
			reason, says, _ := strings.Cut(want, ": ")
			if got := refused[queue]; got.Reason != reason || !strings.Contains(got.Message, says) {
				t.Errorf("%s: of %s it says %+v, want %s", name, queue, got, want)
			}
		}
	}
}

// Whatever there is: each queue holds or is refused, those that hold add up, more of them would not, and the order in which they are listed says nothing.
func TestTreeAddsUp(t *testing.T) {
	for seed := range uint64(300) {
		dice := rand.New(rand.NewPCG(seed, 0))
		var all []*v1alpha1.Queue
		for i := range 1 + dice.IntN(8) {
			parent := ""
			if n := dice.IntN(11); n < 8 {
				parent = fmt.Sprint("q", n)
			}
			all = append(all, made(dice.IntN(4), fmt.Sprint("q", i), parent, dice.Int64N(5)-1))
		}
		specs, refused := queues.Tree(all)
		if len(specs)+len(refused) != len(all)+1 { // and the default one
			t.Fatalf("seed %d: of %d queues %d hold and %v do not", seed, len(all), len(specs), refused)
		}
		if err := queue.New().CheckAll(specs); err != nil {
			t.Errorf("seed %d: what holds does not add up: %v", seed, err)
		}
		for _, q := range all {
			if _, not := refused[q.Name]; !not {
				continue
			}
			spec, err := q.Engine()
			if err == nil && queue.New().CheckAll(append(slices.Clone(specs), spec)) == nil {
				t.Errorf("seed %d: %s is refused (%+v) and would add up", seed, q.Name, refused[q.Name])
			}
		}
		dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if again, alsoRefused := queues.Tree(all); !reflect.DeepEqual(again, specs) || !reflect.DeepEqual(alsoRefused, refused) {
			t.Errorf("seed %d: in another order other queues hold", seed)
		}
	}
}

func TestOf(t *testing.T) {
	parents := map[string]string{"org": "", "vision": "org", "night": "vision", "speech": "org", "loop": "ring", "ring": "loop"}
	find := func(name string) (string, bool, error) {
		if name == "unknown" {
			return "", false, errors.New("out of order")
		}
		parent, there := parents[name]
		return parent, there, nil
	}
	for _, test := range []struct {
		namespace, label, named string
		want, refused           string
	}{
		{namespace: "somewhere", want: "default"},
		{namespace: "vision", want: "vision"},
		{namespace: "vision", label: "speech", want: "speech"},
		{namespace: "somewhere", label: "default", want: "default"},
		{namespace: "somewhere", label: "gone", refused: "there is no such queue"},
		{namespace: "vision", named: "vision", want: "vision"},
		{namespace: "vision", named: "night", want: "night"},
		{namespace: "somewhere", label: "org", named: "night", want: "night"},
		{namespace: "vision", named: "speech", refused: "speech is not under that; name vision or one under it"},
		{namespace: "vision", named: "org", refused: "org is not under that"},
		{namespace: "vision", named: "default", refused: `there is no queue "default"; name vision`},
		{namespace: "somewhere", named: "default", want: "default"},
		{namespace: "somewhere", named: "vision", refused: "belongs to the queue default, and vision is not under that"},
		{namespace: "vision", named: "gone", refused: `there is no queue "gone"`},
		{namespace: "vision", named: "loop", refused: "loop is not under that"},
		{namespace: "vision", named: "unknown", refused: "out of order"},
		{namespace: "unknown", refused: "out of order"},
	} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: test.namespace, Labels: map[string]string{annotation.Queue: test.label}}}
		pod := &corev1.Pod{}
		if test.named != "" {
			pod.Annotations = map[string]string{annotation.Queue: test.named}
		}
		got, err := queues.Of(namespace, pod, find)
		if test.refused != "" {
			var bypass queues.Bypass
			if err == nil || !strings.Contains(err.Error(), test.refused) || errors.As(err, &bypass) == (test.refused == "out of order") {
				t.Errorf("%+v: got %q, %v", test, got, err)
			}
			continue
		}
		if err != nil || got != test.want {
			t.Errorf("%+v: got %q, %v", test, got, err)
		}
	}
}
