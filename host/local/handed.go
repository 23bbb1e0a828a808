package local

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
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
	opened func() // called where there are more of them
}

// again are the same streams for a further replica: it prints where the first does, and reads nothing, for what is typed is for one.
func (s *handed) again() (*handed, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	more := &handed{[]*os.File{null}, s.closed, s.opened}
	s.opened()
	for _, file := range s.files[1:] {
		raw, err := file.SyscallConn()
		if err == nil {
			failed := raw.Control(func(fd uintptr) {
				var same int
				if same, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
					more.files = append(more.files, os.NewFile(uintptr(same), "stream"))
				}
			})
			err = errors.Join(err, failed)
		}
		if err != nil {
			more.close()
			return nil, err
		}
	}
	return more, nil
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

// feed gives those of several replicas that wait for streams what the first has in spare.
func (h *Host) feed(first *work, replicas ...*work) {
	for _, w := range replicas {
		if first.spare == nil || w.child != nil || w.now.Status.Started != nil || len(w.streams) > 0 {
			continue
		}
		streams, err := first.spare.again()
		if err != nil {
			h.Log.Error("the streams of a client could not be had for a further replica", "workload", w.now.UID, "error", err)
			continue
		}
		w.streams <- streams // the loop alone gives any to one that waits, but for letGo, after which it has ended
	}
}
