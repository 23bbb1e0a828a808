package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/api"
)

// device is one of ours in a slice: its node's pool and its name there.
type device struct{ pool, name string }

// Top lists devices, and beneath each the shares of it with what they use now, lend and borrow, and then who waits: all that the user may see, or of one
// namespace. Devices of which nobody in sight has a share are listed where all namespaces are asked for.
func (p Plugin) Top(ctx context.Context, namespace string) error {
	claims, err := p.Client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	shares := map[device][]holding{}
	for i := range claims.Items {
		for _, one := range holdings(&claims.Items[i]) {
			at := device{one.at.Pool, one.at.Device}
			shares[at] = append(shares[at], one)
		}
	}
	models := p.models(ctx)
	var all []device
	for at := range shares {
		all = append(all, at)
	}
	if namespace == metav1.NamespaceAll {
		for at := range models {
			if _, used := shares[at]; !used {
				all = append(all, at)
			}
		}
	}
	if len(all) == 0 {
		if _, err := fmt.Fprintln(p.Out, "Nobody in sight has a share of a device."); err != nil {
			return err
		}
		return p.waiting(ctx, namespace, claims.Items)
	}
	slices.SortFunc(all, func(a, b device) int { return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(a.name, b.name)) })
	nodes := map[string]bool{}
	for at := range shares {
		nodes[at.pool] = true
	}
	used, unknown := map[metered]usage(nil), error(nil)
	if len(nodes) > 0 {
		used, unknown = p.uses(ctx, nodes)
	}
	table := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NODE\tDEVICE\tPOD\tCOMPUTE\tUSE\tFLOW\tMEMORY\tHELD\tSTATE\tCLAIM")
	for _, at := range all {
		list := shares[at]
		slices.SortFunc(list, func(a, b holding) int {
			return cmp.Or(cmp.Compare(a.claim.Namespace, b.claim.Namespace), cmp.Compare(a.claim.Name, b.claim.Name))
		})
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t\t\t\t\t\t\n", at.pool, cmp.Or(models[at], at.name), counted(len(list)), floors(list))
		for _, one := range list {
			compute, memory := one.limits()
			use, flow, held := one.used(used)
			fmt.Fprintf(table, "\t\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", one.pods(), compute, use, flow, memory, held, one.state(), one.claim.Namespace+"/"+one.claim.Name)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if unknown != nil {
		fmt.Fprintf(p.Out, "What is used is not known: %v. To see it takes the role aliquot-use in namespace %s.\n", unknown, p.Agents)
	}
	return p.waiting(ctx, namespace, claims.Items)
}

// used is what a share uses of the device's time, borrows (+) or lends (-), and holds of its memory, as a table has it.
func (h holding) used(all map[metered]usage) (use, flow, held string) {
	if h.said == nil {
		return "-", "", "-"
	}
	now, is := all[metered{h.said.UUID, h.claim.Namespace, h.claim.Name}]
	if !is {
		return "-", "", "-"
	}
	return percent(now.compute), now.flow(), rounded(now.memory)
}

func counted(shares int) string {
	switch shares {
	case 0:
		return "nobody"
	case 1:
		return "1 share"
	}
	return fmt.Sprintf("%d shares", shares)
}

// floors says how much of a device is the floor of somebody in sight.
func floors(list []holding) string {
	var sum api.Milli
	for _, one := range list {
		if one.said != nil {
			sum += one.said.Compute.Floor
		}
	}
	return fmt.Sprintf("%s of 1.00", sum)
}

// models are the models of all devices, by what the nodes' slices say. Who may not list these does without.
func (p Plugin) models(ctx context.Context) map[device]string {
	slices, err := p.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + driverName})
	if err != nil {
		return nil
	}
	models := map[device]string{}
	for _, slice := range slices.Items {
		if slice.Spec.Driver != driverName {
			continue
		}
		for _, one := range slice.Spec.Devices {
			name := one.Name
			if model := one.Attributes["model"].StringValue; model != nil {
				name = *model + " " + one.Name
			}
			models[device{slice.Spec.Pool.Name, one.Name}] = name
		}
	}
	return models
}
