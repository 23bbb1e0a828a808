package queue

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// world is a tree and what is known of it without looking at it.
type world struct {
	*rapid.T
	tree   *Tree
	own    map[string]map[string]Amounts // by queue and model
	parent map[string]string
}

func (w *world) name(label string) string {
	return fmt.Sprintf("q%d", rapid.IntRange(0, 5).Draw(w.T, label))
}

func (w *world) under(n, above string) bool {
	for ; n != ""; n = w.parent[n] {
		if n == above {
			return true
		}
	}
	return false
}

func (w *world) step() {
	n := w.name("queue")
	_, known := w.tree.Get(n)
	switch rapid.IntRange(0, 3).Draw(w.T, "what") {
	case 0, 1:
		p := rapid.SampledFrom([]string{"", w.name("parent")}).Draw(w.T, "under")
		_, there := w.tree.Get(p)
		ok := w.tree.Set(api.QueueSpec{Name: n, Parent: p, Quota: api.Unlimited}) == nil
		if want := p == "" || there && !(known && w.under(p, n)) && p != n; ok != want {
			w.Fatalf("%s under %q is taken: %v, want %v", n, p, ok, want)
		}
		if ok {
			w.parent[n] = p
		}
	case 2:
		if q, ok := w.tree.Get(n); ok {
			model := rapid.SampledFrom([]string{"a", "b"}).Draw(w.T, "model")
			if w.own[n] == nil {
				w.own[n] = map[string]Amounts{}
			}
			var more Amounts
			for r := range more {
				more[r] = int64(rapid.IntRange(-int(w.own[n][model][r]), 500).Draw(w.T, "amount"))
			}
			q.Hold(model, more, Soft, 1)
			w.own[n][model] = w.own[n][model].Plus(more, 1)
		}
	case 3:
		w.remove(n, known)
	}
}

func (w *world) remove(n string, known bool) {
	children := false
	for c, p := range w.parent {
		_, there := w.tree.Get(c)
		children = children || there && p == n
	}
	empty := w.own[n]["a"] == Amounts{} && w.own[n]["b"] == Amounts{}
	if known && empty && w.tree.Remove(n) == nil == children {
		w.Fatalf("%s with children %v is removed or kept wrongly", n, children)
	}
	if _, still := w.tree.Get(n); !still {
		delete(w.parent, n)
	}
}

// TestTreeAgainstSums moves queues about and holds amounts, and compares each queue with the sum over its subtree.
func TestTreeAgainstSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t, New(), map[string]map[string]Amounts{}, map[string]string{}}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step()
			for _, q := range w.tree.All() {
				var sum Amounts
				on := map[string]Amounts{}
				for c, models := range w.own {
					for model, amount := range models {
						if _, there := w.tree.Get(c); there && w.under(c, q.Name) {
							sum, on[model] = sum.Plus(amount, 1), on[model].Plus(amount, 1)
						}
					}
				}
				heldA, _ := q.Count("a")
				heldB, _ := q.Count("b")
				if q.All.Held != sum || heldA != on["a"] || heldB != on["b"] {
					t.Fatalf("%s holds %v, its subtree %v", q.Name, q.All.Held, sum)
				}
			}
			again := New()
			for _, spec := range w.tree.Specs() {
				if err := again.Set(spec); err != nil {
					t.Fatalf("the queues as written cannot be set again: %v", err)
				}
			}
		}
	})
}

// TestDivideIsIncremental: a tree that found its fair shares step by step has those of one that finds them once.
func TestDivideIsIncremental(t *testing.T) {
	names := []string{"a", "b", "a1", "a2", "a11"}
	parents := map[string]string{"a1": "a", "a2": "a", "a11": "a1"}
	draw := func(t *rapid.T, label string) *api.Quota {
		return new(rapid.SampledFrom([]api.Quota{api.Unlimited, 500, 1000, 4000}).Draw(t, label))
	}
	rapid.Check(t, func(t *rapid.T) {
		tree := New()
		for _, n := range names {
			if err := tree.Set(api.QueueSpec{Name: n, Parent: parents[n], Quota: api.Unlimited}); err != nil {
				t.Fatal(err)
			}
		}
		type booked struct {
			queue string
			d     Demand
		}
		var held, waiting []booked
		onM, onO := Amounts{8000, 64, 8}, Amounts{4000, 32, 4}
		of := func(model string) Amounts { return map[string]Amounts{"m": onM, "o": onO}[model] }
		model := func(t *rapid.T) string { return rapid.SampledFrom([]string{"m", "o"}).Draw(t, "model") }
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			n := rapid.SampledFrom(names).Draw(t, "queue")
			q, _ := tree.Get(n)
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0: // what does not add up is refused and changes nothing
				spec := api.QueueSpec{
					Name: n, Parent: parents[n], Quota: *draw(t, "quota"), Limit: api.QueueAmounts{Compute: draw(t, "limit")},
					Weight: api.QueueWeight{All: int32(rapid.IntRange(0, 3).Draw(t, "weight"))},
				}
				if rapid.Bool().Draw(t, "of a model") {
					spec.Models = []api.QueueModel{{
						Model: model(t), Limit: api.QueueAmounts{Compute: draw(t, "limit of it")}, Weight: api.QueueWeight{Compute: int32(rapid.IntRange(0, 3).Draw(t, "weight of it"))},
					}}
				}
				_ = tree.Set(spec)
			case 1:
				d := Demand{Amounts: Amounts{int64(rapid.IntRange(0, 5000).Draw(t, "compute")), int64(rapid.IntRange(0, 20).Draw(t, "memory")), 1}, Model: model(t)}
				q.Hold(d.Model, d.Amounts, Firm, 1)
				held = append(held, booked{n, d})
			case 2:
				d := Demand{Amounts: Amounts{int64(rapid.IntRange(0, 5000).Draw(t, "compute")), 0, 2}, Part: 500, Shares: 2, Model: rapid.SampledFrom([]string{"", "m", "o"}).Draw(t, "on")}
				q.Want(d, 1)
				waiting = append(waiting, booked{n, d})
			case 3:
				onM = onM.Plus(Amounts{1000, 8, 1}, 1)
			case 4:
				onO = onO.Plus(Amounts{1000, 8, 1}, 1)
			}
			size := onM.Plus(onO, 1)
			tree.Divide(size, of)
			fresh := New()
			for _, spec := range tree.Specs() {
				if err := fresh.Set(spec); err != nil {
					t.Fatal(err)
				}
			}
			for _, b := range held {
				q, _ := fresh.Get(b.queue)
				q.Hold(b.d.Model, b.d.Amounts, Firm, 1)
			}
			for _, b := range waiting {
				q, _ := fresh.Get(b.queue)
				q.Want(b.d, 1)
			}
			fresh.Divide(size, of)
			for _, q := range tree.All() {
				f, _ := fresh.Get(q.Name)
				if f.All.Fair != q.All.Fair || f.Own.Fair != q.Own.Fair {
					t.Fatalf("%s is due %v and %v itself, found anew %v and %v", q.Name, q.All.Fair, q.Own.Fair, f.All.Fair, f.Own.Fair)
				}
				if got, want := q.WeighedBeside(), f.WeighedBeside(); !slices.Equal(got, want) {
					t.Fatalf("beside %s there are weights on %v, found anew on %v", q.Name, got, want)
				}
				for _, model := range tree.weighed {
					if got, want := q.bound(model), f.bound(model); got.fair != want.fair || len(q.children) > 0 && got.ownFair != want.ownFair || got.wish != want.wish {
						t.Fatalf("%s is due %v and %v itself on %s, found anew %v and %v", q.Name, got.fair, got.ownFair, model, want.fair, want.ownFair)
					}
				}
			}
		}
	})
}

// TestUsedAgainstFloats: use that decays is what the integral says, within 0.1 %, and it hardly matters how often it is looked at. Another half-life counts
// from when it is set.
func TestUsedAgainstFloats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := New()
		q, _ := tree.Get("")
		want, at, held, life := 0.0, int64(0), int64(0), float64(week)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			dt := int64(rapid.IntRange(0, 2_000_000).Draw(t, "ms")) * 1000
			f := math.Exp2(-float64(dt) / life)
			want = want*f + float64(held)*(1-f)*life/math.Ln2/1000
			at += dt
			tree.Now = at
			if got := float64(q.All.Used(tree)); math.Abs(got-want) > want/1000+20 {
				t.Fatalf("at %d µs it used %v, want %v", at, got, want)
			}
			if rapid.Bool().Draw(t, "another") {
				set := int64(rapid.IntRange(1_000, 1_000_000).Draw(t, "half-life")) * 1_000_000
				tree.SetHalfLife(set)
				life = float64(set)
				continue
			}
			more := int64(rapid.IntRange(-int(held), 8000).Draw(t, "more"))
			q.Hold("", Amounts{more}, Firm, 1)
			held += more
		}
	})
}

func TestDecayHalves(t *testing.T) {
	for k := range int64(33) {
		if got, want := decay(k*1000, 1000), one>>k; got != want && k < 32 || k == 32 && got != 0 {
			t.Errorf("after %d half-lives %d is left, want %d", k, got, want)
		}
	}
	last := one
	for dt := int64(0); dt < 5000; dt++ {
		if f := decay(dt, 1000); f > last {
			t.Errorf("after %d more is left than before: %d and %d", dt, f, last)
		} else {
			last = f
		}
	}
}

// TestErrors: each names the place, what it is and what to do.
func TestErrors(t *testing.T) {
	tree := New()
	set := func(spec api.QueueSpec) error { return tree.Set(spec) }
	for _, spec := range []api.QueueSpec{
		{Name: "org", Quota: 4000, QuotaMemory: new(api.Bytes(80 << 30)), Models: []api.QueueModel{{Model: "h200", Quota: api.QueueAmounts{Compute: new(api.Quota(2000))}}}},
		{Name: "mid", Parent: "org", Quota: api.Unlimited},
		{Name: "low", Parent: "mid", Quota: 3000},
	} {
		if err := set(spec); err != nil {
			t.Fatal(err)
		}
	}
	h200 := func(q api.Quota) []api.QueueModel {
		return []api.QueueModel{{Model: "h200", Quota: api.QueueAmounts{Compute: &q}}}
	}
	for want, spec := range map[string]api.QueueSpec{
		"the quotas of the queues under org add up to 4.5 devices, and its own is 4 devices":    {Name: "side", Parent: "org", Quota: 1500},
		"the quotas of the queues under org add up to 3 devices, and its own is 2.5 devices":    {Name: "org", Quota: 2500},
		"under org add up to 81Gi of memory, and its own is 80Gi of memory":                     {Name: "side", Parent: "org", Quota: api.Unlimited, QuotaMemory: new(api.Bytes(81 << 30))},
		"under org add up to 2.5 devices on h200, and its own is 2 devices":                     {Name: "mid", Parent: "org", Quota: api.Unlimited, Models: h200(2500)},
		"queue x: its quota of 2 devices is over its limit of 1 device":                         {Name: "x", Quota: 2000, Limit: api.QueueAmounts{Compute: new(api.Quota(1000))}},
		"queue x: its quotas for single models add up to 2 devices, over its quota of 1 device": {Name: "x", Quota: 1000, Models: h200(2000)},
		"queue x: model \"h200\" is without a name or comes twice":                              {Name: "x", Models: append(h200(0), h200(0)...)},
		"queue x: a priority of 1001 is out of range: give -1000 to 1000":                       {Name: "x", Priority: 1001},
		"queue x: 1/year device-hours are none: give 0 to":                                      {Name: "x", Hours: api.HoursQuota{Amount: 1000, Per: "year"}},
		"queue x: a weight of -1 is out of range":                                               {Name: "x", Weight: api.QueueWeight{Memory: -1}},
		"queue org cannot be under low, which is under it or is itself":                         {Name: "org", Parent: "low"},
		"queue x: there is no queue nowhere to be its parent":                                   {Name: "x", Parent: "nowhere"},
		"more than any fleet has":                                                               {Name: "x", Quota: math.MaxInt64},
	} {
		before := fmt.Sprint(tree.Specs())
		if err := set(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", spec, err, want)
		}
		if after := fmt.Sprint(tree.Specs()); after != before {
			t.Errorf("what is refused changed the queues to %s", after)
		}
	}
}
