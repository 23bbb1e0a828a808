package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// followed is when objects were first seen to be as they should be, by name.
type followed struct {
	stop context.CancelFunc

	mu   sync.Mutex
	at   map[string]time.Time
	last time.Time
	more chan struct{} // has something where one more was seen
}

// follow watches objects, those of a field selector, and notes when each is first as it should be.
func follow[Object, List runtime.Object](ctx context.Context, client testcluster.Watched[List], kind Object, fields string, is func(Object) bool) *followed {
	ctx, stop := context.WithCancel(ctx)
	f := &followed{stop: stop, at: map[string]time.Time{}, more: make(chan struct{}, 1)}
	set := func(object any) {
		if o, ok := object.(Object); ok && is(o) {
			f.note(o)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.FieldSelector = fields
				return client.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.FieldSelector = fields
				return client.Watch(ctx, options)
			},
		},
		ObjectType: kind,
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: set, UpdateFunc: func(_, object any) { set(object) }},
	})
	go informer.RunWithContext(ctx)
	return f
}

func (f *followed) note(object runtime.Object) {
	now := time.Now()
	about, err := meta.Accessor(object)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.at[about.GetName()]; known {
		return
	}
	f.at[about.GetName()], f.last = now, now
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// count is how many were seen, and when the last of them was.
func (f *followed) count() (int, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.at), f.last
}

// when is when one was seen; zero: it was not.
func (f *followed) when(name string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at[name]
}

// stalled is for how long nothing may happen: what is waited for does not come then.
const stalled = 2 * time.Minute

// errEnded is that the program ended which was to do it.
var errEnded = errors.New("the program that should do it has ended")

// await waits until so many were seen, while a program runs; nil: whoever does it.
func (f *followed) await(ctx context.Context, n int, by *testcluster.Process) error {
	var ended <-chan struct{}
	if by != nil {
		ended = by.Ended()
	}
	for {
		have, _ := f.count()
		if have >= n {
			return nil
		}
		quiet := time.NewTimer(stalled)
		select {
		case <-f.more:
		case <-ended:
			return fmt.Errorf("%w: %d of %d are done", errEnded, have, n)
		case <-quiet.C:
			return fmt.Errorf("nothing happened for %s: %d of %d are done", stalled, have, n)
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d are done", context.Cause(ctx), have, n)
		}
		quiet.Stop()
	}
}

// spent is the CPU time that the cluster and this program have used.
func (f *fleet) spent() (time.Duration, error) {
	all, err := f.CPU()
	if err != nil {
		return 0, err
	}
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		return 0, fmt.Errorf("ask how much CPU time this program has used: %w", err)
	}
	return all + time.Duration(own.Utime.Nano()+own.Stime.Nano()), nil
}

// each calls do with 0 to n-1, at most some at a time, and ends at the first error.
func each(ctx context.Context, n, at int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var all sync.WaitGroup
	for range min(at, n) {
		all.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	all.Wait()
	return context.Cause(ctx)
}
