package scheduler

import (
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// needs is how many pods of a gang start together now, of which so many start together at first: fewer, and one at least, where others have ended and are not
// made again. Of Jobs that go on making pods of it, their status says so. Other pods that succeeded count as there, unless so many did that they were a whole
// gang: then that was a run before this one, under the same name.
func (s *Scheduler) needs(g *gang, least int) int {
	jobs := s.jobsOf(g)
	most, still := 0, 0 // pods that there are at once of what is known: at first, and now
	for job := range jobs {
		first, now := atOnce(job)
		most, still = most+first, still+now
	}
	others := 0
	for p := range g.members {
		if p.object.Status.Phase == corev1.PodSucceeded && !jobs[s.jobs[p.owner]] {
			others++
		}
	}
	if others < least {
		most += others
	}
	return max(1, min(least, still+max(0, least-most)))
}

// jobsOf are the Jobs that make pods of a gang: those that made one which has not ended, and others of their JobSets.
func (s *Scheduler) jobsOf(g *gang) map[*batchv1.Job]bool {
	all, sets := map[*batchv1.Job]bool{}, map[types.UID]bool{}
	for p := range g.members {
		job := s.jobs[p.owner]
		if job == nil || over(p.object) {
			continue
		}
		all[job] = true
		set, _ := setOf(job)
		if set == nil || sets[set.UID] {
			continue
		}
		sets[set.UID] = true
		for other := range s.sets[set.UID].jobs {
			if job := s.jobs[other]; job != nil && s.makesFor(job, g) {
				all[job] = true
			}
		}
	}
	return all
}

// makesFor says whether the pods that a Job makes are of a gang.
func (s *Scheduler) makesFor(job *batchv1.Job, g *gang) bool {
	if name := job.Spec.Template.Labels[annotation.Gang]; name != "" {
		return g.key == job.Namespace+"/"+name
	}
	key, _, err := s.gangOfJob(job)
	return err == nil && g.key == key
}

// atOnce is how many pods a Job has at once: at first, and now that some have ended for good.
func atOnce(job *batchv1.Job) (first, now int) {
	first = int(ptr.Deref(job.Spec.Parallelism, 1))
	if job.Spec.Completions == nil {
		return first, first
	}
	all := int(*job.Spec.Completions)
	first = min(first, all)
	return first, max(0, min(first, all-settled(job)))
}

// settled is how many pods of a Job have ended and are not made again: they succeeded, or those of their index failed too often.
func settled(job *batchv1.Job) int {
	count := int(job.Status.Succeeded)
	for _, indexes := range strings.Split(ptr.Deref(job.Status.FailedIndexes, ""), ",") { // as 1,3-5
		from, to, several := strings.Cut(indexes, "-")
		if !several {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, errLast := strconv.Atoi(to)
		if err == nil && errLast == nil && first <= last {
			count += last - first + 1
		}
	}
	return count
}

// fewerCome looks at the gangs of a Job's pods that wait, for it makes fewer from now on.
func (s *Scheduler) fewerCome(job *batchv1.Job) {
	seen := map[*gang]bool{}
	for _, p := range sortedPods(s.owned[job.UID]) {
		if p.gang != nil && !seen[p.gang] {
			seen[p.gang] = true
			s.followers(p.gang)
		}
	}
}
