// Package filter says on which nodes a pod may run, by upstream's own words: the filter plugins of the stock scheduler
// (k8s.io/kubernetes/pkg/scheduler, default profile), around a snapshot of nodes and pods. What comes in are the objects that a shared
// informer factory sees and the pods that the caller assumes on nodes; what goes out are sets of nodes with a reason for every other
// node, how well nodes are what a pod prefers, a string that names a pod's class, and whom upstream would evict for a pod. It chooses no node but for
// evictions, and writes nothing but what upstream's plugins write before a binding (PreBind).
//
// A library and not our own filters: upstream's predicates are thousands of lines that change with every release and must never be
// read differently here, so that all they forbid is forbidden and no pod waits that the stock scheduler would place.
//
// Two copies of the plugins look at one cache, each with a snapshot of its own: one answers Nodes, off the decision path and long
// (milliseconds for thousands of nodes), the other Check and Assume, at once. What is assumed counts in both.
//
// Claims for devices of this project's driver are our scheduler's to place: a pod is judged as if it had none of them. Claims of other drivers are
// judged, reserved and allocated by upstream's DynamicResources like everything else, which sees no device of ours. A claim that mixes both fits
// nowhere, and the reason says so.
//
// Feature gates are those of the build, at upstream's defaults for the release, but for FollowTaintRules.
package filter
