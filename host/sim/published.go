package sim

import (
	"fmt"
	"strconv"
	"strings"
)

// Published is what others published that policies of ours repeat: allocated percent by list, policy and percent arrived.
type Published map[string]float64

// publishedNames are the published names of policies that are ours too.
var publishedNames = map[string]string{"01-Random": "random", "05-BestFit": "best_fit", "06-FGD": "fgd"}

// ReadPublished reads a table with the columns workload, policy, alloc_mean_100 and alloc_mean_130.
func ReadPublished(path string) (Published, error) {
	p := Published{}
	err := readTable(path, func(r row) error {
		name, ok := publishedNames[r.text("policy")]
		if !ok {
			return nil
		}
		list := strings.TrimPrefix(r.text("workload"), "openb_pod_list_")
		for _, percent := range []int{100, 130} {
			column := "alloc_mean_" + strconv.Itoa(percent)
			value, err := strconv.ParseFloat(r.text(column), 64)
			if err != nil || value < 0 || value > 100 {
				return fmt.Errorf("%s is %q: it must be a percentage", column, r.text(column))
			}
			p[publishedKey(list, name, percent)] = value
		}
		return nil
	})
	return p, err
}

func publishedKey(list, policy string, percent int) string {
	return list + "/" + policy + "@" + strconv.Itoa(percent)
}

// At is what was published for a list and a policy when percent of capacity had arrived, if anything was.
func (p Published) At(list, policy string, percent int) (float64, bool) {
	value, ok := p[publishedKey(list, policy, percent)]
	return value, ok
}
