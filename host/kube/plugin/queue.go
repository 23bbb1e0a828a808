package plugin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/figures"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/queues"
)

// late is after how long figures that were not said again are doubted: a scheduler says them every 5 minutes.
const late = 11 * time.Minute

// Queue says all about one queue: what it is guaranteed now, with what the policy says, and what it has, as the scheduler wrote it into its status.
func (p Plugin) Queue(ctx context.Context, name string) error {
	objects, policy, err := v1alpha1.Tenants(ctx, p.Shares)
	if err != nil {
		return err
	}
	now := p.Now()
	rules, refused, _ := queues.Read(objects, policy, now)
	told, _ := rules.At(now)
	var uses *v1alpha1.QueueUses
	at := slices.IndexFunc(objects, func(q *v1alpha1.Queue) bool { return q.Name == name })
	if at >= 0 {
		uses = objects[at].Status.Uses
	}
	held := slices.IndexFunc(told.Queues, func(q api.QueueSpec) bool { return q.Name == name })
	if held < 0 {
		if why, is := refused[name]; is {
			return fmt.Errorf("the queue %s does not hold: %s", name, why.Message)
		}
		return fmt.Errorf("there is no queue %s; there are %s", name, names(told.Queues))
	}
	spec := told.Queues[held]
	lines := figures.Bounds(&spec)
	said := ""
	switch {
	case uses != nil:
		queue := uses.Queue(spec)
		lines = append(lines, figures.Uses(&queue)...)
		said = summary(uses, now)
	case at < 0:
		said = fmt.Sprintf("What it has is not known: there is no object for it where the scheduler could say so; an administrator makes a Queue %s, which may say nothing else (spec: {}).", name)
	default:
		said = "What it has is not known: the scheduler has not said so yet."
	}
	lines = append(lines, figures.Rules(&spec)...)
	if most := spec.MaxPriority; most != v1alpha1.NoMaxPriority {
		lines = append(lines, figures.Line{Name: "highest priority", Amount: [3]string{strconv.Itoa(int(most)), "", ""}})
	}
	return show(p.Out, name, lines, said)
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
