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

// ofChange is the part that rests on the node's fragmentation and on its wholly free devices.
func (s *scored) ofChange(decrease int64, wholes int) int64 {
	w := &s.policy.Weights
	score := int64(w[Fragmentation])*(decrease>>12) - int64(w[Whole])*int64(wholes)
	if w[FragmentationStep] != 0 {
		score += int64(w[FragmentationStep]) * step(&s.steps, decrease)
	}
	return score
}

// ofNode is the part that rests on what the node has left in all, whichever device is chosen.
func (s *scored) ofNode(r *want, v *view, a *after) int64 {
	w, t := &s.policy.Weights, s.terrain
	left := v.total - r.total
	score := -int64(w[NodeDevices])*(left*1000/t.maxDevices) - int64(w[NodeCPU])*(a.cpu*1000/t.maxCPU)
	if w[NodeMemory] != 0 {
		score -= int64(w[NodeMemory]) * (a.memory / max(1, t.maxMemory/1000))
	}
	if (w[StrandedDevice] != 0 || w[StrandedCPU] != 0) && t.cpuWanted > 0 && t.gpuWanted > 0 {
		fed, feeds := v.fed, t.feeds(a.cpu)
		score += int64(w[StrandedDevice]) * (max(0, v.total-fed) - max(0, left-feeds))
		score += int64(w[StrandedCPU]) * (max(0, fed-v.total) - max(0, feeds-left))
	}
	return score - int64(w[Fitness])*t.profiles[v.profile].pull
}

// feeds is what so much CPU could feed, in milli of devices, at the ratio of the popular kinds.
func (t *terrain) feeds(cpu int64) int64 {
	if t.cpuWanted <= 0 {
		return 0
	}
	return cpu * t.gpuWanted / t.cpuWanted
}
