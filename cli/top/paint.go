package top

import (
	"hash/fnv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/aliquot-dev/aliquot/api"
)

// Look is how to render: how wide, with colours or without, in which characters.
type Look struct {
	Width  int
	Height int // rows of the screen; 0: as many as it takes
	Colour bool
	ASCII  bool
	Order  Order
	Cursor string // workload that the keys act on; empty: none
}

// The palette, as codes of the terminal's 256 colours: dim and alarm are the terminal's own so that they follow its theme, the
// shares' hues are far apart on light and dark grounds.
const (
	plain    = ""
	bold     = "1"
	dim      = "2"
	inverse  = "7"
	alarm    = "1;31"
	caution  = "33"
	good     = "32"
	lentHue  = "38;5;178"
	markHue  = "1"
	boldDim  = "1;2"
	heading  = "1;38;5;75"
	borrowed = "38;5;80"
)

// hues are the colours of shares.
var hues = [...]string{"38;5;75", "38;5;215", "38;5;114", "38;5;176", "38;5;80", "38;5;210", "38;5;185", "38;5;147"}

// glyphs are the characters of a bar.
type glyphs struct {
	own, over, lent, idle, reach string // filled to the floor, above it, floor lent, floor idle, what may still be taken
	next                         string // every second share of a device's row, where colours do not tell them apart
	floor, ceiling               string
	parts                        []string // the last cell of a fill, from empty to full
	dot, dash, cursor, arrow     string
	more                         string
}

var (
	blocks = glyphs{
		own: "█", over: "▓", lent: "▒", idle: "░", reach: "·", next: "▞", floor: "│", ceiling: "┤",
		parts: []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"},
		dot:   "·", dash: "─", cursor: "▸", arrow: "↑↓", more: "…",
	}
	letters = glyphs{
		own: "#", over: "+", lent: "~", idle: "_", reach: ".", next: "=", floor: "|", ceiling: "]",
		dot: "-", dash: "-", cursor: ">", arrow: "up/down", more: "~",
	}
)

func (l Look) glyphs() glyphs {
	if l.ASCII {
		return letters
	}
	return blocks
}

func (l Look) paint(colour, text string) string {
	if !l.Colour || colour == plain || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// cut fits text to width columns, and pad also fills it up.
func (l Look) cut(text string, width int) string {
	return ansi.Truncate(text, max(width, 0), l.glyphs().more)
}

func (l Look) pad(text string, width int) string {
	text = l.cut(text, width)
	return text + strings.Repeat(" ", max(width-ansi.StringWidth(text), 0))
}

// right fits text to width columns, at their right end.
func (l Look) right(text string, width int) string {
	text = l.cut(text, width)
	return strings.Repeat(" ", max(width-ansi.StringWidth(text), 0)) + text
}

// hueOf gives each share of a device a colour that stays with its name as others come and go, and that no other share of the
// device has while there are enough.
func hueOf(grants []api.Usage) map[string]string {
	out := make(map[string]string, len(grants))
	taken := make(map[int]bool, len(hues))
	for _, one := range grants {
		if _, ok := out[one.Workload]; ok {
			continue
		}
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(one.Workload))
		at := int(hash.Sum32() % uint32(len(hues)))
		for range hues {
			if !taken[at] {
				break
			}
			at = (at + 1) % len(hues)
		}
		taken[at] = true
		out[one.Workload] = hues[at]
	}
	return out
}

// run is a piece of a line in one colour.
type run struct{ colour, text string }

// join paints runs, neighbours of one colour together.
func (l Look) join(runs []run) string {
	var out, piece strings.Builder
	colour := plain
	flush := func() {
		out.WriteString(l.paint(colour, piece.String()))
		piece.Reset()
	}
	for _, one := range runs {
		if one.colour != colour {
			flush()
			colour = one.colour
		}
		piece.WriteString(one.text)
	}
	flush()
	return out.String()
}
