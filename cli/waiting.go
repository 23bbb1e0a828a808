package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/aliquot-dev/aliquot/api"
)

// pace is the least time between two questions why, however many events there are.
const pace = 250 * time.Millisecond

// waitingLine is the line on standard error that says why a workload waits: one line in place on a terminal, a line for each
// change elsewhere.
type waitingLine struct {
	out      *os.File
	terminal bool
	colour   bool
	shown    string
	rows     int // of the terminal that hold it
}

func newWaitingLine(out *os.File, colour bool) *waitingLine {
	return &waitingLine{out: out, terminal: isTerminal(out), colour: colour}
}

func (w *waitingLine) show(text string) {
	if text == w.shown || text == "" {
		return
	}
	w.shown = text
	if !w.terminal {
		_, _ = fmt.Fprintln(w.out, text)
		return
	}
	wrapped := ansi.Wrap(strings.TrimSpace(text), max(terminalWidth(w.out)-1, 20), "")
	lines := strings.Split(wrapped, "\n")
	for i, line := range lines {
		lines[i] = style{w.colour}.paint(dim, strings.TrimSpace(line))
	}
	_, _ = fmt.Fprint(w.out, w.erase()+strings.Join(lines, "\r\n"))
	w.rows = len(lines)
}

// erase is what takes the text back from the terminal, row by row from the last.
func (w *waitingLine) erase() string {
	return "\r\x1b[K" + strings.Repeat("\x1b[A\x1b[K", max(w.rows-1, 0))
}

// say prints a line that stays.
func (w *waitingLine) say(text string) {
	w.clear()
	_, _ = fmt.Fprintln(w.out, text)
}

// clear takes the line back from the terminal.
func (w *waitingLine) clear() {
	if w.rows > 0 {
		_, _ = fmt.Fprint(w.out, w.erase())
	}
	w.rows, w.shown = 0, ""
}

// watchReasons asks why the workload waits, now and after everything that happens.
func (a *attached) watchReasons(ctx context.Context) <-chan api.Why {
	answers := make(chan api.Why)
	events := make(chan struct{}, 1)
	something := func() {
		select {
		case events <- struct{}{}:
		default: // one is waiting to be looked at already
		}
	}
	go func() {
		// Without the stream of events the first answer stands; the end of the wait is noticed all the same.
		_ = a.client.Events(ctx, 0, something, func(api.Event) error { something(); return nil })
	}()
	go func() {
		something()
		for {
			select {
			case <-events:
			case <-ctx.Done():
				return
			}
			why, err := a.client.Why(ctx, a.work.UID)
			if err == nil {
				select {
				case answers <- why:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-time.After(pace):
			case <-ctx.Done():
				return
			}
		}
	}()
	return answers
}

// waitText is the one line about a wait; empty when it does not wait any more.
func (a *attached) waitText(why api.Why) string {
	if why.Phase != api.Waiting {
		return ""
	}
	text := "aliquot: " + standing(a.work.Spec.Name, why)
	if why.Estimate != nil {
		text += " (about " + why.Estimate.Local().Format("15:04") + ")"
	}
	return text
}
