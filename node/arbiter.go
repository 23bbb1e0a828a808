package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/native"
)

// startWithin is how long a program that was started may take until it answers.
const startWithin = 10 * time.Second

// startTries is how often an agent starts the arbiter before it says that it cannot.
const startTries = 3

var errEndedAtOnce = errors.New("it ended at once")

// askEvery is how often an arbiter is asked whether it still answers.
const askEvery = 2 * time.Second

// arbiter keeps the arbiter of a run folder running: it finds the one that an earlier agent left, replaces one of another build,
// and starts a new one at once when it dies. One that runs but does not answer it ends, as when it shuts down, and no other.
type arbiter struct {
	run      run
	group    group // that it is in, since it outlives the agent
	log      *slog.Logger
	notify   func(Notice)
	patience time.Duration         // with one that runs but does not answer
	every    time.Duration         // how often it is asked
	taken    func(context.Context) // called beside the watching when a new one has taken over; nil: nobody wants to know

	launched bool // by open, which found none
	anew     bool // one that open finds is replaced: a page that it has in use is none any more

	mu      sync.Mutex
	process *process
	away    chan struct{} // closed when the arbiter is back; nil while it is there

	stop context.CancelFunc
	done sync.WaitGroup
}

// open finds the arbiter or starts one, and watches over it from then on. It says whether it found one: one that was started has
// adopted what lies in the run folder, one that was found may have missed the latest.
func (a *arbiter) open(ctx context.Context) (found bool, err error) {
	p, err := a.find(ctx)
	if err != nil {
		return false, err
	}
	found = p != nil
	if !found {
		p, err = a.launch(ctx, os.Environ())
		for tries := 1; errors.Is(err, errEndedAtOnce) && tries < startTries; tries++ { // killed, perhaps, while it took over
			a.log.Warn("the arbiter ended while it started; trying again", "error", err)
			p, err = a.launch(ctx, replacement())
		}
		if err != nil {
			return false, err
		}
		a.launched = true
		point.Here("node.arbiter.started")
	}
	a.mu.Lock()
	a.process = p
	a.mu.Unlock()
	watching, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.done.Go(func() { a.watch(watching) })
	return found, nil
}

// find returns the arbiter that runs already, if it is of the installed build and answers; otherwise it ends it.
func (a *arbiter) find(ctx context.Context) (*process, error) {
	conn, err := net.Dial("unixpacket", a.run.control())
	if err != nil {
		return nil, nil // nobody listens
	}
	defer conn.Close()
	p := peer(conn.(*net.UnixConn))
	if p == nil {
		return nil, nil // it has just ended
	}
	within, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	answer, err := askOn(within, conn, "ping")
	if err == nil && !a.anew && p.sameProgram(a.run.path(native.Arbiter)) {
		a.log.Info("found the arbiter", "pid", p.pid, "answer", answer)
		return p, nil
	}
	defer p.close()
	if err != nil {
		a.log.Warn("the arbiter that runs does not answer and is replaced", "pid", p.pid, "error", err)
	} else {
		a.log.Info("the arbiter that runs is of another build, or has a damaged page in use, and is replaced", "pid", p.pid, "answer", answer)
	}
	if err := a.end(ctx, p); err != nil {
		return nil, fmt.Errorf("replace the arbiter: %w", err)
	}
	return nil, nil
}

// end asks an arbiter to hand over, and kills one that does not.
func (a *arbiter) end(ctx context.Context, p *process) error {
	within, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	_, err := ask(within, a.run.control(), "quit")
	if err == nil && p.waitFor(within) == nil {
		return nil
	}
	if err := p.signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", p.pid, err)
	}
	return p.waitFor(ctx)
}

// launch starts an arbiter and waits until it answers.
func (a *arbiter) launch(ctx context.Context, environment []string) (*process, error) {
	log := a.run.path("arbiter.log")
	p, err := startDetached(a.group, log, environment, a.run.path(native.Arbiter), "--run", string(a.run))
	if err != nil {
		return nil, err
	}
	err = ready(ctx, p, log, func(ctx context.Context) error {
		_, err := ask(ctx, a.run.control(), "ping")
		return err
	})
	if err != nil {
		_ = p.signal(unix.SIGKILL)
		p.close()
		return nil, fmt.Errorf("start the arbiter: %w", err)
	}
	return p, nil
}

// ready waits until a program that was just started answers, has ended, or has taken too long.
func ready(ctx context.Context, p *process, log string, answers func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	gone := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		if p.waitFor(ctx) == nil {
			close(gone)
		}
	})
	defer watching.Wait()
	defer cancel()
	// Its socket appears without a sign that could be waited for, so it is tried again, rarely enough to cost nothing.
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		err := answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-gone:
			return fmt.Errorf("%w; it said: %s", errEndedAtOnce, lastLine(log))
		case <-ctx.Done():
			return fmt.Errorf("it does not answer (%w); see %s", err, log)
		case <-again.C:
		}
	}
}

func lastLine(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return "nothing"
}

// lasts waits until an arbiter has ended, and ends one that does not answer any more: nobody would be let through its gates. It says which of
// the two it was; empty when the agent closes first.
func (a *arbiter) lasts(ctx context.Context, p *process) string {
	answered := time.Now()
	for pause := a.every; ; {
		within, cancel := context.WithTimeout(ctx, pause)
		ended := p.waitFor(within)
		cancel()
		if ended == nil {
			return "has died"
		}
		if ctx.Err() != nil {
			return ""
		}
		within, cancel = context.WithTimeout(ctx, a.patience)
		_, err := ask(within, a.run.control(), "ping")
		cancel()
		var refused *refusal
		switch {
		case err == nil || errors.As(err, &refused):
			answered, pause = time.Now(), a.every
		case time.Since(answered) < a.patience:
			pause = 10 * time.Millisecond // turned away, or it is just ending
		case ctx.Err() == nil:
			a.log.Error("the arbiter does not answer and is ended", "pid", p.pid, "error", err)
			if err := p.signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				a.log.Error("the arbiter that does not answer could not be ended", "pid", p.pid, "error", err)
			}
			if p.waitFor(ctx) == nil {
				return "did not answer, was ended"
			}
		}
	}
}

// watch replaces the arbiter whenever it dies or hangs.
func (a *arbiter) watch(ctx context.Context) {
	for {
		p := a.current()
		how := a.lasts(ctx, p)
		if how == "" {
			return
		}
		back := make(chan struct{})
		a.mu.Lock()
		a.away = back
		a.mu.Unlock()
		a.notify(Notice{Kind: ArbiterGone, Message: fmt.Sprintf("The arbiter (pid %d) %s and is being started again; programs keep to their floors meanwhile. What it said last: %s", p.pid, how, lastLine(a.run.path("arbiter.log")))})
		next := a.relaunch(ctx)
		if next == nil {
			return
		}
		a.mu.Lock()
		a.process, a.away = next, nil
		a.mu.Unlock()
		p.close()
		close(back)
		a.notify(Notice{Kind: ArbiterBack, Message: fmt.Sprintf("A new arbiter (pid %d) has taken over.", next.pid)})
		if a.taken != nil {
			a.done.Go(func() { a.taken(ctx) })
		}
	}
}

// relaunch starts arbiters until one answers: at once, then more and more rarely. Nil when the agent closes first.
func (a *arbiter) relaunch(ctx context.Context) *process {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		p, err := a.launch(ctx, replacement())
		if err == nil {
			return p
		}
		a.log.Error("the arbiter cannot be started; trying again", "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// replacement is the environment of an arbiter that follows one that died: it is not asked to die where that did.
func replacement() (environment []string) {
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ALIQUOT_KILL_AT=") {
			environment = append(environment, variable)
		}
	}
	return environment
}

// request asks the arbiter and outlasts its being replaced. Without a deadline of the caller's it gives up after startWithin.
func (a *arbiter) request(ctx context.Context, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		answer, err := ask(ctx, a.run.control(), line)
		var refused *refusal
		if err == nil || errors.As(err, &refused) {
			return answer, err
		}
		a.mu.Lock()
		away := a.away
		a.mu.Unlock()
		// It may be dead without our knowing yet, or not back yet.
		retry := time.After(5 * time.Millisecond)
		if away != nil {
			retry = nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("ask the arbiter %q: it does not answer (%w); see %s", line, err, a.run.path("arbiter.log"))
		case <-away:
		case <-retry:
		}
	}
}

// stopWatching leaves the arbiter as it is; from here on it is not replaced.
func (a *arbiter) stopWatching() {
	if a.stop != nil {
		a.stop()
		a.done.Wait()
	}
}

// current is the arbiter's process.
func (a *arbiter) current() *process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.process
}

// close lets the arbiter go, which runs on.
func (a *arbiter) close() {
	a.stopWatching()
	if p := a.current(); p != nil {
		p.close()
	}
}
