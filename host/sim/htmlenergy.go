package sim

import "strings"

// energyHTML draws what the devices drew over time, in those runs of which it is known.
func (f *File) energyHTML(b *strings.Builder, span float64) {
	draws := f.overTime(func(p *JobPlots) []float64 { return p.Watts })
	if len(draws) == 0 {
		return
	}
	b.WriteString("\n<h2>Power</h2><p class=\"note\">Drawn by all devices, the mean of each step, by what their models draw idle and at their peak, and by how busy they were.</p>\n")
	b.WriteString(drawCurves("Power drawn", timeAxis(span), powerAxis(highest(draws, 1)), draws, true))
}

// powerAxis is of watts from 0 on.
func powerAxis(most float64) axis {
	if most >= 3000 {
		return upAxis("drawn, kW", most, 1000)
	}
	return upAxis("drawn, W", most, 1)
}
