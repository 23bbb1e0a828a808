// Package models knows what models of GPU can do, cost and draw, for where a node does not tell itself. What comes in is a model's name as the driver or a
// trace has it, and what is declared of devices; what goes out are its traits. The table is data, models.csv, which says where its figures are from; it never
// decides anything.
package models

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

//go:embed models.csv
var table string

var known = must(parse(table))

func must(all map[string]model, err error) map[string]model {
	if err != nil {
		panic(err) // of a file that is a part of the program
	}
	return all
}

// model is what is known of a model.
type model struct {
	fleet.Traits
	memory api.Bytes
	name   string // the last of those in its line that come to one key
	short  bool   // the last of all in its line
	line   int    // of the table, from 1
}

// Of is what is known of a model; false: nothing.
func Of(model string) (fleet.Traits, bool) {
	m, ok := known[key(model)]
	return m.Traits, ok
}

// Memory is what a device of a model has; 0: that is not known.
func Memory(model string) api.Bytes { return known[key(model)].memory }

// Named is a model's name as the table writes it, and traces: H100 for h100; false: there is none.
func Named(model string) (string, bool) {
	m, ok := known[key(model)]
	return m.name, ok
}

// Same says that two names are of one model: H100 and NVIDIA H100 80GB HBM3.
func Same(a, b string) bool {
	line := known[key(a)].line
	return key(a) == key(b) || line > 0 && line == known[key(b)].line
}

// Latency is the latency class that is declared of a device, of this one, else of its model, else of all; 0: none is.
func Latency(declared api.LatencyClasses, uuid, model string) int32 {
	var ofModel, ofAll int32
	for _, one := range declared {
		switch {
		case one.Of == "":
			ofAll = one.Class
		case strings.EqualFold(one.Of, uuid):
			return one.Class
		case Same(one.Of, model):
			ofModel = cmp.Or(ofModel, one.Class)
		}
	}
	return cmp.Or(ofModel, ofAll)
}

// Names are the names of all models, one for each, the short one where there are several.
func Names() []string {
	var all []string
	for _, m := range known {
		if m.short {
			all = append(all, m.name)
		}
	}
	slices.Sort(all)
	return all
}

// Told is Of with the compute capability that the driver tells, as it writes it; empty or no such: it tells none.
func Told(model, capability string) fleet.Traits {
	t := known[key(model)].Traits
	if c, err := api.ParseCapability(capability); err == nil {
		t.Capability = int32(c)
	}
	return t
}

// key is a model's name in small letters, without the maker's names and with one sign for what stands between words.
func key(model string) string {
	words := strings.FieldsFunc(strings.ToLower(model), func(r rune) bool { return r == ' ' || r == '-' || r == '_' })
	for len(words) > 1 && (words[0] == "nvidia" || words[0] == "tesla") {
		words = words[1:]
	}
	return strings.Join(words, " ")
}

// parse reads the table: a line of headings, then one model a line.
func parse(text string) (map[string]model, error) {
	all, headed := map[string]model{}, false
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if !headed {
			headed = true
			continue
		}
		fields := strings.Split(line, "|")
		if len(fields) != 7 {
			return nil, fmt.Errorf("models.csv:%d: there are %d fields: write name|memory|capability|bandwidth|peak|idle|cost", i+1, len(fields))
		}
		gib, err := strconv.ParseInt(fields[1], 10, 16)
		if err != nil || gib < 1 {
			return nil, fmt.Errorf("models.csv:%d: %q is no memory: write a whole number of GiB", i+1, fields[1])
		}
		m := model{memory: api.Bytes(gib) << 30, line: i + 1}
		if m.Traits, err = traitsOf(fields[2:]); err != nil {
			return nil, fmt.Errorf("models.csv:%d: %w", i+1, err)
		}
		names := strings.Split(fields[0], ",")
		for k, name := range names {
			if was, twice := all[key(name)]; twice && (was.Traits != m.Traits || was.memory != m.memory) {
				return nil, fmt.Errorf("models.csv:%d: %s is there twice", i+1, name)
			}
			m.name, m.short = name, k == len(names)-1
			all[key(name)] = m
		}
	}
	return all, nil
}

func traitsOf(fields []string) (t fleet.Traits, err error) {
	capability, err := api.ParseCapability(fields[0])
	if err != nil {
		return t, err
	}
	t.Capability = int32(capability)
	for i, to := range []*int32{&t.Bandwidth, &t.Peak, &t.Idle, &t.Cost} {
		n, err := strconv.ParseInt(fields[i+1], 10, 32)
		if err != nil || n < 1 {
			return t, fmt.Errorf("%q is no figure: write a whole number of at least 1", fields[i+1])
		}
		*to = int32(n)
	}
	return t, nil
}
