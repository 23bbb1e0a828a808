package filter

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// A chain is upstream's filter plugins with the snapshot that they look at.
type chain struct {
	mu        sync.Mutex // one pod at a time: the snapshot is not to change while it is judged
	framework framework.Framework
	snapshot  *cache.Snapshot
	nominated *toOne // as the pod sees them that is judged
}

// A cycle is one pod with what upstream's PreFilter found out about it.
type cycle struct {
	pod     *v1.Pod // without the claims that are the engine's
	state   *framework.CycleState
	only    sets.Set[string] // nodes that PreFilter left; nil: all
	rest    *fwk.Status      // why the others are refused
	refused *fwk.Status      // why every node is; nil: none is yet
}

// parts is what chains are made of and share.
type parts struct {
	client    kubernetes.Interface
	factory   informers.SharedInformerFactory
	manager   fwk.SharedDRAManager
	nominated *nominated
	volumes   fwk.Plugin // VolumeBinding of the first chain: it alone keeps in itself what is reserved
	recorder  events.EventRecorderLogger
}

// newChain makes the plugins of upstream's default profile that may refuse a node, say which is preferred, reserve, or act before a binding.
func newChain(ctx context.Context, p *parts) (*chain, error) {
	profile, err := pluginProfile()
	if err != nil {
		return nil, err
	}
	registry := plugins.NewInTreeRegistry()
	volumeBinding := registry[names.VolumeBinding]
	registry[names.VolumeBinding] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if p.volumes != nil {
			return p.volumes, nil
		}
		made, err := volumeBinding(ctx, args, handle)
		p.volumes = made
		return made, err
	}
	c := &chain{snapshot: cache.NewEmptySnapshot(), nominated: &toOne{nominated: p.nominated}}
	c.framework, err = frameworkruntime.NewFramework(ctx, registry, profile,
		frameworkruntime.WithClientSet(pluginClient{p.client}),
		frameworkruntime.WithInformerFactory(p.factory),
		frameworkruntime.WithSharedDRAManager(p.manager),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(p.factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSnapshotSharedLister(c.snapshot),
		frameworkruntime.WithPodNominator(c.nominated),
		frameworkruntime.WithEventRecorder(p.recorder),
		frameworkruntime.WithParallelism(goruntime.GOMAXPROCS(0)),
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// pluginProfile is upstream's default profile without what ranks nodes by what they have left or evicts pods. Spread has no default constraints: upstream's
// refuse no node (they are all ScheduleAnyway), and with them no pod would have a signature.
func pluginProfile() (*config.KubeSchedulerProfile, error) {
	configuration, err := latest.Default()
	if err != nil {
		return nil, fmt.Errorf("upstream's default configuration: %w", err)
	}
	if len(configuration.Profiles) != 1 {
		return nil, fmt.Errorf("upstream's default configuration has %d profiles, not one", len(configuration.Profiles))
	}
	profile := configuration.Profiles[0]
	unused := []string{names.DefaultPreemption, names.NodeResourcesBalancedAllocation}
	profile.Plugins.MultiPoint.Enabled = slices.DeleteFunc(profile.Plugins.MultiPoint.Enabled, func(p config.Plugin) bool {
		return slices.Contains(unused, p.Name)
	})
	profile.PluginConfig = slices.DeleteFunc(profile.PluginConfig, func(p config.PluginConfig) bool {
		return slices.Contains(unused, p.Name)
	})
	others := []config.Plugin{{Name: names.NodeResourcesFit}, {Name: names.VolumeBinding}, {Name: names.DynamicResources}}
	profile.Plugins.PreScore.Disabled = others
	profile.Plugins.Score.Disabled = others
	profile.Plugins.PostFilter = config.PluginSet{Enabled: []config.Plugin{{Name: names.DynamicResources}}, Disabled: []config.Plugin{{Name: "*"}}}
	for _, p := range profile.PluginConfig {
		if args, is := p.Args.(*config.PodTopologySpreadArgs); is {
			args.DefaultingType, args.DefaultConstraints = config.ListDefaulting, nil
		}
	}
	return &profile, nil
}

// begin takes a new snapshot and starts a cycle for a pod.
func (c *chain) begin(ctx context.Context, from cache.Cache, pod *v1.Pod) (cycle, error) {
	if err := from.UpdateSnapshot(klog.FromContext(ctx), c.snapshot); err != nil {
		return cycle{}, fmt.Errorf("take a snapshot: %w", err)
	}
	return c.prepare(ctx, pod)
}

// prepare starts a cycle for a pod on the snapshot that there is.
func (c *chain) prepare(ctx context.Context, pod *v1.Pod) (cycle, error) {
	cy := cycle{pod: pod, state: framework.NewCycleState()}
	c.nominated.uid = pod.UID
	for _, plugin := range c.framework.PreEnqueuePlugins() { // scheduling gates, claims that are not there yet
		if status := plugin.PreEnqueue(ctx, pod); !status.IsSuccess() {
			cy.refused = status
			return cy, failure(status)
		}
	}
	left, status, by := c.framework.RunPreFilterPlugins(ctx, cy.state, pod)
	if !status.IsSuccess() {
		cy.refused = status
		return cy, failure(status)
	}
	if !left.AllNodes() {
		cy.only = left.NodeNames
		cy.rest = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(by)))
	}
	return cy, nil
}

// one judges a cycle's pod on one node of the snapshot.
func (c *chain) one(ctx context.Context, cy cycle, info fwk.NodeInfo) *fwk.Status {
	switch {
	case cy.refused != nil:
		return cy.refused
	case cy.only != nil && !cy.only.Has(info.Node().Name):
		return cy.rest
	}
	return c.framework.RunFilterPluginsWithNominatedPods(ctx, cy.state, cy.pod, info)
}

// all judges a cycle's pod on the nodes given, several at once.
func (c *chain) all(ctx context.Context, cy cycle, infos []fwk.NodeInfo) (Feasible, error) {
	found := Feasible{Why: map[string]string{}}
	statuses, full := make([]*fwk.Status, len(infos)), make([]bool, len(infos))
	c.framework.Parallelizer().Until(ctx, len(infos), func(i int) {
		s := c.one(ctx, cy, infos[i])
		statuses[i] = s
		full[i] = !s.IsSuccess() && s.Plugin() == names.NodeResourcesFit && s.Code() == fwk.Unschedulable && c.one(ctx, cy, roomy(infos[i])).IsSuccess()
	}, "")
	if err := context.Cause(ctx); err != nil {
		return found, err
	}
	for i, status := range statuses {
		name := infos[i].Node().Name
		if err := failure(status); err != nil {
			return found, fmt.Errorf("node %s: %w", name, err)
		}
		if status.IsSuccess() {
			found.Nodes = append(found.Nodes, name)
			continue
		}
		found.Why[name] = status.Message()
		if status.Code() == fwk.Unschedulable {
			found.Held = append(found.Held, name)
		}
		if full[i] {
			found.Full = append(found.Full, name)
		}
	}
	slices.Sort(found.Nodes)
	slices.Sort(found.Full)
	slices.Sort(found.Held)
	return found, nil
}

// roomy is a node with more of all resources that it has than pods could ask for, and otherwise as it is.
func roomy(info fwk.NodeInfo) fwk.NodeInfo {
	node := info.Node().DeepCopy()
	for name := range node.Status.Allocatable {
		node.Status.Allocatable[name] = *resource.NewQuantity(1<<60/1000, resource.DecimalSI)
	}
	same := info.Snapshot()
	same.SetNode(node)
	return same
}

// failure is the error of a status that is neither success nor a refusal.
func failure(status *fwk.Status) error {
	if status.IsSuccess() || status.IsRejected() {
		return nil
	}
	return status.AsError()
}
