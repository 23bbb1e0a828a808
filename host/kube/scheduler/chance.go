package scheduler

import (
	"context"
	"maps"
	"slices"

	"github.com/aliquot-dev/aliquot/host/kube/demand"
)

// secondChance has devices looked for which the engine does not take into account, for a pod that waits in its line by itself: those that match its
// selectors on a node where others do not, those with a taint that its claims tolerate, and one for several of its claims. It stays in line meanwhile.
func (s *Scheduler) secondChance(p *pod) {
	t := p.task
	if t == nil || t.work.state != inLine || len(t.work.tasks) != 1 || p.searching {
		return
	}
	if key, _, err := s.gangOf(p.object); err != nil || key != "" {
		return
	}
	nodes := s.passedOver(t)
	if len(nodes) == 0 {
		return
	}
	looked := search{classes: maps.Clone(s.deviceClasses)}
	for _, open := range t.ask.open {
		looked.claims = append(looked.claims, s.distinct(open.object))
	}
	for _, n := range nodes {
		looked.nodes = append(looked.nodes, s.offerOf(n))
	}
	p.searching = true
	s.spawn(func(ctx context.Context) {
		found := looked.run(ctx)
		s.inbox.put(func() {
			p.searching = false
			if p.task == t && (t.work.state != inLine || found.node == "") {
				return // it waits on, or has its place
			}
			if p.task == t {
				s.withdraw(t.work, "devices were found for it beside the line")
			}
			if now, err := s.askOf(p); err == nil && s.mine(p) && p.task == nil && p.beside == nil && found.node != "" && slices.Equal(now.open, t.ask.open) && slices.Equal(now.have, t.ask.have) && now.node == t.ask.node {
				now.special = "it tolerates devices that take nothing new, does with some of a node, or has several claims that may have parts of one device"
				if s.grant(&party{seats: []*seat{{pod: p, ask: now}}}, []finding{found}) == nil {
					return
				}
			}
			s.consider(p)
		})
	})
}

// passedOver are the nodes that take a task's pod and have devices which would do for it and which the engine does not count, by name: for it all devices
// that a pod asks for are different ones, and for its claims those of each are.
func (s *Scheduler) passedOver(t *task) (nodes []*node) {
	tolerates := slices.ContainsFunc(t.ask.devices, func(w wanted) bool { return len(w.exactly.Tolerations) > 0 })
	answer := t.work.roles[0].class.answer
	for _, name := range slices.Sorted(maps.Keys(answer)) {
		n := s.nodes[name]
		if n == nil || n.object == nil || answer[name] != "" && answer[name] != someMatch {
			continue
		}
		if answer[name] == someMatch || len(t.ask.open) > 1 || tolerates && slices.ContainsFunc(n.offered, demand.Tainted) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}
