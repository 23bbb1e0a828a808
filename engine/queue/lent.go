package queue

// Borrowed is what a queue holds over its quota, and its burst. Resources that its quota does not name go with those it does; a queue without any
// quota, of its own or under it, borrows all that it holds.
func (n *Node) Borrowed() (over Amounts) {
	var quota Amounts
	for r := range quota {
		quota[r] = n.guarantee(Resource(r))
	}
	over = n.bounds[0].burst
	for r := range over {
		if quota[r] > 0 || n.bounds[0].quota[r] != Unbounded || quota == (Amounts{}) && n.bounds[0].quota == unbounded {
			over[r] += max(0, n.All.Held[r]-n.bounds[0].burst[r]-quota[r])
		}
	}
	return over
}

// AtRisk is what of that preemptible work holds: owners of quotas may take it back.
func (n *Node) AtRisk() (risk Amounts) {
	over, held, firm := n.Borrowed(), n.bounds[0].held, n.bounds[0].firm
	for r := range risk {
		risk[r] = min(over[r], held[r]-firm[r])
	}
	return risk
}

// Lent is what a queue leaves of its quota and those beside it borrowed: the other queues under its parent, and the work of the
// parent itself.
func (n *Node) Lent() (lent Amounts) {
	beside, taken := n.tree.roots, Amounts{}
	if n.parent != nil {
		beside, taken = n.parent.children, n.parent.Own.Held
	}
	for _, q := range beside {
		if q != n {
			taken = taken.Plus(q.Borrowed(), 1)
		}
	}
	for r := range lent {
		lent[r] = min(max(0, n.guarantee(Resource(r))-n.All.Held[r]), taken[r])
	}
	return lent
}
