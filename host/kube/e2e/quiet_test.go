package e2e

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// quiet has tests begin nothing while another measures what its pods use of a device: programs that wait for a processor do not use it.
type quiet struct {
	mu      sync.Mutex
	changed chan struct{} // closed when anything below changes
	does    map[*shared]doing
}

// doing is what the test that has a cluster does.
type doing int

const (
	works    doing = iota
	stands         // where it would begin something, while another measures
	measures       // what its pods use
	hurries        // it is itself measured by the clock
)

// still is of all tests of this process.
var still = quiet{changed: make(chan struct{}), does: map[*shared]doing{}}

// settles is how long who measures waits at most until the others stand: one may have nothing to begin for long.
const settles = time.Second

// set says what a test does from now on. Its caller holds the lock.
func (q *quiet) set(s *shared, what doing) {
	q.does[s] = what
	close(q.changed)
	q.changed = make(chan struct{})
}

// any says whether another than this one does one of these. Its caller holds the lock.
func (q *quiet) any(but *shared, of ...doing) bool {
	for s, does := range q.does {
		for _, what := range of {
			if s != but && does == what {
				return true
			}
		}
	}
	return false
}

// begins has a test that is given a cluster be one that works, until it has ended.
func (q *quiet) begins(t *testing.T, s *shared) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.set(s, works)
	t.Cleanup(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.set(s, works)
		delete(q.does, s)
	})
}

// until waits while something is so, for a time at most or for ever (0), and holds the lock then.
func (q *quiet) until(ctx context.Context, over func() bool, atMost time.Duration) {
	var late <-chan time.Time
	if atMost > 0 {
		late = time.After(atMost)
	}
	for q.mu.Lock(); !over(); q.mu.Lock() {
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
			continue
		case <-late:
		case <-ctx.Done(): // whoever waits here sees that, too
		}
		q.mu.Lock()
		return
	}
}

// gate is passed before anything is begun. It returns at once where the test measures itself, or is measured by the clock.
func (q *quiet) gate(ctx context.Context, s *shared) { q.pass(ctx, s, works) }

// hurry passes the gate, and then nobody measures until it is done.
func (q *quiet) hurry(ctx context.Context, s *shared) (done func()) {
	q.pass(ctx, s, hurries)
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.set(s, works)
	}
}

func (q *quiet) pass(ctx context.Context, s *shared, then doing) {
	q.mu.Lock()
	if q.does[s] == measures || q.does[s] == hurries {
		q.mu.Unlock()
		return
	}
	if q.any(s, measures) {
		q.set(s, stands)
	}
	q.mu.Unlock()
	q.until(ctx, func() bool { return !q.any(s, measures) }, 0)
	defer q.mu.Unlock()
	if q.does[s] != then {
		q.set(s, then)
	}
}

// measure does what is to be measured while the others stand, or measure too.
func (q *quiet) measure(ctx context.Context, s *shared, do func()) {
	q.mu.Lock()
	q.set(s, measures)
	q.mu.Unlock()
	q.until(ctx, func() bool { return !q.any(s, hurries) }, 0)
	q.mu.Unlock()
	q.until(ctx, func() bool { return !q.any(s, works, hurries) }, settles)
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.set(s, works)
	}()
	do()
}

// gated passes the gate before each request that changes something.
type gated struct {
	*world
	http.RoundTripper
}

func (g gated) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet {
		still.gate(request.Context(), g.shared)
	}
	return g.RoundTripper.RoundTrip(request)
}

// REST is how an administrator connects, in a test.
func (w *world) REST() *rest.Config {
	config := w.Cluster.REST()
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { return gated{w, to} })
	return config
}

// RESTOf is how another connects, in a test.
func (w *world) RESTOf(kubeconfig string) (*rest.Config, error) {
	config, err := w.Cluster.RESTOf(kubeconfig)
	if err == nil {
		config.Wrap(func(to http.RoundTripper) http.RoundTripper { return gated{w, to} })
	}
	return config, err
}

// Create, Delete, Helm, Load, Start, Restart and RestartServer are the cluster's, after the gate.
func (w *world) Create(ctx context.Context, stream []byte) error {
	still.gate(ctx, w.shared)
	return w.Cluster.Create(ctx, stream)
}

func (w *world) Delete(ctx context.Context, stream []byte) error {
	still.gate(ctx, w.shared)
	return w.Cluster.Delete(ctx, stream)
}

func (w *world) Helm(ctx context.Context, args ...string) (string, error) {
	still.gate(ctx, w.shared)
	return w.Cluster.Helm(ctx, args...)
}

func (w *world) Load(ctx context.Context, image testcluster.Image) error {
	still.gate(ctx, w.shared)
	return w.Cluster.Load(ctx, image)
}

func (w *world) Start(name string, environment []string, program string, args ...string) (*testcluster.Process, error) {
	still.gate(w.ctx, w.shared)
	return w.Cluster.Start(name, environment, program, args...)
}

func (w *world) Restart(ctx context.Context, name string) error {
	still.gate(ctx, w.shared)
	return w.Cluster.Restart(ctx, name)
}

func (w *world) RestartServer(ctx context.Context, options ...string) error {
	still.gate(ctx, w.shared)
	return w.Cluster.RestartServer(ctx, options...)
}
