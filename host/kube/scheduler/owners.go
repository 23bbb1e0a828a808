package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// What JobSets (sigs.k8s.io/jobset, v1alpha2) write on their Jobs, and LeaderWorkerSets (sigs.k8s.io/lws, v1) on their pods.
const (
	jobSetGroup        = "jobset.x-k8s.io"
	replicatedJobLabel = "jobset.sigs.k8s.io/replicatedjob-name"
	replicasLabel      = "jobset.sigs.k8s.io/replicatedjob-replicas"
	attemptLabel       = "jobset.sigs.k8s.io/restart-attempt"

	leaderSetLabel      = "leaderworkerset.sigs.k8s.io/name"
	groupLabel          = "leaderworkerset.sigs.k8s.io/group-index"
	workerLabel         = "leaderworkerset.sigs.k8s.io/worker-index"
	sizeAnnotation      = "leaderworkerset.sigs.k8s.io/size"
	exclusiveAnnotation = "leaderworkerset.sigs.k8s.io/exclusive-topology"
)

// errNotYet is why it cannot be said now whether a pod is of a gang. Its pod is looked at again once it can.
var errNotYet = errors.New("not known yet")

var leaderSets = schema.GroupVersionResource{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}

// jobGang is the gang of a pod that a Job made.
func (s *Scheduler) jobGang(owner *metav1.OwnerReference) (key string, least int, err error) {
	job := s.jobs[owner.UID]
	if job == nil {
		return "", 0, fmt.Errorf("its Job %s is %w", owner.Name, errNotYet)
	}
	return s.gangOfJob(job)
}

// gangOfJob is the gang of the pods of an indexed Job that runs all of them at once: these; or all such of the JobSet that made the Job, which are as many as
// are known to ask for devices; or, where the JobSet starts its replicated Jobs one after the other, those of all Jobs of one of these. Pods of a Job
// without indexes know nothing of each other, and come and go one by one.
func (s *Scheduler) gangOfJob(job *batchv1.Job) (key string, least int, err error) {
	all, together := job.Spec.Completions, job.Spec.Parallelism
	if !indexed(&job.Spec) || all == nil || together == nil || *all != *together {
		return "", 0, nil
	}
	key, least = "job "+string(job.UID), int(*all)
	if set, name := setOf(job); set != nil {
		if key, least, err = s.setGang(job, set, name, least); err != nil {
			return "", 0, err
		}
	}
	if least < 2 {
		return "", 0, nil
	}
	return key, least, nil
}

// indexed says whether each pod of a Job has an index of its own, its rank.
func indexed(spec *batchv1.JobSpec) bool {
	return ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

// setGang is gangOfJob of a JobSet's Job of so many pods; a least of 0: it is of none.
func (s *Scheduler) setGang(job *batchv1.Job, set *metav1.OwnerReference, replicated string, pods int) (key string, least int, err error) {
	of, attempt := s.sets[set.UID], job.Labels[attemptLabel]
	switch {
	case !of.known:
		return "", 0, fmt.Errorf("how the JobSet %s starts is %w", set.Name, errNotYet)
	case of.ordered:
		jobs, err := strconv.Atoi(job.Labels[replicasLabel])
		if err != nil || jobs < 1 {
			return "", 0, fmt.Errorf("its Job %s has the label %s of a JobSet as %q, and that should be how many such Jobs there are", job.Name, replicasLabel, job.Labels[replicasLabel])
		}
		return strings.Join([]string{"jobset", string(set.UID), replicated, attempt}, " "), jobs * pods, nil
	case of.apart[replicated]:
		return "", 0, nil
	}
	return strings.Join([]string{"jobset", string(set.UID), attempt}, " "), of.together(), nil
}

// leader is the first pod of a group of a LeaderWorkerSet.
type leader struct {
	object *corev1.Pod
	known  bool // whether it starts before the others are made is known
	apart  bool // it does, or it or they ask for no devices: it is not of their gang
}

// group is the group of a LeaderWorkerSet that a pod is of; empty: of none.
func group(object *corev1.Pod) string {
	set, number := object.Labels[leaderSetLabel], object.Labels[groupLabel]
	if set == "" || number == "" || object.Labels[workerLabel] == "" {
		return ""
	}
	return object.Namespace + "/" + set + "/" + number
}

func leads(object *corev1.Pod) bool { return object.Labels[workerLabel] == "0" }

// leaderGang is the gang of a pod of a LeaderWorkerSet: its group, without the leader where that is apart.
func (s *Scheduler) leaderGang(object *corev1.Pod) (key string, least int, err error) {
	of, set := group(object), object.Labels[leaderSetLabel]
	size, err := strconv.Atoi(object.Annotations[sizeAnnotation])
	if err != nil || size < 1 {
		return "", 0, fmt.Errorf("it is of the LeaderWorkerSet %s, and its annotation %s is %q; that should be the number of pods of a group", set, sizeAnnotation, object.Annotations[sizeAnnotation])
	}
	l := s.leaders[of]
	switch {
	case l == nil:
		return "", 0, fmt.Errorf("the leader of its group of the LeaderWorkerSet %s is %w", set, errNotYet)
	case !l.known:
		return "", 0, fmt.Errorf("how the LeaderWorkerSet %s starts is %w", set, errNotYet)
	case l.apart && leads(object):
		return "", 0, nil
	case l.apart:
		size--
	}
	if size < 2 {
		return "", 0, nil
	}
	return "lws " + of + " " + string(l.object.UID), size, nil
}

// lead keeps who leads a group, and whether apart.
func (s *Scheduler) lead(object *corev1.Pod) {
	of := group(object)
	if of == "" {
		return
	}
	l := s.leaders[of]
	if !leads(object) {
		if l != nil && !l.apart && !bothClaim(l.object, object) {
			l.apart = true
			s.considerGroup(of)
		}
		return
	}
	if l != nil && l.object.UID == object.UID {
		l.object = object
		return
	}
	l = &leader{object: object, apart: object.Annotations[exclusiveAnnotation] != ""} // the others are made when it has a node
	s.leaders[of] = l
	for _, p := range s.pods {
		l.apart = l.apart || group(p.object) == of && (!bothClaim(object, p.object) || s.began && s.outside(p))
	}
	if l.known = l.apart || s.config.Objects == nil; !l.known {
		s.askStart(of, l)
	}
	s.considerGroup(of)
}

// leadsApart notes of a pod that asks for none of our devices that its group has no leader in its gang, and looks at the group anew, the pod
// included; false: that was known, or it is of no group.
func (s *Scheduler) leadsApart(p *pod) bool {
	of := group(p.object)
	l := s.leaders[of]
	if of == "" || l == nil || l.apart {
		return false
	}
	l.apart = true
	s.considerGroup(of)
	return true
}

// leadersApart finds the groups that a scheduler which begins has no leader in the gang of, or no workers: these ask for none of our devices.
func (s *Scheduler) leadersApart() {
	for _, p := range s.pods {
		if l := s.leaders[group(p.object)]; l != nil && !l.apart {
			l.apart = s.outside(p)
		}
	}
}

func (s *Scheduler) leadGone(object *corev1.Pod) {
	if l := s.leaders[group(object)]; l != nil && l.object.UID == object.UID {
		delete(s.leaders, group(object))
	}
}

// bothClaim says whether both of two pods have claims, or none has.
func bothClaim(a, b *corev1.Pod) bool {
	return (len(a.Spec.ResourceClaims) > 0) == (len(b.Spec.ResourceClaims) > 0)
}

// askStart asks, beside the loop, whether a leader starts before the others are made (startupPolicy LeaderReady).
func (s *Scheduler) askStart(of string, l *leader) {
	object := l.object
	s.asking++
	s.beside.Go(func() {
		set, ended := s.askOwner(leaderSets, object.Namespace, object.Labels[leaderSetLabel])
		if ended {
			return
		}
		policy := ""
		if set != nil {
			policy, _, _ = unstructured.NestedString(set.Object, "spec", "startupPolicy")
		}
		s.inbox.put(func() {
			s.asking--
			l.known, l.apart = true, l.apart || policy == "LeaderReady"
			s.considerGroup(of)
		})
	})
}

// considerGroup looks again at the pods of a group, in the gang that they are of now.
func (s *Scheduler) considerGroup(of string) {
	var all []*pod
	for _, p := range s.pods {
		if group(p.object) == of && s.serves(p.object) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *pod) int { return cmp.Compare(a.name(), b.name()) })
	for _, p := range all {
		s.joinGang(p)
	}
	s.considerJoined(all)
}

// ofJob is the Job that made a pod; nil: none did.
func ofJob(object *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != "Job" || !strings.HasPrefix(owner.APIVersion, batchv1.GroupName+"/") {
		return nil
	}
	return owner
}

// own keeps which pods are of which Job, until they are gone or that lets go of them.
func (s *Scheduler) own(p *pod) {
	now := types.UID("")
	if owner := ofJob(p.object); owner != nil && s.pods[p.object.UID] == p {
		now = owner.UID
	}
	if now == p.owner {
		return
	}
	if delete(s.owned[p.owner], p); len(s.owned[p.owner]) == 0 {
		delete(s.owned, p.owner)
	}
	if p.owner = now; now == "" {
		return
	}
	if s.owned[now] == nil {
		s.owned[now] = map[*pod]bool{}
	}
	s.owned[now][p] = true
}

// sameJob says whether nothing has changed by which a Job's pods are a gang or none. Its status does with every pod.
func sameJob(a, b *batchv1.Job) bool {
	return equality.Semantic.DeepEqual(a.Spec.Completions, b.Spec.Completions) && equality.Semantic.DeepEqual(a.Spec.Parallelism, b.Spec.Parallelism) &&
		maps.Equal(a.Labels, b.Labels) && equality.Semantic.DeepEqual(metav1.GetControllerOfNoCopy(a), metav1.GetControllerOfNoCopy(b))
}

func (s *Scheduler) jobSet(job *batchv1.Job) {
	before := s.jobs[job.UID]
	s.jobs[job.UID] = job
	if before != nil && sameJob(before, job) {
		if settled(before) != settled(job) {
			s.fewerCome(job)
		}
		return
	}
	s.joinSet(job)
	pods := sortedPods(s.owned[job.UID])
	for _, p := range pods {
		if s.serves(p.object) {
			s.joinGang(p)
		}
		if s.began && s.outside(p) { // it may run by now
			s.jobApart(p)
		}
	}
	for _, p := range pods {
		s.consider(p)
	}
}

// outside says of a pod that it is in no gang by who made it: it asks for none of our devices, or is not this scheduler's to place.
func (s *Scheduler) outside(p *pod) bool {
	a, err := s.askOf(p)
	return !s.serves(p.object) || err == nil && len(a.open)+len(a.have) == 0
}

func (s *Scheduler) jobGone(job *batchv1.Job) {
	delete(s.jobs, job.UID)
	s.leaveSet(job)
}
