package place

import (
	"math"
	"math/bits"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

const (
	whole    = int64(api.WholeDevice)
	one      = int64(1) << 16 // the shares of the popular kinds add up to this
	maxWhole = 16             // kinds that want more whole devices count as wanting so many

	maxRanked = 3       // named resources that fragmentation looks at
	maxTables = 1 << 22 // situations of nodes that are told apart
	mostBits  = 36      // of memory where it is multiplied by compute
)

// terrain is what the popular kinds make of a fleet: everything about them that scores need, worked out once a look.
type terrain struct {
	popular  []*kind
	share    []int64 // of each popular kind, of one
	profiles []*profile
	profile  []int32 // by node
	byMay    map[string]int32

	ranked  []fleet.ResourceID
	amounts [maxRanked][]int64 // distinct amounts that popular kinds want, rising
	ladders [maxRanked]ladder  // of amounts
	tables  []int32            // by profile and the rank of what is free of each ranked resource: where the table is; 0: not made yet
	laid    []int64            // all tables, one behind the other
	stride  [maxRanked]int

	cpu, memory          fleet.ResourceID
	maxCPU, maxMemory    int64 // of any node
	maxDevices           int64 // compute of the node with most
	cpuWanted, gpuWanted int64 // of the popular kinds together: the ratio for stranded
	memoryWanted         int64 // the same of the node's memory
	memoryShift          int   // by so many bits memory is made smaller for that, so that its products stay in an integer

	prices []price // by group of devices; nil: what they are does not count
}

// profile is what nodes have in common on which the same popular kinds may run.
type profile struct {
	may     []bool // by popular kind
	needs   []int16
	of      []int16                    // by popular kind: what it needs of each device, in milli, memory included
	rank    [whole + 1]uint8           // by what is free: how many of the needs are no more
	outlook [outlooks][whole + 1]int32 // by what is free: what is expected to stay unused, in sixteenths of a milli
	worth   [whole + 1]int64           // by what is free: its outlooks, each times its weight
	pull    int64                      // what is wanted of such nodes against how much of them there is, in thousandths
	size    int64                      // compute of all such nodes, in milli
}

// table is, for nodes of one profile with so much free of the ranked resources, which share of the popular kinds a device serves:
// first of those that want whole devices, by how many, then of those that want a part of a device, by rank.
type table []int64

// wholes is the share of kinds that want no more than so many whole devices.
func (t table) wholes(n int) int64 { return t[min(n, maxWhole)] }

// served is, of so many wholly free devices, what they have times the share of kinds that want no more than so many.
func (t table) served(wholes int) int64 { return int64(wholes) * whole * t.wholes(wholes) }

func (t table) gain() []int64 { return t[maxWhole+1:] }

// thousandths is a as thousandths of b, rounded up or down.
func thousandths(a, b api.Bytes, up bool) int64 {
	switch {
	case a <= 0:
		return 0
	case b <= 0 || a >= b:
		return whole
	case up:
		return (int64(a>>10)*whole + int64(b>>10) - 1) / max(1, int64(b>>10))
	}
	return int64(a>>10) * whole / max(1, int64(b>>10))
}

// survey works the terrain out.
func (s *scored) survey() *terrain {
	f := s.fleet
	t := &terrain{
		popular: s.popular(), byMay: map[string]int32{}, profile: make([]int32, f.Slots()),
		cpu: f.Resource("cpu"), memory: f.Resource("memory"), maxCPU: 1, maxMemory: 1, maxDevices: 1,
	}
	t.weigh()
	t.rankResources()
	for n := range f.Nodes {
		t.maxCPU, t.maxMemory = max(t.maxCPU, f.Capacity(n, t.cpu)), max(t.maxMemory, f.Capacity(n, t.memory))
		var compute int64
		var first fleet.Device
		for _, d := range f.DevicesOf(n) {
			if f.Placeable(d) {
				if compute == 0 {
					first = f.Device(d)
				}
				compute += whole
			}
		}
		t.maxDevices = max(t.maxDevices, compute)
		t.profile[n] = t.profileOf(f, n, first)
		t.profiles[t.profile[n]].size += compute
	}
	t.memoryShift = max(0, bits.Len64(uint64(t.maxMemory))-mostBits)
	t.memoryWanted >>= t.memoryShift
	t.layTables()
	t.pull()
	t.price(f, &s.policy.Weights)
	for _, p := range t.profiles {
		t.look(p)
		p.weigh(&s.policy.Weights)
	}
	return t
}

// weigh gives each popular kind its share.
func (t *terrain) weigh() {
	var sum int64
	for _, k := range t.popular {
		sum += k.known
	}
	left := one
	t.share = make([]int64, len(t.popular))
	for i, k := range t.popular {
		t.share[i] = one * k.known / sum
		left -= t.share[i]
		for _, a := range k.Resources {
			if a.Resource == t.cpu {
				t.cpuWanted += a.Amount * t.share[i] / 64
			}
			if a.Resource == t.memory {
				t.memoryWanted += a.Amount * t.share[i] / 64
			}
		}
		t.gpuWanted += int64(k.Compute) * int64(k.Devices) * t.share[i] / 64
	}
	if len(t.share) > 0 {
		t.share[0] += left
	}
}

// rankResources picks the resources that popular kinds name and their distinct amounts.
func (t *terrain) rankResources() {
	for _, k := range t.popular {
		for _, a := range k.Resources {
			i := slices.Index(t.ranked, a.Resource)
			if i < 0 {
				if len(t.ranked) == maxRanked {
					continue
				}
				i = len(t.ranked)
				t.ranked = append(t.ranked, a.Resource)
			}
			if at, found := slices.BinarySearch(t.amounts[i], a.Amount); !found {
				t.amounts[i] = slices.Insert(t.amounts[i], at, a.Amount)
			}
		}
	}
}

// layTables makes room for a table for each situation; where there were too many, the last resources are left out.
func (t *terrain) layTables() {
	for {
		size := max(1, len(t.profiles))
		for i := range t.ranked {
			t.stride[i] = size
			size *= len(t.amounts[i]) + 1
		}
		if size <= maxTables {
			t.tables, t.laid = make([]int32, size), make([]int64, 1)
			for i := range t.ranked {
				t.ladders[i] = newLadder(t.amounts[i])
			}
			return
		}
		t.ranked = t.ranked[:len(t.ranked)-1]
	}
}

// profileOf finds or makes the profile of a node with such devices.
func (t *terrain) profileOf(f *fleet.Fleet, n fleet.NodeID, first fleet.Device) int32 {
	may, key := make([]bool, len(t.popular)), make([]byte, len(t.popular), len(t.popular)*3)
	of := make([]int16, len(t.popular))
	for i, k := range t.popular {
		want := k.Memory.Of(first.Memory)
		may[i] = f.Open(k.Class, n) && (k.Model == "" || k.Model == first.Model) && k.Least.Met(first.Traits) && want <= first.Memory
		of[i] = int16(max(int64(k.Compute), thousandths(want, first.Memory, true)))
		if may[i] {
			key[i] = 1
		}
		key = append(key, byte(of[i]), byte(of[i]>>8))
	}
	if at, ok := t.byMay[string(key)]; ok {
		return at
	}
	p := &profile{may: may, of: of}
	for i, k := range t.popular {
		if may[i] && of[i] > 0 && !(k.Compute == api.WholeDevice) {
			if at, found := slices.BinarySearch(p.needs, of[i]); !found && len(p.needs) < 255 {
				p.needs = slices.Insert(p.needs, at, of[i])
			}
		}
	}
	rank := 0
	for free := range p.rank {
		for rank < len(p.needs) && int(p.needs[rank]) <= free {
			rank++
		}
		p.rank[free] = uint8(rank)
	}
	at := int32(len(t.profiles))
	t.profiles = append(t.profiles, p)
	t.byMay[string(key)] = at
	return at
}

// situation is where the table is of a node of profile p that has so much free of the ranked resources, and how much of each may be taken without
// another table.
func (t *terrain) situation(p int32, free *[maxRanked]int64) (from int32, spare [maxRanked]int64) {
	at := int(p)
	for i := range spare {
		spare[i] = math.MaxInt64
	}
	for i := range t.ranked {
		rank := t.ladders[i].rank(free[i])
		if at += t.stride[i] * rank; rank > 0 {
			spare[i] = free[i] - t.amounts[i][rank-1]
		}
	}
	from = t.tables[at]
	if from == 0 {
		from = int32(len(t.laid))
		t.tables[at] = from
		t.layTable(t.profiles[p], free)
	}
	return from, spare
}

// tableAt is the table at a place, of profile p. It is good until the next situation is asked for.
func (t *terrain) tableAt(p, from int32) table {
	return t.laid[from : int(from)+t.profiles[p].tableSize()]
}

func (p *profile) tableSize() int { return maxWhole + 1 + len(p.needs) + 1 }

func (t *terrain) layTable(p *profile, free *[maxRanked]int64) {
	got := make(table, p.tableSize())
	gain := got.gain()
	for i, k := range t.popular {
		if !p.may[i] || p.of[i] == 0 || !t.has(k, free) {
			continue
		}
		if k.Compute == api.WholeDevice {
			got[min(k.Devices, maxWhole)] += t.share[i]
			continue
		}
		gain[p.rank[p.of[i]]] += t.share[i]
	}
	for i := 1; i < len(gain); i++ {
		gain[i] += gain[i-1]
	}
	for i := 1; i <= maxWhole; i++ {
		got[i] += got[i-1]
	}
	t.laid = append(t.laid, got...)
}

// has says that what is free of the ranked resources serves a kind.
func (t *terrain) has(k *kind, free *[maxRanked]int64) bool {
	for _, a := range k.Resources {
		if i := slices.Index(t.ranked, a.Resource); i >= 0 && a.Amount > free[i] {
			return false
		}
	}
	return true
}

// pull works out how much each profile's nodes are wanted: what each kind wants in all, over the size of all nodes that it may
// use, added up over the kinds that may use these.
func (t *terrain) pull() {
	room := make([]int64, len(t.popular))
	var all int64
	for _, p := range t.profiles {
		all += p.size
		for i, may := range p.may {
			if may {
				room[i] += p.size
			}
		}
	}
	var wanted int64
	for i, k := range t.popular {
		wanted += int64(k.Compute) * int64(k.Devices) * t.share[i]
	}
	if wanted/whole == 0 {
		return
	}
	for _, p := range t.profiles {
		for i, k := range t.popular {
			if p.may[i] && room[i] > 0 {
				part := int64(k.Compute) * int64(k.Devices) * t.share[i] / max(1, wanted/whole) // in thousandths of what is wanted
				p.pull += part * (all / whole) / max(1, room[i]/whole)
			}
		}
	}
}
