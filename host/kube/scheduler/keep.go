package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/engine"
)

// keepAfter is for how long after those that are evicted for a pod have ended at the latest its part of devices is kept: until it is known anew where it may run.
const keepAfter = askEvery

// keep is where a pod in line is to run once those have ended that are evicted for it. Its part of the devices there is kept until then: nobody of its priority
// or a lower one is started on it, as nobody takes the CPU and memory of a pod that is nominated. The engine is not told: it is refused what it would start.
type keep struct {
	node  string
	until time.Time
}

// keepFor has the devices of a pod kept on the node for which it is nominated.
func (s *Scheduler) keepFor(p *pod, node string) {
	s.keeps[p] = keep{node, s.config.Now().Add(s.config.Grace + keepAfter)}
}

// keepNominated is keepFor where a scheduler before this one made the room.
func (s *Scheduler) keepNominated(p *pod) {
	if node := p.object.Status.NominatedNodeName; node != "" && s.keeps[p].node != node {
		s.keepFor(p, node)
	}
}

// unkeep has others take what was kept for a pod.
func (s *Scheduler) unkeep(p *pod) {
	if _, is := s.keeps[p]; is {
		delete(s.keeps, p)
		s.askRefused()
	}
}

// askRefused has it asked anew which nodes those may use who were refused: the engine tries these again then.
func (s *Scheduler) askRefused() {
	for _, c := range s.classes {
		c.stale = c.stale || c.refused
	}
}

// endKeeping ends what was kept for too long, or for pods that do not wait any more, and returns when to look again.
func (s *Scheduler) endKeeping() time.Duration {
	next, now, ended := time.Hour, s.config.Now(), false
	for p, k := range s.keeps {
		switch left := k.until.Sub(now); {
		case !s.mine(p) || p.task != nil && p.task.work.state != inLine:
			delete(s.keeps, p)
			ended = true
		case left > 0:
			next = min(next, left)
		case !k.until.IsZero():
			s.keeps[p] = keep{node: k.node} // it is not kept again for the same nomination
			ended = true
		}
	}
	if ended {
		s.askRefused()
	}
	return next
}

// keptNodes are the nodes on which the devices of a workload in line are kept, one for each task; nil: they are not.
func (s *Scheduler) keptNodes(w *work) (nodes []string) {
	for _, t := range w.tasks {
		k := s.keeps[t.pod]
		if k.until.IsZero() {
			return nil
		}
		nodes = append(nodes, k.node)
	}
	return nodes
}

// notKept are those of some nodes on which no devices are kept for another that goes before a pod.
func (s *Scheduler) notKept(p *pod, nodes []string) []string {
	if len(s.keeps) == 0 {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(name string) bool {
		for o, k := range s.keeps {
			if k.node == name && !k.until.IsZero() && lowest(o) >= lowest(p) && (p.task == nil || o.task == nil || o.task.work != p.task.work) {
				return true
			}
		}
		return false
	})
}

// keptFrom is why a pod may not have what was found for it, with the node: another would not have what is kept for it there. Held: the engine's books
// hold what was found.
func (s *Scheduler) keptFrom(p *pod, found []engine.Placing, held bool) (node string, err error) {
	if len(s.keeps) == 0 {
		return "", nil
	}
	var grants []engine.Grant
	for _, one := range found {
		grants = append(grants, one.Grants...)
	}
	for _, o := range slices.SortedFunc(maps.Keys(s.keeps), byName) {
		if o == p || o.task == nil || o.task.index != 0 || o.task.work.state != inLine || lowest(o) < lowest(p) {
			continue
		}
		nodes := s.keptNodes(o.task.work)
		at := slices.IndexFunc(found, func(one engine.Placing) bool { return slices.Contains(nodes, one.Node) })
		if at >= 0 && s.engine.TakesRoom(o.task.work.id, nodes, grants, held) {
			node = found[at].Node
			return node, fmt.Errorf("node %s: what its devices have free is kept for pod %s, for which others are evicted there", node, o.name())
		}
	}
	return "", nil
}
