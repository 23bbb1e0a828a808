package queue

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// TestSetAllAgainstSet: what can be set one by one in some order can be set at once, to the same queues; what is refused changes nothing;
// what is taken adds up, and what is held and wanted moves along.
func TestSetAllAgainstSet(t *testing.T) {
	names := []string{"default", "a", "b", "c", "d"}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string, count int) []api.QueueSpec {
			var specs []api.QueueSpec
			for _, name := range rapid.Permutation(names).Draw(t, label)[:count] {
				specs = append(specs, api.QueueSpec{
					Name: name, Parent: rapid.SampledFrom([]string{"", "", "a", "b", "c", "default"}).Draw(t, "parent"),
					Quota: rapid.SampledFrom([]api.Quota{api.Unlimited, 0, 1000, 2000}).Draw(t, "quota"),
				})
			}
			return specs
		}
		tree, steps := New(), New()
		for _, spec := range draw("first", 5) {
			if err := tree.Set(spec); err == nil {
				_ = steps.Set(spec) // the same, to the same
			}
		}
		for _, q := range tree.All() {
			amount := Amounts{int64(rapid.IntRange(0, 3000).Draw(t, "held")), 1, 1}
			q.Hold("m", amount, Firm, 1)
			q.Want(Demand{Amounts: amount}, 1)
			other, _ := steps.Get(q.Name)
			other.Hold("m", amount, Firm, 1)
			other.Want(Demand{Amounts: amount}, 1)
		}
		specs := draw("then", rapid.IntRange(0, 3).Draw(t, "count"))
		before := fmt.Sprint(tree.Specs())
		check := tree.CheckAll(specs)
		if fmt.Sprint(tree.Specs()) != before {
			t.Fatalf("asking changed the queues")
		}
		err := tree.SetAll(specs)
		if (err == nil) != (check == nil) || err != nil && fmt.Sprint(tree.Specs()) != before {
			t.Fatalf("%v after %v was said, and the queues are %v, before %s", err, check, tree.Specs(), before)
		}
		one := func() error {
			for _, spec := range specs {
				if err := steps.Set(spec); err != nil {
					return err
				}
			}
			return nil
		}()
		if one != nil {
			return
		}
		if err != nil {
			t.Fatalf("%+v can be set one by one and not at once: %v", specs, err)
		}
		for _, q := range steps.All() {
			got, _ := tree.Get(q.Name)
			if got.All.Held != q.All.Held || got.All.wants != q.All.wants || got.Own.Held != q.Own.Held {
				t.Fatalf("%s holds %v and wants %v, one by one %v and %v", q.Name, got.All.Held, got.All.wants, q.All.Held, q.All.wants)
			}
		}
		if a, b := fmt.Sprint(tree.Specs()), fmt.Sprint(steps.Specs()); a != b {
			t.Fatalf("at once %s, one by one %s", a, b)
		}
	})
}

func TestSetAllChangesHands(t *testing.T) {
	tree := New()
	day := []api.QueueSpec{{Name: "org", Quota: 4000}, {Name: "a", Parent: "org", Quota: 3000}, {Name: "b", Parent: "org", Quota: 1000}}
	if err := tree.SetAll([]api.QueueSpec{day[2], day[1], day[0]}); err != nil {
		t.Fatal(err)
	}
	for _, swap := range [][]api.QueueSpec{
		{{Name: "a", Parent: "org", Quota: 1000}, {Name: "b", Parent: "org", Quota: 3000}}, // quotas
		{{Name: "b", Parent: "org", Quota: 4000}, {Name: "a", Parent: "b", Quota: 1000}},   // a comes under b
		{{Name: "b", Parent: "a", Quota: 1000}, {Name: "a", Parent: "org", Quota: 4000}},   // and the other way round
	} {
		if err := tree.SetAll(swap); err != nil {
			t.Errorf("%+v: %v", swap, err)
		}
	}
	for want, specs := range map[string][]api.QueueSpec{
		"queue x comes twice":              {{Name: "x"}, {Name: "x"}},
		"no queue nowhere":                 {{Name: "x", Parent: "nowhere"}},
		"queue org cannot be under b":      {{Name: "org", Parent: "b"}},
		"add up to 5 devices, and its own": {{Name: "x", Parent: "org", Quota: 1000}},
	} {
		before := fmt.Sprint(tree.Specs())
		if err := tree.SetAll(specs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", specs, err, want)
		}
		if fmt.Sprint(tree.Specs()) != before {
			t.Errorf("%+v was refused and changed the queues", specs)
		}
	}
}

// Ten thousand queues under one parent are held against it once, and however they are given each comes after its parent.
func TestSetAllAtOnce(t *testing.T) {
	const many = 10_000
	specs := []api.QueueSpec{}
	for i := range many {
		specs = append(specs, api.QueueSpec{Name: fmt.Sprintf("q%d", i), Parent: "org", Quota: 1000})
	}
	specs = append(specs, api.QueueSpec{Name: "org", Quota: many * 1000})
	tree := New()
	sums := testing.AllocsPerRun(1, func() {
		if err := tree.CheckAll(specs); err != nil {
			t.Error(err)
		}
	})
	if most := 40.0 * many; sums > most { // building the parent's subtree for each takes 10,000 each
		t.Errorf("a check of %d queues takes %.0f allocations, want %.0f at most", many, sums, most)
	}
	specs[many/2].Quota = 1001
	want := "the quotas of the queues under org add up to 10000.001 devices, and its own is 10000 devices: lower theirs or raise its own"
	if err := tree.SetAll(specs); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
