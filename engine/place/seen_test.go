package place

import (
	"reflect"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// What is seen of the workload tells requests apart by all that they ask for, but not by how many tasks they have.
func TestSeenTellsKindsApart(t *testing.T) {
	f := fleet.New()
	policy := Default()
	p := New(f)
	p.UsePolicy(&policy)
	ask := func(change func(*Request)) {
		r := &Request{Compute: 500, Memory: api.Amount{Bytes: gi}, Devices: 1, Tasks: 1}
		change(r)
		p.Saw(r)
	}
	changes := map[string]func(*Request){
		"nothing":          func(*Request) {},
		"compute":          func(r *Request) { r.Compute = 501 },
		"bytes":            func(r *Request) { r.Memory.Bytes++ },
		"a part of memory": func(r *Request) { r.Memory.Part = 250 },
		"a model":          func(r *Request) { r.Model = "a" },
		"a capability":     func(r *Request) { r.Least.Capability = 80 },
		"a bandwidth":      func(r *Request) { r.Least.Bandwidth = 80 },
		"a latency class":  func(r *Request) { r.Least.Latency = 8 },
		"a slower one":     func(r *Request) { r.Least.Latency = 9 },
		"a class":          func(r *Request) { r.Class = f.Class("of some nodes") },
		"devices":          func(r *Request) { r.Devices = 2 },
		"a resource":       func(r *Request) { r.Resources = []fleet.Amount{{Resource: f.Resource("cpu"), Amount: 1}} },
		"another resource": func(r *Request) { r.Resources = []fleet.Amount{{Resource: f.Resource("memory"), Amount: 1}} },
		"more of it":       func(r *Request) { r.Resources = []fleet.Amount{{Resource: f.Resource("memory"), Amount: 2}} },
	}
	for _, change := range changes {
		ask(change)
	}
	ask(func(r *Request) { r.Tasks = 3 })
	seen := p.Seen()
	if len(seen.Kinds) != len(changes) || seen.Total != int64(len(changes))+3 {
		t.Errorf("%d kinds and %d tasks are seen, want %d and %d: %+v", len(seen.Kinds), seen.Total, len(changes), len(changes)+3, seen.Kinds)
	}
	for i, k := range seen.Kinds[1:] {
		if comparePopular(&seen.Kinds[i].Popular, &k.Popular) >= 0 {
			t.Errorf("nothing orders %+v before %+v", seen.Kinds[i], k)
		}
	}
}

// What came of a class that is forgotten counts on as of the empty class, with what came of that.
func TestSeenOfForgottenClasses(t *testing.T) {
	f := fleet.New()
	policy := Default()
	p := New(f)
	p.UsePolicy(&policy)
	gone := []fleet.ClassID{f.Class("first"), f.Class("second")}
	for _, ask := range []struct {
		class          fleet.ClassID
		compute, tasks int
	}{{gone[0], 500, 20}, {gone[1], 500, 3}, {0, 500, 2}, {gone[1], 250, 3}, {f.Class("stays"), 250, 1}} {
		p.Saw(&Request{Compute: api.Milli(ask.compute), Class: ask.class, Devices: 1, Tasks: ask.tasks})
	}
	before := p.Seen()
	p.ForgetClasses(gone)
	f.ForgetClasses(gone)
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	seen := p.Seen()
	want := []SeenKind{{Popular{Compute: 250, Devices: 1, Count: 3}, 0}, {Popular{Compute: 250, Class: "stays", Devices: 1, Count: 1}, 0}, {Popular{Compute: 500, Devices: 1, Count: 25}, 20}}
	if !reflect.DeepEqual(seen.Kinds, want) || seen.Total != before.Total || seen.Next != before.Next {
		t.Errorf("seen is %+v, want %+v and the totals of %+v", seen, want, before)
	}
	p.Saw(&Request{Compute: 500, Class: f.Class("new"), Devices: 1, Tasks: 1})
	if kinds := p.Seen().Kinds; len(kinds) != 4 || kinds[2].Count != 25 {
		t.Errorf("a class with a number that was free is seen as the one that had it: %+v", kinds)
	}
}
