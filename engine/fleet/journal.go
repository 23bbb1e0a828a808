package fleet

// journalSize is how many touches are kept. One who comes later than that looks at all nodes.
const journalSize = 1 << 14

// Journal says which nodes changed, so that what is remembered of nodes can be brought up to date at the cost of what
// changed. The zero Journal is empty.
type Journal struct {
	ring []NodeID // the last journalSize touches
	at   uint64   // touches so far
}

// touch notes that a node's books changed.
func (f *Fleet) touch(n NodeID) {
	f.versions[n]++
	f.journal.Touch(n)
}

// Touch notes that a node changed.
func (j *Journal) Touch(n NodeID) {
	if j.ring == nil {
		j.ring = make([]NodeID, journalSize)
	}
	j.ring[j.at%journalSize] = n
	j.at++
}

// Touches counts the changes.
func (j *Journal) Touches() uint64 { return j.at }

// Touches counts changes of the nodes' books, those taken back included.
func (f *Fleet) Touches() uint64 { return f.journal.Touches() }

// Version rises when a node's books change. It is only to be compared with earlier ones of the same node while Changes stands still.
func (f *Fleet) Version(n NodeID) uint32 { return f.versions[n] }

// TouchedSince calls yield for each node whose books were touched after the given count of Touches: see Journal.Since.
func (f *Fleet) TouchedSince(since uint64, yield func(NodeID)) bool {
	return f.journal.Since(since, yield)
}

// Since calls yield for each node touched after the given count of Touches, some more than once. It returns false, and calls
// nothing, when that is too long ago: then any node may have been touched.
func (j *Journal) Since(since uint64, yield func(NodeID)) bool {
	if since > j.at || j.at-since > journalSize {
		return false
	}
	for i := since; i < j.at; i++ {
		n := j.ring[i%journalSize]
		if i == since || j.ring[(i-1)%journalSize] != n { // a start touches its node more than once in a row
			yield(n)
		}
	}
	return true
}

// Slots is one more than the largest NodeID in use.
func (f *Fleet) Slots() int { return len(f.nodes) }

// DeviceCount is how many devices are known, gone or not.
func (f *Fleet) DeviceCount() int { return len(f.byUUID) }
