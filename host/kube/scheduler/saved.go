package scheduler

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// hearSaved tells the engine when a pod saved what it has done, each time that it says so while it runs. What one pod of a gang says holds for all of
// them: they save together.
func (s *Scheduler) hearSaved(p *pod) {
	said := p.object.Annotations[annotation.CheckpointedAt]
	if said == p.saved || !s.began {
		return
	}
	works := map[*work]bool{}
	s.addPlaced(works, p)
	if len(works) == 0 {
		return // what it says is heard once it has started
	}
	p.saved = said
	at, err := annotation.Checkpointed(p.object.Annotations)
	if err != nil {
		s.recorder.Event(p.object, corev1.EventTypeWarning, "NotSaved", "When it saved what it has done is not known: "+err.Error()+".")
	}
	if err != nil || at.IsZero() {
		return
	}
	if p.gang != nil {
		for o := range p.gang.members {
			s.addPlaced(works, o)
		}
	}
	ago := engine.Time(max(0, s.config.Now().Sub(at).Microseconds()))
	for _, w := range slices.SortedFunc(maps.Keys(works), func(a, b *work) int { return cmp.Compare(a.id, b.id) }) {
		s.step(engine.Checkpoint{At: s.at(), ID: w.id, Ago: ago})
	}
}

// addPlaced adds the workloads that hold what a pod's claims are allocated.
func (s *Scheduler) addPlaced(works map[*work]bool, p *pod) {
	for _, key := range p.claims {
		if c := s.claims[key]; c != nil && c.task != nil && c.task.work.state == placed {
			works[c.task.work] = true
		}
	}
}
