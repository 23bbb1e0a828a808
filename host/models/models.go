// Package models knows what models of GPU can do, cost and draw, for where a node does not tell itself. What comes in is a model's name as the driver or a
// trace has it; what goes out are its traits. The table is data, models.csv, which says where its figures are from; it never decides anything.
package models

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

//go:embed models.csv
var table string

var known = must(parse(table))

func must(traits map[string]fleet.Traits, err error) map[string]fleet.Traits {
	if err != nil {
		panic(err) // of a file that is a part of the program
	}
	return traits
}

// Of is what is known of a model; false: nothing.
func Of(model string) (fleet.Traits, bool) {
	t, ok := known[key(model)]
	return t, ok
}

// Told is Of with the compute capability that the driver tells, as it writes it; empty or no such: it tells none.
func Told(model, capability string) fleet.Traits {
	t := known[key(model)]
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
func parse(text string) (map[string]fleet.Traits, error) {
	all, headed := map[string]fleet.Traits{}, false
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if !headed {
			headed = true
			continue
		}
		fields := strings.Split(line, "|")
		if len(fields) != 6 {
			return nil, fmt.Errorf("models.csv:%d: there are %d fields: write name|capability|bandwidth|peak|idle|cost", i+1, len(fields))
		}
		t, err := traitsOf(fields[1:])
		if err != nil {
			return nil, fmt.Errorf("models.csv:%d: %w", i+1, err)
		}
		for _, name := range strings.Split(fields[0], ",") {
			if _, twice := all[key(name)]; twice && all[key(name)] != t {
				return nil, fmt.Errorf("models.csv:%d: %s is there twice", i+1, name)
			}
			all[key(name)] = t
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
