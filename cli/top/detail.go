package top

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/safe"
)

// detail is all about one workload: what it asked for, where it stands and why, what happened to it.
func (l Look) detail(s Snapshot, name string, why api.Why, failed error) []row {
	width := max(l.Width, narrowest)
	out := []row{{text: " " + l.paint(heading, name)}, {}}
	add := func(title, value string) {
		if value == "" {
			return
		}
		for i, line := range strings.Split(ansi.Wordwrap(safe.Line(value), width-15, ""), "\n") {
			if i > 0 {
				title = ""
			}
			out = append(out, row{text: " " + l.paint(dim, l.pad(title, 12)) + " " + line})
		}
	}
	for _, work := range s.Workloads {
		if work.Spec.Name != name {
			continue
		}
		add("State", string(work.Status.Phase))
		add("Command", strings.Join(work.Spec.Command, " "))
		add("Asks for", asks(work.Spec))
		for _, r := range work.Spec.Roles {
			add("With "+r.Name, fmt.Sprintf("%d of %s", r.Replicas.Least(), asks(api.WorkloadSpec{Share: r.Share, Devices: r.Devices})))
		}
		add("Queue", work.Spec.Queue)
		add("User", work.User)
		add("Class", string(work.Spec.Class))
		for _, note := range work.Status.Notes {
			add("Note", note)
		}
		break
	}
	for _, device := range s.Devices {
		for _, one := range device.Grants {
			if one.Workload == name {
				add("On device "+fmt.Sprint(device.Index), fmt.Sprintf("uses %s of %v, holds %s of %s, waited %s of the time, mean of %s",
					percent(one.Compute), api.Compute{Floor: one.Grant.ComputeFloor, Ceiling: one.Grant.ComputeLimit},
					held(one.Memory), Memory(one.Grant.MemoryCeiling), percent(&one.WaitedShare), orUnknown(Span(one.Over))))
			}
		}
	}
	out = append(out, row{})
	switch {
	case failed != nil:
		add("Why", failed.Error())
		return out
	case why.Workload == "" && why.Message == "":
		return out // the answer is on its way
	}
	add("Why", why.Message)
	for i, text := range api.CountTexts(why.Counts) {
		add("", plural(why.Counts[i].Devices, "device")+": "+text)
	}
	add("Ahead", strings.Join(why.Ahead, ", "))
	add("To start", why.Unblock)
	if why.Estimate != nil {
		add("About", why.Estimate.In(s.At.Location()).Format("15:04:05"))
	}
	for i, record := range why.History {
		title := ""
		if i == 0 {
			out = append(out, row{})
			title = "History"
		}
		add(title, record.At.In(s.At.Location()).Format("15:04:05")+"  "+record.Message)
	}
	return out
}

// asks is what a workload asked for.
func asks(spec api.WorkloadSpec) string {
	text := fmt.Sprintf("%v of compute", spec.Share.Compute)
	if spec.Share.Memory != (api.Memory{}) {
		text += fmt.Sprintf(", %v of memory", spec.Share.Memory)
	}
	return text + " on " + plural(max(spec.Devices, 1), "device")
}

// help explains the screen with a share as it is drawn.
func (l Look) help() []row {
	glyph := l.glyphs()
	hue := hues[0]
	example := func(g gauge, what string) row {
		g.scale, g.hue = int64(api.WholeDevice), hue
		return row{text: "   " + l.bar(g, 24) + "  " + what}
	}
	sign := func(colour, text, what string) row { return row{text: "   " + l.pad(l.paint(colour, text), 8) + what} }
	return []row{
		example(gauge{floor: 250, ceiling: 800, use: 620}, "floor 0.25, ceiling 0.80: uses 62%, borrows 37%"),
		example(gauge{floor: 500, ceiling: 1000, use: 200, lent: 300}, "uses 20% of its floor of 0.50, lends the rest"),
		example(gauge{floor: 300, ceiling: 300, use: 0}, "uses nothing, and nobody needs its floor"),
		{},
		sign(hue, glyph.own, "used, within the floor"),
		sign(hue, glyph.over, "used above the floor: borrowed, given back when an owner wants it"),
		sign(lentHue, glyph.lent, "of the floor, lent to others now"),
		sign(dim, glyph.idle, "of the floor, idle"),
		sign(dim, glyph.reach, "may be used while others leave it idle"),
		sign(markHue, glyph.floor, "the floor: guaranteed whenever it is wanted"),
		sign(markHue, glyph.ceiling, "the ceiling: it holds over 10 s, which is what use is the mean of"),
		sign(alarm, "OPEN", "a program of this share is not held to it: see `aliquot doctor`"),
		{},
		sign(bold, l.glyphs().arrow, "select a workload (also j k, page up, page down, g G)"),
		sign(bold, "enter", "why it waits, what it uses, what happened to it"),
		sign(bold, "s", "sort the shares by age, use, memory, name"),
		sign(bold, "esc q", "back; quit"),
	}
}
