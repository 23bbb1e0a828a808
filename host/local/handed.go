package local

import (
	"os"
	"sync"
)

// openLimit is how many connections, streams handed over and looks at files a user may have open at once. Each can be made to last: closing what a user handed over, or looking at a file of theirs, may never come to an end.
const openLimit = 2048

// tally counts what each user has open.
type tally struct {
	mu   sync.Mutex
	open map[uint32]int
}

// take counts one more; false if the user has as many as it may.
func (t *tally) take(uid uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[uid] >= openLimit {
		return false
	}
	if t.open == nil {
		t.open = map[uint32]int{}
	}
	t.open[uid]++
	return true
}

// more counts one more, whatever there is: what is there cannot be refused.
func (t *tally) more(uid uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[uid]++
}

// give counts one less.
func (t *tally) give(uid uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[uid]--; t.open[uid] == 0 {
		delete(t.open, uid)
	}
}

// handed are the three streams of an attached program, as its client handed them over.
type handed struct {
	files  []*os.File
	closed func() // called once they are
}

// list is empty where there are none.
func (s *handed) list() []*os.File {
	if s == nil {
		return nil
	}
	return s.files
}

// close closes them, without waiting for it: what close does with a file is its owner's, and may take for ever.
func (s *handed) close() {
	if s == nil {
		return
	}
	go func() {
		for _, file := range s.files {
			_ = file.Close()
		}
		s.closed()
	}()
}

// dropStreams closes what was handed over for a workload and is not taken any more, so that who reads from it sees its end.
func (w *work) dropStreams() {
	select {
	case streams := <-w.streams:
		streams.close()
	default:
	}
}
