package scheduler

import (
	"context"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var jobSets = schema.GroupVersionResource{Group: jobSetGroup, Version: "v1alpha2", Resource: "jobsets"}

// setOfJobs is a JobSet some of whose Jobs are there.
type setOfJobs struct {
	jobs    map[types.UID]bool
	known   bool            // how it starts is
	ordered bool            // its replicated Jobs start one after the other: each is a gang of its own
	least   map[string]int  // how many pods start at once, by replicated Job; those whose pods come and go one by one, as without indexes, have none
	apart   map[string]bool // replicated Jobs with a pod that asks for none of our devices, or that another scheduler places: they are not of the gang
}

// together is how many pods of a JobSet start together.
func (o *setOfJobs) together() (all int) {
	for name, least := range o.least {
		if !o.apart[name] {
			all += least
		}
	}
	return all
}

// setOf is the JobSet that made a Job, and of which of its replicated Jobs; nil: none did.
func setOf(job *batchv1.Job) (set *metav1.OwnerReference, replicated string) {
	set, replicated = metav1.GetControllerOfNoCopy(job), job.Labels[replicatedJobLabel]
	if set == nil || set.Kind != "JobSet" || !strings.HasPrefix(set.APIVersion, jobSetGroup+"/") || replicated == "" {
		return nil, ""
	}
	return set, replicated
}

// joinSet keeps that a Job is of a JobSet, and has it asked how that starts.
func (s *Scheduler) joinSet(job *batchv1.Job) {
	set, _ := setOf(job)
	if set == nil {
		return
	}
	of := s.sets[set.UID]
	if of == nil {
		of = &setOfJobs{jobs: map[types.UID]bool{}, apart: map[string]bool{}}
		s.sets[set.UID] = of
		if s.config.Objects == nil {
			of.known, of.ordered = true, true
		} else {
			s.askSet(job.Namespace, set.Name, of)
		}
	}
	of.jobs[job.UID] = true
}

// leaveSet forgets that, and the JobSet with its last Job.
func (s *Scheduler) leaveSet(job *batchv1.Job) {
	set, _ := setOf(job)
	if set == nil || s.sets[set.UID] == nil {
		return
	}
	if delete(s.sets[set.UID].jobs, job.UID); len(s.sets[set.UID].jobs) == 0 {
		delete(s.sets, set.UID)
	}
}

// setStart is of a JobSet what says how it starts.
type setStart struct {
	Spec struct {
		StartupPolicy struct {
			StartupPolicyOrder string `json:"startupPolicyOrder"`
		} `json:"startupPolicy"`
		ReplicatedJobs []struct {
			Name      string `json:"name"`
			Replicas  *int32 `json:"replicas"`
			DependsOn []struct {
				Name string `json:"name"`
			} `json:"dependsOn"`
			Template batchv1.JobTemplateSpec `json:"template"`
		} `json:"replicatedJobs"`
	} `json:"spec"`
}

// askSet asks, beside the loop, how a JobSet starts.
func (s *Scheduler) askSet(namespace, name string, of *setOfJobs) {
	s.asking++
	s.beside.Go(func() {
		set, ended := s.askOwner(jobSets, namespace, name)
		if ended {
			return
		}
		var start setStart
		ordered := set == nil // it is gone: its pods go, too
		if !ordered {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(set.Object, &start); err != nil {
				s.config.Log.Warn("how a JobSet starts cannot be read, and each of its replicated Jobs is a gang", "set", namespace+"/"+name, "error", err)
				ordered = true
			}
		}
		ordered = ordered || start.Spec.StartupPolicy.StartupPolicyOrder == "InOrder"
		least := map[string]int{}
		for _, replicated := range start.Spec.ReplicatedJobs {
			ordered = ordered || len(replicated.DependsOn) > 0
			spec := replicated.Template.Spec
			at := ptr.Deref(spec.Parallelism, 1)
			if indexed(&spec) && (spec.Completions == nil && spec.Parallelism == nil || ptr.Deref(spec.Completions, 0) == at) {
				least[replicated.Name] = int(ptr.Deref(replicated.Replicas, 1) * at)
			}
		}
		s.inbox.put(func() {
			s.asking--
			of.known, of.ordered, of.least = true, ordered, least
			s.considerSet(of)
		})
	})
}

// awaitOwners waits, but not for long, until it is known how those pods start together that are there when a scheduler begins: those of a gang are one workload then.
func (s *Scheduler) awaitOwners() {
	most := time.NewTimer(answerWithin)
	defer most.Stop()
	for s.asking > 0 {
		select {
		case <-s.ctx.Done():
			return
		case <-most.C:
			return
		case <-s.inbox.more:
			s.take()
		}
	}
}

// askOwner reads an object that made pods until that is answered; nil: it is gone. It says whether the scheduler ends.
func (s *Scheduler) askOwner(kind schema.GroupVersionResource, namespace, name string) (object *unstructured.Unstructured, ended bool) {
	for try := 0; ; try++ {
		object, err := within(s.ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
			return s.config.Objects.Resource(kind).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		})
		switch {
		case err == nil:
			return object, false
		case apierrors.IsNotFound(err):
			return nil, false
		case try == 0:
			s.config.Log.Warn("how pods start together could not be read, and is asked again", "of", kind.Resource+" "+namespace+"/"+name, "error", err)
		}
		if !again(s.ctx, try) {
			return nil, true
		}
	}
}

// considerSet looks again at the pods of a JobSet, in the gang that they are of now.
func (s *Scheduler) considerSet(of *setOfJobs) {
	all := map[*pod]bool{}
	for job := range of.jobs {
		for p := range s.owned[job] {
			if s.serves(p.object) {
				all[p] = true
			}
		}
	}
	sorted := sortedPods(all)
	for _, p := range sorted {
		s.joinGang(p)
	}
	s.considerJoined(sorted)
}

// considerJoined looks at pods of which it may be known only now of which gang they are.
func (s *Scheduler) considerJoined(pods []*pod) {
	for _, p := range pods {
		if p.begun {
			s.goOnWith(p)
		}
		s.consider(p)
	}
}

// jobApart notes of a pod that asks for none of our devices, or is not this scheduler's to place, that its replicated Job is not of the gang of its
// JobSet, and looks at the JobSet's pods anew, the pod included; false: that was known, or it is of none.
func (s *Scheduler) jobApart(p *pod) bool {
	job := s.jobs[p.owner]
	if job == nil {
		return false
	}
	set, replicated := setOf(job)
	if set == nil || s.sets[set.UID].apart[replicated] {
		return false
	}
	s.sets[set.UID].apart[replicated] = true
	s.considerSet(s.sets[set.UID])
	return true
}

// jobsApart finds the replicated Jobs that are not of the gangs of their JobSets, for a scheduler that begins.
func (s *Scheduler) jobsApart() {
	for _, p := range s.pods {
		if s.outside(p) {
			s.jobApart(p)
		}
	}
}
