package lease

// gather sets the devices of a task aside until all are free together. The leases that run there are not extended; others fill the time until
// the last of them ends.
func (r *Rule) gather(t *task) {
	t.gatherAt = r.now
	waking := false
	for _, g := range t.grants {
		waking = waking || g.waking && g.credit > 0
	}
	for _, g := range t.grants {
		if !g.gated() {
			continue
		}
		d := g.device
		d.setAside = t
		d.next = r.now
		holder := d.holder
		switch {
		case holder == nil:
		case waking && revokes(g, holder):
			holder.books.Revoked++
			r.endLease(holder)
		default:
			t.gatherAt = max(t.gatherAt, holder.gate.End)
		}
	}
}

// release gives back what was set aside for a task.
func (r *Rule) release(t *task) {
	for _, g := range t.grants {
		if g.device.setAside == t {
			g.device.setAside = nil
			g.device.next = r.now
		}
	}
}

// finishGather opens all gates of the task that a device is set aside for, if all its devices are free now.
func (r *Rule) finishGather(asking *device) {
	t := asking.setAside
	length, wanted := r.config.Lease, false
	for _, g := range t.grants {
		if !g.gated() {
			continue
		}
		wanted = wanted || g.demand
		length = min(length, r.leaseLength(g))
		if !mayRun(g) {
			wanted, length = false, 0
		}
	}
	if !wanted || length == 0 {
		r.release(t)
		return
	}
	if r.now < t.gatherAt {
		asking.due(t.gatherAt)
		return
	}
	if r.mustWait(t, asking) {
		return
	}
	// Two that wake for each of their rounds would take the devices from each other before either has launched.
	longWaited := r.now > r.waitsSince(t)+r.config.Patience
	for _, g := range t.grants {
		if g.gated() {
			r.open(g, length)
			g.wakeLease = g.wakeLease || longWaited
		}
	}
}

// mustWait says whether a device of the task is not free. Whoever holds it up looks after itself and then asks here again.
func (r *Rule) mustWait(t *task, asking *device) bool {
	wait := false
	for _, g := range t.grants {
		if !g.gated() {
			continue
		}
		again, blocked := Never, g.device.holder != nil
		if !blocked {
			again, blocked = r.blocked(g.device, g)
		}
		if !blocked {
			continue
		}
		wait = true
		if again == Never {
			again = r.now + recheck
		}
		g.device.due(again)
		asking.due(again)
	}
	return wait
}
