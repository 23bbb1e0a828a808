package scheduler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notes writes an annotation of a pod that is there.
func (c *cluster) notes(name, key, value string) {
	c.Helper()
	c.rewrite(name, func(pod *corev1.Pod) { annotated(key, value)(pod, nil) })
}

// What would lose least goes first: who has just saved what it did, though it ran for longer; a gang by the last of its pods that says so; and by what
// starting again takes.
func TestSaved(t *testing.T) {
	for name, test := range map[string]struct {
		first  []string // the pods of it
		saves  string   // which of them
		at     time.Duration
		second string // its restart time; empty: it says none
		goes   []string
	}{
		"saved just now":           {[]string{"first"}, "first", 0, "", []string{"first"}},
		"saved some time to come":  {[]string{"first"}, "first", 24 * time.Hour, "", []string{"first"}},
		"saved before the other":   {[]string{"first"}, "first", -5 * time.Hour, "", []string{"second"}},
		"nobody saved":             {[]string{"first"}, "", 0, "", []string{"second"}},
		"one of a gang saved":      {[]string{"first-0", "first-1"}, "first-1", 0, "", []string{"first-0", "first-1"}},
		"the other starts so long": {[]string{"first"}, "", 0, "24h", []string{"first"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newLentCluster(t)
			now, ahead := c.clocked()
			s, _ := c.run()
			if len(test.first) > 1 {
				c.gang("first", len(test.first), 250, guest)
			} else {
				c.pod("first", 500, guest)
			}
			c.runs(test.first...)
			c.idle(s, func() {})
			ahead(2 * time.Hour)
			var takes []func(*corev1.Pod, *resourceapi.ResourceClaim)
			if test.second != "" {
				takes = append(takes, annotated("aliquot.dev/restart-time", test.second))
			}
			c.pod("second", 500, append(takes, guest)...)
			c.runs("second")
			c.idle(s, func() {})
			ahead(6 * time.Hour)
			if test.saves != "" {
				c.notes(test.saves, "aliquot.dev/checkpointed-at", now().Add(test.at).Format(time.RFC3339Nano))
			}
			c.pod("own", 400, owner)
			for i, evicted := range c.ending(len(test.goes)) {
				if evicted != test.goes[i] {
					t.Fatalf("%s was evicted, want %v", evicted, test.goes)
				}
			}
			for _, evicted := range test.goes {
				c.remove(evicted)
			}
			c.runs("own")
			c.sound(s)
		})
	}
}

// When a pod saved its work is known to the next scheduler, too; what is no time is said to be none.
func TestSavedIsTakenOver(t *testing.T) {
	c := newLentCluster(t)
	now, _ := c.clocked()
	since := func(ago time.Duration) func(*corev1.Pod, *resourceapi.ResourceClaim) {
		return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
			begun := metav1.NewTime(now().Add(-ago))
			pod.Status.StartTime = &begun
		}
	}
	_, end := c.run()
	c.pod("first", 500, guest, since(9*time.Hour))
	c.pod("second", 500, guest, since(5*time.Hour))
	c.runs("first", "second")
	c.notes("second", "aliquot.dev/checkpointed-at", "in the morning")
	c.hears("second", "NotSaved", `aliquot.dev/checkpointed-at: "in the morning" is no time`)
	c.notes("first", "aliquot.dev/checkpointed-at", now().Add(-time.Hour).Format(time.RFC3339))
	end()
	s, _ := c.run()
	c.pod("own", 400, owner)
	if names := c.ending(1); names[0] != "first" {
		t.Fatalf("%s was evicted, and the other did more since it saved its work", names)
	}
	c.remove("first")
	c.runs("own")
	c.sound(s)
}
