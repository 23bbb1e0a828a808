package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// room is what is free.
type room struct {
	n    *naive
	left map[string]left  // by device
	cpu  map[string]int64 // by node
}

type left struct {
	compute api.Milli
	memory  api.Bytes
	grants  int
}

func (r room) copy() room { return room{r.n, maps.Clone(r.left), maps.Clone(r.cpu)} }

func (r room) take(w *Workload, node string, devices []string, sign int) {
	for _, uuid := range devices {
		l := r.left[uuid]
		size := r.n.device(node, uuid).Memory
		l.compute -= w.Share.Compute.Floor * api.Milli(sign)
		l.memory -= w.Share.Memory.Floor.Of(size) * api.Bytes(sign)
		l.grants += sign
		r.left[uuid] = l
	}
	if len(w.Resources) > 0 {
		r.cpu[node] -= w.Resources[0].Amount * int64(sign)
	}
}

// hold takes what a running task holds: its floors, and the memory that it holds above them.
func (r room) hold(w *naiveWork, t *naiveTask, sign int) {
	asks := w.asks(t)
	r.take(asks, t.node, t.devices, sign)
	for _, uuid := range t.devices {
		l := r.left[uuid]
		l.memory -= max(0, t.used[uuid]-asks.Share.Memory.Floor.Of(r.n.device(t.node, uuid).Memory)) * api.Bytes(sign)
		r.left[uuid] = l
	}
}

func (n *naive) device(node, uuid string) Device {
	for _, d := range n.nodes[node].devices {
		if d.UUID == uuid {
			return d
		}
	}
	panic("no device " + uuid)
}

func (n *naive) empty() room {
	r := room{n, map[string]left{}, map[string]int64{}}
	for name, node := range n.nodes {
		r.cpu[name] = node.cpu
		for _, d := range node.devices {
			r.left[d.UUID] = left{api.WholeDevice, d.Memory, 0}
		}
	}
	return r
}

func (n *naive) full() room {
	r := n.empty()
	for _, w := range n.work {
		for _, t := range w.tasks {
			if !t.over {
				r.hold(w, t, 1)
			}
		}
	}
	return r
}

func (n *naive) open(class, node string) bool {
	allowed, said := n.said[[2]string{class, node}]
	return !n.refused[[2]string{class, node}] && (allowed || class == "" && !said)
}

// serves says that a device could hold the share if it were empty.
func (n *naive) serves(w *Workload, node string, d Device) bool {
	return !n.nodes[node].gone && d.Health == api.Healthy && n.open(w.Feasibility, node) &&
		(w.Model == "" || w.Model == d.Model) && d.Traits.Capability >= w.Least.Capability && d.Traits.Bandwidth >= w.Least.Bandwidth && (w.Least.Latency == 0 || d.Traits.Latency >= 1 && d.Traits.Latency <= w.Least.Latency) &&
		w.Share.Memory.Fits(d.Memory) && n.admits(w, node, d)
}

// poolOf is the pool that a device is in; nil: none.
func (n *naive) poolOf(node string, d Device) *Pool {
	for _, p := range n.pools {
		if (p.Nodes == nil || slices.Contains(p.Nodes, node)) && (p.Models == nil || slices.Contains(p.Models, d.Model)) &&
			(p.First == nil || *p.First <= d.Index) && (p.Last == nil || d.Index <= *p.Last) {
			return &p
		}
	}
	return nil
}

// isHome says that a device is for work of this class.
func (n *naive) isHome(w *Workload, node string, d Device) bool {
	p := n.poolOf(node, d)
	return p == nil || slices.Contains(p.Classes, w.Class)
}

// admits says that a device may be had: at home, or when pools lend, of those that do.
func (n *naive) admits(w *Workload, node string, d Device) bool {
	if !n.lending {
		return n.isHome(w, node, d)
	}
	p := n.poolOf(node, d)
	if p == nil || !p.Lends || n.isHome(w, node, d) {
		return false
	}
	n.lending = false // what suits those who wait
	defer func() { n.lending = true }()
	for name, other := range n.nodes {
		for _, o := range other.devices {
			if q := n.poolOf(name, o); q != nil && q.Name == p.Name && slices.ContainsFunc(n.wanting, func(v *naiveWork) bool {
				return slices.Contains(p.Classes, v.Class) && v.anyPart(func(one *Workload) bool { return n.serves(one, name, o) })
			}) {
				return false
			}
		}
	}
	return true
}

type candidate struct {
	node   string
	device Device
	left   left
}

// candidates are the devices with room, best first.
func (r room) candidates(w *Workload, avoid func(string, Device, left) bool) []candidate {
	var all []candidate
	for name, node := range r.n.nodes {
		if len(w.Resources) > 0 && r.cpu[name] < w.Resources[0].Amount {
			continue
		}
		for _, d := range node.devices {
			l := r.left[d.UUID]
			if r.n.serves(w, name, d) && l.compute >= w.Share.Compute.Floor && l.memory >= w.Share.Memory.Floor.Of(d.Memory) &&
				(avoid == nil || !avoid(name, d, l)) {
				all = append(all, candidate{name, d, l})
			}
		}
	}
	whole := w.Share.Compute.Floor == api.WholeDevice
	slices.SortFunc(all, func(a, b candidate) int {
		rank := func(c candidate) int {
			if (c.left.grants == 0) == whole {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.left.compute, b.left.compute), cmp.Compare(a.left.memory, b.left.memory),
			cmp.Compare(a.node, b.node), cmp.Compare(a.device.Index, b.device.Index))
	})
	return all
}

// untouched counts the devices of a node that nothing is on and that take work.
func (r room) untouched(node string) int {
	count := 0
	for _, d := range r.n.nodes[node].devices {
		if r.left[d.UUID].grants == 0 && d.Health == api.Healthy && !r.n.nodes[node].gone {
			count++
		}
	}
	return count
}

type naiveSpot struct {
	node    string
	devices []string
}

func (r room) one(w *Workload, avoid func(string, Device, left) bool) (naiveSpot, bool) {
	all := r.candidates(w, avoid)
	byNode := map[string][]candidate{}
	if w.Share.Compute.Floor == api.WholeDevice && w.Devices > 1 {
		var names []string
		for _, c := range all {
			if c.left.grants == 0 {
				byNode[c.node] = append(byNode[c.node], c)
				names = append(names, c.node)
			}
		}
		names = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(names))), func(name string) bool { return len(byNode[name]) < w.Devices })
		if len(names) > 0 {
			best := slices.MinFunc(names, func(a, b string) int {
				return cmp.Or(cmp.Compare(r.untouched(a), r.untouched(b)), cmp.Compare(a, b))
			})
			slices.SortFunc(byNode[best], func(a, b candidate) int { return cmp.Compare(a.device.Index, b.device.Index) })
			return spotOf(nearest(byNode[best][:w.Devices], all)), true
		}
		clear(byNode)
	}
	for _, c := range all {
		byNode[c.node] = append(byNode[c.node], c)
		if len(byNode[c.node]) == w.Devices {
			return spotOf(nearest(byNode[c.node], all)), true
		}
	}
	return naiveSpot{}, false
}

// nearest is the best choice of as many devices as were chosen among those on their node that are as good, if all chosen are alike: that with the most pairs
// that are linked, then with the fewest linked pairs of which one is left, then the first by index.
func nearest(chosen, all []candidate) []candidate {
	alike := func(a, b candidate) bool {
		x, y := a.device, b.device
		return a.node == b.node && x.Model == y.Model && x.Memory == y.Memory && x.Traits == y.Traits &&
			a.left.compute == b.left.compute && a.left.memory == b.left.memory && (a.left.grants == 0) == (b.left.grants == 0)
	}
	of := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !alike(c, chosen[0]) })
	if len(chosen) < 2 || slices.ContainsFunc(chosen, func(c candidate) bool { return !alike(c, chosen[0]) }) {
		return chosen
	}
	slices.SortFunc(of, func(a, b candidate) int { return cmp.Compare(a.device.Index, b.device.Index) })
	best, most, least := chosen, -1, 0
	var choose func(from int, taken []candidate)
	choose = func(from int, taken []candidate) {
		if len(taken) == len(chosen) {
			linked, broken := 0, 0
			for _, a := range taken {
				for _, b := range of {
					switch in := slices.ContainsFunc(taken, func(c candidate) bool { return c.device.UUID == b.device.UUID }); {
					case a.device.Link == "" || a.device.Link != b.device.Link || a.device.UUID == b.device.UUID:
					case in:
						linked++
					default:
						broken++
					}
				}
			}
			if linked > most || linked == most && broken < least {
				best, most, least = slices.Clone(taken), linked, broken
			}
			return
		}
		for i := from; i < len(of); i++ {
			choose(i+1, append(slices.Clip(taken), of[i]))
		}
	}
	choose(0, nil)
	return best
}

func spotOf(chosen []candidate) naiveSpot {
	chosen = slices.Clone(chosen)
	slices.SortFunc(chosen, func(a, b candidate) int { return cmp.Compare(a.device.Index, b.device.Index) })
	s := naiveSpot{node: chosen[0].node}
	for _, c := range chosen {
		s.devices = append(s.devices, c.device.UUID)
	}
	return s
}

// fit finds a spot for each task and takes them, or nothing.
func (r room) fit(w *Workload, avoid func(string, Device, left) bool) ([]naiveSpot, bool) {
	if w.Same != "" || w.Prefer != "" && (w.Tasks > 1 || len(w.Roles) > 0) {
		spots, ok := r.together(w, avoid)
		if ok || w.Same != "" {
			return spots, ok
		}
	}
	if len(w.Roles) > 0 {
		return r.fitRoles(w, avoid)
	}
	try := r.copy()
	var spots []naiveSpot
	for range w.Tasks {
		s, ok := try.one(w, avoid)
		if !ok {
			break
		}
		try.take(w, s.node, s.devices, 1)
		spots = append(spots, s)
	}
	if len(spots) < w.Tasks {
		try = r.copy()
		if spots = try.spread(w, avoid); spots == nil {
			return nil, false
		}
	}
	maps.Copy(r.left, try.left)
	maps.Copy(r.cpu, try.cpu)
	return spots, true
}

// spread takes for each task the devices of a node that could hold most more tasks.
func (r room) spread(w *Workload, avoid func(string, Device, left) bool) []naiveSpot {
	var spots []naiveSpot
	for _, name := range slices.Sorted(maps.Keys(r.n.nodes)) {
		for len(spots) < w.Tasks {
			var here []candidate
			for _, c := range r.candidates(w, avoid) {
				if c.node == name {
					here = append(here, c)
				}
			}
			holds := func(c candidate) int {
				k := w.Tasks - len(spots)
				for i := range k {
					if api.Milli(i+1)*w.Share.Compute.Floor > c.left.compute || api.Bytes(i+1)*w.Share.Memory.Floor.Of(c.device.Memory) > c.left.memory {
						return i
					}
				}
				return k
			}
			slices.SortFunc(here, func(a, b candidate) int {
				return cmp.Or(cmp.Compare(holds(b), holds(a)), cmp.Compare(a.device.Index, b.device.Index))
			})
			if len(here) < w.Devices {
				break
			}
			s := spotOf(here[:w.Devices])
			r.take(w, s.node, s.devices, 1)
			spots = append(spots, s)
		}
		if len(spots) == w.Tasks {
			return spots
		}
	}
	return nil
}
