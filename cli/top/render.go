package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/safe"
)

// unknown stands for what is not known: never a zero.
const unknown = "-"

// narrowest is the least width that is drawn for; a smaller screen cuts lines off.
const narrowest = 60

// layout is how wide the columns are.
type layout struct{ name, compute, memory int }

const (
	useWidth  = 5 // ` 100%`
	flowWidth = 6 // `+100%`
	sizeWidth = 13
)

func (l Look) layout() layout {
	width := max(l.Width, narrowest)
	out := layout{name: min(max(width/5, 14), 28), memory: min(max(width/9, 7), 24)}
	// The cursor, the gaps and the marks' own cells take the rest.
	out.compute = max(width-3-out.name-1-1-useWidth-flowWidth-2-out.memory-1-sizeWidth-1, 8)
	return out
}

// row is a line of the screen; lines of a share or of a waiting workload carry its name.
type row struct{ text, workload string }

// Text renders a snapshot as a whole, as `top --once` prints it.
func Text(s Snapshot, look Look) string {
	var out strings.Builder
	out.WriteString(look.header(s) + "\n\n")
	for _, line := range look.body(s) {
		out.WriteString(strings.TrimRight(line.text, " ") + "\n")
	}
	return out.String()
}

// header is the first line: what server this is, how much it does, when this was.
func (l Look) header(s Snapshot) string {
	dot := " " + l.glyphs().dot + " "
	kind := "device"
	if s.Info.Simulated {
		kind = "simulated device"
	}
	left := " " + l.paint(heading, "aliquot") + "  " + l.paint(bold, safe.Line(s.Info.Node)) + dot + plural(len(s.Devices), kind)
	right := fmt.Sprintf("%d running%s%d waiting%s%s ", s.count(api.Running, api.Starting, api.Stopping), dot, s.count(api.Waiting), dot,
		s.At.Format("15:04:05"))
	return l.ends(left, right)
}

// ends sets one text to the left end of a line and one to its right end.
func (l Look) ends(left, right string) string {
	width := max(l.Width, narrowest)
	left = l.cut(left, width-ansi.StringWidth(right)-1)
	return left + strings.Repeat(" ", max(width-ansi.StringWidth(left)-ansi.StringWidth(right), 1)) + right
}

// body is everything below the header: devices with their shares, and the line.
func (l Look) body(s Snapshot) []row {
	var out []row
	if len(s.Devices) == 0 {
		out = append(out, row{text: " No devices: `aliquot doctor` says why."})
	}
	for i, device := range s.Devices {
		if i == 0 {
			out = append(out, row{text: l.headings()})
		} else {
			out = append(out, row{})
		}
		out = append(out, l.device(device)...)
	}
	if line := s.waiting(); len(line) > 0 {
		out = append(out, row{}, row{text: l.paint(dim, " WAITING")})
		out = append(out, l.waiting(s, line)...)
	}
	for _, warning := range s.Info.Warnings {
		out = append(out, row{}, row{text: l.cut(" "+l.paint(caution, "! "+safe.Line(warning)), max(l.Width, narrowest))})
	}
	return out
}

// headings names the columns. Rates are means over the last 10 s, or over as long as they were watched.
func (l Look) headings() string {
	at := l.layout()
	const title = "COMPUTE, LAST 10s"
	return l.paint(dim, "   "+l.pad("DEVICE, SHARES", at.name)+" "+l.pad(title, at.compute+1)+l.right("USE", useWidth)+
		l.right("FLOW", flowWidth)+"  "+l.pad("MEMORY", at.memory+1)+l.right("HELD", sizeWidth))
}

// device is a device's own line, its shares, and what is wrong with it.
func (l Look) device(device api.Device) []row {
	at := l.layout()
	hue := hueOf(device.Grants)
	name := fmt.Sprintf(" %d %s", device.Index, safe.Line(device.Model))
	if free := l.glyphs().dot + " " + fmt.Sprint(device.ComputeFree) + " free"; device.Health == api.Healthy && ansi.StringWidth(name+" "+free) <= at.name+3 {
		name += " " + free
	}
	out := []row{{text: l.paint(bold, l.pad(name, at.name+3)) + " " + l.stack(device, hue, at.compute) +
		l.paint(bold, l.right(percent(Used(device)), useWidth)) + strings.Repeat(" ", flowWidth+2) + l.memoryBar(device, at.memory) +
		l.paint(bold, l.right(held(device.MemoryUsed)+"/"+Memory(device.Memory), sizeWidth))}}
	for _, one := range sorted(device.Grants, l.Order) {
		out = append(out, l.share(device, one, hue[one.Workload]))
	}
	if device.Health != api.Healthy {
		out = append(out, l.note(alarm, fmt.Sprintf("%s: %s", device.Health, orUnknown(device.HealthReason))))
	}
	for _, process := range device.Unenforced {
		out = append(out, l.note(alarm, fmt.Sprintf("%s (pid %d) of %s is outside any share and holds %s",
			process.Name, process.PID, orUnknown(process.User), held(process.Memory))))
	}
	if len(device.Unenforced) > 0 && device.Busy != nil {
		out = append(out, l.note(alarm, fmt.Sprintf("by the driver's word it is %s busy, with what is outside any share", percent(device.Busy))))
	}
	return out
}

func (l Look) note(colour, text string) row {
	return row{text: "   " + l.paint(colour, l.cut("! "+safe.Line(text), max(l.Width, narrowest)-4))}
}

// share is a share's line.
func (l Look) share(device api.Device, one api.Usage, hue string) row {
	at := l.layout()
	compute := gauge{
		scale: int64(api.WholeDevice), floor: int64(one.Grant.ComputeFloor), ceiling: int64(one.Grant.ComputeLimit),
		use: -1, lent: int64(one.Lending), hue: hue,
	}
	if one.Compute != nil {
		compute.use = int64(*one.Compute)
	}
	memory := gauge{
		scale: max(int64(device.Memory), 1), floor: int64(one.Grant.MemoryFloor), ceiling: int64(one.Grant.MemoryCeiling), use: -1, hue: hue,
	}
	if one.Memory != nil {
		memory.use = int64(*one.Memory)
	}
	flow, flowHue := flowOf(one)
	name := l.pad(one.Workload, at.name)
	if !one.Enforced {
		name, flow, flowHue = l.paint(alarm, l.pad("! "+one.Workload, at.name)), "OPEN", alarm
	}
	return row{
		text: l.cursor(one.Workload) + name + " " + l.bar(compute, at.compute) + l.right(percent(one.Compute), useWidth) +
			l.paint(flowHue, l.right(flow, flowWidth)) + "  " + l.bar(memory, at.memory) +
			l.right(held(one.Memory)+"/"+Memory(one.Grant.MemoryCeiling), sizeWidth),
		workload: one.Workload,
	}
}

// shown is the least rate that is not printed as 0%.
const shown api.Milli = 5

// flowOf is what a share borrows (+) or lends (-) now.
func flowOf(one api.Usage) (string, string) {
	switch {
	case one.Compute == nil:
		return "", plain
	case one.Borrowing >= shown:
		return "+" + percent(&one.Borrowing), borrowed
	case one.Lending >= shown:
		return "-" + percent(&one.Lending), lentHue
	default:
		return "", plain
	}
}

func (l Look) cursor(workload string) string {
	if l.Cursor != "" && l.Cursor == workload {
		return " " + l.paint(bold, l.glyphs().cursor) + " "
	}
	return "   "
}

// mostWrapped is how many in line have their whole reason shown: behind them it is mostly the same, and cut.
const mostWrapped = 4

// waiting lists those in line with what each asks for, how long it has waited and why.
func (l Look) waiting(s Snapshot, line []api.Workload) []row {
	at := l.layout()
	out := make([]row, 0, len(line))
	for i, work := range line {
		place := work.Status.Place
		if place == 0 {
			place = i + 1
		}
		ask := fmt.Sprint(work.Spec.Share.Compute)
		if work.Spec.Devices > 1 {
			ask += fmt.Sprintf(" x%d", work.Spec.Devices)
		}
		left := l.cursor(work.Spec.Name) + l.pad(fmt.Sprintf("%d %s", place, work.Spec.Name), at.name) + " " + l.pad(ask, 13) + " " +
			l.right(waited(s.At.Sub(work.Status.Submitted)), waitWidth) + "  "
		indent := ansi.StringWidth(left)
		width := max(l.Width, narrowest) - indent - 1
		why := safe.Line(orUnknown(work.Status.Reason))
		reason := []string{l.cut(why, width)}
		if i < mostWrapped {
			reason = strings.Split(ansi.Wrap(why, width, ""), "\n")
		}
		for j, text := range reason {
			if j > 0 {
				left = strings.Repeat(" ", indent)
			}
			out = append(out, row{text: left + l.paint(caution, text), workload: work.Spec.Name})
		}
	}
	return out
}

const waitWidth = 4 // `59m`

// waited is a time in its largest unit: `40s`, `59m`, `23h`, `12d`.
func waited(d time.Duration) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if d >= unit.size {
			return strconv.FormatInt(int64(d/unit.size), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(max(d, 0)/time.Second), 10) + "s"
}

func percent(m *api.Milli) string {
	if m == nil {
		return unknown
	}
	return strconv.Itoa(int((*m+5)/10)) + "%"
}

func held(b *api.Bytes) string {
	if b == nil {
		return unknown
	}
	return Memory(*b)
}

// Memory prints an amount of memory for reading.
func Memory(b api.Bytes) string { return b.Short() }

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

func orUnknown(text string) string {
	if text == "" {
		return unknown
	}
	return text
}
