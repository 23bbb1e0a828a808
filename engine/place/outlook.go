package place

import "github.com/aliquot-dev/aliquot/api"

// patience is how many of those that come a device may choose among for PatientOutlook.
const patience = 12

// outlooks works out, for each amount that a device of a profile may have free, how much of it is expected to stay unused.
//
// In the order of its coming: U(f) = f where no kind fits, else the mean of U(f-need) over the kinds that fit, by their shares. With
// patience: U0(f) = f; Ui+1(f) = the mean over all kinds of the lesser of Ui(f) and, where it fits, Ui(f-need).
func (t *terrain) outlooks(p *profile) {
	step, needs, shares := t.wants(p)
	const unit = 16
	inOrder, patient := &p.outlook[0], &p.outlook[1]
	for f := int64(0); f <= whole; f += step {
		inOrder[f] = int32(f * unit)
		patient[f] = int32(f * unit)
		var sum, weight int64
		for i, need := range needs {
			if need <= f {
				sum += shares[i] * int64(inOrder[f-need])
				weight += shares[i]
			}
		}
		if weight > 0 {
			inOrder[f] = int32(sum / weight)
		}
	}
	var weight int64
	for _, share := range shares {
		weight += share
	}
	for range patience {
		if weight == 0 {
			break
		}
		for f := whole - whole%step; f >= 0; f -= step { // from the top: what is below is still the round before
			var sum int64
			for i, need := range needs {
				best := patient[f]
				if need <= f {
					best = min(best, patient[f-need])
				}
				sum += shares[i] * int64(best)
			}
			patient[f] = int32(sum / weight)
		}
	}
	for f := range whole + 1 { // between the steps no kind fits that does not fit at the step below
		base := f - f%step
		inOrder[f] = inOrder[base] + int32((f-base)*unit)
		patient[f] = patient[base] + int32((f-base)*unit)
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
