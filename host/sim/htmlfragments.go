package sim

import (
	"fmt"
	"math"
	"strings"
)

// fragmented are the lines of what was free and of no use over time, of those runs of which it is known.
func (f *File) fragmented() (all []curve) {
	runs := f.runs()
	for i, r := range f.Jobs {
		if len(r.Plots.Fragmented) == 0 {
			continue
		}
		c := curve{name: runs[i].name}
		for k, v := range r.Plots.Fragmented {
			c.x, c.y = append(c.x, float64(k)*r.Plots.Step), append(c.y, v)
		}
		c.x, c.y = append(c.x, r.Makespan), append(c.y, c.y[len(c.y)-1])
		all = append(all, c)
	}
	return all
}

// drawFragments draws what was free and of no use; of no run nothing.
func drawFragments(b *strings.Builder, title string, x axis, curves []curve, steps bool) {
	if len(curves) == 0 {
		return
	}
	most := 0.0
	for _, c := range curves {
		for _, v := range c.y {
			most = math.Max(most, v)
		}
	}
	y := axis{title: "of no use, %", max: math.Max(1, most), unit: 1}
	for v, step := 0.0, niceStep(y.max/4); v <= y.max; v += step {
		y.ticks = append(y.ticks, v)
	}
	fmt.Fprintf(b, "\n<h2>%s</h2><p class=\"note\">Of all devices, what is free where work like that of the trace finds too little: for each kind of task what is free on devices that have less than it needs of one, or all of a node where it cannot run, weighed by how often it comes.</p>\n", title)
	b.WriteString(drawCurves(title, x, y, curves, steps))
}
