package sim

import (
	"cmp"
	"fmt"
	"html"
	"os"
	"slices"
	"strconv"
	"strings"
)

// page is what stands before the plots. It asks for nothing from elsewhere, so the file can be sent and kept.
const page = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>%[1]s</title><style>
body{font:15px/1.45 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#1a1a1a;background:#fff}
h1{font-size:1.5em}h2{font-size:1.15em;margin:2em 0 .3em}p{margin:.3em 0}p.note{color:#555}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2em .9em .2em 0;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child,table.words td,table.words th{text-align:left}table.words td:not(:last-child){white-space:nowrap}svg{width:100%%;height:auto;display:block}
svg text{font:12px system-ui,sans-serif;fill:#444}svg path{fill:none;stroke-width:1.8;stroke-linejoin:round}svg .grid{stroke:#e4e4e4}
.legend span{margin-right:1.3em;white-space:nowrap}.legend i{display:inline-block;width:1.3em;height:.3em;margin-right:.4em;vertical-align:middle}
.legend .scale{display:inline-block;width:9em;height:.8em;vertical-align:middle}.scroll{overflow-x:auto}
</style></head><body><h1>%[1]s</h1>
`

// WriteHTML writes runs with their plots to one file that needs nothing else.
func WriteHTML(path string, f *File) error {
	if err := os.WriteFile(path, []byte(f.html()), 0o644); err != nil { //nolint:gosec // a report, for others to read too
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func (f *File) html() string {
	var b strings.Builder
	title := "Runs of " + f.Trace
	if f.Nodes != "" {
		title += " on " + f.Nodes
	}
	fmt.Fprintf(&b, page, html.EscapeString(title))
	var heads []string
	var columns [][]Named
	for _, r := range f.runs() {
		heads = append(heads, r.name)
		columns = append(columns, r.figures)
	}
	if len(columns) > 0 {
		tableHTML(&b, heads, columns)
	}
	if len(f.Series) > 0 {
		f.seriesHTML(&b)
	}
	if len(f.Churn) > 0 {
		f.churnHTML(&b)
	}
	if len(f.Jobs) > 0 {
		f.neverRunHTML(&b)
		f.jobsHTML(&b)
	}
	b.WriteString("</body></html>\n")
	return b.String()
}

// tableHTML has a row for each figure and a column for each run.
func tableHTML(b *strings.Builder, heads []string, columns [][]Named) {
	b.WriteString(`<div class="scroll"><table><tr><th></th>`)
	for _, h := range heads {
		fmt.Fprintf(b, "<th>%s</th>", html.EscapeString(h))
	}
	b.WriteString("</tr>\n")
	for _, name := range figureNames(columns) {
		if name != "jobs" && !slices.ContainsFunc(columns, func(c []Named) bool {
			f := findFigure(&namedRun{figures: c}, name)
			return f != nil && (f.Value != 0 || f.Unit != "")
		}) {
			continue // a count that is 0 everywhere
		}
		fmt.Fprintf(b, "<tr><td>%s</td>", html.EscapeString(name))
		for _, column := range columns {
			value := "–"
			if f := findFigure(&namedRun{figures: column}, name); f != nil {
				value = strings.TrimSpace(grouped(f.Value) + " " + f.Unit)
			}
			fmt.Fprintf(b, "<td>%s</td>", html.EscapeString(value))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table></div>\n")
}

// neverRunRows is how many of the jobs of one run that never ran are named.
const neverRunRows = 10

// neverRunHTML names the jobs that never ran, with why, where there are such: once for all runs of which it is the same.
func (f *File) neverRunHTML(b *strings.Builder) {
	runs := f.runs()
	for i, r := range f.Jobs {
		same := func(o *JobResult) bool { return slices.Equal(o.NeverRun, r.NeverRun) }
		if len(r.NeverRun) == 0 || slices.ContainsFunc(f.Jobs[:i], same) {
			continue
		}
		var names []string
		for k, o := range f.Jobs {
			if same(o) {
				names = append(names, runs[k].name)
			}
		}
		note := "They are not among the jobs of any other figure."
		if len(r.NeverRun) > neverRunRows {
			note += fmt.Sprintf(" Shown are the first %d of %d.", neverRunRows, len(r.NeverRun))
		}
		fmt.Fprintf(b, "\n<h2>Never run: %s</h2><p class=\"note\">%s</p>\n", html.EscapeString(strings.Join(names, ", ")), note)
		b.WriteString(`<div class="scroll"><table class="words"><tr><th>job</th><th>name</th><th>queue</th><th>ran</th><th>why</th></tr>` + "\n")
		for _, n := range r.NeverRun[:min(len(r.NeverRun), neverRunRows)] {
			ran := "–"
			if n.Ran > 0 {
				ran = grouped(n.Ran) + " s"
			}
			fmt.Fprintf(b, "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n", html.EscapeString(n.Job),
				html.EscapeString(cmp.Or(n.Name, "–")), html.EscapeString(cmp.Or(n.Queue, "–")), ran, html.EscapeString(n.Reason))
		}
		b.WriteString("</table></div>\n")
	}
}

// figureNames are the names of all figures, those that only a later run has behind the others.
func figureNames(columns [][]Named) []string {
	var names []string
	for _, column := range columns {
		for _, f := range column {
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	return names
}

// grouped is a number with spaces between its thousands, and two digits after the point where it is small and not whole.
func grouped(v float64) string {
	digits := 0
	if v < 1000 && v != float64(int64(v)) {
		digits = 2
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	whole, rest, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "\u202f" + whole[i:]
	}
	if rest != "" {
		whole += "." + rest
	}
	return whole
}

func (f *File) seriesHTML(b *strings.Builder) {
	var curves []curve
	most := 0
	for _, s := range f.Series {
		c := curve{name: s.Policy, y: s.Curve}
		for i := range s.Curve {
			c.x = append(c.x, float64(i))
		}
		most = max(most, len(s.Curve)-1)
		curves = append(curves, c)
	}
	x := axis{title: "percent of all devices that had been asked for", max: float64(max(1, most)), unit: 1}
	for v := 0; v <= most; v += 10 {
		x.ticks = append(x.ticks, float64(v))
	}
	b.WriteString("<h2>Allocated</h2><p class=\"note\">Of all devices, mean over the seeds, as workloads come.</p>\n")
	b.WriteString(drawCurves("Allocated as workloads come", x, percentAxis("allocated, %"), curves, false))
	var free []curve
	for _, s := range f.Series {
		if len(s.Fragmented) > 0 {
			free = append(free, curve{name: s.Policy, x: curves[len(free)].x, y: s.Fragmented})
		}
	}
	drawFragments(b, "Fragmentation as workloads come", x, free, false)
}

func (f *File) jobsHTML(b *strings.Builder) {
	var allocated, fairness []curve
	var span, worst float64
	runs := f.runs()
	for i, r := range f.Jobs {
		a := curve{name: runs[i].name}
		for k, v := range r.Plots.Allocated {
			a.x, a.y = append(a.x, float64(k)*r.Plots.Step), append(a.y, v)
		}
		a.x, a.y = append(a.x, r.Makespan), append(a.y, 0)
		fairness = append(fairness, distribution(runs[i].name, r.Plots.Fairness, &worst))
		span = max(span, r.Makespan)
		allocated = append(allocated, a)
	}
	b.WriteString("<h2>Allocation over time</h2><p class=\"note\">Of all devices, the mean of each of up to 200 steps.</p>\n")
	b.WriteString(drawCurves("Allocation over time", timeAxis(span), percentAxis("allocated, %"), allocated, true))
	drawFragments(b, "Fragmentation over time", timeAxis(span), f.overTime(func(p *JobPlots) []float64 { return p.Fragmented }), true)
	f.waitsHTML(b)
	x := fairnessAxis(worst)
	b.WriteString("\n<h2>Fairness</h2><p class=\"note\">How many of the jobs took at most so many times as long as with their part of the devices.</p>\n")
	b.WriteString(drawCurves("Fairness of jobs", x, percentAxis("jobs, %"), upTo(x.max, fairness), true))
	for i, r := range f.Jobs {
		tenants, note := shownTenants(r.Plots.Tenants)
		fmt.Fprintf(b, "\n<h2>Use by tenant: %s</h2><p class=\"note\">Of all devices, by queue.%s</p>\n", html.EscapeString(runs[i].name), note)
		b.WriteString(drawHeat("Use by tenant under "+runs[i].name, timeAxis(r.Makespan), r.Plots.Step, tenants))
	}
	f.energyHTML(b, span)
	f.sharingHTML(b)
}

// shownTenants are at most so many as can be looked at: those with the most jobs, by name.
func shownTenants(all []Tenant) ([]Tenant, string) {
	if len(all) <= maxHeatRows {
		return all, ""
	}
	shown := slices.Clone(all)
	slices.SortStableFunc(shown, func(a, b Tenant) int { return cmp.Compare(b.Jobs, a.Jobs) })
	shown = shown[:maxHeatRows]
	slices.SortFunc(shown, func(a, b Tenant) int { return strings.Compare(a.Name, b.Name) })
	return shown, fmt.Sprintf(" Shown are the %d with the most jobs of %d.", maxHeatRows, len(all))
}
