package place

import (
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
}
