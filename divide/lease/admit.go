package lease

// The clock held against what tenants say they used.
//
// Where two tenants' work overlaps at a change of leases the clock alone cannot tell whose it was; each change errs a little, always the same
// way, and that adds up. What a tenant says would tell, but may be a lie. So only admissions count: one who says it used more than it was
// charged for pays in place of those who say they used less than they were charged for, as far as both reach. What is charged in all stays
// what the clock says, but for what the device takes to switch between tenants, which is nobody's.
const (
	claimMost   = 50_000_000        // ns of a claim, either way: what cannot be balanced is forgotten
	claimSure   = 500_000           // ns: below this it may be what was queued when the figures were read
	claimFade   = 16                // a part of what is unclaimed by others is forgotten at each reading
	spareMost   = 16                // one part in so many of the time that is held is switching at most
	spareFade   = 32                // one part in so many of what that is reckoned from is forgotten at each reading
	switchMost  = 200 * microsecond // of a change of leases: two switches, where the old work ends beside the new
	learnedPart = 4                 // what was measured may be more than what was said by one part in so many
)

// admit asks all grants of a device what they have used since they were last asked, and compares it with what they were charged.
func (r *Rule) admit(d *device) {
	allHeld, allSaid := NS(0), NS(0)
	d.askedAt = r.now
	for _, g := range d.grants {
		if !g.used {
			continue
		}
		spared := g.spared
		g.spared = 0
		said, charged, ok := r.answer(g)
		if !ok {
			continue
		}
		if !g.policy.Clock {
			allHeld += charged + spared
			allSaid += said
		}
		g.claim += int64(said) - int64(charged)
		if g.claim < 0 {
			g.claim -= g.claim / claimFade
		}
		g.claim = min(max(g.claim, -claimMost), claimMost)
	}
	d.countAdmitted()
	d.learnSpare(allHeld, allSaid)
}

// revived hears that a grant that gave no sign of life does again.
func (r *Rule) revived(g *grant) {
	r.admit(g.device)
	g.device.forgive(g)
	g.device.countAdmitted()
}

// forgive: of what others admit, what a grant was charged that gave no sign of life is owed to nobody, since it did not want that time.
func (d *device) forgive(g *grant) {
	sum := NS(0)
	for _, other := range d.grants {
		sum += NS(max(other.claim, 0))
	}
	left := min(NS(max(-g.claim, 0)), sum)
	if left > 0 {
		for _, other := range d.grants {
			if other.claim > 0 {
				other.claim -= int64(mulDiv(NS(other.claim), left, sum))
			}
		}
	}
	g.claim = max(g.claim, 0)
}

func (d *device) countAdmitted() {
	d.admitted = 0
	for _, g := range d.grants {
		d.admitted += NS(max(g.claim-claimSure, 0))
	}
}

// answer is what a grant says it has used since it was last asked and what it was charged. It is not taken while its durations are still being
// learned, or hold each other's work: then it is neither an admission nor a complaint.
func (r *Rule) answer(g *grant) (said, charged NS, taken bool) {
	seen := r.observe(g)
	all := seen.LaunchedNS - min(seen.LaunchedNS, seen.OutstandingNS)
	said = all - min(all, g.toldNS)
	charged = g.books.Held - g.heldAtTold
	learning := seen.MeasuredNS-g.measuredAtTold > said+said/learnedPart
	g.measuredAtTold = seen.MeasuredNS
	g.toldNS = all
	g.heldAtTold = g.books.Held
	if g.phase != phaseUngated && g.asked && !learning && !seen.Several {
		return said, charged, true
	}
	g.asked = true
	g.claim = 0
	return 0, 0, false
}

// learnSpare learns what of the time that is held goes to switching: what was held of late and is not said to have been used, as far as switches
// can account for it.
func (d *device) learnSpare(held, said NS) {
	d.latelyHeld += held - d.latelyHeld/spareFade
	d.latelySaid += said - d.latelySaid/spareFade
	if held == 0 && d.latelySaid < d.latelyHeld { // nobody's word was taken: what was learned is doubted until somebody's is
		d.latelySaid += (d.latelyHeld-d.latelySaid)/spareFade + 1
	}
	d.switching += NS(d.switches-d.switchesAsked)*switchMost - d.switching/spareFade
	d.switchesAsked = d.switches
	spare := d.latelyHeld - min(d.latelyHeld, d.latelySaid)
	d.spare = min(spare, d.switching, d.latelyHeld/spareMost)
}

// spared is what of a use the device took to switch; none where the grant's word is not taken.
func (d *device) spared(g *grant, use NS) NS {
	if d.spare == 0 || g.policy.Clock {
		return 0
	}
	return mulDiv(use, d.spare, d.latelyHeld)
}

// pay charges a use to a grant, or to those who admit that it was theirs.
func (d *device) pay(g *grant, use NS) {
	for _, other := range d.grants {
		if d.admitted == 0 || g.claim >= -claimSure || use == 0 {
			break
		}
		if other == g || other.claim <= claimSure {
			continue
		}
		part := min(NS(other.claim-claimSure), NS(-claimSure-g.claim), use)
		other.use(part)
		// What is charged is compared with what was said the next time: here only so that nothing is moved twice.
		other.claim -= int64(part)
		other.heldAtTold += part
		g.claim += int64(part)
		g.heldAtTold -= part
		d.admitted -= min(part, d.admitted)
		use -= part
	}
	g.measured += use
	g.use(use)
}
