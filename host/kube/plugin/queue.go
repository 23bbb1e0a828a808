package plugin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/figures"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/queues"
)

// late is after how long figures that were not said again are doubted: a scheduler says them every 5 minutes.
const late = 11 * time.Minute

// tenancy is the queues that hold now, with what the policy says, and why others do not.
type tenancy struct {
	queues  []api.QueueSpec // by name
	refused map[string]queues.Refusal
	policy  string // why the policy does not hold; empty: it does, or there is none
	objects map[string]*v1alpha1.Queue
}

// tenancy reads it.
func (p Plugin) tenancy(ctx context.Context) (tenancy, error) {
	objects, policy, err := v1alpha1.Tenants(ctx, p.Objects)
	if apierrors.IsForbidden(err) {
		return tenancy{}, fmt.Errorf("%w; queues are in no namespace: to see them takes the role view by a ClusterRoleBinding", err)
	}
	if err != nil {
		return tenancy{}, err
	}
	now := p.Now()
	rules, refused, wrong := queues.Read(objects, policy, now)
	told, _ := rules.At(now)
	slices.SortFunc(told.Queues, func(a, b api.QueueSpec) int { return cmp.Compare(a.Name, b.Name) })
	out := tenancy{queues: told.Queues, refused: refused, objects: map[string]*v1alpha1.Queue{}}
	if wrong != nil {
		out.policy = wrong.Message
	}
	for _, q := range objects {
		out.objects[q.Name] = q
	}
	return out, nil
}

// uses are what the scheduler says that a queue has; nil: nothing yet, or it has nowhere to.
func (t tenancy) uses(name string) *v1alpha1.QueueUses {
	if q := t.objects[name]; q != nil {
		return q.Status.Uses
	}
	return nil
}

// Queues lists all queues that hold now, and those that do not, with why.
func (p Plugin) Queues(ctx context.Context) error {
	all, err := p.tenancy(ctx)
	if err != nil {
		return err
	}
	refused := slices.Sorted(maps.Keys(all.refused))
	if p.encodes() {
		out := []queueShown{}
		for _, spec := range all.queues {
			out = append(out, queueOf(spec, all.uses(spec.Name)))
		}
		for _, name := range refused {
			out = append(out, queueShown{Name: name, Refused: all.refused[name].Message})
		}
		return p.encode(out)
	}
	table := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tPARENT\tQUOTA\tHELD\tRUNNING\tWAITING")
	for _, spec := range all.queues {
		held, running, waiting := "-", "-", "-"
		if uses := all.uses(spec.Name); uses != nil {
			held, running, waiting = uses.Held.Compute.String(), strconv.FormatInt(uses.Running, 10), strconv.FormatInt(uses.Waiting, 10)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", spec.Name, cmp.Or(spec.Parent, "-"), figures.Quota(spec.Quota), held, running, waiting)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, name := range refused {
		if _, err := fmt.Fprintf(p.Out, "The queue %s does not hold: %s\n", name, all.refused[name].Message); err != nil {
			return err
		}
	}
	return all.warn(p.Out)
}

// warn says why the policy does not hold, if it does not.
func (t tenancy) warn(out io.Writer) error {
	if t.policy == "" {
		return nil
	}
	_, err := fmt.Fprintf(out, "The policy does not hold, and nothing of it counts: %s\n", t.policy)
	return err
}

// Queue says all about one queue: what it is guaranteed now, with what the policy says, and what it has, as the scheduler wrote it into its status.
func (p Plugin) Queue(ctx context.Context, name string) error {
	all, err := p.tenancy(ctx)
	if err != nil {
		return err
	}
	held := slices.IndexFunc(all.queues, func(q api.QueueSpec) bool { return q.Name == name })
	if held < 0 {
		if why, is := all.refused[name]; is {
			return fmt.Errorf("the queue %s does not hold: %s", name, why.Message)
		}
		return fmt.Errorf("there is no queue %s; there are %s", name, names(all.queues))
	}
	spec, uses := all.queues[held], all.uses(name)
	if p.encodes() {
		return p.encode(queueOf(spec, uses))
	}
	lines := figures.Bounds(&spec)
	said := ""
	wrong, isWrong := all.refused[name]
	switch {
	case isWrong: // it is what the policy says of it, and no more
		said = fmt.Sprintf("Its Queue does not hold, and nothing of that counts: %s", wrong.Message)
	case uses != nil:
		queue := uses.Queue(spec)
		lines = append(lines, figures.Uses(&queue)...)
		said = summary(uses, p.Now())
	case all.objects[name] == nil:
		said = fmt.Sprintf("What it has is not known: there is no object for it where the scheduler could say so; an administrator makes a Queue %s, which may say nothing else (spec: {}).", name)
	default:
		said = "What it has is not known: the scheduler has not said so yet."
	}
	lines = append(lines, figures.Rules(&spec)...)
	if most := spec.MaxPriority; most != v1alpha1.NoMaxPriority {
		lines = append(lines, figures.Line{Name: "highest priority", Amount: [3]string{strconv.Itoa(int(most)), "", ""}})
	}
	if err := show(p.Out, name, lines, said); err != nil {
		return err
	}
	return all.warn(p.Out)
}

// queueOf is a queue as it is printed.
func queueOf(spec api.QueueSpec, uses *v1alpha1.QueueUses) queueShown {
	quota := amountsOf(api.QueueAmounts{Compute: &spec.Quota, Memory: spec.QuotaMemory, Devices: spec.QuotaDevices})
	out := queueShown{
		Name: spec.Name, Parent: spec.Parent, Quota: quota.Compute, QuotaMemory: quota.Memory, QuotaDevices: quota.Devices, Limit: amountsOf(spec.Limit),
		Disruptions: spec.Disruptions, Weight: spec.Weight, Priority: spec.Priority, PriorityAfter: spec.PriorityAfter, LongestRun: spec.LongestRun, MinRun: spec.MinRun, Hours: spec.Hours,
		Order: api.FormatOrder(spec.Order, spec.ShortestFirst),
	}
	if spec.MaxPriority != v1alpha1.NoMaxPriority {
		out.MaxPriority = &spec.MaxPriority
	}
	if spec.PriorityUntil != nil {
		out.PriorityUntil = new(metav1.NewTime(*spec.PriorityUntil))
	}
	for _, m := range spec.Models {
		out.Models = append(out.Models, modelShown{m.Model, amountsOf(m.Quota), amountsOf(m.Limit), m.Weight})
	}
	if uses == nil {
		return out
	}
	queue := uses.Queue(spec)
	has := &usesShown{
		At: metav1.NewTime(uses.At.Time), Running: queue.Running, Waiting: queue.Waiting, Held: devices(queue.Held), Use: useOf(queue.Use), Fair: useOf(queue.Fair),
		Borrowed: useOf(queue.Borrowed), AtRisk: useOf(queue.AtRisk), Lent: useOf(queue.Lent),
	}
	for _, on := range queue.OnModels {
		has.OnModels = append(has.OnModels, onModelShown{on.Model, useOf(on.Use), useOf(on.Fair)})
	}
	if used := queue.HoursUsed; used != nil {
		has.HoursUsed = &hoursShown{devices(used.Amount), metav1.NewTime(used.Begin), metav1.NewTime(used.End)}
	}
	out.usesShown = has
	return out
}

// names are those of queues, by name.
func names(all []api.QueueSpec) string {
	var list []string
	for _, q := range all {
		list = append(list, q.Name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// summary says how much work runs and waits, and when that was so.
func summary(uses *v1alpha1.QueueUses, now time.Time) string {
	at := uses.At.Local()
	said := fmt.Sprintf("Running %d, waiting %d, as of %s.", uses.Running, uses.Waiting, at.Format(time.TimeOnly))
	if now.Sub(at) > late {
		said = fmt.Sprintf("Running %d, waiting %d, as of %s; the scheduler has not said so since, and may not run.", uses.Running, uses.Waiting, at.Format(time.DateTime))
	}
	return said
}

// show prints the lines of a queue, as `aliquot queue show` does, and a sentence.
func show(out io.Writer, name string, lines []figures.Line, said string) error {
	all := append([]figures.Line{{Name: "QUEUE " + name, Amount: figures.Heads}}, lines...)
	var widths [1 + len(figures.Heads)]int
	for _, line := range all {
		for i, text := range append([]string{line.Name}, line.Amount[:]...) {
			widths[i] = max(widths[i], len(text))
		}
	}
	var text strings.Builder
	for _, line := range all {
		row := fmt.Sprintf("%-*s   %*s   %*s   %*s", widths[0], line.Name, widths[1], line.Amount[0], widths[2], line.Amount[1], widths[3], line.Amount[2])
		text.WriteString(strings.TrimRight(row, " ") + "\n")
	}
	_, err := fmt.Fprintf(out, "%s%s\n", text.String(), said)
	return err
}
