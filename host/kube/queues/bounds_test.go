package queues_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/queues"
)

// Work is held to the longest run of its queue and of all above that, and to the highest priority of the nearest that says one; the policy's word counts.
func TestBounds(t *testing.T) {
	team, night := made(2, "team", "org", -1), made(3, "night", "team", -1)
	org := made(1, "org", "", -1)
	org.Spec.LongestRun, org.Spec.MaxPriority = api.Duration(8*time.Hour), new(int32(50))
	night.Spec.LongestRun, night.Spec.MaxPriority = api.Duration(24*time.Hour), new(int32(100_000))
	text := &v1alpha1.Policy{Spec: v1alpha1.PolicySpec{Text: "aliquot policy 1\nqueue made\nqueue team\nwindow day days=mon-fri from=08:00 to=20:00\nqueue team longest-run=90m\n"}}
	rules, refused, not := queues.Read([]*v1alpha1.Queue{org, team, night, made(4, "free", "", -1)}, text, monday)
	if len(refused) > 0 || not != nil {
		t.Fatal(refused, not)
	}
	for _, test := range []struct {
		queue    string
		at       time.Duration // after noon
		priority int32
		limit    int64 // in seconds; 0: none
		refused  string
		start    string // refused then, if it was not before
	}{
		{queue: "free", priority: 1_000_000, limit: 1 << 40},
		{queue: "made", priority: 1_000_000},
		{queue: "nobody", priority: 7},
		{queue: "org", priority: 50, limit: 8 * 3600},
		{queue: "org", limit: 8*3600 + 1, refused: "a time limit of 8h0m1s was asked for (spec.activeDeadlineSeconds: 28801), and work in queue org may run for 8h at most: ask for 28800 or less"},
		{queue: "org", start: "work in queue org may run for 8h at most, and the pod has no time limit: give it spec.activeDeadlineSeconds of 28800 or less"},
		{queue: "org", priority: 51, refused: "priority 51 was asked for (PriorityClass high), and in queue org pods may have at most 50: name a PriorityClass of that or less, or have an administrator raise spec.maxPriority of the queue org"},
		{queue: "team", priority: 51, refused: "in queue team pods may have at most 50: name a PriorityClass of that or less, or have an administrator raise spec.maxPriority of the queue org"},
		{queue: "night", priority: 100_000, limit: 60},
		{queue: "night", priority: 100_001, refused: "at most 100000"},
		{queue: "night", limit: 5401, refused: "work in queue team may run for 1h30m at most: ask for 5400 or less"},
		{queue: "night", at: 9 * time.Hour, limit: 5401},
		{queue: "night", at: 9 * time.Hour, start: "work in queue org may run for 8h at most"},
	} {
		told, _ := rules.At(monday.Add(test.at))
		bounds := queues.BoundsOf(told.Queues)
		pod := &corev1.Pod{Spec: corev1.PodSpec{Priority: &test.priority, PriorityClassName: "high"}}
		if test.limit > 0 {
			pod.Spec.ActiveDeadlineSeconds = &test.limit
		}
		check := func(name string, err error, want string) {
			var bypass queues.Bypass
			if (want == "") != (err == nil) || err != nil && (!errors.As(err, &bypass) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%+v: %s says %v, want %q", test, name, err, want)
			}
		}
		check("Refuse", bounds.Refuse(test.queue, pod), test.refused)
		check("Start", bounds.Start(test.queue, pod), test.refused+test.start)
	}
}
