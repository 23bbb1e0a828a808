package sim

import (
	"fmt"
	"slices"
	"strings"
)

// overTime are the lines of a series of the runs of jobs, of those that have it.
func (f *File) overTime(series func(*JobPlots) []float64) (all []curve) {
	runs := f.runs()
	for i, r := range f.Jobs {
		values := series(&r.Plots)
		if len(values) == 0 {
			continue
		}
		c := curve{name: runs[i].name}
		for k, v := range values {
			c.x, c.y = append(c.x, float64(k)*r.Plots.Step), append(c.y, v)
		}
		c.x, c.y = append(c.x, r.Makespan), append(c.y, c.y[len(c.y)-1])
		all = append(all, c)
	}
	return all
}

// highest is the largest value of some lines, at least a least one.
func highest(curves []curve, least float64) float64 {
	for _, c := range curves {
		least = max(least, slices.Max(c.y))
	}
	return least
}

// drawFragments draws what was free and of no use; of no run nothing.
func drawFragments(b *strings.Builder, title string, x axis, curves []curve, steps bool) {
	if len(curves) == 0 {
		return
	}
	y := upAxis("of no use, %", highest(curves, 1), 1)
	fmt.Fprintf(b, "\n<h2>%s</h2><p class=\"note\">Of all devices, what is free where work like that of the trace finds too little: for each kind of task what is free on devices that have less than it needs of one, or all of a node where it cannot run, weighed by how often it comes.</p>\n", title)
	b.WriteString(drawCurves(title, x, y, curves, steps))
}
