package fleet

// journalSize is how many touches are kept. One who comes later than that looks at all nodes.
const journalSize = 1 << 14

// journal says which nodes' books changed, so that what is remembered of nodes can be brought up to date at the cost of what
// changed.
type journal struct {
	ring []NodeID // the last journalSize touches
	at   uint64   // touches so far
}

// touch notes that a node's books changed.
func (f *Fleet) touch(n NodeID) {
	f.versions[n]++
	if f.journal.ring == nil {
		f.journal.ring = make([]NodeID, journalSize)
	}
	f.journal.ring[f.journal.at%journalSize] = n
	f.journal.at++
}

// Touches counts changes of the nodes' books, those taken back included.
func (f *Fleet) Touches() uint64 { return f.journal.at }

// Version rises when a node's books change. It is only to be compared with earlier ones of the same node while Changes stands still.
func (f *Fleet) Version(n NodeID) uint32 { return f.versions[n] }

// TouchedSince calls yield for each node touched after the given count of Touches, some more than once. It returns false, and calls
// nothing, when that is too long ago: then any node may have been touched.
func (f *Fleet) TouchedSince(since uint64, yield func(NodeID)) bool {
	if since > f.journal.at || f.journal.at-since > journalSize {
		return false
	}
	for i := since; i < f.journal.at; i++ {
		n := f.journal.ring[i%journalSize]
		if i == since || f.journal.ring[(i-1)%journalSize] != n { // a start touches its node more than once in a row
			yield(n)
		}
	}
	return true
}

// Slots is one more than the largest NodeID in use.
func (f *Fleet) Slots() int { return len(f.nodes) }

// DeviceCount is how many devices are known, gone or not.
func (f *Fleet) DeviceCount() int { return len(f.byUUID) }
