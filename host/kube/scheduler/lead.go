package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Leadership is which of several schedulers schedules: the one that holds the Lease.
type Leadership struct {
	Client    kubernetes.Interface
	Namespace string // of the Lease
	Name      string // of the Lease
	Identity  string // of this scheduler: no other that runs has it. One that holds the Lease already was this one, and was killed
	Log       *slog.Logger

	Renews *leaderelection.HealthzAdaptor // is told of the Lease, for who asks whether this scheduler is stuck; nil: nobody does

	// For how long the Lease holds that is not renewed; 0: 15 s. It is given up by its holder after two thirds of that, and nothing of that one
	// is written any more when another may begin (answerWithin).
	Lasts time.Duration
}

// Lead waits until this scheduler leads and runs it then, once: what it knows is of no use after another has led. The Lease is given back
// only when run has returned, and so writes nothing any more. A Lease that it holds already, from before it was killed, it goes on with when what was
// under way then is over (answerWithin), and not only when that has run out. It returns run's error, or that the Lease was lost.
func (l Leadership) Lead(ctx context.Context, run func(context.Context) error) error {
	if l.Lasts == 0 {
		l.Lasts = 15 * time.Second
	}
	electing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	began, ended := make(chan struct{}), make(chan error, 1)
	stopWaiting := context.AfterFunc(ctx, func() {
		select {
		case <-began: // run ends first
		default:
			end()
		}
	})
	defer stopWaiting()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}, Client: l.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity},
		},
		LeaseDuration: l.Lasts, RenewDeadline: l.Lasts * 2 / 3, RetryPeriod: l.Lasts / 8, ReleaseOnCancel: true, Name: l.Name, WatchDog: l.Renews,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				close(began)
				defer end()
				running, cancel := context.WithCancel(ctx)
				defer cancel()
				lost := context.AfterFunc(leading, cancel)
				defer lost()
				l.Log.Info("leading", "lease", l.Namespace+"/"+l.Name, "identity", l.Identity)
				ended <- run(running)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	if l.wasKilled(electing) {
		l.Log.Info("goes on with the lease that it held when it was killed", "lease", l.Namespace+"/"+l.Name, "identity", l.Identity)
		pause(electing, answerWithin)
	}
	elector.Run(electing)
	select {
	case <-began:
		if err := <-ended; err != nil || ctx.Err() != nil {
			return err
		}
		return errors.New("the lease was lost; another scheduler leads, or the API server could not be reached: start this one again")
	default:
		return nil // it was told to end before it led
	}
}

// wasKilled says whether this scheduler holds the Lease, which it gives back when it ends by itself. It asks until that is known.
func (l Leadership) wasKilled(ctx context.Context) bool {
	for try := 0; ; try++ {
		lease, err := within(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
			return l.Client.CoordinationV1().Leases(l.Namespace).Get(ctx, l.Name, metav1.GetOptions{})
		})
		if err == nil {
			return lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == l.Identity
		}
		if try == 0 && !apierrors.IsNotFound(err) {
			l.Log.Warn("who leads could not be read, and is asked again", "lease", l.Namespace+"/"+l.Name, "error", err)
		}
		if apierrors.IsNotFound(err) || !again(ctx, try) {
			return false
		}
	}
}
