package cli

import (
	"cmp"
	"context"
	"os"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// followRest follows the other replicas of a workload whose first one has ended, and returns the one by which the command ends: the first, or, where that
// is as it should be, the next by its number that is not.
func (a *attached) followRest(ctx context.Context, signals <-chan os.Signal, first api.Workload) (api.Workload, error) {
	for {
		all, err := a.others(ctx)
		if isLost(err) { // the server went away: it comes back, or nobody knows
			if _, err = a.reconnect(ctx, signals); err == nil {
				continue
			}
		}
		if err != nil {
			return first, err
		}
		left := slices.IndexFunc(all, func(o api.Workload) bool { return o.Status.Phase != api.Ended })
		if left < 0 {
			return worst(append([]api.Workload{first}, all...)), nil
		}
		a.follows = all[left].UID
		if _, err := a.follow(ctx, signals); err != nil {
			return first, err
		}
	}
}

// others are the replicas beside the first, by their numbers, also those that have ended.
func (a *attached) others(ctx context.Context) ([]api.Workload, error) {
	all, err := a.client.Workloads(ctx, true)
	all = slices.DeleteFunc(all, func(o api.Workload) bool {
		return o.Status.Replica == nil || o.Status.Replica.Of != a.work.UID || o.Status.Replica.Number == 0
	})
	slices.SortStableFunc(all, func(x, y api.Workload) int { return cmp.Compare(x.Status.Replica.Number, y.Status.Replica.Number) })
	return all, err
}

// worst is the first of replicas that did not end as it should, and the first of all where each did. One above those that its workload is sure of may
// be evicted at any time.
func worst(all []api.Workload) api.Workload {
	least, _ := all[0].Whole().Tasks()
	for _, o := range all {
		spare := o.Status.Replica != nil && o.Status.Replica.Number >= least
		if o.Status.Outcome != api.Succeeded && (!spare || o.Status.Outcome != api.Evicted) {
			return o
		}
	}
	return all[0]
}
