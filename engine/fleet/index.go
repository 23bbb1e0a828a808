package fleet

import (
	"math/bits"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/ordered"
)

type groupKey struct {
	model  string
	memory api.Bytes
	traits Traits
}

// group is all placeable devices of one model, memory and traits, by what is left of them.
type group struct {
	groupKey
	// touched has the devices with a grant by free compute, then by order; filled says which of these lists have any.
	touched   [api.WholeDevice + 1]*ordered.List[DeviceID]
	filled    [(api.WholeDevice + 64) / 64]uint64
	untouched *ordered.List[DeviceID]
}

func (f *Fleet) groupOf(d *Device) int32 {
	key := groupKey{d.Model, d.Memory, d.Traits}
	g, ok := f.byGroup[key]
	if !ok {
		g = int32(len(f.groups))
		f.groups = append(f.groups, &group{groupKey: key, untouched: ordered.New(f.deviceBefore)})
		f.byGroup[key] = g
	}
	return g
}

// deviceBefore orders devices that are indexed with the same compute left: least memory left first, then by node name, index and
// UUID.
func (f *Fleet) deviceBefore(a, b DeviceID) bool {
	x, y := &f.devices[a], &f.devices[b]
	if l, r := x.size-x.at.Memory, y.size-y.at.Memory; l != r {
		return l < r
	}
	return f.namedBefore(x, y)
}

func (f *Fleet) namedBefore(x, y *device) bool {
	if x.node != y.node {
		return f.nodes[x.node].label < f.nodes[y.node].label
	}
	if x.Index != y.Index {
		return x.Index < y.Index
	}
	return x.UUID < y.UUID
}

// Fits says whether a placeable device has so much free.
func (f *Fleet) Fits(d DeviceID, compute api.Milli, memory api.Bytes) bool {
	c, m := f.Free(d)
	return f.devices[d].takes && c >= compute && m >= memory
}

// LessLeft orders devices as Walk does: touched before untouched, or the other way round for whole devices; then least compute
// left, least memory left, node name, index.
func (f *Fleet) LessLeft(a, b DeviceID, whole bool) bool {
	x, y := &f.devices[a], &f.devices[b]
	if (x.book.Grants == 0) != (y.book.Grants == 0) {
		return (x.book.Grants == 0) == whole
	}
	if x.book.Compute != y.book.Compute {
		return x.book.Compute > y.book.Compute
	}
	if l, r := x.size-x.book.Memory, y.size-y.book.Memory; l != r {
		return l < r
	}
	return f.namedBefore(x, y)
}

// index enters a device where it belongs, if it takes grants at all and has not less than nothing left.
func (f *Fleet) index(d DeviceID) {
	f.devices[d].takes = f.Placeable(d)
	f.enter(d)
}

// unindex takes a device out. It must come before any change of what the index rests on, but for the book.
func (f *Fleet) unindex(d DeviceID) {
	f.devices[d].takes = false
	f.leave(d)
}

// freshen moves the devices whose books changed to where they now belong. So many changes of a device, and changes that are taken
// back, cost one move or none.
func (f *Fleet) freshen() {
	for _, d := range f.stale {
		dev := &f.devices[d]
		dev.stale = false
		if dev.indexed && dev.at == dev.book {
			continue
		}
		f.leave(d)
		f.enter(d)
	}
	f.stale = f.stale[:0]
}

func (f *Fleet) enter(d DeviceID) {
	dev := &f.devices[d]
	if dev.indexed || !dev.takes || dev.book.Compute > api.WholeDevice || dev.book.Memory > dev.Memory {
		return
	}
	dev.indexed, dev.at = true, dev.book
	g := f.groups[dev.group]
	if dev.at.Grants == 0 {
		g.untouched.Insert(d)
		f.unlist(dev.node)
		f.nodes[dev.node].untouched++
		f.list(dev.node)
		return
	}
	left := api.WholeDevice - dev.at.Compute
	if g.touched[left] == nil {
		g.touched[left] = ordered.New(f.deviceBefore)
	}
	g.touched[left].Insert(d)
	g.filled[left/64] |= 1 << (left % 64)
}

func (f *Fleet) leave(d DeviceID) {
	dev := &f.devices[d]
	if !dev.indexed {
		return
	}
	dev.indexed = false
	g := f.groups[dev.group]
	if dev.at.Grants == 0 {
		g.untouched.Delete(d)
		f.unlist(dev.node)
		f.nodes[dev.node].untouched--
		f.list(dev.node)
		return
	}
	left := api.WholeDevice - dev.at.Compute
	g.touched[left].Delete(d)
	if g.touched[left].Len() == 0 {
		g.filled[left/64] &^= 1 << (left % 64)
	}
}

func (f *Fleet) list(n NodeID) {
	nd := &f.nodes[n]
	if nd.untouched == 0 {
		return
	}
	for len(f.byUntouched) <= nd.untouched {
		f.byUntouched = append(f.byUntouched, ordered.New(f.Before))
	}
	f.byUntouched[nd.untouched].Insert(n)
	nd.listed = true
}

func (f *Fleet) unlist(n NodeID) {
	if nd := &f.nodes[n]; nd.listed {
		f.byUntouched[nd.untouched].Delete(n)
		nd.listed = false
	}
}

// WithUntouched calls yield for each node with at least so many untouched devices, those with the fewest first, then by name.
func (f *Fleet) WithUntouched(least int, yield func(NodeID) bool) {
	f.freshen()
	for k := max(1, least); k < len(f.byUntouched); k++ {
		for c := f.byUntouched[k].Begin(); c.Valid(); c.Next() {
			if !yield(c.Value()) {
				return
			}
		}
	}
}

// Need is the memory wanted of the devices of one group.
type Need struct {
	group  int32
	Memory api.Bytes
}

// Needs appends what a floor of memory means for each group of the model wanted (empty: any), without those that can do too little or are too small.
func (f *Fleet) Needs(to []Need, model string, least Least, floor api.Amount) []Need {
	for i, g := range f.groups {
		if model != "" && g.model != model || !least.Met(g.traits) {
			continue
		}
		if m := floor.Of(g.memory); m <= g.memory {
			to = append(to, Need{int32(i), m})
		}
	}
	return to
}

// Walk calls yield for each device that has so much free, in the order of LessLeft, until it returns false. The books must not
// change while it walks.
func (f *Fleet) Walk(needs []Need, compute api.Milli, whole bool, yield func(DeviceID) bool) {
	f.freshen()
	if whole && !f.walkUntouched(needs, yield) {
		return
	}
	for left := f.nextFilled(needs, compute); left <= api.WholeDevice; left = f.nextFilled(needs, left+1) {
		f.walk = f.walk[:0]
		for _, need := range needs {
			if list := f.groups[need.group].touched[left]; list != nil && list.Len() > 0 {
				f.walk = append(f.walk, list.Seek(func(d DeviceID) bool {
					return f.devices[d].size-f.devices[d].book.Memory < need.Memory
				}))
			}
		}
		if !f.merge(yield) {
			return
		}
	}
	if !whole {
		f.walkUntouched(needs, yield)
	}
}

func (f *Fleet) walkUntouched(needs []Need, yield func(DeviceID) bool) bool {
	f.walk = f.walk[:0]
	for _, need := range needs {
		f.walk = append(f.walk, f.groups[need.group].untouched.Begin())
	}
	return f.merge(yield)
}

// nextFilled is the least free compute ≥ from that any touched device of these groups has.
func (f *Fleet) nextFilled(needs []Need, from api.Milli) api.Milli {
	best := api.WholeDevice + 1
	for _, need := range needs {
		filled := &f.groups[need.group].filled
		for w := from / 64; int(w) < len(filled) && w*64 < best; w++ {
			word := filled[w]
			if w == from/64 {
				word &= ^uint64(0) << (from % 64)
			}
			if word != 0 {
				best = min(best, w*64+api.Milli(bits.TrailingZeros64(word)))
				break
			}
		}
	}
	return best
}

// merge walks all cursors of f.walk together.
func (f *Fleet) merge(yield func(DeviceID) bool) bool {
	for {
		first := -1
		for i := range f.walk {
			if f.walk[i].Valid() && (first < 0 || f.deviceBefore(f.walk[i].Value(), f.walk[first].Value())) {
				first = i
			}
		}
		if first < 0 {
			return true
		}
		if !yield(f.walk[first].Value()) {
			return false
		}
		f.walk[first].Next()
	}
}
