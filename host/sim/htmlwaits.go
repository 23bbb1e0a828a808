package sim

import (
	"cmp"
	"fmt"
	"html"
	"strings"
)

// distribution is the line of hundredths of jobs over a figure, and raises most to the largest.
func distribution(name string, values []float64, most *float64) curve {
	c := curve{name: name, x: values}
	for k, v := range values {
		c.y = append(c.y, float64(k))
		*most = max(*most, v)
	}
	return c
}

// upTo has distributions go on to the end of an axis: what all jobs had done by then they had done later, too.
func upTo(end float64, all []curve) []curve {
	for i := range all {
		if c := &all[i]; len(c.x) > 0 {
			c.x, c.y = append(c.x[:len(c.x):len(c.x)], end), append(c.y, c.y[len(c.y)-1])
		}
	}
	return all
}

// waitsHTML draws how long jobs waited, of each run, and then by queue of each run that has several.
func (f *File) waitsHTML(b *strings.Builder) {
	runs := f.runs()
	var all []curve
	var longest float64
	for i, r := range f.Jobs {
		all = append(all, distribution(runs[i].name, r.Plots.Waits, &longest))
	}
	x := waitAxis(longest)
	b.WriteString("\n<h2>Waits</h2><p class=\"note\">How many of the jobs had started for the first time after so long. The axis of time is logarithmic.</p>\n")
	b.WriteString(drawCurves("Waits of jobs", x, percentAxis("jobs, %"), upTo(x.max, all), true))
	for i, r := range f.Jobs {
		var queues []curve
		for _, t := range largest(r.Plots.Tenants) {
			queues = append(queues, distribution(fmt.Sprintf("%s (%s)", t.label(), jobsIn(t.Jobs)), t.Waits, &longest))
		}
		if o := r.Plots.Others; o != nil {
			c := distribution(fmt.Sprintf("%d others (%s)", o.Queues, jobsIn(o.Jobs)), o.Waits, &longest)
			c.rest = true
			queues = append(queues, c)
		}
		if len(queues) < 2 {
			continue
		}
		fmt.Fprintf(b, "\n<h2>Waits by queue: %s</h2><p class=\"note\">As above, of the jobs of each queue that ended.</p>\n", html.EscapeString(runs[i].name))
		b.WriteString(drawCurves("Waits by queue under "+runs[i].name, x, percentAxis("jobs, %"), upTo(x.max, queues), true))
	}
}

// label is what a tenant is called where it is shown.
func (t *Tenant) label() string {
	return cmp.Or(shortened(t.Name), noQueue)
}

// noQueue is what those are called that are in none.
const noQueue = "(no queue)"

func jobsIn(n int) string {
	if n == 1 {
		return "1 job"
	}
	return grouped(float64(n)) + " jobs"
}
