package queues_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/queues"
)

// monday is noon of one.
var monday = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// of is a queue of those that the engine is told of.
func of(t *testing.T, told engine.Policy, name string) api.QueueSpec {
	t.Helper()
	for _, q := range told.Queues {
		if q.Name == name {
			return q
		}
	}
	t.Fatalf("nothing is told of %s: %+v", name, told.Queues)
	return api.QueueSpec{}
}

// What the engine is told changes when windows and priorities begin and end, and at no other time.
func TestRules(t *testing.T) {
	first := made(1, "first", "", 4)
	first.Spec.Priority, first.Spec.PriorityUntil = 7, &metav1.Time{Time: monday.Add(time.Hour)}
	over := made(2, "over", "first", 5)
	text := &v1alpha1.Policy{Spec: v1alpha1.PolicySpec{Text: "aliquot policy 1\nqueue night\nqueue first weight=3\nwindow dark days=mon-fri from=22:00 to=06:00\nqueue first quota=2\nhalf-life 1m\n"}}
	rules, refused, not := queues.Read([]*v1alpha1.Queue{first, over}, text, monday)
	if len(refused) != 1 || refused["over"].Reason != v1alpha1.ReasonDoesNotAddUp || not != nil {
		t.Fatalf("refused are %v and %v", refused, not)
	}
	now := monday
	for _, want := range []struct {
		window   string
		quota    api.Quota
		priority int32
		until    time.Duration // after monday
		dated    bool
	}{
		{"", 4000, 7, time.Hour, true},
		{"", 4000, 0, 10 * time.Hour, false},
		{"dark", 2000, 0, 18 * time.Hour, false},
		{"", 4000, 0, 34 * time.Hour, false},
	} {
		told, until := rules.At(now)
		q := of(t, told, "first")
		if told.Window != want.window || (told.HalfLife == engine.LeastHalfLife) != (want.window == "dark") || q.Quota != want.quota || q.Weight.All != 3 || q.Priority != want.priority || (q.PriorityUntil != nil) != want.dated || !until.Equal(monday.Add(want.until)) {
			t.Errorf("at %v it is told %q, %+v until %v; want %+v", now, told.Window, q, until, want)
		}
		of(t, told, "night")
		of(t, told, api.DefaultQueue)
		if !until.After(now) {
			t.Fatalf("at %v what is told is to change at %v", now, until)
		}
		now = until
	}
	told, _ := rules.At(now)
	find := queues.Among(told.Queues)
	if _, there, _ := find("over"); there {
		t.Error("a queue that does not hold is found")
	}
	if _, there, _ := find("night"); !there {
		t.Error("a queue that the policy makes is not found")
	}
}

// A policy that does not hold changes nothing, and without any the queues are told for good.
func TestRulesWithoutPolicy(t *testing.T) {
	all := []*v1alpha1.Queue{made(1, "first", "", 4), made(2, "second", "first", 3)}
	for text, want := range map[string]string{
		"aliquot policy 1\nqueue first quota=2\n": v1alpha1.ReasonDoesNotAddUp + ": policy:2: the quotas of the queues under first add up to 3 devices",
		"aliquot policy 1\nqueue first quota=a\n": v1alpha1.ReasonInvalid + ": policy:2: quota=a",
		"aliquot policy 1\nqueue first\nwindow a days=mon\nqueue first quota=4\nwindow b days=mon\nqueue first quota=5\n": v1alpha1.ReasonInvalid + ": policy:5: window b overlaps",
	} {
		rules, _, not := queues.Read(all, &v1alpha1.Policy{Spec: v1alpha1.PolicySpec{Text: text}}, monday)
		if not == nil || !strings.HasPrefix(not.Reason+": "+not.Message, want) {
			t.Errorf("%q: got %+v, want %s", text, not, want)
		}
		if told, until := rules.At(monday); of(t, told, "first").Quota != 4000 || len(told.Queues) != 3 || !until.IsZero() {
			t.Errorf("%q: told is %+v until %v", text, told, until)
		}
	}
	if _, _, not := queues.Read(all, nil, monday); not != nil {
		t.Errorf("without a policy it is refused: %+v", not)
	}
}
