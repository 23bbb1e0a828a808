package place

// steps are 1,000,000 × ln(k/(100-k)) for k from 51 to 99: from which decrease of fragmentation on, in millionths of a device, the
// sigmoid 100/(1+exp(-x)) is at least k.
var steps = [49]int64{
	40005, 80043, 120144, 160343, 200671, 241162, 281851, 322773, 363965, 405465, 447312, 489548, 532217, 575364, 619039, 663294,
	708185, 753772, 800119, 847298, 895384, 944462, 994623, 1045969, 1098612, 1152680, 1208311, 1265666, 1324925, 1386294, 1450010,
	1516347, 1585627, 1658228, 1734601, 1815290, 1900959, 1992430, 2090741, 2197225, 2313635, 2442347, 2586689, 2751535, 2944439,
	3178054, 3476099, 3891820, 4595120,
}

// step presses a decrease of fragmentation (in milli times one) into 0..100; the ladder is that of steps.
func step(ladder *ladder, decrease int64) int64 {
	x := decrease * 1000 / one // millionths of a device
	if x >= 0 {
		return 50 + int64(ladder.rank(x))
	}
	return 49 - int64(ladder.rank(-x-1))
}

// ofDevice is the part of the score that rests on one device: what it has free before and after, in milli.
func (s *scored) ofDevice(p *profile, before, left int64) int64 {
	w := &s.policy.Weights
	score := -int64(w[Remainder]) * left
	if left == 0 {
		score += int64(w[Exact]) * 1000
	}
	if before == whole && left > 0 && left < whole {
		score -= int64(w[Untouched]) * 1000
	}
	return score + p.worth[before] - p.worth[left]
}

// ofUse is the part that rests on what is predicted to be used of one device.
func (s *scored) ofUse(p *part, u *unit) int64 {
	weight := int64(s.policy.Weights[Interference])
	if weight == 0 {
		return 0
	}
	return -weight * max(0, int64(max(0, u.busy))+int64(p.busy)-whole)
}

// ofChange is the part that rests on the node's fragmentation.
func (s *scored) ofChange(decrease int64) int64 {
	w := &s.policy.Weights
	score := int64(w[Fragmentation]) * (decrease >> 12)
	if w[FragmentationStep] != 0 {
		score += int64(w[FragmentationStep]) * step(&s.steps, decrease)
	}
	return score
}

// risesBy is by how much ofChange is more at the most where fragmentation falls by less; none: by any amount.
//
// It falls by so many milli times one. Fragmentation weighs each 4,096 of these; of 100/(1+exp(-x)) no more than 25 are added by a device, which is 1,000 times
// one, and what is pressed into whole steps may rise by one more.
func (w *Weights) risesBy() int64 {
	smooth, steps := int64(w[Fragmentation]), int64(w[FragmentationStep])
	switch {
	case smooth < 0:
		return none
	case steps >= 0:
		return 0
	case smooth*1000*one/4096 < -steps*25:
		return none
	}
	return smooth - steps
}

// ofNode is the part that rests on what the node has left in all, whichever device is chosen.
func (s *scored) ofNode(r *want, v *view) int64 {
	w, t := &s.policy.Weights, s.terrain
	left, devices := v.total-r.total, v.totalIn.less(r.totalIn)
	if left < 0 { // a device without memory counts as having nothing free, and may have compute
		devices = left * 1000 / t.maxDevices
	}
	score := -int64(w[NodeDevices])*devices - int64(w[NodeCPU])*v.cpuIn.less(r.cpuIn) - int64(w[NodeMemory])*v.memoryIn.less(r.memoryIn)
	if (w[StrandedDevice] != 0 || w[StrandedCPU] != 0) && t.cpuWanted > 0 && t.gpuWanted > 0 {
		fed, feeds := v.fedIn.whole, v.fedIn.less(r.feedIn)
		score += int64(w[StrandedDevice]) * (max(0, v.total-fed) - max(0, left-feeds))
		score += int64(w[StrandedCPU]) * (max(0, fed-v.total) - max(0, feeds-left))
	}
	if w[StrandedMemory] != 0 && t.memoryWanted > 0 && t.gpuWanted > 0 {
		score += int64(w[StrandedMemory]) * (max(0, v.heldIn.whole-v.total) - max(0, v.heldIn.less(r.holdIn)-left))
	}
	if v.asleep {
		score -= int64(w[Wake]) * 1000
	}
	return score - int64(w[Fitness])*t.profiles[v.profile].pull
}

// ratio is an amount in some unit: how many times it has the unit, and what is left over. So a difference of two is known without a
// division.
type ratio struct{ whole, rest int64 }

// ratioOf is an amount, times something, over the unit.
func ratioOf(amount, times, unit int64) ratio {
	r := ratio{amount * times / unit, amount * times % unit}
	r.rest = max(0, r.rest) // less than nothing counts as rounded towards it already; nothing is ever taken of it
	return r
}

// less is the ratio of the difference, rounded down, where b is no more than a, or nothing.
func (a ratio) less(b ratio) int64 {
	if a.rest < b.rest {
		return a.whole - b.whole - 1
	}
	return a.whole - b.whole
}

// ratios are compute (in milli), CPU and memory of a node, in thousandths of the node that has most of it, and what so much CPU could feed, in
// milli of devices, at the ratio of the popular kinds.
func (t *terrain) ratios(total, cpu, memory int64) (totalIn, cpuIn, memoryIn, feeds ratio) {
	if t.cpuWanted > 0 {
		feeds = ratioOf(cpu, t.gpuWanted, t.cpuWanted)
	}
	return ratioOf(total, 1000, t.maxDevices), ratioOf(cpu, 1000, t.maxCPU), ratioOf(memory, 1, max(1, t.maxMemory/1000)), feeds
}

// feedsOf is what so much memory of a node could feed, in milli of devices, at the ratio of the popular kinds.
func (t *terrain) feedsOf(memory int64) (feeds ratio) {
	if t.memoryWanted > 0 {
		feeds = ratioOf(memory>>t.memoryShift, t.gpuWanted, t.memoryWanted)
	}
	return feeds
}
