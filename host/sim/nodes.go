package sim

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/host/models"
)

// mostDevices is how many devices a node may have.
const mostDevices = 64

// defaultMemory is what a device has of whose model it is not known.
const defaultMemory api.Bytes = 80 << 30

// memoryOf is what a device of a model has where nothing else is said.
func memoryOf(model string) api.Bytes {
	if m := models.Memory(model); m > 0 {
		return m
	}
	return defaultMemory
}

// nodeName is the name of the i-th node of those that have no names of their own.
func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// devicesOf are so many devices of a node that are alike.
func devicesOf(node string, count int, model string, memory api.Bytes) []engine.Device {
	traits, _ := models.Of(model)
	all := make([]engine.Device, count)
	for k := range all {
		all[k] = engine.Device{UUID: node + "-" + strconv.Itoa(k), Index: k, Model: model, Memory: memory, Health: api.Healthy, Traits: traits}
	}
	return all
}

// ReadNodes reads nodes on which a trace is to run instead of its own: `64x8:h100` is 64 nodes of 8 devices of a model of package models, `64x8` of none that is
// known, and several of these have commas between them; all else is a file, a node list of openb or a trace in our own format, whose nodes count.
func ReadNodes(text string) ([]engine.NodeSet, error) {
	var nodes []engine.NodeSet
	var err error
	switch count, rest, cut := strings.Cut(text, "x"); {
	case text == "":
		return nil, fmt.Errorf("no nodes are named: %s", nodesHelp)
	case cut && digits(count) && rest != "" && rest[0] >= '0' && rest[0] <= '9':
		nodes, err = shortNodes(text)
	default:
		nodes, err = nodesFile(text)
	}
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(nodes, func(n engine.NodeSet) bool { return len(n.Devices) > 0 }) {
		return nil, fmt.Errorf("%s has no node with a device: it needs at least one", text)
	}
	return nodes, nil
}

// nodesHelp is how nodes are named.
const nodesHelp = "write 64x8:h100 for 64 nodes of 8 devices of that model, several of these with commas, or a file of nodes"

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// shortNodes reads `64x8:h100,16x4`.
func shortNodes(text string) ([]engine.NodeSet, error) {
	var nodes []engine.NodeSet
	for part := range strings.SplitSeq(text, ",") {
		size, written, named := strings.Cut(part, ":")
		count, each, _ := strings.Cut(size, "x")
		n, err := between(1, maxNodes-int64(len(nodes)))(count)
		if err != nil {
			return nil, fmt.Errorf("%q of %q: as its count of nodes %w; %s", part, text, err, nodesHelp)
		}
		devices, err := between(1, mostDevices)(each)
		if err != nil {
			return nil, fmt.Errorf("%q of %q: as its count of devices %w; %s", part, text, err, nodesHelp)
		}
		model := "GPU"
		if named {
			if model, named = models.Named(written); !named {
				return nil, fmt.Errorf("%q of %q: there is no model %q; use one of %s, or leave the model out", part, text, written, strings.Join(models.Names(), ", "))
			}
		}
		for range n {
			name := nodeName(len(nodes))
			nodes = append(nodes, engine.NodeSet{Node: name, Devices: devicesOf(name, int(devices), model, memoryOf(model))})
		}
	}
	return nodes, nil
}

// nodesFile reads the nodes of a file by what its first line is.
func nodesFile(path string) ([]engine.NodeSet, error) {
	file, err := os.Open(path) //nolint:gosec // the path is the user's own word
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w; %s", err, nodesHelp)
	}
	defer func() { _ = file.Close() }()
	from := bufio.NewReader(file)
	first, _ := from.Peek(512)
	line, _, _ := strings.Cut(string(first), "\n")
	switch {
	case strings.Join(strings.Fields(line), " ") == formatLine:
		p := newLineReader(nil)
		if err := p.all(path, from); err != nil {
			return nil, err
		}
		return p.trace.Nodes, nil
	case strings.HasPrefix(line, "sn,"):
		o := &Openb{model: map[string]string{}}
		err := scanTable(path, from, o.node)
		return o.Nodes, err
	}
	return nil, fmt.Errorf("%s:1: the first line is %q: it must be %q, or the headings of a node list of openb, which begin with sn", path, line, formatLine)
}

// nodes takes in a line of nodes of our own format.
func (p *lineReader) nodes(count string) {
	n, err := between(1, maxNodes-int64(len(p.trace.Nodes)))(count)
	if err != nil {
		p.fail("nodes %s: %w", count, err)
	}
	devices, model := int64(perNode), "GPU"
	read(p, "devices", between(1, mostDevices), &devices)
	read(p, "model", word, &model)
	memory := memoryOf(model)
	read(p, "mem", api.ParseBytes, &memory)
	var in []fleet.Domain
	read(p, "in", domains, &in)
	linked, local, class := int64(1), int64(0), int64(0)
	read(p, "linked", between(1, 64), &linked)
	read(p, "numa", between(1, 64), &local)
	read(p, "latency-class", between(1, api.SlowestLatency), &class)
	cpu, ram := p.resources()
	if p.err != nil {
		return
	}
	for range n {
		node := engine.NodeSet{Node: nodeName(len(p.trace.Nodes)), Domains: in}
		node.Devices = devicesOf(node.Node, int(devices), model, memory)
		for k := range node.Devices {
			node.Devices[k].Traits.Latency = int32(class)
			if linked > 1 {
				node.Devices[k].Link = strconv.Itoa(k / int(linked))
			}
			if local > 0 {
				node.Devices[k].NUMA = strconv.Itoa(k / int(local))
			}
		}
		node.Resources = named(cpu, ram)
		p.trace.Nodes = append(p.trace.Nodes, node)
	}
}

// domains parses what a node is in: `rack/r1,row/a`.
func domains(text string) ([]fleet.Domain, error) {
	var all []fleet.Domain
	for _, one := range strings.Split(text, ",") {
		level, name, _ := strings.Cut(one, "/")
		all = append(all, fleet.Domain{Level: level, Name: name})
	}
	if err := fleet.CheckDomains("so described", all); err != nil {
		return nil, fmt.Errorf("%w: write for example rack/r1,row/a", err)
	}
	return all, nil
}

// mostOnOne is how many devices the largest of some nodes has.
func mostOnOne(nodes []engine.NodeSet) int64 {
	most := 0
	for i := range nodes {
		most = max(most, len(nodes[i].Devices))
	}
	return int64(most)
}

// countOnly leaves out of jobs the resources of which none of their nodes says anything: those are not counted.
func countOnly(jobs []Job, nodes []engine.NodeSet) {
	counted := map[string]bool{}
	for i := range nodes {
		for _, r := range nodes[i].Resources {
			counted[r.Name] = true
		}
	}
	not := func(r engine.Resource) bool { return !counted[r.Name] }
	for i := range jobs {
		jobs[i].Resources = slices.DeleteFunc(jobs[i].Resources, not)
		for k := range jobs[i].Roles {
			jobs[i].Roles[k].Resources = slices.DeleteFunc(jobs[i].Roles[k].Resources, not)
		}
	}
}

// On has a trace run on other nodes, which are there all along: what happened to its own is left out, and so are the classes of those that work may use, which name
// them. Their models are called what the trace calls them. Resources of which none of the nodes says anything are not counted.
func (t *Trace) On(nodes []engine.NodeSet) {
	var called []string
	for n := range t.everyNode {
		for _, d := range n.Devices {
			if !slices.Contains(called, d.Model) {
				called = append(called, d.Model)
			}
		}
	}
	for _, n := range nodes {
		for k := range n.Devices {
			model := &n.Devices[k].Model
			if i := slices.IndexFunc(called, func(name string) bool { return models.Same(name, *model) }); i >= 0 && !slices.Contains(called, *model) {
				*model = called[i]
			}
		}
	}
	t.Nodes, t.Classes = nodes, nil
	t.Events = slices.DeleteFunc(t.Events, func(event engine.Event) bool {
		switch event.(type) {
		case engine.NodeSet, engine.NodeGone, engine.DeviceHealth, engine.Feasibility:
			return true
		}
		return false
	})
	countOnly(t.Jobs, nodes)
	for i := range t.Jobs {
		job := &t.Jobs[i]
		job.Feasibility = ""
		for k := range job.Roles {
			job.Roles[k].Feasibility = ""
		}
	}
}

// on has pods run on other nodes than the list's. Pods that may use some models alone keep to them; kinds of nodes that only a generated trace has, its pods do
// without.
func (o *Openb) on(nodes []engine.NodeSet, generated bool) *Openb {
	o.Nodes, o.model = nodes, map[string]string{}
	for i := range nodes {
		if n := &nodes[i]; len(n.Devices) > 0 {
			o.model[n.Node] = n.Devices[0].Model
		}
	}
	countOnly(o.Pods, nodes)
	for i := range o.Pods {
		if generated {
			o.Pods[i].Feasibility = ""
		}
	}
	return o
}
