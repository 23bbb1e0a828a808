package place

import "github.com/aliquot-dev/aliquot/api"

// The outlooks of a profile: in the order of coming, and with patience: how many of those that come a device may choose among.
const (
	inOrder = iota
	hasty
	patient
	distant
	outlooks
)

var patience = [outlooks]int{hasty: 3, patient: 12, distant: 48}

// look works out, for each amount that a device of a profile may have free, how much of it is expected to stay unused, in
// sixteenths of a milli.
//
// In the order of coming: U(f) = f where no kind fits, else the mean of U(f-need) over the kinds that fit, by their shares. With
// patience: U0(f) = f; Ui+1(f) = the mean over all kinds of the lesser of Ui(f) and, where it fits, Ui(f-need).
func (t *terrain) look(p *profile) {
	const unit = 16
	step, needs, shares := t.wants(p)
	var weight int64
	for _, share := range shares {
		weight += share
	}
	for which := range p.outlook {
		for f := range whole + 1 {
			p.outlook[which][f] = int32(f * unit)
		}
	}
	if weight == 0 {
		return
	}
	fillInOrder(&p.outlook[inOrder], step, needs, shares)
	rounds := p.outlook[hasty]
	for i := range patience[distant] {
		for f := whole; f >= 0; f -= step { // from the top: what is below is still the round before
			var sum int64
			for k, need := range needs {
				best := rounds[f]
				if need <= f {
					best = min(best, rounds[f-need])
				}
				sum += shares[k] * int64(best)
			}
			rounds[f] = int32(sum / weight)
		}
		for which, of := range patience {
			if of == i+1 {
				p.outlook[which] = rounds
			}
		}
	}
	for which := range p.outlook {
		u := &p.outlook[which]
		for f := range whole + 1 { // between the steps no kind fits that does not fit at the step below
			u[f] = u[f-f%step] + int32(f%step*unit)
		}
	}
}

// weigh adds up the outlooks by their weights.
func (p *profile) weigh(w *Weights) {
	for which, f := range [outlooks]Feature{inOrder: Outlook, hasty: HastyOutlook, patient: PatientOutlook, distant: DistantOutlook} {
		for free, unused := range p.outlook[which] {
			p.worth[free] += int64(w[f]) * int64(unused)
		}
	}
}

func fillInOrder(u *[whole + 1]int32, step int64, needs, shares []int64) {
	for f := int64(0); f <= whole; f += step {
		var sum, weight int64
		for i, need := range needs {
			if need <= f {
				sum += shares[i] * int64(u[f-need])
				weight += shares[i]
			}
		}
		if weight > 0 {
			u[f] = int32(sum / weight)
		}
	}
}

// wants are the distinct needs of the popular kinds on one device of a profile with their shares, and their greatest common
// divisor with the whole.
func (t *terrain) wants(p *profile) (step int64, needs, shares []int64) {
	var share [whole + 1]int64
	for i, k := range t.popular {
		if p.may[i] && p.of[i] > 0 {
			need := int64(p.of[i])
			if k.Compute == api.WholeDevice {
				need = whole
			}
			share[need] += t.share[i] * int64(k.Devices)
		}
	}
	step = whole
	for need, s := range share {
		if s == 0 {
			continue
		}
		needs, shares = append(needs, int64(need)), append(shares, s)
		for a := int64(need); a > 0; {
			step, a = a, step%a
		}
	}
	return step, needs, shares
}
