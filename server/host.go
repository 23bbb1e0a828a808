// Package server is the HTTP face of a host: REST with OpenAPI, server-sent events, metrics; on a Unix socket, where the
// peer's uid says who calls, and on loopback with a token. It holds no state and decides nothing but who may ask.
package server

import (
	"context"
	"io"
	"syscall"

	"github.com/aliquot-dev/aliquot/api"
)

// Caller is who asks. UID 0, and the user the daemon runs as, may do everything; others only what is theirs.
type Caller struct {
	UID  uint32
	Name string
}

// Host is what the server serves. Every method refuses with *api.Error.
type Host interface {
	Info(ctx context.Context, who Caller) (api.Info, error)
	Devices(ctx context.Context) ([]api.Device, error)

	// Submit takes a workload in, or refuses it and changes nothing. It returns as soon as the workload is stored.
	Submit(ctx context.Context, who Caller, spec api.WorkloadSpec) (api.Workload, error)
	// Plan says what would happen if a workload were submitted now, or refuses it as Submit would. It changes nothing. The command may be
	// left out.
	Plan(ctx context.Context, who Caller, spec api.WorkloadSpec) (api.Plan, error)
	// Starts says how the estimates fared that were given of the last starts; nil: none was given.
	Starts(ctx context.Context) (*api.PastStart, error)
	// Workloads lists those that are live and, with ended, those that are over, oldest first.
	Workloads(ctx context.Context, ended bool) ([]api.Workload, error)
	// Workload finds by name (the live one, else the latest) or UID.
	Workload(ctx context.Context, name string) (api.Workload, error)
	// Wait returns the workload once its phase is none of the given ones.
	Wait(ctx context.Context, name string, while ...api.Phase) (api.Workload, error)
	Why(ctx context.Context, name string) (api.Why, error)
	Resize(ctx context.Context, who Caller, name string, change ShareChange) (api.Workload, error)
	// Stop ends a workload: SIGTERM to all its processes, after grace SIGKILL.
	Stop(ctx context.Context, who Caller, name string, grace api.Duration) (api.Workload, error)
	Signal(ctx context.Context, who Caller, name string, sig syscall.Signal) error
	// Checkpoint notes that a workload has just saved what it has done: ended for others from now on, it would lose only what it does after this.
	Checkpoint(ctx context.Context, who Caller, name string) (api.Workload, error)
	// Logs copies what the task printed, as far as it is asked for.
	Logs(ctx context.Context, who Caller, name string, part LogPart, to io.Writer) error

	Queues(ctx context.Context) ([]api.Queue, error)
	SetQueue(ctx context.Context, who Caller, spec api.QueueSpec) (api.Queue, error)
	RemoveQueue(ctx context.Context, who Caller, name string) error

	// Policy is the policy file that is set, with what holds now; without a name: none is.
	Policy(ctx context.Context) (api.Policy, error)
	SetPolicy(ctx context.Context, who Caller, file api.Policy) (api.Policy, error)
	RemovePolicy(ctx context.Context, who Caller) error

	// Record writes the engine's event log from now on, a snapshot first and then every step once it is on disk, until ctx ends.
	Record(ctx context.Context, who Caller, to io.Writer) error

	// Listen calls each for every event after seq (0: from now on) until ctx ends.
	Listen(ctx context.Context, seq uint64, each func(api.Event) error) error
}

// LogPart is what of a log is asked for.
type LogPart struct {
	Follow bool // go on until the task is over
	Tail   *int // of what is there now only the last so many lines (≥ 0); nil: all
}

// ShareChange is a new share for a workload; nil leaves as it is.
type ShareChange struct {
	Compute *api.Compute `json:"gpu,omitempty"`
	Memory  *api.Memory  `json:"memory,omitempty"`
	Weight  *int32       `json:"weight,omitempty"`
}
