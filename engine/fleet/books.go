package fleet

import "github.com/aliquot-dev/aliquot/api"

// image is a before-image: what one row of the books was before it changed.
type image struct {
	device   DeviceID // None: a node's resource
	book     Book
	node     NodeID
	resource ResourceID
	taken    int64
}

// Mark is a moment in the undo log.
type Mark struct {
	at   int
	gave bool
}

// Begin opens a mark: what the books become from here on can be taken back with Rollback, or kept with Commit. Marks nest. Between
// Begin and its end only the books may change, not the nodes.
func (f *Fleet) Begin() Mark {
	f.depth++
	return Mark{len(f.undo), f.gave}
}

// Trying says that a mark is open: what the books hold may yet be taken back.
func (f *Fleet) Trying() bool { return f.depth > 0 }

// Rollback puts back every row changed since the mark, last first, and closes the mark.
func (f *Fleet) Rollback(m Mark) {
	for i := len(f.undo) - 1; i >= m.at; i-- {
		im := &f.undo[i]
		if im.device == None {
			f.stockOf(im.node)[im.resource].taken = im.taken
			f.touch(im.node)
			continue
		}
		f.write(im.device, im.book)
	}
	f.undo = f.undo[:m.at]
	f.gave = m.gave // what was given back is taken again
	f.closeMark()
}

// Commit keeps what was done since the mark and closes it.
func (f *Fleet) Commit(Mark) { f.closeMark() }

func (f *Fleet) closeMark() {
	if f.depth--; f.depth > 0 {
		return
	}
	f.undo = f.undo[:0]
	if f.gave {
		f.gains++
		f.gave = false
	}
}

// Adjust changes what is taken of a device by so much, up or down.
func (f *Fleet) Adjust(d DeviceID, compute api.Milli, memory api.Bytes, grants int32) {
	before := f.devices[d].book
	if f.depth > 0 {
		f.undo = append(f.undo, image{device: d, book: before})
	}
	f.write(d, Book{before.Compute + compute, before.Busy, before.Memory + memory, before.Grants + grants})
	if compute < 0 || memory < 0 || grants < 0 {
		f.given()
	}
}

// AddBusy changes what the grants on a device are predicted to use by so much, up or down. Nothing fits because of it that did not before.
func (f *Fleet) AddBusy(d DeviceID, busy api.Milli) {
	book := f.devices[d].book
	if f.depth > 0 {
		f.undo = append(f.undo, image{device: d, book: book})
	}
	book.Busy += busy
	f.write(d, book)
}

// Take takes these amounts of a node's resources.
func (f *Fleet) Take(n NodeID, amounts []Amount) { f.adjustResources(n, amounts, 1) }

// Give gives these amounts of a node's resources back.
func (f *Fleet) Give(n NodeID, amounts []Amount) {
	f.adjustResources(n, amounts, -1)
	if len(amounts) > 0 {
		f.given()
	}
}

func (f *Fleet) adjustResources(n NodeID, amounts []Amount, sign int64) {
	if len(amounts) > 0 {
		f.touch(n)
	}
	for _, a := range amounts {
		row := &f.stockOf(n)[a.Resource].taken
		if f.depth > 0 {
			f.undo = append(f.undo, image{device: None, node: n, resource: a.Resource, taken: *row})
		}
		*row += sign * a.Amount
	}
}

// given notes that something came free. Inside a mark it may yet be rolled back, and what fits then is what fitted before.
func (f *Fleet) given() {
	if f.depth == 0 {
		f.gains++
		return
	}
	f.gave = true
}

// write sets a device's book. The index moves the device when it is next read.
func (f *Fleet) write(d DeviceID, b Book) {
	dev := &f.devices[d]
	if dev.book == b {
		return
	}
	dev.book = b
	if !dev.stale {
		dev.stale = true
		f.stale = append(f.stale, d)
	}
	f.touch(dev.node)
}
