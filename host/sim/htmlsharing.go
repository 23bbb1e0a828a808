package sim

import (
	"fmt"
	"html"
	"strings"
)

// sharingHTML draws what was useful of the devices, over time and by tenant, of those runs whose jobs share them.
func (f *File) sharingHTML(b *strings.Builder) {
	var useful []curve
	var heats strings.Builder
	var span float64
	runs := f.runs()
	for i, r := range f.Jobs {
		if r.Sharing == nil {
			continue
		}
		jobs := map[string]int{}
		for _, t := range r.Plots.Tenants {
			jobs[t.Name] = t.Jobs
		}
		sums := make([]float64, len(r.Plots.Allocated))
		var tenants []Tenant
		for _, t := range r.Sharing.Tenants {
			tenants = append(tenants, Tenant{Name: t.Name, Jobs: jobs[t.Name], Allocated: t.Useful})
			for k := range min(len(sums), len(t.Useful)) {
				sums[k] += t.Useful[k]
			}
		}
		c := curve{name: runs[i].name}
		for k, v := range sums {
			c.x, c.y = append(c.x, float64(k)*r.Plots.Step), append(c.y, v)
		}
		c.x, c.y = append(c.x, r.Makespan), append(c.y, 0)
		useful = append(useful, c)
		span = max(span, r.Makespan)
		shown, note := shownTenants(tenants)
		fmt.Fprintf(&heats, "\n<h2>Useful by tenant: %s</h2><p class=\"note\">Of all devices, by queue: progress at the speed alone × what a job keeps busy alone.%s</p>\n", html.EscapeString(c.name), note)
		heats.WriteString(drawHeat("Useful by tenant under "+c.name, timeAxis(r.Makespan), r.Plots.Step, shown))
	}
	if len(useful) == 0 {
		return
	}
	b.WriteString("\n<h2>Useful over time</h2><p class=\"note\">Of all devices, the mean of each step: progress at the speed alone × what a job keeps busy alone.</p>\n")
	b.WriteString(drawCurves("Useful over time", timeAxis(span), percentAxis("useful, %"), useful, true))
	b.WriteString(heats.String())
}
