package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// NodeClassID numbers a node class: nodes are in the same one exactly if they have as many devices of each model. Those without any
// are in 0.
type NodeClassID int32

// classNode finds which class a node is in, by its devices that are not gone. It changes only where Changes does.
func (f *Fleet) classNode(n NodeID) { f.nodes[n].class = f.nodeClassOf(n) }

func (f *Fleet) nodeClassOf(n NodeID) NodeClassID {
	name := f.classNameOf(n)
	id, ok := f.byNodeClass[name]
	if !ok {
		id = NodeClassID(len(f.nodeClasses))
		f.nodeClasses = append(f.nodeClasses, name)
		f.byNodeClass[name] = id
	}
	return id
}

// classNameOf names the class of a node: h100 x8, or a100 x4 + h100 x4.
func (f *Fleet) classNameOf(n NodeID) string {
	count := map[string]int{}
	for _, d := range f.nodes[n].devices {
		if dev := &f.devices[d]; !dev.gone {
			count[dev.Model]++
		}
	}
	var name []string
	for _, model := range slices.Sorted(maps.Keys(count)) {
		devices := count[model]
		if model == "" {
			model = "unknown model"
		}
		name = append(name, fmt.Sprintf("%s x%d", model, devices))
	}
	return strings.Join(name, " + ")
}

// NodeClass is the class of a node.
func (f *Fleet) NodeClass(n NodeID) NodeClassID { return f.nodes[n].class }

// NodeClasses is the number of node classes that there are or were: their IDs go from 0.
func (f *Fleet) NodeClasses() int { return len(f.nodeClasses) }

// NodeClassName is what a node class is called: h100 x8 has nodes of eight devices of model h100.
func (f *Fleet) NodeClassName(c NodeClassID) string { return f.nodeClasses[c] }
