package sim

import "strings"

// churnHTML draws what was allocated against what was moved, and what was given up.
func (f *File) churnHTML(b *strings.Builder) {
	var allocated, givenUp []curve
	for _, c := range f.Churn {
		a, g := curve{name: c.Policy, dots: true}, curve{name: c.Policy, dots: true}
		for _, p := range c.Points {
			a.x, a.y = append(a.x, p.Moved), append(a.y, p.Allocated)
			g.x, g.y = append(g.x, p.Moved), append(g.y, p.GivenUp)
		}
		allocated, givenUp = append(allocated, a), append(givenUp, g)
	}
	x := upAxis("moves for each 1,000 pods that came", across(allocated), 1)
	b.WriteString("\n<h2>Allocated against moves</h2><p class=\"note\">Of all devices, while pods come and go: each dot is the mean of the seeds with so many moves an hour allowed. The axis of what is allocated does not begin at 0.</p>\n")
	b.WriteString(drawCurves("Allocated against moves", x, rangeAxis("allocated, %", allocated), allocated, false))
	b.WriteString("\n<h2>Given up against moves</h2><p class=\"note\">Of all pods, what did not fit when it came. The axis does not begin at 0.</p>\n")
	b.WriteString(drawCurves("Given up against moves", x, rangeAxis("given up, % of pods", givenUp), givenUp, false))
}

// across is the largest value of some lines to the right, at least 1.
func across(curves []curve) float64 {
	most := 1.0
	for _, c := range curves {
		for _, v := range c.x {
			most = max(most, v)
		}
	}
	return most
}
