package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/api"
)

// device is one of ours in a slice: its node's pool and its name there.
type device struct{ pool, name string }

// topShown is who has what of devices, at one moment, and who waits.
type topShown struct {
	At             metav1.Time   `json:"at"`
	Devices        []deviceShown `json:"devices"`
	UseUnknown     string        `json:"useUnknown,omitempty"` // why it is not known what is used
	Waiting        []waiterShown `json:"waiting"`              // who has waited longest first
	WaitingUnknown string        `json:"waitingUnknown,omitempty"`
}

// deviceShown is a device and the shares of it that are in sight.
type deviceShown struct {
	Node   string       `json:"node"`
	Name   string       `json:"name"`
	UUID   string       `json:"uuid,omitempty"`
	Model  string       `json:"model,omitempty"`
	Memory *int64       `json:"memory,omitempty"` // that it offers
	Grants []usageShown `json:"grants"`
	list   []holding
}

// Top lists devices, and beneath each the shares of it with what they use now, lend and borrow, and then who waits: all that the user may see, or of one
// namespace. Devices of which nobody in sight has a share are listed where all namespaces are asked for.
func (p Plugin) Top(ctx context.Context, namespace string) error {
	claims, err := p.Client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	all, nodes := p.devices(ctx, namespace, claims.Items)
	used, unknown := map[metered]usage(nil), error(nil)
	if len(nodes) > 0 {
		used, unknown = p.uses(ctx, nodes)
	}
	wait, lost := p.whoWaits(ctx, namespace, claims.Items)
	if p.encodes() {
		return p.encode(topOf(metav1.NewTime(p.Now()), all, used, unknown, wait, lost))
	}
	if len(all) == 0 {
		if _, err := fmt.Fprintln(p.Out, "Nobody in sight has a share of a device."); err != nil {
			return err
		}
		return p.waiting(wait, lost)
	}
	table := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NODE\tDEVICE\tPOD\tCOMPUTE\tUSE\tFLOW\tMEMORY\tHELD\tSTATE\tCLAIM")
	for _, at := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t\t\t\t\t\t\n", at.Node, strings.TrimSpace(at.Model+" "+at.Name), counted(at.list, namespace), floors(at.list))
		for _, one := range at.list {
			compute, memory := one.limits()
			use, flow, held := one.used(used)
			pods := cmp.Or(strings.Join(one.pods(), ","), "-")
			fmt.Fprintf(table, "\t\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", pods, compute, use, flow, memory, held, one.state(), one.claim.Namespace+"/"+one.claim.Name)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if unknown != nil {
		fmt.Fprintf(p.Out, "What is used is not known: %v. To see it takes the role aliquot-use in namespace %s.\n", unknown, p.Agents)
	}
	return p.waiting(wait, lost)
}

// devices are those with shares of these claims, by node and name, and where all namespaces are asked for the others, too; and the nodes of the shares.
func (p Plugin) devices(ctx context.Context, namespace string, claims []resourceapi.ResourceClaim) (all []deviceShown, nodes map[string]bool) {
	shares := map[device][]holding{}
	nodes = map[string]bool{}
	for i := range claims {
		for _, one := range holdings(&claims[i]) {
			at := device{one.at.Pool, one.at.Device}
			shares[at] = append(shares[at], one)
			nodes[at.pool] = true
		}
	}
	offered := p.offered(ctx)
	for at, list := range shares {
		slices.SortFunc(list, func(a, b holding) int {
			return cmp.Or(cmp.Compare(a.claim.Namespace, b.claim.Namespace), cmp.Compare(a.claim.Name, b.claim.Name))
		})
		one := offered[at]
		one.Node, one.Name, one.list = at.pool, at.name, list
		all = append(all, one)
	}
	for at, one := range offered {
		if _, used := shares[at]; !used && namespace == metav1.NamespaceAll {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b deviceShown) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name)) })
	return all, nodes
}

// topOf is what Top prints as JSON and YAML.
func topOf(now metav1.Time, all []deviceShown, used map[metered]usage, unknown error, wait []waiterShown, lost error) topShown {
	out := topShown{At: now, Devices: []deviceShown{}, Waiting: append([]waiterShown{}, wait...)}
	if unknown != nil {
		out.UseUnknown = unknown.Error()
	}
	if lost != nil {
		out.WaitingUnknown = lost.Error()
	}
	for _, at := range all {
		at.Grants = []usageShown{}
		for _, one := range at.list {
			shown := one.shown()
			if now, is := one.usage(used); is {
				shown = shown.using(now)
			}
			at.Grants = append(at.Grants, shown)
		}
		out.Devices = append(out.Devices, at)
	}
	return out
}

// usage is what a share uses, where that is known.
func (h holding) usage(all map[metered]usage) (usage, bool) {
	if h.said == nil {
		return usage{}, false
	}
	now, is := all[metered{h.said.UUID, h.claim.Namespace, h.claim.Name}]
	return now, is
}

// used is what a share uses of the device's time, borrows (+) or lends (-), and holds of its memory, as a table has it.
func (h holding) used(all map[metered]usage) (use, flow, held string) {
	now, is := h.usage(all)
	if !is {
		return "-", "", "-"
	}
	return percent(now.compute), now.flow(), rounded(now.memory)
}

// counted says how many shares of a device are in sight, in a namespace or in all.
func counted(list []holding, namespace string) string {
	shares := 0
	for _, one := range list {
		if !one.administers() {
			shares++
		}
	}
	said := fmt.Sprintf("%d shares", shares)
	switch shares {
	case 0:
		return "nobody"
	case 1:
		said = "1 share"
	}
	if namespace != metav1.NamespaceAll {
		said += " in " + namespace
	}
	return said
}

// floors says how much of a device is the floor of somebody in sight.
func floors(list []holding) string {
	var sum api.Milli
	for _, one := range list {
		switch compute, _ := one.floor(); {
		case one.administers():
		case one.said != nil:
			sum += one.said.Compute.Floor
		default:
			sum += compute
		}
	}
	return fmt.Sprintf("%s of 1.00", sum)
}

// offered are all devices, by what the nodes' slices say. Who may not list these does without.
func (p Plugin) offered(ctx context.Context) map[device]deviceShown {
	slices, err := p.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + driverName})
	if err != nil {
		return nil
	}
	all := map[device]deviceShown{}
	for _, slice := range slices.Items {
		if slice.Spec.Driver != driverName {
			continue
		}
		for _, one := range slice.Spec.Devices {
			shown := deviceShown{Node: slice.Spec.Pool.Name, Name: one.Name}
			if model := one.Attributes["model"].StringValue; model != nil {
				shown.Model = *model
			}
			if uuid := one.Attributes["uuid"].StringValue; uuid != nil {
				shown.UUID = *uuid
			}
			if memory, is := one.Capacity["memory"]; is {
				shown.Memory = new(memory.Value.Value())
			}
			all[device{shown.Node, one.Name}] = shown
		}
	}
	return all
}
