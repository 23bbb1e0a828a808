package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/engine"
)

// When classes are forgotten that are not in use: from so many on, and from as many on as are in use, so that what it costs is little beside having made
// them; but so many of them stay, those that a pod was of last. It is looked at when there are enough, and now and then.
const (
	mostIdle    = 64
	recentIdle  = 32
	forgetEvery = 10 * time.Minute
)

// forgetClasses forgets classes, here and in the engine, that nothing waits in, if there are many.
func (s *Scheduler) forgetClasses() {
	now, known := s.config.Now(), len(s.classes)+len(s.left)
	s.metrics.classes.Store(int64(known))
	if known < max(mostIdle, s.forgetAt) && now.Before(s.forgot.Add(forgetEvery)) {
		return
	}
	idle := s.idleClasses()
	used := known - len(idle)
	s.forgot, s.forgetAt = now, used+max(mostIdle, used)
	if len(idle) < max(mostIdle, used) {
		return
	}
	slices.SortFunc(idle, func(a, b *class) int { return cmp.Or(b.last.Compare(a.last), cmp.Compare(a.key, b.key)) })
	gone, stay := engine.FeasibilityGone{}, recentIdle
	for _, c := range idle {
		if !c.alone && stay > 0 {
			stay--
			continue
		}
		delete(s.classes, c.key)
		delete(s.left, c.key)
		gone.Classes = append(gone.Classes, c.key)
		for rank := range maxRanks {
			gone.Classes = append(gone.Classes, c.preferred(rank+1, maxRanks))
		}
	}
	s.forgetSelections()
	s.metrics.classes.Store(int64(len(s.classes) + len(s.left)))
	gone.At = s.at()
	s.step(gone)
}

// idleClasses are those in which no pod waits, which no work names that is being placed and whose nodes are not being asked for: nobody else keeps a class.
// What runs needs none: who evicts it, or ends it in another way, has another pod come, and that is asked for anew.
func (s *Scheduler) idleClasses() (idle []*class) {
	used := map[*class]bool{}
	for _, w := range s.work {
		for _, r := range w.roles {
			used[r.class] = true
		}
	}
	for _, all := range []map[string]*class{s.classes, s.left} {
		for _, c := range all {
			if c.waiting == 0 && !c.asking && !used[c] {
				idle = append(idle, c)
			}
		}
	}
	return idle
}
