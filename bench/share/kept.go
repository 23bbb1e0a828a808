package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/aliquot-dev/aliquot/bench/judge"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// kept is what a run has measured so far, in a file that is written after each measurement. A whole run takes two hours: one that was cut short goes on
// from there, if it is of the same programs with the same flags. What is kept of others is not looked at, and goes.
type kept struct {
	path  string
	Of    string                     `json:"of"`    // programs and flags, as a hash
	Steps map[string][]report.Metric `json:"steps"` // by name, apart from shares
	Sets  map[string]keptOutcome     `json:"sets"`  // of shares, by name
}

// keptOutcome is an outcome but for its scenario.
type keptOutcome struct {
	With, Without  judge.Verdict
	Beyond         judge.Beyond
	Arbiter, Taken float64
	Again          int
	At             time.Time // when it was measured
}

// readKept reads what is kept in a file of so much; without a file, or where it is of something else, that is nothing.
func readKept(path, of string) (*kept, error) {
	k := &kept{}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read what was measured before: %w", err)
	default:
		if err := json.Unmarshal(text, k); err != nil {
			return nil, fmt.Errorf("%s holds no measurements of this benchmark (%w): remove it, or name another file with -keep", path, err)
		}
	}
	if k.Of != of || k.Steps == nil || k.Sets == nil {
		k = &kept{Of: of, Steps: map[string][]report.Metric{}, Sets: map[string]keptOutcome{}}
	}
	k.path = path
	return k, nil
}

// write keeps what there is, whole or not at all.
func (k *kept) write() error {
	text, err := json.MarshalIndent(k, "", "  ")
	if err == nil {
		err = os.WriteFile(k.path+".new", append(text, '\n'), 0o644)
	}
	if err == nil {
		err = os.Rename(k.path+".new", k.path)
	}
	if err != nil {
		return fmt.Errorf("keep what was measured: %w", err)
	}
	return nil
}

// step is what a measurement reported before; false: it was not taken yet. Without a file nothing was.
func (k *kept) step(name string) ([]report.Metric, bool) {
	if k == nil {
		return nil, false
	}
	metrics, ok := k.Steps[name]
	return metrics, ok
}

func (k *kept) addStep(name string, metrics []report.Metric) error {
	if k == nil {
		return nil
	}
	k.Steps[name] = metrics
	return k.write()
}

// set is what a set of shares came to before; false: it was not measured yet.
func (k *kept) set(s scenario) (outcome, bool) {
	if k == nil {
		return outcome{}, false
	}
	o, ok := k.Sets[s.Name]
	return outcome{scenario: s, with: o.With, without: o.Without, beyond: o.Beyond, arbiter: o.Arbiter, again: o.Again, taken: o.Taken}, ok
}

func (k *kept) addSet(o outcome) error {
	if k == nil {
		return nil
	}
	k.Sets[o.scenario.Name] = keptOutcome{With: o.with, Without: o.without, Beyond: o.beyond, Arbiter: o.arbiter, Again: o.again, Taken: o.taken, At: time.Now()}
	return k.write()
}

// identity is what measurements are of: every program that is run, and how much is measured. What only chooses among measurements is no part of it.
func (b *bench) identity() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the benchmark's own program: %w", err)
	}
	h := sha256.New()
	for _, path := range []string{own, b.binary, b.trainer, b.server, b.waker, b.racer, b.calls} {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read what is measured: %w", err)
		}
		fmt.Fprintf(h, "%x\n", sha256.Sum256(text))
	}
	fmt.Fprintln(h, b.repeats, b.wakes, b.tries, b.burst, b.window, b.minute, b.bare, b.taken)
	return hex.EncodeToString(h.Sum(nil)), nil
}
