package fleet

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// A fleet in which classes come and go keeps room for no more than there were at once.
func TestForgottenClassesLeaveNothing(t *testing.T) {
	f := New()
	for i := range 100 {
		if _, err := f.SetNode(fmt.Sprint("n", i), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	const atOnce = 10
	var known []ClassID
	for i := range 10_000 {
		id := f.Class(fmt.Sprint("c", i))
		for n := range f.Nodes {
			if f.Open(id, n) {
				t.Fatalf("class %d may use node %s, of which nothing was said", i, f.NodeName(n))
			}
		}
		f.Allow(id, fmt.Sprint("n", i%100))
		f.Bar(id, "elsewhere", "it is far away")
		n, _ := f.Node(fmt.Sprint("n", (i+1)%100))
		f.Refuse(id, n, "no")
		if known = append(known, id); len(known) < atOnce {
			continue
		}
		changes := f.Changes()
		f.ForgetClasses(known)
		if f.HasClass(id) || f.Changes() == changes {
			t.Fatalf("class %d is there, or was forgotten without a change", i)
		}
		known = nil
	}
	if len(f.classes) > atOnce+1 || len(f.byClass) != 1 {
		t.Errorf("%d classes at once leave %d numbers and %d names", atOnce, len(f.classes), len(f.byClass))
	}
	if err := f.CheckIndex(); err != nil {
		t.Error(err)
	}
}

// TestClassesInMarks holds which classes there are, and what of, against a list: also where some came inside of marks, with numbers that were free, and
// are forgotten as these are taken back.
func TestClassesInMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := New()
		if _, err := f.SetNode("n", nil, nil); err != nil {
			t.Fatal(err)
		}
		n, _ := f.Node("n")
		next, want := 0, map[string]bool{"": true} // by name: it may use the node
		come := func(allow bool) {
			next++
			name := fmt.Sprint("c", next)
			if id := f.Class(name); allow {
				f.Allow(id, "n")
			}
			want[name] = allow
		}
		var ahead func(depth int)
		ahead = func(depth int) {
			names, mark := f.Names(), f.Begin()
			first := next
			for range rapid.IntRange(0, 3).Draw(t, "come ahead") {
				come(false)
			}
			if depth > 0 {
				ahead(depth - 1)
			}
			f.Rollback(mark)
			f.ForgetSince(names)
			for ; next > first; next-- {
				delete(want, fmt.Sprint("c", next))
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				come(rapid.Bool().Draw(t, "allow"))
			case 1:
				ahead(rapid.IntRange(0, 1).Draw(t, "depth"))
			case 2:
				var gone []ClassID
				for i := range next {
					name := fmt.Sprint("c", i+1)
					if id, ok := f.ClassOf(name); ok && rapid.Bool().Draw(t, "gone") {
						gone = append(gone, id)
						delete(want, name)
					}
				}
				f.ForgetClasses(gone)
			}
			known := 0
			for id := range f.KnownClasses {
				known++
				if may, ok := want[f.ClassName(id)]; !ok || f.Open(id, n) != may {
					t.Fatalf("class %q is there (wanted: %v) and may use the node: %v", f.ClassName(id), ok, f.Open(id, n))
				}
			}
			if known != len(want) {
				t.Fatalf("%d classes are there, want %v", known, want)
			}
			if err := f.CheckIndex(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
