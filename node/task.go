package node

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/page"
)

// task is a prepared task with its pages.
type task struct {
	record
	folder string

	ctl  *page.Map[page.Ctl]
	tel  *page.Map[page.Tel]
	book *page.Map[page.Book]

	broken error // why it cannot be held to its grants any more; nil: it can. Written under Agent.ops and Agent.mu

	// What was last read, so that a count never falls and a reading that fails does not become zero.
	mu   sync.Mutex
	last []Usage
}

// makeTask fills a folder, which must not exist, with a task's pages and record.
func makeTask(folder string, t Task, capacity func(device string) api.Bytes) error {
	if err := makeFolder(folder); err != nil {
		return err
	}
	now := monotonic()
	grants := len(t.Grants)
	err := page.Create(filepath.Join(folder, "ctl"), 0o644, t.UID, grants, now, func(c *page.Ctl) {
		for i, g := range t.Grants {
			entry := &c.Grant[i]
			copy(entry.Device[:page.UUIDLen-1], g.Device)
			entry.SetPolicy(policyOf(g, t.Flags, capacity(g.Device)))
			// The gate stays closed until the arbiter opens it; the memory floor may be used as soon as it listens.
			entry.MemGranted.Store(uint64(g.MemFloor))
		}
	})
	if err != nil {
		return err
	}
	if err := page.Create[page.Tel](filepath.Join(folder, "tel"), 0o600, t.UID, grants, now, nil); err != nil {
		return err
	}
	if err := page.Create[page.Book](filepath.Join(folder, "book"), 0o600, t.UID, grants, now, nil); err != nil {
		return err
	}
	if !t.UserUnknown {
		if err := page.Give(folder, page.User(t.UserID)); err != nil {
			return fmt.Errorf("%w; only root may prepare tasks of other users", err)
		}
	}
	return record{Task: t}.write(filepath.Join(folder, recordName))
}

// openTask opens what makeTask made. With an error comes what can be had of the task, enough to take it back.
func openTask(folder string) (*task, error) {
	r, recorded := readRecord(filepath.Join(folder, recordName))
	if recorded == nil && r.Task.UID != filepath.Base(folder) {
		recorded = fmt.Errorf("%s: %w: it is of task %s", folder, errDamagedRecord, r.Task.UID)
	}
	if recorded != nil {
		r = record{Task: Task{UID: filepath.Base(folder), UserID: ownerOf(filepath.Join(folder, "tel"))}}
	}
	t := &task{record: r, folder: folder, last: make([]Usage, len(r.Task.Grants))}
	var ctl, tel, book error
	t.ctl, ctl = page.Open[page.Ctl](filepath.Join(folder, "ctl"), true)
	t.tel, tel = page.Open[page.Tel](filepath.Join(folder, "tel"), false)
	t.book, book = page.Open[page.Book](filepath.Join(folder, "book"), false)
	if tel != nil {
		// Its owner may have spoiled it, and loses its own figures by that, nothing else.
		t.tel = nil
	}
	return t, cmp.Or(recorded, ctl, book)
}

// ownerOf is whose a file is; this user, where there is none.
func ownerOf(path string) uint32 {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return uint32(os.Geteuid())
	}
	return stat.Uid
}

// user is whose the task's pages are now.
func (t *task) user(asked Task) uint32 {
	user, given := page.Given(t.folder)
	switch {
	case given:
		return uint32(user)
	case asked.UserUnknown:
		return uint32(os.Geteuid())
	}
	return asked.UserID // an earlier agent made them for
}

func (t *task) close() {
	if t.ctl != nil {
		t.ctl.Close()
	}
	if t.tel != nil {
		t.tel.Close()
	}
	if t.book != nil {
		t.book.Close()
	}
}

// order writes the task's policy into its page. It says whether anything changed.
func (t *task) order(capacity func(device string) api.Bytes, extra uint32) (changed bool, err error) {
	err = t.ctl.View(func(c *page.Ctl) error {
		for i, g := range t.Task.Grants {
			entry := &c.Grant[i]
			want := policyOf(g, t.Task.Flags, capacity(g.Device))
			have, ok := entry.Policy()
			want.Flags |= extra | have.Flags&doubtFlag // who was doubted once stays so
			if !ok || have != want {
				entry.SetPolicy(want)
				changed = true
			}
		}
		return nil
	})
	return changed, err
}

func policyOf(g Grant, f Flags, capacity api.Bytes) page.Policy {
	p := page.Policy{
		Floor: uint32(g.Floor), Ceiling: uint32(g.Ceiling), Weight: uint32(g.Weight),
		MemFloor: uint64(g.MemFloor), MemCeiling: uint64(g.MemCeiling), MemDevice: uint64(capacity),
	}
	if f.LatencyClass {
		p.Flags |= page.PolicyLatency
	}
	if f.Revocable {
		p.Flags |= page.PolicyLendMem
	}
	return p
}

// monotonic is the pages' clock: nanoseconds of CLOCK_MONOTONIC.
func monotonic() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0 // cannot fail on Linux
	}
	return uint64(now.Nano())
}
