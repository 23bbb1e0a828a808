package queue

import (
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// Resource is one of the things that a queue holds.
type Resource int

// The resources: compute in thousandths of a device, memory in bytes, devices as the number of shares, one for each device of
// each task.
const (
	Compute Resource = iota
	Memory
	Devices
	resources
)

// Unbounded is a quota or limit that is not set.
const Unbounded = -1

// Amounts is an amount of each resource.
type Amounts [resources]int64

// unbounded are bounds none of which is set.
var unbounded = Amounts{Unbounded, Unbounded, Unbounded}

// Plus adds so many times other.
func (a Amounts) Plus(other Amounts, times int64) Amounts {
	for r := range a {
		a[r] += other[r] * times
	}
	return a
}

// Kind is what bounds count something that is held against.
type Kind int8

// The kinds: of work that is preemptible, which limits count, and quotas where it is about what may be taken back; of work that is not, which must
// fit in quotas, too; and burst, which limits count alone.
const (
	Soft Kind = iota
	Firm
	Burst
)

// Demand is what a workload holds when it runs. A memory floor that is a part of a device is known only with the device.
type Demand struct {
	Amounts
	Part   api.Milli // of the memory of each of Shares, beside Amounts
	Shares int64     // devices of all tasks
	More   []Parted  // of further devices, where tasks want different parts of their memory
	Model  string    // the only one it may run on; empty: any
	Firm   bool      // not preemptible: it must fit in quotas, too
	Burst  bool      // no quota counts it
}

// Parted is a part of the memory of each of some devices.
type Parted struct {
	Part   api.Milli
	Shares int64
}

// And is a demand and another of the same workload together, but for the second's model.
func (d Demand) And(more Demand) Demand {
	d.Amounts = d.Amounts.Plus(more.Amounts, 1)
	switch {
	case more.Part == 0:
	case d.Part == 0:
		d.Part, d.Shares = more.Part, more.Shares
	default:
		d.More = append(slices.Clip(d.More), Parted{more.Part, more.Shares})
	}
	return d
}

// Parts is the memory that is known only with the devices, in thousandths of the memory of one.
func (d Demand) Parts() int64 {
	sum := int64(d.Part) * d.Shares
	for _, p := range d.More {
		sum += int64(p.Part) * p.Shares
	}
	return sum
}

// NewDemand is the demand of so many shares. What no machine could have is held to 2^55.
func NewDemand(share api.Share, shares int64) Demand {
	d := Demand{Part: share.Memory.Floor.Part, Shares: shares}
	d.Amounts = Amounts{int64(share.Compute.Floor) * shares, most, shares}
	if b := int64(share.Memory.Floor.Bytes); b == 0 || shares <= most/b {
		d.Amounts[Memory] = b * shares
	}
	return d
}

const most = 1 << 55

// On is the demand if all its devices were of this model with so much memory.
func (d Demand) On(model string, memory api.Bytes) Demand {
	if d.Part > 0 {
		d.Amounts[Memory] += int64(api.Amount{Part: d.Part}.Of(memory)) * d.Shares
		for _, p := range d.More {
			d.Amounts[Memory] += int64(api.Amount{Part: p.Part}.Of(memory)) * p.Shares
		}
		d.Part, d.More = 0, nil
	}
	d.Model = model
	return d
}

// bound is quota and limit of a queue, overall or for one model, and what counts against them.
type bound struct {
	model        string // empty: overall
	quota, limit Amounts
	held         Amounts
	firm         Amounts // of held, by work that is not preemptible
	burst        Amounts // of held, by replicas that give way first

	weight        Amounts // for a model, where the queue has one of its own; 0: it has the overall one
	wish                  // for a model: of what may go on no other
	fair, ownFair Amounts // for a model on which queues have weights, as of the last Divide: of the queue, and beside the queues under it of its own work
}

func (b *bound) set() bool { return b.quota != unbounded || b.limit != unbounded }

// Refusal is the quota or limit that a demand does not fit in.
type Refusal struct {
	Queue    *Node
	Model    string // empty: overall
	Resource Resource
	Limit    bool // else it is the quota, which only work that is not preemptible must fit in
}

// Bound is the quota or limit itself.
func (r *Refusal) Bound() int64 {
	b := r.Queue.bound(r.Model)
	if r.Limit {
		return b.limit[r.Resource]
	}
	return b.quota[r.Resource]
}

// Held is what counts against it.
func (r *Refusal) Held() int64 {
	b := r.Queue.bound(r.Model)
	if r.Limit {
		return b.held[r.Resource]
	}
	return b.firm[r.Resource]
}

// Spent says that it is the end of the queue's device-hours, whatever else its limit is.
func (r *Refusal) Spent() bool {
	return r.Limit && r.Resource == Compute && r.Model == "" && r.Queue.spec.HoursSpent
}

// Uncounted is what its queue holds of preemptible work, which a quota does not count; 0 for a limit, which counts it.
func (r *Refusal) Uncounted() int64 {
	return r.Queue.bound(r.Model).held[r.Resource] - r.Held()
}

// Concerns says that a demand in a queue counts against the same bound.
func (r *Refusal) Concerns(q *Node, d Demand) bool {
	uses := d.Amounts[r.Resource] > 0 || r.Resource == Memory && d.Part > 0
	return uses && (r.Limit || d.Firm) && (r.Model == "" || d.Model == "" || d.Model == r.Model) && q.Within(r.Queue)
}

// refuses is the first resource for which a bound has no room for a demand beside what is held, or would not have if nothing
// were held.
func (b *bound) refuses(d Demand, alone bool) (r Resource, limit, no bool) {
	held, firm := b.held, b.firm
	if alone {
		held, firm = Amounts{}, Amounts{}
	}
	for r := range resources {
		switch a := d.Amounts[r]; {
		case a <= 0: // nothing more is never too much, even where a bound was lowered under what is held
		case b.limit[r] != Unbounded && a > b.limit[r]-held[r]:
			return r, true, true
		case d.Firm && b.quota[r] != Unbounded && a > b.quota[r]-firm[r]:
			return r, false, true
		}
	}
	return 0, false, false
}

// boundsOf reads the bounds of a specification; the first is overall.
func boundsOf(spec api.QueueSpec) []bound {
	all := []bound{{
		quota: Amounts{int64(spec.Quota), value(spec.QuotaMemory), value(spec.QuotaDevices)},
		limit: amountsOf(spec.Limit),
	}}
	for _, m := range spec.Models {
		all = append(all, bound{model: m.Model, quota: amountsOf(m.Quota), limit: amountsOf(m.Limit), weight: weightsOf(m.Weight, 0)})
	}
	return all
}

func amountsOf(a api.QueueAmounts) Amounts {
	return Amounts{value(a.Compute), value(a.Memory), value(a.Devices)}
}

func value[T ~int64](p *T) int64 {
	if p == nil || *p < 0 {
		return Unbounded
	}
	return int64(*p)
}

// weightsOf are the weights of a specification, each at least so much.
func weightsOf(w api.QueueWeight, least int64) Amounts {
	all := Amounts{int64(w.Compute), int64(w.Memory), int64(w.Devices)}
	for r := range all {
		if all[r] <= 0 {
			all[r] = max(least, int64(w.All))
		}
	}
	return all
}

// ceiling is a bound as a number that compares.
func ceiling(bound int64) int64 {
	if bound == Unbounded {
		return math.MaxInt64 >> 2
	}
	return bound
}
