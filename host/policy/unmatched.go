package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/engine"
)

// Device is what of a device says which pool it is in.
type Device struct {
	Node, Model string
	Index       int
}

// Unmatched are the pools that no device is in where these are all there are, always or in a window, each with its line: none matches what
// they say, or those that do are in pools before them. That is no reason to have none of the policy hold, for devices may yet come.
func (p *Policy) Unmatched(devices []Device) (doubts []error) {
	always := map[string]string{} // what is said of a pool outside any window
	for _, w := range append([]*Window{nil}, p.Windows...) {
		all, where := []*Settings{&p.Settings}, ""
		if w != nil {
			all, where = append(all, &w.Settings), "in window "+w.Name+" "
		}
		pools := poolsIn(all)
		in := make([]int, len(pools)) // devices
		for _, d := range devices {
			if i := d.pool(pools); i >= 0 {
				in[i]++
			}
		}
		for i, pool := range p.Pools {
			if in[i] > 0 {
				continue
			}
			if said := findPool(all[len(all)-1].Pools, pool.Name); said != nil {
				pool = said
			}
			why := noDevices(pools, i, devices)
			if why == always[pool.Name] {
				continue
			}
			doubts = append(doubts, &Error{p.Name, pool.Line, fmt.Errorf("%s%s", where, why)})
			if w == nil {
				always[pool.Name] = why
			}
		}
	}
	return doubts
}

// pool is the place of the pool that a device is in; -1: it is in none.
func (d Device) pool(pools []engine.Pool) int {
	return slices.IndexFunc(pools, func(p engine.Pool) bool { return p.Matches(d.Node, d.Model, d.Index) })
}

// noDevices is why no device is in a pool.
func noDevices(pools []engine.Pool, i int, devices []Device) string {
	pool := pools[i]
	var before []string
	for _, d := range devices {
		if !pool.Matches(d.Node, d.Model, d.Index) {
			continue
		}
		if name := pools[d.pool(pools)].Name; !slices.Contains(before, name) {
			before = append(before, name)
		}
	}
	if slices.Sort(before); len(before) > 0 {
		return fmt.Sprintf("pool %s has no device: those that it matches are in %s, before it: name others, or put it in front", pool.Name, strings.Join(before, ", "))
	}
	missing := missingNames("on node", pool.Nodes, devices, func(d Device) string { return d.Node })
	if missing == "" {
		missing = missingNames("of model", pool.Models, devices, func(d Device) string { return d.Model })
	}
	if missing == "" {
		missing = "none of the devices there are matches all that it says"
	}
	return fmt.Sprintf("pool %s has no device: %s; it has none until one comes", pool.Name, missing)
}

// missingNames says that no device has any of some names; empty: one has, or none are asked for.
func missingNames(what string, asked []string, devices []Device, of func(Device) string) string {
	var known []string
	for _, d := range devices {
		if slices.Contains(asked, of(d)) {
			return ""
		}
		if !slices.Contains(known, of(d)) {
			known = append(known, of(d))
		}
	}
	if len(asked) == 0 {
		return ""
	}
	slices.Sort(known)
	if len(known) > 5 {
		known = append(known[:5], "…")
	}
	there := "there are none"
	if len(known) > 0 {
		there = "there are " + strings.Join(known, ", ")
	}
	return fmt.Sprintf("no device is %s %s (%s)", what, shortened(strings.Join(asked, " or ")), there)
}
