package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	daemonLogName = "daemon.log"
	// daemonLogLimit is the size in bytes at which the log of a server in the background is put aside; with the one before it, it
	// takes twice that.
	daemonLogLimit = 8 << 20
)

// daemonLog is what a server in the background writes into: a file that is put aside as path.1, in place of the one before it, when
// it has reached its limit. The descriptors of the process go on to the new file, so that what its runtime has to say in the end
// is there too.
type daemonLog struct {
	path  string
	limit int64

	mu          sync.Mutex
	descriptors []*os.File // open on the file; the first is written to
	ours        bool       // no other server can be writing into the file
	failed      int64      // the size at which it could not be put aside; it is tried again a limit later. 0: it could
}

// newDaemonLog is the log of the server with this STATE, if out and err are the file of it; else nil: whoever started this server
// keeps what it says.
func newDaemonLog(state string, out, err *os.File) *daemonLog {
	path := filepath.Join(state, daemonLogName)
	if !sameFile(path, err) {
		return nil
	}
	log := &daemonLog{path: path, limit: daemonLogLimit, descriptors: []*os.File{err}}
	if sameFile(path, out) {
		log.descriptors = append(log.descriptors, out)
	}
	return log
}

func sameFile(path string, file *os.File) bool {
	if file == nil {
		return false
	}
	one, err := os.Stat(path)
	if err != nil {
		return false
	}
	other, err := file.Stat()
	return err == nil && os.SameFile(one, other)
}

// own says that this is the one server that works on STATE. Until then nothing is put aside: another may be writing.
func (l *daemonLog) own() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ours = true
	l.bound()
}

func (l *daemonLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.descriptors[0].Write(text)
	l.bound()
	return n, err
}

// bound puts the file aside when it is large. Where that cannot be done the log goes on in the file that there is, and says why.
func (l *daemonLog) bound() {
	info, err := l.descriptors[0].Stat()
	if err != nil || !l.ours || info.Size() < l.failed+l.limit {
		return
	}
	l.failed = 0
	if err := l.turn(); err != nil {
		l.failed = info.Size()
		_, _ = fmt.Fprintf(l.descriptors[0], "the log %s could not be put aside, and grows: %v\n", l.path, err)
	}
}

func (l *daemonLog) turn() error {
	next, err := os.OpenFile(l.path+".next", os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _, _ = next.Close(), os.Remove(next.Name()) }()                            // by then it has its own name, or it is not needed
	if err := os.Rename(l.path, l.path+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) { // somebody may have removed it
		return err
	}
	if err := os.Rename(next.Name(), l.path); err != nil {
		return err
	}
	for _, one := range l.descriptors {
		if err := unix.Dup3(int(next.Fd()), int(one.Fd()), 0); err != nil {
			return err
		}
	}
	return nil
}
