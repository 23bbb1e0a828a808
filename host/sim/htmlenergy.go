package sim

import "strings"

// energyHTML draws what the devices drew over time, in those runs of which it is known.
func (f *File) energyHTML(b *strings.Builder) {
	var draws []curve
	var span, most float64
	runs := f.runs()
	for i, r := range f.Jobs {
		if len(r.Plots.Watts) == 0 {
			continue
		}
		c := curve{name: runs[i].name}
		for k, w := range r.Plots.Watts {
			c.x, c.y = append(c.x, float64(k)*r.Plots.Step), append(c.y, w)
			most = max(most, w)
		}
		last := len(c.y) - 1
		c.x, c.y = append(c.x, r.Makespan), append(c.y, c.y[last])
		draws, span = append(draws, c), max(span, r.Makespan)
	}
	if len(draws) == 0 {
		return
	}
	b.WriteString("\n<h2>Power</h2><p class=\"note\">Drawn by all devices, the mean of each step, by what their models draw idle and at their peak, and by how busy they were.</p>\n")
	b.WriteString(drawCurves("Power drawn", timeAxis(span), powerAxis(most), draws, true))
}

// powerAxis is of watts from 0 on.
func powerAxis(most float64) axis {
	a := axis{title: "drawn, W", max: max(most, 1), unit: 1}
	if most >= 3000 {
		a.title, a.unit = "drawn, kW", 1000
	}
	step := niceStep(a.max/a.unit/5) * a.unit
	for v := 0.0; v <= a.max; v += step {
		a.ticks = append(a.ticks, v)
	}
	return a
}
