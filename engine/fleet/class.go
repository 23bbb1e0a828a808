package fleet

import (
	"cmp"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/ordered"
)

// class is a feasibility class: where its workloads may run. It takes about a hundred bytes for each node that was spoken of.
type class struct {
	name    string
	said    map[string]saying // by node name, of nodes known or not
	refused map[NodeID]string // by nodes that refused, why
	open    []bool            // by NodeID: allowed and not refused
	prefer  ClassID           // whose nodes it would rather use; Alike: it has no preference
	// members are the open nodes of a named class. The empty class, which has nearly all, keeps none.
	members *ordered.List[NodeID]
}

// saying is what the host said of a node: allowed, or barred with a code.
type saying struct {
	allowed bool
	code    string
}

// Class interns a class. What is said of it holds for its next workload, too, until ForgetClasses.
func (f *Fleet) Class(name string) ClassID {
	if id, ok := f.byClass[name]; ok {
		return id
	}
	c := &class{name: name, said: map[string]saying{}, refused: map[NodeID]string{}, prefer: Alike}
	if name != "" {
		c.members = ordered.New(f.Before)
	}
	id := ClassID(len(f.classes))
	if last := len(f.idleClasses) - 1; last >= 0 {
		id, f.idleClasses = f.idleClasses[last], f.idleClasses[:last]
		f.classes[id] = c
	} else {
		f.classes = append(f.classes, c)
	}
	f.byClass[name] = id
	for _, n := range f.order {
		c.reopen(f, n)
	}
	return id
}

// ClassOf finds a class that is known.
func (f *Fleet) ClassOf(name string) (ClassID, bool) {
	id, ok := f.byClass[name]
	return id, ok
}

// Classes is how many classes are known.
func (f *Fleet) Classes() int { return len(f.byClass) }

// KnownClasses calls yield for each class that is known.
func (f *Fleet) KnownClasses(yield func(ClassID) bool) {
	for i, c := range f.classes {
		if c != nil && !yield(ClassID(i)) {
			return
		}
	}
}

// ForgetClasses forgets classes with all that was said and refused of them. No mark may be open, nobody may use them any more, no other class may
// prefer one of them, and the empty class is none of them. Their numbers go to classes that come: what is remembered by these is out of date.
func (f *Fleet) ForgetClasses(ids []ClassID) {
	for _, id := range ids {
		delete(f.byClass, f.classes[id].name)
		f.classes[id] = nil
		f.idleClasses = append(f.idleClasses, id)
	}
	f.changes++
}

// ClassName is a class's name.
func (f *Fleet) ClassName(c ClassID) string { return f.classes[c].name }

// Allow lets a class use a node, known or not.
func (f *Fleet) Allow(id ClassID, nodeName string) { f.say(id, nodeName, saying{allowed: true}) }

// Bar keeps a class off a node, known or not.
func (f *Fleet) Bar(id ClassID, nodeName, code string) { f.say(id, nodeName, saying{code: code}) }

func (f *Fleet) say(id ClassID, nodeName string, s saying) {
	c := f.classes[id]
	if id == 0 && s.allowed {
		delete(c.said, nodeName) // as if nothing was ever said: allowed
	} else {
		c.said[nodeName] = s
	}
	if n, ok := f.byName[nodeName]; ok {
		c.reopen(f, n)
	}
	f.changed()
}

// Alike is the class that one without a preference prefers.
const Alike ClassID = -1

// Prefer has a class use the nodes of another, of those that it may use, before its others; Alike: it has no preference any more. It does nothing
// and returns false where the other prefers it in turn.
func (f *Fleet) Prefer(id, other ClassID) bool {
	for at := other; at != Alike; at = f.classes[at].prefer {
		if at == id {
			return false
		}
	}
	if c := f.classes[id]; c.prefer != other {
		c.prefer = other
		f.changed()
	}
	return true
}

// Preferred is the class whose nodes a class would rather use; Alike: it has no preference.
func (f *Fleet) Preferred(id ClassID) ClassID { return f.classes[id].prefer }

// Refuse bars a node that refused a workload of this class, for the classes that it prefers, too, until ForgetRefusals or a change of the node.
func (f *Fleet) Refuse(id ClassID, n NodeID, reason string) {
	for ; id != Alike; id = f.classes[id].prefer {
		f.refuse(id, n, reason)
	}
	f.changes++
}

func (f *Fleet) refuse(id ClassID, n NodeID, reason string) {
	c := f.classes[id]
	c.refused[n] = reason
	c.reopen(f, n)
}

// ForgetRefusals lifts all refusals for a class and for those that it prefers.
func (f *Fleet) ForgetRefusals(id ClassID) {
	for ; id != Alike; id = f.classes[id].prefer {
		c := f.classes[id]
		for _, n := range f.order {
			if _, ok := c.refused[n]; ok {
				delete(c.refused, n)
				c.reopen(f, n)
				f.changed()
			}
		}
	}
}

// ForgetRefusal lifts a node's refusal for one class.
func (f *Fleet) ForgetRefusal(id ClassID, n NodeID) {
	c := f.classes[id]
	if _, ok := c.refused[n]; ok {
		delete(c.refused, n)
		c.reopen(f, n)
		f.changed()
	}
}

func (f *Fleet) clearRefusals(n NodeID) {
	for id := range f.KnownClasses {
		f.ForgetRefusal(id, n)
	}
}

// Open says that a class may use a node.
func (f *Fleet) Open(id ClassID, n NodeID) bool {
	open := f.classes[id].open
	return int(n) < len(open) && open[n]
}

// Members are the nodes that a named class may use; nil for the empty class, which may use all but a few.
func (f *Fleet) Members(id ClassID) *ordered.List[NodeID] { return f.classes[id].members }

// Closed says why a class may not use a node: the code the host gave, or the reason the node refused with.
func (f *Fleet) Closed(id ClassID, n NodeID) (code, refused string, closed bool) {
	if f.Open(id, n) {
		return "", "", false
	}
	c := f.classes[id]
	s, ok := c.said[f.nodes[n].name]
	if r, yes := c.refused[n]; yes && (s.allowed || (id == 0 && !ok)) {
		return "", r, true
	}
	return cmp.Or(s.code, "not named by the host"), "", true
}

func (c *class) reopen(f *Fleet, n NodeID) {
	for len(c.open) < len(f.nodes) {
		c.open = append(c.open, false)
	}
	s, ok := c.said[f.nodes[n].name]
	_, refused := c.refused[n]
	open := !refused && (s.allowed || (c.name == "" && !ok))
	if open == c.open[n] {
		return
	}
	c.open[n] = open
	switch {
	case c.members == nil:
	case open:
		c.members.Insert(n)
	default:
		c.members.Delete(n)
	}
}

// forget drops what concerns a node's slot before the slot names another node.
func (c *class) forget(f *Fleet, n NodeID) {
	delete(c.refused, n)
	if int(n) < len(c.open) && c.open[n] {
		c.open[n] = false
		if c.members != nil {
			c.members.Delete(n)
		}
	}
}

// sayings are the nodes spoken of, by name.
func (c *class) sayings() []string {
	var names []string
	for name := range c.said {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
