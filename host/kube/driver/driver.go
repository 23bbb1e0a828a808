package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/node"
)

// Config says where a driver works.
type Config struct {
	Node    string               // the node's name, and its pool's
	Client  kubernetes.Interface // reads claims and pods, writes slices
	Shares  dynamic.Interface    // makes and watches Shares; nil: ceilings are fixed
	Agent   Agent
	Run     string // the agent's run folder
	State   string // keeps the checkpoints over a reboot; made if it is not there
	CDI     string // where the container runtime looks for CDI files; made if it is not there
	Kubelet string // kubelet's folder, usually /var/lib/kubelet
	Cover   string // the program that gives containers their shares and covers an image's own driver, of which the node is given a copy
	Log     *slog.Logger

	LatencyClasses api.LatencyClasses // that are declared of devices

	PodUID string // of the pod that it is; with it AwaitTurn has it follow another on the node without a gap. Empty: it is no pod
	Turn   *Turn  // to serve kubelet; nil: Open takes it
	Waits  func() // called by AwaitTurn when there is another to wait for; nil: it is not

	leaves, arrives time.Duration // 0: leaveWithin and arriveWithin
}

// Driver serves kubelet.
type Driver struct {
	config      Config
	log         *slog.Logger
	checkpoints checkpoints
	specs       specs
	covers      coverer
	turn        *Turn

	mu     sync.Mutex      // one claim at a time
	ending map[string]bool // claims whose taking back began and did not end, by UID: their checkpoints may not say so

	troubles  *troubles
	health    change // of devices
	events    record.EventRecorder
	endEvents func()

	telling sync.WaitGroup // of limits, into claims
	failed  chan error     // why kubelet is not served any more
	end     context.CancelFunc
	working sync.WaitGroup // until the end: looks for claims that nobody has any more, tells what is wrong with those that somebody has, changes ceilings
	live    *live          // nil: ceilings are fixed
}

// Open finishes what an earlier driver left half done, serves kubelet and tells the cluster of the devices, until Close.
func Open(ctx context.Context, config Config) (*Driver, error) {
	if config.Turn == nil {
		var err error
		if config.Turn, err = AwaitTurn(ctx, config); err != nil {
			config.Turn.Leave()
			return nil, err
		}
	}
	d, err := prepareDriver(ctx, config)
	if err != nil {
		config.Turn.Leave()
		return nil, err
	}
	d.turn, d.failed = config.Turn, config.Turn.door.failed
	d.endEvents = d.recordEvents()
	if err := d.turn.serve(ctx, d); err != nil {
		d.Close()
		return nil, err
	}
	if err := d.publish(ctx); err != nil {
		d.Close()
		return nil, err
	}
	ctx, d.end = context.WithCancel(context.WithoutCancel(ctx)) // it works on until the next one does
	d.working.Go(func() { d.reconcileUntil(ctx) })
	d.working.Go(func() { d.reportUntil(ctx) })
	d.working.Go(func() {
		offerAnewUntil(ctx, d.turn.door.anew, func() {
			if err := d.publish(ctx); err != nil {
				d.log.Error("the devices could not be offered again", "error", err)
			}
		})
	})
	if d.live != nil {
		d.working.Go(func() { d.live.run(ctx) })
	}
	return d, nil
}

// prepareDriver is a driver that nobody calls yet, with everything as its checkpoints say.
func prepareDriver(ctx context.Context, config Config) (*Driver, error) {
	d := &Driver{config: config, log: config.Log, specs: specs(config.CDI), failed: make(chan error, 1), troubles: newTroubles(), ending: map[string]bool{}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	claims := filepath.Join(config.State, "claims")
	d.checkpoints = checkpoints(claims)
	if err := errors.Join(os.MkdirAll(claims, 0o700), os.MkdirAll(config.CDI, 0o755)); err != nil {
		return nil, fmt.Errorf("make the driver's folders: %w", err)
	}
	var err error
	if d.covers, err = layCoverer(config.Cover, config.plugin(), config.State, config.Run); err != nil {
		return nil, err
	}
	if config.Shares != nil {
		if d.live, err = newLive(d, config.Shares); err != nil {
			return nil, err
		}
	}
	if err := d.recover(ctx); err != nil {
		return d, err
	}
	point.Here("kube.claims.recovered")
	return d, d.covers.removeEarlier()
}

// publish tells the cluster how the devices are now. It is called again whenever one fails or comes back.
func (d *Driver) publish(ctx context.Context) error {
	return d.turn.helper.PublishResources(ctx, offered(d.config.Node, d.config.Agent.Devices(), d.config.LatencyClasses))
}

// How long it takes until the devices are offered again first, and last: doubled each time. The last is more than the minute for which the helper takes
// slices that it has written to be there, whoever has removed them since (resourceslice.DefaultMutationCacheTTL; after an update, in 1.36, it never looks again:
// kubernetes/kubernetes#140063).
const (
	offerAfter = time.Second
	offerLast  = 64 * time.Second
)

// offerAnewUntil has the devices offered again, a few times, whenever kubelet has registered the agent or what is offered has changed, until the context
// ends: a kubelet that begins removes what its node offered (kubelet 1.36), as soon as it can or later, and by itself the helper would offer that again half a
// minute after it has gone, or not at all. Where nothing has gone nothing is written.
func offerAnewUntil(ctx context.Context, anew <-chan struct{}, offer func()) {
	var again <-chan time.Time // nil: not again
	wait := offerAfter
	for {
		select {
		case <-ctx.Done():
			return
		case <-anew:
			wait = offerAfter
			again = time.After(wait)
			continue
		case <-again:
		}
		offer()
		if again, wait = nil, 2*wait; wait <= offerLast {
			again = time.After(wait)
		}
	}
}

// Failed has an error when kubelet cannot be served any more: the driver is to be closed then, and its process to end and be started anew.
func (d *Driver) Failed() <-chan error { return d.failed }

// Close ends the driver and leaves what is prepared as it is, after the next agent, if one waits, is registered with kubelet. It leaves its slices too, so that nothing is evicted while it is replaced;
// kubelet removes them, and their taints with them, when none has registered for 30 s (kubelet 1.36): nothing new is placed then.
func (d *Driver) Close() {
	d.turn.pass()
	if d.end != nil {
		d.end()
	}
	d.working.Wait()
	d.turn.stop()
	d.telling.Wait()
	if d.endEvents != nil {
		d.endEvents()
	}
}

// plugin is the driver as kubelet and its helper call it, through the door.
type plugin struct{ *Driver }

// PrepareResourceClaims prepares the claims of one pod.
func (p plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	pods := make([]podsOf, len(claims)) // asked for before others have to wait
	for i, claim := range claims {
		pods[i] = p.podsOf(ctx, claim)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for i, claim := range claims {
		result, err := p.prepare(ctx, claim, pods[i], claims)
		if err != nil {
			p.log.Error("a claim could not be prepared", "claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID, "error", err)
			result = kubeletplugin.PrepareResult{Err: err}
		}
		results[claim.UID] = result
	}
	return results, nil
}

// UnprepareResourceClaims takes claims back of which kubelet knows no more than their names: the rest is in their checkpoints.
func (p plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := p.unprepare(ctx, string(claim.UID))
		if err != nil {
			p.log.Error("a claim could not be taken back; kubelet asks again", "claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID, "error", err)
		}
		results[claim.UID] = err
	}
	return results, nil
}

// prepare makes a claim's grants real and its CDI file; beside it are the others of its pod. Called again for one that is prepared it makes sure of both.
func (d *Driver) prepare(ctx context.Context, claim *resourceapi.ResourceClaim, pods podsOf, beside []*resourceapi.ResourceClaim) (kubeletplugin.PrepareResult, error) {
	refuse := func(err error) (kubeletplugin.PrepareResult, error) {
		return kubeletplugin.PrepareResult{}, fmt.Errorf("prepare claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	uid := string(claim.UID)
	before, found, err := d.checkpoints.read(uid)
	if err != nil {
		return refuse(err)
	}
	if found && before.Phase == prepared && !d.ending[uid] { // whose it is stays, whatever other pods it is reserved for by now: what covers containers refuses those
		if now, err := d.given(claim); err == nil && before.same(now) {
			if err := d.prepareAgain(ctx, claim, before); err != nil {
				return refuse(err)
			}
			return answer(claim), nil
		}
	}
	one, err := d.asked(claim, pods, beside)
	if err != nil {
		return refuse(err)
	}
	if found { // an attempt that failed to take itself back, or the claim was allocated anew while kubelet was away
		if err := d.unprepare(ctx, uid); err != nil {
			return refuse(err)
		}
	}
	if err := d.checkpoints.write(one); err != nil {
		return refuse(err)
	}
	point.Here("kube.prepare.begun")
	err = d.realise(ctx, one)
	if err == nil {
		point.Here("kube.prepare.real")
		one.Phase = prepared
		err = d.checkpoints.write(one)
	}
	if err != nil {
		return refuse(errors.Join(err, d.unprepare(context.WithoutCancel(ctx), uid)))
	}
	point.Here("kube.prepare.recorded")
	d.tell(ctx, claim, one)
	d.live.prepared(claim.Namespace, claim.Name)
	d.log.Info("prepared", "claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID, "grants", one.Task.Grants, "access", one.Access)
	return answer(claim), nil
}

// prepareAgain makes sure of a claim that is prepared.
func (d *Driver) prepareAgain(ctx context.Context, claim *resourceapi.ResourceClaim, one checkpoint) error {
	if one.Name == "" { // it was damaged, and its CDI file did not say it
		one.Namespace, one.Name = claim.Namespace, claim.Name
		if err := d.checkpoints.write(one); err != nil {
			return err
		}
	}
	if err := d.realise(ctx, one); err != nil {
		return err
	}
	d.tell(ctx, claim, one)
	d.live.prepared(claim.Namespace, claim.Name)
	return nil
}

// given is what a claim was given: the task that it is, or its access as an administrator.
func (d *Driver) given(claim *resourceapi.ResourceClaim) (one checkpoint, err error) {
	one = checkpoint{Phase: preparing, Namespace: claim.Namespace, Name: claim.Name, Task: node.Task{UID: string(claim.UID)}}
	devices := d.config.Agent.Devices()
	if one.Access, err = accessOf(claim, d.config.Node, devices); err != nil || len(one.Access) > 0 {
		return one, err
	}
	one.Task, err = taskOf(claim, d.config.Node, devices)
	return one, err
}

// asked is what is to be prepared of a claim, if the containers of its pods can have it.
func (d *Driver) asked(claim *resourceapi.ResourceClaim, pods podsOf, beside []*resourceapi.ResourceClaim) (checkpoint, error) {
	others, err := d.others(claim, beside)
	if err != nil {
		return checkpoint{}, err
	}
	one, err := d.given(claim)
	if err == nil && len(one.Access) > 0 {
		return one, accessible(claim, pods, others)
	}
	user, known, refused := userOf(claim, pods, others)
	if refused != nil || err != nil {
		return one, cmp.Or(refused, err)
	}
	one.Task.UserID, one.Task.UserUnknown = user, !known
	for _, result := range ours(claim) {
		if len(result.ConsumedCapacity) == 0 {
			d.log.Warn("a request has a whole device, whatever its ceilings: the API server that it was allocated by knows of no shares", "claim", claim.Namespace+"/"+claim.Name, "request", result.Request)
		}
	}
	return one, nil
}

// others are the names of this driver's other claims in a claim's namespace: those of its pod that kubelet asks for with it, and all that
// are prepared here already, which kubelet does not ask for again.
func (d *Driver) others(claim *resourceapi.ResourceClaim, beside []*resourceapi.ResourceClaim) ([]string, error) {
	var names []string
	for _, other := range beside {
		names = append(names, other.Name)
	}
	known, err := d.checkpoints.list()
	if err != nil {
		return nil, err
	}
	for _, uid := range known {
		one, found, err := d.checkpoints.read(uid)
		if err == nil && found && one.Namespace == claim.Namespace {
			names = append(names, one.Name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == claim.Name }), nil
}

// realise prepares a claim's task, where it is one, and writes its CDI file; both may be there already, with ceilings that were changed since.
func (d *Driver) realise(ctx context.Context, one checkpoint) error {
	if len(one.Access) > 0 {
		made, err := d.config.Agent.Administrator(one.Access)
		if err != nil {
			return err
		}
		return d.specs.write(one, made, d.covers)
	}
	if _, err := d.config.Agent.Prepare(ctx, d.held(one.Task)); err != nil {
		return err
	}
	point.Here("kube.prepare.granted")
	made, err := d.config.Agent.Container(one.Task.UID)
	if err != nil {
		return err
	}
	return d.specs.write(one, made, d.covers)
}

// unprepare takes a claim back, however far it came; nothing of it is left after. One that is not known is taken back already.
func (d *Driver) unprepare(ctx context.Context, uid string) error {
	one, found, err := d.checkpoints.read(uid)
	if err != nil && !errors.Is(err, errDamaged) {
		return err
	}
	if found && err == nil && one.Phase != unpreparing {
		one.Phase = unpreparing
		if err := d.checkpoints.write(one); err != nil { // on a full disk a pod that ends is what may make room
			d.log.Warn("that a claim is being taken back could not be written; an agent that starts before it is would make it again, until kubelet asks once more", "uid", uid, "error", err)
		}
	}
	d.ending[uid] = true
	point.Here("kube.unprepare.begun")
	if err := d.specs.remove(uid); err != nil {
		return err
	}
	point.Here("kube.unprepare.hidden")
	if err := d.config.Agent.Unprepare(ctx, uid); err != nil {
		return err
	}
	point.Here("kube.unprepare.taken")
	if err := d.checkpoints.remove(uid); err != nil {
		return err
	}
	delete(d.ending, uid)
	d.troubles.forget(uid)
	if err == nil && one.Name != "" {
		d.live.prepared(one.Namespace, one.Name) // another of its name may be
	}
	if found {
		d.log.Info("taken back", "uid", uid)
	}
	return nil
}
