package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/engine/place"
)

// Policies are the names that Policy knows.
var policyNames = []string{"default", "fgd", "best_fit", "even", "random"}

// Policies are the placement policies by name.
func Policies() []string { return slices.Clone(policyNames) }

// Policy is a placement policy by name, for a run with a seed. fgd is told the workload of the trace beforehand, as it was
// published; no other policy is.
func Policy(name string, seed uint64, known []Job) (*place.Policy, error) {
	var p place.Policy
	switch name {
	case "default":
		p = place.Default()
	case "fgd":
		p = place.FGD(popular(known))
	case "best_fit":
		p = place.BestFit()
	case "even":
		p = place.Policy{Name: "even", Weights: place.Weights{place.Remainder: -1}}
	case "random":
		p = place.Random()
	default:
		return nil, fmt.Errorf("there is no placement policy %q: use one of %s", name, strings.Join(policyNames, ", "))
	}
	p.Seed = seed
	return &p, nil
}

// popular are the kinds of jobs with how often each comes, in the order of their first coming. Memory is left out, as in FGD.
func popular(jobs []Job) []place.Popular {
	at := map[string]int{}
	var kinds []place.Popular
	for i := range jobs {
		j := &jobs[i]
		p := place.Popular{Compute: j.Share.Compute.Floor, Devices: j.Devices, Class: j.Feasibility, Model: j.Model, Count: int64(j.Tasks)}
		for _, r := range j.Resources {
			if r.Name == "cpu" {
				p.Resources = append(p.Resources, place.Resource{Name: r.Name, Amount: r.Amount})
			}
		}
		key := fmt.Sprint(p.Compute, p.Devices, p.Class, p.Model, p.Resources)
		if k, ok := at[key]; ok {
			kinds[k].Count += p.Count
			continue
		}
		at[key] = len(kinds)
		kinds = append(kinds, p)
	}
	return kinds
}
