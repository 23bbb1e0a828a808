package sim

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The size of a plot and the room around it, in pixels.
const (
	plotWidth, plotHeight                 = 900.0, 300.0
	marginLeft, marginTop                 = 64.0, 14.0
	marginRight, marginBottom             = 20.0, 46.0
	heatRow, heatLeft, heatBottom         = 18.0, 150.0, 46.0
	innerWidth                            = plotWidth - marginLeft - marginRight
	innerHeight                           = plotHeight - marginTop - marginBottom
	heatWidth                             = plotWidth - heatLeft - marginRight
	maxHeatRows                           = 30
	percentTicks                  float64 = 25
)

// colours tell runs apart, also for those who see few colours (Okabe and Ito, 2008).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1a1a1a", "#8a6d3b"}

// rest is the colour of what is left, all in one line.
const rest = "#7f7f7f"

// colour is that of the i-th line, and says whether it is dashed: those are that come behind as many as there are colours.
func (c *curve) colour(i int) (colour string, dashed bool) {
	if c.rest {
		return rest, true
	}
	return colours[i%len(colours)], i >= len(colours)
}

// curve is one line of a plot.
type curve struct {
	name string
	x, y []float64
	rest bool // it is of all that have no line of their own
	dots bool // its points are what was measured: each is marked
}

// axis is how values become places along one side of a plot.
type axis struct {
	title string
	min   float64 // of one that is not logarithmic
	max   float64
	log   bool // log(1 + x)
	times bool // ticks are written as times that people know
	unit  float64
	ticks []float64
}

// place is where a value is, from 0 to 1.
func (a axis) place(v float64) float64 {
	if a.log {
		return math.Log1p(v) / math.Log1p(a.max)
	}
	return (v - a.min) / (a.max - a.min)
}

// timeAxis is an axis of seconds from 0, in the largest unit of which there are a few.
func timeAxis(most float64) axis {
	a := axis{title: "seconds", max: math.Max(most, 1), unit: 1}
	for _, u := range []struct {
		name    string
		seconds float64
	}{{"minutes", 60}, {"hours", 3600}, {"days", 86400}} {
		if a.max >= 3*u.seconds {
			a.title, a.unit = u.name, u.seconds
		}
	}
	step := niceStep(a.max/a.unit/8) * a.unit
	for v := 0.0; v <= a.max; v += step {
		a.ticks = append(a.ticks, v)
	}
	return a
}

// waitAxis is a logarithmic axis of seconds with ticks at times that people know.
func waitAxis(most float64) axis {
	a := axis{title: "wait until the first start", max: math.Max(most, 1), log: true, times: true, unit: 1}
	for _, v := range []float64{0, 1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400} {
		if v <= a.max {
			a.ticks = append(a.ticks, v)
		}
	}
	return a
}

// fairnessAxis is a logarithmic axis of finish-time fairness.
func fairnessAxis(most float64) axis {
	a := axis{title: "finish-time fairness: at most 1 is fair", max: math.Max(most, 2), log: true, unit: 1, ticks: []float64{0, 0.5}}
	for v := 1.0; v <= a.max; v *= 10 {
		for _, tick := range []float64{v, 2 * v, 5 * v} {
			if tick <= a.max && (a.max < 1000 || v < 10 || tick == v) {
				a.ticks = append(a.ticks, tick)
			}
		}
	}
	return a
}

func percentAxis(title string) axis {
	return axis{title: title, max: 100, unit: 1, ticks: []float64{0, percentTicks, 2 * percentTicks, 3 * percentTicks, 100}}
}

// upAxis is an axis from 0 to the first of its ticks that is not under so much.
func upAxis(title string, most, unit float64) axis {
	a := axis{title: title, unit: unit}
	step := niceStep(most/unit/5) * unit
	for v := 0.0; a.max < most; v += step {
		a.ticks, a.max = append(a.ticks, v), v
	}
	return a
}

// rangeAxis is an axis from the last of its ticks that is not over any value of some lines to the first that is not under any.
func rangeAxis(title string, curves []curve) axis {
	low, high := math.Inf(1), math.Inf(-1)
	for _, c := range curves {
		low, high = math.Min(low, slices.Min(c.y)), math.Max(high, slices.Max(c.y))
	}
	a := axis{title: title, unit: 1}
	step := niceStep(math.Max(high-low, 0.1) / 5)
	first, last := math.Floor(low/step), math.Ceil(high/step)
	a.min, a.max = first*step, math.Max(last, first+1)*step
	for i := first; i <= math.Max(last, first+1); i++ {
		a.ticks = append(a.ticks, i*step)
	}
	return a
}

// niceStep is the first of 1, 2, 5, 10 and so on that is at least so much.
func niceStep(least float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(least)))
	for _, by := range []float64{1, 2, 5} {
		if by*ten >= least {
			return by * ten
		}
	}
	return 10 * ten
}

// label is how a tick is written.
func (a axis) label(v float64) string {
	if !a.times {
		return fmt.Sprintf("%g", math.Round(v/a.unit*100)/100)
	}
	for _, u := range []struct {
		name    string
		seconds float64
	}{{"d", 86400}, {"h", 3600}, {"min", 60}} {
		if v >= u.seconds {
			return fmt.Sprintf("%g %s", v/u.seconds, u.name)
		}
	}
	return fmt.Sprintf("%g s", v)
}

// drawCurves is an SVG of lines with its legend under it. Lines go level from point to point and then up or down where steps is set.
func drawCurves(title string, x, y axis, curves []curve, steps bool) string {
	var b strings.Builder
	open(&b, title, plotHeight)
	px := func(v float64) float64 { return marginLeft + x.place(v)*innerWidth }
	py := func(v float64) float64 { return marginTop + innerHeight - y.place(v)*innerHeight }
	for _, v := range y.ticks {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, marginLeft, plotWidth-marginRight, py(v), py(v))
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, marginLeft-8, py(v)+4, y.label(v))
	}
	for _, v := range x.ticks {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, px(v), px(v), marginTop, marginTop+innerHeight+4)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, px(v), marginTop+innerHeight+18, x.label(v))
	}
	axisTitles(&b, x.title, y.title, plotHeight, marginLeft+innerWidth/2)
	for i, c := range curves {
		var path strings.Builder
		for k := range c.x {
			switch {
			case k == 0:
				fmt.Fprintf(&path, "M%.1f %.1f", px(c.x[k]), py(c.y[k]))
			case steps:
				fmt.Fprintf(&path, "H%.1fV%.1f", px(c.x[k]), py(c.y[k]))
			default:
				fmt.Fprintf(&path, "L%.1f %.1f", px(c.x[k]), py(c.y[k]))
			}
		}
		colour, dashed := c.colour(i)
		dash := ""
		if dashed {
			dash = ` stroke-dasharray="6 4"`
		}
		fmt.Fprintf(&b, `<path d="%s" stroke="%s"%s><title>%s</title></path>`, path.String(), colour, dash, html.EscapeString(c.name))
		for k := range c.x {
			if c.dots {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s: %.4g, %.4g</title></circle>`, px(c.x[k]), py(c.y[k]), colour, html.EscapeString(c.name), c.x[k], c.y[k])
			}
		}
	}
	b.WriteString("</svg>")
	legend(&b, curves)
	return b.String()
}

func open(b *strings.Builder, title string, height float64) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-label="%s">`, plotWidth, height, html.EscapeString(title))
}

func axisTitles(b *strings.Builder, x, y string, height, middle float64) {
	fmt.Fprintf(b, `<text class="title" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, middle, height-8, html.EscapeString(x))
	if y != "" {
		fmt.Fprintf(b, `<text class="title" transform="translate(16 %.1f) rotate(-90)" text-anchor="middle">%s</text>`, marginTop+innerHeight/2, html.EscapeString(y))
	}
}

func legend(b *strings.Builder, curves []curve) {
	if len(curves) < 2 {
		return
	}
	b.WriteString(`<p class="legend">`)
	for i, c := range curves {
		colour, dashed := c.colour(i)
		if dashed {
			colour = fmt.Sprintf("repeating-linear-gradient(to right,%s 0 6px,transparent 6px 9px)", colour)
		}
		fmt.Fprintf(b, `<span><i style="background:%s"></i>%s</span>`, colour, html.EscapeString(c.name))
	}
	b.WriteString("</p>")
}

// heat is the colour of a part, from 0 to 1: from pale to dark, so that it also prints.
func heat(part float64) string {
	low, high := [3]float64{0xde, 0xeb, 0xf7}, [3]float64{0x08, 0x30, 0x6b}
	var c [3]int
	for i := range c {
		c[i] = int(math.Round(low[i] + (high[i]-low[i])*part))
	}
	return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2])
}

// drawHeat is an SVG with a row for each tenant and a column for each step; what nobody used is left white.
func drawHeat(title string, x axis, step float64, tenants []Tenant) string {
	most := 0.0
	for _, t := range tenants {
		for _, v := range t.Allocated {
			most = math.Max(most, v)
		}
	}
	var b strings.Builder
	height := float64(len(tenants))*heatRow + marginTop + heatBottom
	open(&b, title, height)
	px := func(v float64) float64 { return heatLeft + math.Min(1, x.place(v))*heatWidth }
	for row, t := range tenants {
		top := marginTop + float64(row)*heatRow
		name := cmp.Or(t.Name, noQueue)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, heatLeft-8, top+heatRow-5, html.EscapeString(shortened(name)))
		for k, v := range t.Allocated {
			if v <= 0 {
				continue
			}
			from, to := px(float64(k)*step), px(float64(k+1)*step)
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s: %.2f %% of all devices</title></rect>`,
				from, top+1, to-from+0.3, heatRow-2, heat(v/most), html.EscapeString(name), v)
		}
	}
	bottom := height - heatBottom
	for _, v := range x.ticks {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, px(v), bottom+18, x.label(v))
	}
	axisTitles(&b, x.title, "", height, heatLeft+heatWidth/2)
	b.WriteString("</svg>")
	fmt.Fprintf(&b, `<p class="legend"><span>0 %%</span><span class="scale" style="background:linear-gradient(to right,%s,%s)"></span><span>%.1f %% of all devices</span></p>`,
		heat(0), heat(1), most)
	return b.String()
}

func shortened(name string) string {
	if letters := []rune(name); len(letters) > 20 {
		return string(letters[:19]) + "…"
	}
	return name
}
