package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// Pool is what is said of a pool. What a window does not say stays as it always is.
type Pool struct {
	Name    string
	Line    int
	words   []string
	changes []func(*engine.Pool)
}

// maxPools is how many pools there may be: a device is looked for in one after the other.
const maxPools = 64

// takePool takes in what is said of a pool. As with queues, a window only says more of those that are named before it.
func (p *parser) takePool(name string) error {
	if err := (api.QueueSpec{Name: name, Quota: api.Unlimited}).Validate(); err != nil {
		return fmt.Errorf("pool %q: its name is written as that of a queue: lower-case letters, digits and dashes", shortened(name))
	}
	if before := findPool(p.section.Pools, name); before != nil {
		return fmt.Errorf("pool %s comes twice %s, in line %d and here: write it once", name, p.where(), before.Line)
	}
	switch {
	case p.window != nil && findPool(p.Pools, name) == nil:
		return fmt.Errorf("window %s names pool %s, which no line before the first window names: name it there", p.window.Name, name)
	case len(p.words) == 0:
		return fmt.Errorf("nothing is said of pool %s %s: say which devices are for which classes, for example devices=0-3 classes=training", name, p.where())
	case len(p.section.Pools) == maxPools:
		return fmt.Errorf("there are more than %d pools: name fewer", maxPools)
	}
	q := &Pool{Name: name, Line: p.line}
	for _, key := range slices.Sorted(maps.Keys(p.words)) {
		value, _ := p.word(key)
		if key == "models" {
			value = p.allModels(value)
		}
		if key == "nodes" {
			p.noteNodes(strings.Split(value, ","))
		}
		change, err := poolChange(key, value)
		if err != nil {
			return fmt.Errorf("%s=%s: %w", shortened(key), shortened(value), err)
		}
		q.words, q.changes = append(q.words, written(key, value)), append(q.changes, change)
	}
	p.section.Pools = append(p.section.Pools, q)
	whole := engine.Pool{Name: name}
	for _, s := range []*Settings{&p.Settings, p.section} {
		if said := findPool(s.Pools, name); said != nil {
			said.apply(&whole)
		}
	}
	return whole.Validate()
}

// noteNodes notes which nodes the file names.
func (p *parser) noteNodes(names []string) {
	for _, name := range names {
		if !slices.Contains(p.Nodes, name) {
			p.Nodes = append(p.Nodes, name)
		}
	}
}

func (p *Pool) apply(to *engine.Pool) {
	for _, change := range p.changes {
		change(to)
	}
}

func findPool(all []*Pool, name string) *Pool {
	if i := slices.IndexFunc(all, func(p *Pool) bool { return p.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// poolChange is what a word makes of a pool.
func poolChange(key, value string) (func(*engine.Pool), error) {
	switch key {
	case "nodes":
		return func(p *engine.Pool) { p.Nodes = strings.Split(value, ",") }, nil
	case "models":
		return func(p *engine.Pool) { p.Models = strings.Split(value, ",") }, nil
	case "devices":
		low, high, isRange := strings.Cut(value, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.Atoi(low)
		last, wrong := strconv.Atoi(high)
		if err != nil || wrong != nil || first < 0 || last < first {
			return nil, fmt.Errorf("write the index of a device on its node, or the first and the last, as 0-3")
		}
		return func(p *engine.Pool) { p.First, p.Last = new(first), new(last) }, nil
	case "classes":
		var classes []api.Class
		for _, text := range strings.Split(value, ",") {
			class := api.Class(text)
			if !slices.Contains([]api.Class{api.Interactive, api.Inference, api.Training, api.Batch}, class) {
				return nil, fmt.Errorf("there is no class %q: write interactive, inference, training or batch, with commas", shortened(text))
			}
			classes = append(classes, class)
		}
		return func(p *engine.Pool) { p.Classes = classes }, nil
	case "lends":
		if value != "yes" && value != "no" {
			return nil, fmt.Errorf("write yes or no")
		}
		return func(p *engine.Pool) { p.Lends = value == "yes" }, nil
	}
	return nil, fmt.Errorf("a pool has no such word: write nodes, models, devices, classes or lends")
}

// poolsIn are the pools with what each of the settings says of them, the last before the others.
func poolsIn(all []*Settings) []engine.Pool {
	var pools []engine.Pool
	for i, said := range all[0].Pools {
		pools = append(pools, engine.Pool{Name: said.Name})
		for _, s := range all {
			if more := findPool(s.Pools, said.Name); more != nil {
				more.apply(&pools[i])
			}
		}
	}
	return pools
}
