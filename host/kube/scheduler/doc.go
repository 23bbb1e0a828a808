// Package scheduler decides which node, and which parts of which devices, the pods get that ask for it by schedulerName. It is a loop
// around package engine and no plugin of another scheduler: nodes, ResourceSlices, claims and pods come in as engine events, and the
// engine's Place goes out as the allocation in a claim's status (the DRA way: finalizer, then status, then the pod's binding), many at a
// time, beside the loop. The engine hears Done, or Refused when what it assumed could not be written and what was written of it is undone.
//
// Claims are the truth for grants. A claim that is allocated is held in the engine's books until it is not any more, whoever allocated it
// and whatever became of its pod; so a scheduler that starts adopts what is allocated, completes what one before it left half written
// (a claim without its binding) or gives it back, and a finalizer without an allocation is used by the next try.
//
// Claims of other drivers alone are the filters', and are allocated before the binding as the stock scheduler would. A pod whose device can be used only some
// time after it is allocated is bound then (see conditions.go, and PreBind of the filters); where that fails all is undone.
//
// Where a pod may run beside its devices is for Filters to say: the set of nodes of each feasibility class off the path of decisions, and
// the full chain on the state that is assumed for the one node that was chosen. What they refuse is Refused, before anything is written.
// Which of these nodes pods would rather have is theirs to say, too, and goes to the engine in ranks. What is known of a class costs memory by the
// node, and a cluster sees ever new ones: those in which nothing waits are forgotten when there are many of them, here and in the engine.
//
// Pods without devices are bound beside the engine, and where no node takes one, those of lower priority are evicted that upstream would choose,
// but none with devices: who gives these back is the engine's choice. The same is done for a pod in line that lacks only what they have on a node where
// the engine would start it, and for a gang, on several nodes at once.
//
// The engine's Evict goes out through the eviction API, so that disruption budgets hold, for a whole plan if all of it can be carried out; what holds
// a claim is free in the books when the claim is. Pods of devices that failed are for the devices' taints. It changes nothing else of a running pod.
package scheduler

import (
	"context"
	"io"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Name is what pods name as their schedulerName.
const Name = "aliquot-scheduler"

// Grace is how long a pod that is evicted has to end at most: somebody waits for what it holds.
const Grace = 2 * time.Minute

// Filters say on which nodes a pod may run, its shares of devices aside. They are safe for use by several goroutines at once.
type Filters interface {
	// Class is the same for pods that may run on the same nodes; empty: no other pod is known to be like it.
	Class(pod *corev1.Pod) string
	// Distinctions grows whenever pods that were of one class may be of several from then on.
	Distinctions() uint64
	// Nodes are those that would take the pod now. Where there are none, a claim of another driver that keeps it from nodes may be given back.
	Nodes(ctx context.Context, pod *corev1.Pod) (Feasible, error)
	// Check is why a node does not take the pod now; empty: it does. What was assumed counts.
	Check(ctx context.Context, pod *corev1.Pod, node string) (why string, err error)
	// Assume has a pod count as running on a node until it is seen there, or until Forget.
	Assume(pod *corev1.Pod, node string) error
	// Forget writes nothing: what PreBind wrote for the pod was taken back before.
	Forget(pod *corev1.Pod)
	// WaitForSync waits until what the informers saw first counts. They were started.
	WaitForSync(ctx context.Context) error
	// MakeRoom is where a pod that no node takes would run if others of lower priority went; only are the nodes that would do, nil: all.
	MakeRoom(ctx context.Context, pod *corev1.Pod, only []string) (Room, error)
	// MakeRoomTogether is who of lower priority is to go so that pods run at once, each on the node in its place.
	MakeRoomTogether(ctx context.Context, pods []*corev1.Pod, nodes []string) (Rooms, error)
	// Together says that pods start together: what one of them is nominated for keeps none of the others off a node.
	Together(pods []*corev1.Pod)
	// Prepares says whether there is anything to do for an assumed pod before its binding, as with volumes and claims of other drivers.
	Prepares(ctx context.Context, pod *corev1.Pod) bool
	// PreBind does it. It may take minutes, and is at once back where there is nothing to do.
	PreBind(ctx context.Context, pod *corev1.Pod) error
	// Others is what other drivers than ours offer a node, and what of that is had.
	Others(ctx context.Context, node string) ([]*resourceapi.ResourceSlice, structured.AllocatedState, error)
	// Hold has what claims were given of that count as had until Settle. It is false, and nothing is held, where something else is had now of what a node is
	// offered than was, by node.
	Hold(ctx context.Context, was map[string]structured.AllocatedState, claims []*resourceapi.ResourceClaim) (bool, error)
	// Settle is told of these claims as they were written, or that they were not.
	Settle(claims []*resourceapi.ResourceClaim, written bool)
}

// Feasible is where a pod may run.
type Feasible struct {
	Nodes []string
	Why   map[string]string // of the other nodes, by name
	Full  []string          // of these, those that only lack CPU, memory and the like, which running pods have
	Held  []string          // of these, those that lack what running pods have, be it that or a port

	Wished map[string]int64 // of both: how well it is what the pod would rather have; nil: they are alike
	Images map[string]int64 // of both: what it has of the pod's images, 0 to 100; those that have nothing may be left out
}

// Room is a node on which a pod would run if others of lower priority did not.
type Room struct {
	Node     string        // empty: there is none
	Pods     []*corev1.Pod // that are to go; none: nothing is to be done now, as they still end there, or it fits by now
	Breaches int           // how many of them disruption budgets do not let go
}

// Rooms is what makes several pods run at once, each on its node.
type Rooms struct {
	Pods     []*corev1.Pod // that are to go; none: nothing is to be done now
	Lacking  []int         // the pods, by their place in what was asked, whose nodes have no room for them whoever may go
	Breaches int           // how many others would have to go for these whom disruption budgets do not let go
}

// Tainted are ResourceSlices as they count where rules taint devices: upstream's tracker (k8s.io/dynamic-resource-allocation/resourceslice/tracker).
type Tainted interface {
	watched
	ListPatchedResourceSlices() ([]*resourceapi.ResourceSlice, error)
}

// Config is what a scheduler works on.
type Config struct {
	Client    kubernetes.Interface
	Objects   dynamic.Interface               // where Queues and the Policy are; nil: all work is in the default queue
	Informers informers.SharedInformerFactory // of all namespaces, as Follow makes them; Run starts and ends them
	Tainted   Tainted                         // ResourceSlices with the taints that DeviceTaintRules give devices; nil: those of the informers, where the API server has no such rules
	Filters   Filters
	Name      string           // whose pods it places; empty: Name
	Also      []string         // others whose pods it places, as the stock scheduler's where it runs instead of it
	Writers   int              // how many workloads are written at once; 0: 64
	Grace     time.Duration    // that a pod which is evicted has to end at most, if its own is not less; 0: Grace
	Spare     time.Duration    // how long a workload is left alone that could not be evicted, doubled each time; 0: 10 s
	AskEvery  time.Duration    // how often is asked which nodes pods that wait may use though nothing is known to have changed: not all that filters look at has events; 0: 10 s
	UsesPace  time.Duration    // how often it is said of queues what they use, where that changes; 0: 10 s
	Now       func() time.Time // nil: time.Now
	Record    io.Writer        // gets the engine's event log (`aliquot sim replay`), each record by one Write; nil: nobody does
	Log       *slog.Logger     // nil: says nothing
}
