package place

import "github.com/aliquot-dev/aliquot/engine/fleet"

// price is what devices of one group score for what they are: always, and besides where nothing is on them.
type price struct{ always, idle int64 }

// price works out the prices of all devices that take grants, where any of that counts.
func (t *terrain) price(f *fleet.Fleet, w *Weights) {
	if w[Cost] == 0 && w[Bandwidth] == 0 && w[Capability] == 0 && w[DeviceMemory] == 0 && w[Latency] == 0 && w[Power] == 0 {
		return
	}
	var most fleet.Traits
	var largest, rise int64
	groups := map[int32]fleet.DeviceID{}
	for n := range f.Nodes {
		for _, d := range f.DevicesOf(n) {
			group := f.GroupOf(d)
			if _, ok := groups[group]; ok || !f.Placeable(d) {
				continue
			}
			groups[group] = d
			if more := int(group) + 1 - len(t.prices); more > 0 {
				t.prices = append(t.prices, make([]price, more)...)
			}
			of := f.TraitsOf(d)
			most.Cost, most.Bandwidth, most.Capability = max(most.Cost, of.Cost), max(most.Bandwidth, of.Bandwidth), max(most.Capability, of.Capability)
			most.Latency = max(most.Latency, of.Latency)
			largest, rise = max(largest, int64(f.Memory(d)>>10)), max(rise, int64(of.Wakes()))
		}
	}
	for group, d := range groups {
		of := f.TraitsOf(d)
		t.prices[group] = price{
			always: -int64(w[Cost])*partOf(int64(of.Cost), int64(most.Cost)) - int64(w[Bandwidth])*partOf(int64(of.Bandwidth), int64(most.Bandwidth)) -
				int64(w[Capability])*partOf(int64(of.Capability), int64(most.Capability)) - int64(w[DeviceMemory])*partOf(int64(f.Memory(d)>>10), largest) -
				int64(w[Latency])*partOf(quickness(of.Latency, most.Latency), int64(most.Latency)),
			idle: -int64(w[Power]) * partOf(int64(of.Wakes()), rise),
		}
	}
}

// quickness is how quickly a device of a latency class answers: 1 of the slowest class there is, one more with each faster one, and 0 where the class
// is not known.
func quickness(class, slowest int32) int64 {
	if class == 0 {
		return 0
	}
	return int64(slowest - class + 1)
}

// partOf is an amount in thousandths of the most.
func partOf(amount, most int64) int64 { return amount * 1000 / max(1, most) }

// priceOf is the part of the score that rests on what a device is, and on whether anything is on it.
func (s *scored) priceOf(u *unit) int64 {
	if s.terrain.prices == nil {
		return 0
	}
	p := &s.terrain.prices[u.group]
	if u.busy == unused {
		return p.always + p.idle
	}
	return p.always
}
