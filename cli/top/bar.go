package top

import "github.com/aliquot-dev/aliquot/api"

// gauge is an amount on a scale with a floor and a ceiling, all in one unit.
type gauge struct {
	scale, floor, ceiling int64
	use                   int64 // -1: not known
	lent                  int64 // of the floor, used by others now
	hue                   string
}

// bar draws a gauge in width cells and one more for a mark at the end of the scale. Use fills it, up to the floor in one
// character and above it in another; the floor's unused part shows what is lent and what is idle; what may still be taken up
// to the ceiling is dotted, what may not stays empty.
func (l Look) bar(g gauge, width int) string {
	glyph := l.glyphs()
	if width < 1 || g.scale < 1 {
		return ""
	}
	cells := make([]run, width+1)
	filled := g.use * int64(width) / g.scale
	cellOf := func(at int64) int64 { return min(max((at*int64(width)+g.scale/2)/g.scale, 0), int64(width)) }
	floor, ceiling := cellOf(g.floor), cellOf(g.ceiling)
	for i := range cells {
		middle := (2*int64(i) + 1) * g.scale / (2 * int64(width))
		switch {
		case i == width:
			cells[i] = run{plain, " "}
		case int64(i) < filled && int64(i) < floor:
			cells[i] = run{g.hue, glyph.own}
		case int64(i) < filled:
			cells[i] = run{g.hue, glyph.over}
		case int64(i) < floor && middle < max(g.use, 0)+g.lent:
			cells[i] = run{lentHue, glyph.lent}
		case int64(i) < floor:
			cells[i] = run{dim, glyph.idle}
		case int64(i) < ceiling:
			cells[i] = run{dim, glyph.reach}
		default:
			cells[i] = run{plain, " "}
		}
	}
	l.last(cells, g.use, g.scale, width, g.hue)
	if g.floor > 0 && g.floor != g.ceiling {
		cells[floor] = run{markHue, glyph.floor}
	}
	cells[ceiling] = run{markHue, glyph.ceiling}
	return l.join(cells)
}

// last draws the cell in which a fill ends, so that use that is small is still seen.
func (l Look) last(cells []run, use, scale int64, width int, hue string) {
	at := use * int64(width) / scale
	if use <= 0 || at >= int64(width) {
		return
	}
	parts := l.glyphs().parts
	if len(parts) == 0 {
		if at == 0 {
			cells[at] = run{hue, l.glyphs().own}
		}
		return
	}
	rest := use * int64(width) % scale * int64(len(parts)) / scale
	if at == 0 {
		rest = max(rest, 1)
	}
	if rest > 0 {
		cells[at] = run{hue, parts[rest]}
	}
}

// stack draws a device: its shares' use one after the other, each in its own colour, the rest empty.
func (l Look) stack(device api.Device, hue map[string]string, width int) string {
	glyph := l.glyphs()
	cells := make([]run, width+1)
	for i := range cells {
		cells[i] = run{dim, glyph.reach}
	}
	cells[width] = run{plain, " "}
	var sum int64
	for turn, one := range device.Grants {
		if one.Compute == nil {
			continue
		}
		from := sum * int64(width) / int64(api.WholeDevice)
		sum += int64(*one.Compute)
		to := min(sum*int64(width)/int64(api.WholeDevice), int64(width))
		// Without colours neighbours differ in their characters.
		fill := glyph.own
		if !l.Colour && turn%2 == 1 {
			fill = glyph.next
		}
		for i := from; i < to; i++ {
			cells[i] = run{hue[one.Workload], fill}
		}
	}
	return l.join(cells)
}

// memoryBar draws how much of a device's memory is held.
func (l Look) memoryBar(device api.Device, width int) string {
	glyph := l.glyphs()
	cells := make([]run, width+1)
	for i := range cells {
		cells[i] = run{dim, glyph.reach}
	}
	cells[width] = run{plain, " "}
	if device.MemoryUsed != nil && device.Memory > 0 {
		filled := min(int64(*device.MemoryUsed)*int64(width)/int64(device.Memory), int64(width))
		for i := range filled {
			cells[i] = run{plain, glyph.own}
		}
		if l.last(cells, int64(*device.MemoryUsed), int64(device.Memory), width, plain); l.ASCII && filled == 0 && *device.MemoryUsed > 0 {
			cells[0] = run{plain, glyph.own}
		}
	}
	return l.join(cells)
}
