package filter

import (
	"context"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// score says of the nodes that were found how well they are what is preferred, by upstream's score plugins at their weights: preferred affinities of the
// pod and of those that run, taints that are rather to be kept away from, spread that is rather to be had. Images are apart, for nobody asked for these.
func (c *chain) score(ctx context.Context, cy cycle, found *Feasible) error {
	if cy.refused != nil {
		return nil
	}
	var infos []fwk.NodeInfo
	for _, name := range slices.Concat(found.Nodes, found.Full) {
		info, err := c.snapshot.Get(name)
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	if len(infos) < 2 {
		return nil // there is nothing to choose
	}
	if status := c.framework.RunPreScorePlugins(ctx, cy.state, cy.pod, infos); !status.IsSuccess() {
		return status.AsError()
	}
	all, status := c.framework.RunScorePlugins(ctx, cy.state, cy.pod, infos)
	if !status.IsSuccess() {
		return status.AsError()
	}
	found.Wished, found.Images = make(map[string]int64, len(all)), map[string]int64{}
	for _, of := range all {
		wished := of.TotalScore
		for _, by := range of.Scores {
			if by.Name == names.ImageLocality && by.Score > 0 {
				found.Images[of.Name] = by.Score
				wished -= by.Score
			}
		}
		found.Wished[of.Name] = wished
	}
	return nil
}
