package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Domain is what a node is in at one level of the topology: rack r1, link domain l7.
type Domain struct {
	Level string `json:"level"`
	Name  string `json:"name"`
}

// CheckDomains says what is wrong with the domains of a node.
func CheckDomains(node string, domains []Domain) error {
	for i, d := range domains {
		if d.Level == "" || d.Name == "" {
			return fmt.Errorf("node %s: a domain is of level %q and called %q: name both", node, d.Level, d.Name)
		}
		if slices.ContainsFunc(domains[:i], func(o Domain) bool { return o.Level == d.Level }) {
			return fmt.Errorf("node %s: it is in two domains of level %s: name one", node, d.Level)
		}
	}
	return nil
}

// SetDomains says what a node that is there is in, at each level.
func (f *Fleet) SetDomains(name string, domains []Domain) {
	n := f.byName[name]
	domains = slices.Clone(domains)
	slices.SortFunc(domains, func(a, b Domain) int { return strings.Compare(a.Level, b.Level) })
	if !slices.Equal(f.nodes[n].domains, domains) {
		f.nodes[n].domains = domains
		f.changed()
	}
}

// DomainOf is what a node is in at a level; empty: in nothing.
func (f *Fleet) DomainOf(n NodeID, level string) string {
	for _, d := range f.nodes[n].domains {
		if d.Level == level {
			return d.Name
		}
	}
	return ""
}

// Room is how much room a domain has, in tasks.
type Room struct {
	Domain string
	Tasks  int
}

// Least puts the room first that is least, and by name where that is the same.
func (r Room) Least(o Room) int {
	return cmp.Or(cmp.Compare(r.Tasks, o.Tasks), strings.Compare(r.Domain, o.Domain))
}
