package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/aliquot-dev/aliquot/node/page"
)

// books are what the arbiter has written of this run's devices and workloads so far.
type books struct {
	at       time.Time
	switches uint64
	grants   map[string]page.BookEntry // by the folder's name; of a workload's only grant
}

// readBooks reads the arbiter's pages: how it charged what the tenants did stands beside what they completed.
func (s *suite) readBooks() (books, error) {
	b := books{at: time.Now(), grants: map[string]page.BookEntry{}}
	var err error
	if b.switches, err = s.switched(); err != nil {
		return b, err
	}
	tasks, _ := filepath.Glob(filepath.Join(s.server.run, "tasks", "*", "book"))
	for _, path := range tasks {
		m, err := page.Open[page.Book](path, false)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return b, err
		}
		err = m.View(func(book *page.Book) error {
			entry, ok := book.Grant[0].Read()
			if !ok {
				return fmt.Errorf("%s stays half written: has the arbiter died? log.txt says more", path)
			}
			b.grants[filepath.Base(filepath.Dir(path))] = entry
			return nil
		})
		m.Close()
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

// switched is how often leases have gone from one workload to another so far.
func (s *suite) switched() (times uint64, err error) {
	devices, _ := filepath.Glob(filepath.Join(s.server.run, "devices", "*")) // the pattern is well formed
	for _, path := range devices {
		m, err := page.Open[page.Device](path, false)
		if err != nil {
			return 0, err
		}
		err = m.View(func(d *page.Device) error {
			entry, ok := d.Read()
			if !ok {
				return fmt.Errorf("%s stays half written: has the arbiter died? log.txt says more", path)
			}
			times += entry.Switches
			return nil
		})
		m.Close()
		if err != nil {
			return 0, err
		}
	}
	return times, nil
}

// countEvery is how far apart the moments are at which it is read how often leases have changed.
const countEvery = 50 * time.Millisecond

// countChanges reads that from now on, until stop is called, which returns what was read.
func (s *suite) countChanges() (stop func() ([]sample, error)) {
	var counted []sample
	var failed error
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for last := false; ; {
			now, err := monotonic()
			times, err2 := s.switched()
			if failed = errors.Join(err, err2); failed != nil {
				return
			}
			counted = append(counted, sample{now, float64(times)})
			if last {
				return
			}
			select {
			case <-end:
				last = true // once more, so that no moment before this is behind the last
			case <-time.After(countEvery):
			}
		}
	}()
	return func() ([]sample, error) {
		close(end)
		<-ended
		return counted, failed
	}
}

// changes is how often leases went from one workload to another in a second between two readings.
func changes(before, after books) (perSecond float64) {
	return float64(after.switches-before.switches) / after.at.Sub(before.at).Seconds()
}

// logCharges logs what each workload was charged between two readings.
func (s *suite) logCharges(before, after books) {
	took := after.at.Sub(before.at)
	for uid, b := range after.grants {
		a, ok := before.grants[uid]
		if !ok {
			continue
		}
		s.log.printf("%s: held %.2f points, waited %.2f points, %d leases, %d overlapped, %d revoked, credit %v to %v", uid,
			points(b.Held-a.Held, took), points(b.Wait-a.Wait, took), b.Leases-a.Leases, b.Overlapped-a.Overlapped, b.Revoked-a.Revoked,
			time.Duration(a.Credit), time.Duration(b.Credit))
	}
}

func points(ns uint64, of time.Duration) float64 { return 100 * float64(ns) / float64(of) }
