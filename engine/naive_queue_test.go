package engine

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/divide"
)

// naiveAmounts are compute, memory and shares.
type naiveAmounts [3]int64

// naiveDemand is what a workload would hold on devices of one model and size; the empty model: as far as it is known before.
func naiveDemand(w *Workload, model string, size api.Bytes) naiveAmounts {
	var sum naiveAmounts
	for _, one := range w.parts() {
		shares := int64(one.Devices * one.Tasks)
		memory := int64(one.Share.Memory.Floor.Bytes)
		if model != "" {
			memory = int64(one.Share.Memory.Floor.Of(size))
		}
		for r, a := range (naiveAmounts{int64(one.Share.Compute.Floor), memory, 1}) {
			sum[r] += a * shares
		}
	}
	return sum
}

// naiveBound is one number that a queue may not pass.
type naiveBound struct {
	queue, model string
	resource     int
	limit        bool
	amount       int64
}

// bounds are those of a queue and those above it that count for a model, in the order in which they are asked.
func (n *naive) bounds(queue, model string) []naiveBound {
	var all []naiveBound
	add := func(q, m string, quota, limit naiveAmounts) {
		for r := range quota {
			if limit[r] >= 0 {
				all = append(all, naiveBound{q, m, r, true, limit[r]})
			}
			if quota[r] >= 0 {
				all = append(all, naiveBound{q, m, r, false, quota[r]})
			}
		}
	}
	for _, q := range n.above(queue) {
		spec := n.queues[q]
		overall := naiveSet(api.QueueAmounts{Compute: &spec.Quota, Memory: spec.QuotaMemory, Devices: spec.QuotaDevices})
		add(q, "", overall, naiveLimit(spec))
		for _, m := range spec.Models {
			if m.Model == model {
				add(q, m.Model, naiveSet(m.Quota), naiveSet(m.Limit))
			}
		}
	}
	return all
}

// naiveLimit is the limit of a queue, which is nothing more of compute once its device-hours are spent.
func naiveLimit(spec api.QueueSpec) naiveAmounts {
	all := naiveSet(spec.Limit)
	if spec.HoursSpent {
		all[0] = 0
	}
	return all
}

func naiveSet(a api.QueueAmounts) naiveAmounts {
	all := naiveAmounts{-1, -1, -1}
	if a.Compute != nil {
		all[0] = int64(*a.Compute)
	}
	if a.Memory != nil {
		all[1] = int64(*a.Memory)
	}
	if a.Devices != nil {
		all[2] = *a.Devices
	}
	return all
}

// held is what the workloads of a queue, and of those under it where below is set, hold on a model; firm: only those that are not
// preemptible.
func (n *naive) held(queue, model string, firm, below bool) (sum naiveAmounts) {
	for _, w := range n.work {
		if w.Queue != queue && !(below && slices.Contains(n.above(w.Queue), queue)) || firm && w.Preemptible {
			continue
		}
		for _, t := range w.tasks {
			for _, uuid := range t.devices {
				if d := n.device(t.node, uuid); !t.over && (model == "" || d.Model == model) {
					sum[0] += int64(w.asks(t).Share.Compute.Floor)
					sum[1] += int64(w.asks(t).Share.Memory.Floor.Of(d.Memory))
					sum[2]++
				}
			}
		}
	}
	return sum
}

// refusal is the first bound that a workload would pass on devices of a model, beside what others are to hold; alone: if nothing
// else were held.
func (n *naive) refusal(w *naiveWork, model string, size api.Bytes, beside *naiveWork, alone bool) *naiveBound {
	if w.onModel() != "" && model == "" {
		model = w.onModel() // its memory is still not known
	}
	want := naiveDemand(&w.Workload, map[bool]string{true: model}[size > 0], size)
	for _, b := range n.bounds(w.Queue, model) {
		if !b.limit && w.Preemptible || want[b.resource] == 0 {
			continue
		}
		held := n.held(b.queue, b.model, !b.limit, true)[b.resource]
		if alone {
			held = 0
		}
		if beside != nil && slices.Contains(n.above(beside.Queue), b.queue) && (b.limit || !beside.Preemptible) && (b.model == "" || b.model == beside.onModel()) {
			held += naiveDemand(&beside.Workload, "", 0)[b.resource]
		}
		if held+want[b.resource] > b.amount {
			return &b
		}
	}
	return nil
}

// concerns says that a workload counts against a bound that someone waits for.
func (n *naive) concerns(b *naiveBound, w *naiveWork) bool {
	uses := naiveDemand(&w.Workload, "", 0)[b.resource] > 0 || b.resource == 1 && w.parted()
	return uses && (b.limit || !w.Preemptible) && (b.model == "" || w.onModel() == "" || w.onModel() == b.model) &&
		slices.Contains(n.above(w.Queue), b.queue)
}

// depends says that what a workload may hold differs between devices.
func (n *naive) depends(w *naiveWork) bool {
	for _, model := range []string{"big", "small"} {
		for _, b := range n.bounds(w.Queue, model) {
			if b.model != "" && w.onModel() == "" || w.parted() && b.resource == 1 && (b.model == "" || b.model == w.onModel()) {
				return true
			}
		}
	}
	return false
}

// kept rules out the devices on which a workload would pass a bound.
func (n *naive) kept(w, beside *naiveWork) func(string, Device, left) bool {
	if !n.depends(w) {
		return nil
	}
	return func(_ string, d Device, _ left) bool { return n.refusal(w, d.Model, d.Memory, beside, false) != nil }
}

// children are the queues right under one; of "" those under none.
func (n *naive) children(queue string) []string {
	var all []string
	for _, name := range []string{"default", "org", "other", "team"} {
		if spec, ok := n.queues[name]; ok && spec.Parent == queue {
			all = append(all, name)
		}
	}
	return all
}

// guaranteed is what a queue is guaranteed by quotas of its own, or of those under it where it has none.
func (n *naive) guaranteed(queue, model string, r int) (sum int64) {
	spec, models := n.queues[queue], int64(0)
	if q := naiveSet(api.QueueAmounts{Compute: &spec.Quota, Memory: spec.QuotaMemory, Devices: spec.QuotaDevices})[r]; model == "" && q >= 0 {
		return q
	}
	for _, m := range spec.Models {
		q := naiveSet(m.Quota)[r]
		if q >= 0 && m.Model == model {
			return q
		}
		models += max(0, q)
	}
	for _, c := range n.children(queue) {
		sum += n.guaranteed(c, model, r)
	}
	if model == "" {
		sum = max(sum, models)
	}
	return sum
}

// wrong says that somewhere quotas add up to more than the quota that they are under, or that a quota is over its limit.
func (n *naive) wrong() bool {
	for name, spec := range n.queues {
		overall := naiveSet(api.QueueAmounts{Compute: &spec.Quota, Memory: spec.QuotaMemory, Devices: spec.QuotaDevices})
		rows := map[string][2]naiveAmounts{"": {overall, naiveSet(spec.Limit)}}
		for _, m := range spec.Models {
			rows[m.Model] = [2]naiveAmounts{naiveSet(m.Quota), naiveSet(m.Limit)}
		}
		for model, row := range rows {
			for r := range overall {
				quota, limit, sum, models := row[0][r], row[1][r], int64(0), int64(0)
				for _, c := range n.children(name) {
					sum += n.guaranteed(c, model, r)
				}
				for m, other := range rows {
					if m != "" && model == "" {
						models += max(0, other[0][r])
					}
				}
				if quota >= 0 && (sum > quota || models > quota || limit >= 0 && quota > limit) {
					return true
				}
			}
		}
	}
	return false
}

// size is what the fleet has, of one model where that is named.
func (n *naive) size(model string) (sum naiveAmounts) {
	for _, node := range n.nodes {
		for _, d := range node.devices {
			if !node.gone && d.Health != api.Down && (model == "" || d.Model == model) {
				sum[0] += 1000
				sum[1] += int64(d.Memory)
				sum[2]++
			}
		}
	}
	return sum
}

// wanted is what a queue holds and what waits in it, with those under it where below is set; of a model what it holds there and what waits for that alone.
func (n *naive) wanted(queue, model string, below bool) naiveAmounts {
	sum, parts, size := n.held(queue, model, false, below), int64(0), n.size(model)
	for _, w := range append(slices.Clone(n.work), n.wishes...) {
		if w.tasks == nil && (w.Queue == queue || below && slices.Contains(n.above(w.Queue), queue)) && (model == "" || w.onModel() == model) {
			for r, a := range naiveDemand(&w.Workload, "", 0) {
				sum[r] += a
			}
			for _, one := range w.parts() {
				parts += int64(one.Share.Memory.Floor.Part) * int64(one.Devices*one.Tasks)
			}
		}
	}
	if size[2] > 0 {
		sum[1] += size[1] / size[2] * parts / 1000
	}
	return sum
}

// allFair finds all fair shares, of the fleet and of each model of it, which stand behind an @.
func (n *naive) allFair(to map[string]naiveAmounts) {
	for _, model := range []string{"", "big", "small"} {
		n.fair("", model, n.size(model), to)
	}
}

// weights are those of a queue for each resource, on a model where that is named; own says that it has one there.
func (n *naive) weights(queue, model string) (all naiveAmounts, own bool) {
	spec := n.queues[queue]
	of := func(w api.QueueWeight) [3]int32 { return [3]int32{w.Compute, w.Memory, w.Devices} }
	for r := range all {
		all[r] = max(1, int64(cmp.Or(of(spec.Weight)[r], spec.Weight.All)))
		for _, m := range spec.Models {
			if w := cmp.Or(of(m.Weight)[r], m.Weight.All); w > 0 && m.Model == model {
				all[r], own = int64(w), true
			}
		}
	}
	return all, own
}

// fair finds the fair share of each queue under one that is due so much, and of its own work, as NAME/.
func (n *naive) fair(queue, model string, due naiveAmounts, to map[string]naiveAmounts) {
	names := n.children(queue)
	for r := range due {
		var claims []divide.Share
		for _, c := range names {
			spec, limit := n.queues[c], int64(1)<<61
			if l := naiveLimit(spec)[r]; l >= 0 {
				limit = l
			}
			for _, m := range spec.Models {
				if l := naiveSet(m.Limit)[r]; l >= 0 && m.Model == model {
					limit = min(limit, l)
				}
			}
			weights, _ := n.weights(c, model)
			claims = append(claims, divide.Share{Floor: min(n.guaranteed(c, model, r), limit), Ceiling: limit, Weight: weights[r], Demand: n.wanted(c, model, true)[r]})
		}
		if queue != "" {
			claims = append(claims, divide.Share{Ceiling: 1 << 61, Weight: 1, Demand: n.wanted(queue, model, false)[r]})
		}
		for i, fair := range divide.Divide(due[r], claims) {
			name := queue + "/"
			if i < len(names) {
				name = names[i]
			}
			share := to[name+"@"+model]
			share[r] = fair
			to[name+"@"+model] = share
		}
	}
	for _, c := range names {
		n.fair(c, model, to[c+"@"+model], to)
	}
}

// stands is what a queue under one, or the work of that itself, holds and is due as parts of the fleet, or of the only model that its first may go on where a
// queue beside it has a weight there.
func (n *naive) stands(under, name string, first *naiveWork, fair map[string]naiveAmounts) (held, due *big.Int) {
	model, own := first.onModel(), strings.HasSuffix(name, "/")
	if !slices.ContainsFunc(n.children(under), func(c string) bool { _, has := n.weights(c, model); return has && model != "" }) {
		model = ""
	}
	return n.dominant(n.held(strings.TrimSuffix(name, "/"), model, false, !own), model), n.dominant(fair[name+"@"+model], model)
}

// dominant is the largest part of the fleet, or of a model of it, in units of 2^-32.
func (n *naive) dominant(a naiveAmounts, model string) *big.Int {
	most, size := new(big.Int), n.size(model)
	for r := range a {
		if size[r] > 0 {
			part := new(big.Int).Lsh(big.NewInt(a[r]), 32)
			if part.Quo(part, big.NewInt(size[r])); part.Cmp(most) > 0 {
				most = part
			}
		}
	}
	return most
}

// live has what queues used decay for so long, and adds what they hold.
func (n *naive) live(long Time) {
	life := float64(cmp.Or(n.halfLife, 7*24*3600*second))
	left := math.Exp2(-float64(long) / life)
	for queue := range n.queues {
		for name, below := range map[string]bool{queue: true, queue + "/": false} {
			n.lived[name] = n.lived[name]*left + float64(n.held(queue, "", false, below)[0])*(1-left)*life/math.Ln2/1000
		}
	}
}

// recall has queues have used what they are said to have, and held since then what they hold.
func (n *naive) recall(ev QueuesUsed) {
	for _, u := range ev.Queues {
		if _, there := n.queues[u.Queue]; there {
			was := n.lived
			n.lived = map[string]float64{u.Queue: float64(u.All), u.Queue + "/": float64(u.Own)}
			n.live(ev.Ago)
			was[u.Queue], was[u.Queue+"/"] = n.lived[u.Queue], n.lived[u.Queue+"/"]
			n.lived = was
		}
	}
}

// rival is a queue, or the work of its parent itself, that may have the next start.
type rival struct {
	name       string // ends in / for own work
	first      *naiveWork
	lead       *naiveWork // by which it takes its turn: the first that waits for a plan, else the first
	over       bool
	held, fair *big.Int
	used       int64
	weight     int64
}

// next is the one of those given that is to be tried next.
func (n *naive) next(queue string, of []*naiveWork, fair map[string]naiveAmounts) *naiveWork {
	if r := n.nextIn(queue, of, fair); r != nil {
		return r.first
	}
	return nil
}

// nextIn is what is next in a queue, of those under it.
func (n *naive) nextIn(queue string, of []*naiveWork, fair map[string]naiveAmounts) *rival {
	var rivals []rival
	goes := func(w, o *naiveWork) bool {
		return cmp.Or(cmp.Compare(n.rank(w), n.rank(o)), cmp.Compare(n.level(o), n.level(w)), -cmp.Compare(n.turn(w.ID), n.turn(o.ID)), -cmp.Compare(w.coming, o.coming)) > 0
	}
	var own rival
	for _, w := range of {
		if w.Queue != queue {
			continue
		}
		if own.first == nil || goes(w, own.first) {
			own.first = w
		}
		if own.lead == nil || (w.plan != nil) == (own.lead.plan != nil) && goes(w, own.lead) || w.plan != nil && own.lead.plan == nil {
			own.lead = w
		}
	}
	if own.first != nil {
		own.name, own.over, own.weight = queue+"/", true, 1
		own.held, own.fair = n.stands(queue, own.name, own.lead, fair)
		own.used = n.used(own.name)
		rivals = append(rivals, own)
	}
	for _, c := range n.children(queue) {
		if in := n.nextIn(c, of, fair); in != nil {
			weight := max(1, int64(cmp.Or(n.queues[c].Weight.Compute, n.queues[c].Weight.All)))
			held, due := n.stands(queue, c, in.lead, fair)
			rivals = append(rivals, rival{c, in.first, in.lead, n.overAt(c, in.lead), held, due, n.used(c), weight})
		}
	}
	if len(rivals) == 0 {
		return nil
	}
	oneLine := n.queues[queue].Order.OneLine
	if queue == "" {
		oneLine = n.oneLine
	}
	above := n.ruler(queue).Order // at the top, the zero order
	ranks := !above.NoPriority && above.PriorityWorth == 0
	return new(slices.MinFunc(rivals, func(a, b rival) int { return n.compareRivals(a, b, oneLine, ranks) }))
}

func (n *naive) compareRivals(a, b rival, oneLine, ranks bool) int {
	of := func(first bool) int {
		if first {
			return -1
		}
		return 1
	}
	if a.over != b.over && !oneLine {
		return of(b.over)
	}
	if (a.lead.plan != nil) != (b.lead.plan != nil) {
		return of(a.lead.plan != nil)
	}
	if x, y := n.rank(a.lead), n.rank(b.lead); x != y && ranks {
		return of(x > y)
	}
	if oneLine {
		return cmp.Or(cmp.Compare(n.level(a.lead), n.level(b.lead)), cmp.Compare(n.turn(a.lead.ID), n.turn(b.lead.ID)), cmp.Compare(a.lead.coming, b.lead.coming))
	}
	if a.fair.Sign() == 0 != (b.fair.Sign() == 0) {
		return of(b.fair.Sign() == 0)
	}
	product := func(x, y *big.Int) *big.Int { return new(big.Int).Mul(x, y) }
	return cmp.Or(
		product(a.held, b.fair).Cmp(product(b.held, a.fair)),
		product(big.NewInt(a.used), big.NewInt(b.weight)).Cmp(product(big.NewInt(b.used), big.NewInt(a.weight))),
		cmp.Compare(n.level(a.lead), n.level(b.lead)),
		cmp.Compare(n.turn(a.lead.ID), n.turn(b.lead.ID)),
		cmp.Compare(a.lead.coming, b.lead.coming),
	)
}

// overAt is over for what waits for its turn: where a plan is under way or was carried out for it, once what is being ended is over.
func (n *naive) overAt(queue string, w *naiveWork) bool {
	if w.plan == nil {
		return n.over(queue, w)
	}
	var gone []*naiveTask
	for _, v := range n.work {
		for _, t := range v.tasks {
			if !t.over && t.evicting {
				t.over = true
				gone = append(gone, t)
			}
		}
	}
	over := n.over(queue, w)
	for _, t := range gone {
		t.over = false
	}
	return over
}

// over says that the queue has no quota for the workload, or would pass one.
func (n *naive) over(queue string, w *naiveWork) bool {
	if w.base != nil {
		return true
	}
	some := false
	for _, b := range n.bounds(queue, w.onModel()) {
		if b.queue != queue || b.limit {
			continue
		}
		some = true
		want := naiveDemand(&w.Workload, "", 0)[b.resource]
		if want > 0 && n.held(queue, b.model, false, true)[b.resource]-n.burst(queue, b.model)[b.resource]+want > b.amount {
			return true
		}
	}
	return !some
}
