package top

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/safe"
)

// refresh is how often the screen asks for a snapshot.
const refresh = time.Second

// Source is where the screen's data comes from.
type Source struct {
	Snapshot func(context.Context) (Snapshot, error)
	Why      func(ctx context.Context, workload string) (api.Why, error)
}

// Run shows the screen until the user leaves it or ctx ends.
func Run(ctx context.Context, source Source, look Look, in, out *os.File, env []string) error {
	model := &screen{ctx: ctx, source: source, look: look}
	program := tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(env))
	if _, err := program.Run(); err != nil && ctx.Err() == nil && !model.left {
		return err
	}
	return model.fatal
}

// screen is the state of the live screen.
type screen struct {
	ctx    context.Context
	source Source
	look   Look

	snapshot Snapshot
	seen     bool  // a snapshot has come
	lost     error // why the latest did not
	fatal    error // why the first did not
	left     bool
	offset   int // first line of the body that is shown
	help     bool
	detail   string // workload whose reasons are shown; empty: the overview
	why      api.Why
	whyErr   error
}

// What comes back from the source.
type (
	snapshotMsg struct {
		snapshot Snapshot
		err      error
	}
	whyMsg struct {
		workload string
		why      api.Why
		err      error
	}
	tickMsg struct{}
)

// Init asks for the first snapshot.
func (s *screen) Init() tea.Cmd { return s.fetch }

func (s *screen) fetch() tea.Msg {
	snapshot, err := s.source.Snapshot(s.ctx)
	return snapshotMsg{snapshot, err}
}

func (s *screen) ask(workload string) tea.Cmd {
	return func() tea.Msg {
		why, err := s.source.Why(s.ctx, workload)
		return whyMsg{workload, why, err}
	}
}

// Update takes keys, sizes and data in.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.look.Width, s.look.Height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return s, s.key(msg.String())
	case snapshotMsg:
		s.lost = msg.err
		if msg.err != nil && !s.seen {
			s.fatal, s.left = msg.err, true
			return s, tea.Quit
		}
		if msg.err == nil {
			s.snapshot, s.seen = msg.snapshot, true
			s.keepCursor()
		}
		return s, tea.Tick(refresh, func(time.Time) tea.Msg { return tickMsg{} })
	case tickMsg:
		if s.detail != "" {
			return s, tea.Batch(s.fetch, s.ask(s.detail))
		}
		return s, s.fetch
	case whyMsg:
		if msg.workload == s.detail {
			s.why, s.whyErr = msg.why, msg.err
		}
	}
	return s, nil
}

// key does what a key asks for.
func (s *screen) key(name string) tea.Cmd {
	switch name {
	case "q", "ctrl+c":
		s.left = true
		return tea.Quit
	case "?", "h":
		s.help, s.detail = !s.help, ""
	case "esc", "backspace":
		s.help, s.detail = false, ""
	case "s":
		s.look.Order = s.look.Order.next()
	case "up", "k":
		s.move(-1)
	case "down", "j":
		s.move(1)
	case "pgup":
		s.move(-10)
	case "pgdown":
		s.move(10)
	case "home", "g":
		s.move(-len(s.snapshot.Workloads) - 1)
	case "end", "G":
		s.move(len(s.snapshot.Workloads) + 1)
	case "enter", "w":
		if s.look.Cursor != "" && s.detail == "" {
			s.help, s.detail, s.why, s.whyErr = false, s.look.Cursor, api.Why{}, nil
			return s.ask(s.detail)
		}
		s.detail = ""
	}
	return nil
}

// selectable are the workloads on the screen from top to bottom, each once.
func (s *screen) selectable() []string {
	var out []string
	seen := map[string]bool{}
	for _, line := range s.look.body(s.snapshot) {
		if line.workload != "" && !seen[line.workload] {
			seen[line.workload] = true
			out = append(out, line.workload)
		}
	}
	return out
}

// move puts the cursor by lines further; it stops at the ends.
func (s *screen) move(by int) {
	names := s.selectable()
	if len(names) == 0 {
		s.look.Cursor = ""
		return
	}
	at := -1
	for i, name := range names {
		if name == s.look.Cursor {
			at = i
		}
	}
	if at < 0 && by < 0 {
		at = len(names)
	}
	s.look.Cursor = names[min(max(at+by, 0), len(names)-1)]
}

// keepCursor lets go of a workload that is not there any more.
func (s *screen) keepCursor() {
	for _, name := range s.selectable() {
		if name == s.look.Cursor {
			return
		}
	}
	s.look.Cursor = ""
}

// View draws the screen.
func (s *screen) View() tea.View {
	view := tea.NewView(strings.Join(s.lines(), "\n"))
	view.AltScreen = true
	view.WindowTitle = "aliquot top"
	return view
}

// lines are the screen's lines: the header, as much of the body as fits, the keys.
func (s *screen) lines() []string {
	look := s.look
	if !s.seen {
		return []string{look.paint(dim, " asking the server"+look.glyphs().more)}
	}
	head := look.header(s.snapshot)
	if s.lost != nil {
		head = look.cut(" "+look.paint(alarm, "! "+safe.Line(s.lost.Error())), look.Width)
	}
	var body []row
	switch {
	case s.help:
		body = look.help()
	case s.detail != "":
		body = look.detail(s.snapshot, s.detail, s.why, s.whyErr)
	default:
		body = look.body(s.snapshot)
	}
	out := []string{look.cut(head, look.Width), ""}
	for _, line := range s.scroll(body, max(look.Height-len(out)-2, 1)) {
		out = append(out, look.cut(line.text, look.Width))
	}
	for len(out) < look.Height-2 {
		out = append(out, "")
	}
	return append(out, "", look.cut(s.keys(), look.Width))
}

// scroll keeps the cursor's line among the rows that fit.
func (s *screen) scroll(body []row, room int) []row {
	if len(body) <= room {
		s.offset = 0
		return body
	}
	room = max(room-1, 1) // a row says how many more there are
	for i, line := range body {
		if line.workload == "" || line.workload != s.look.Cursor {
			continue
		}
		// The line of the device above the first share stays in sight.
		s.offset = min(s.offset, max(i-2, 0))
		s.offset = max(s.offset, i-room+1)
		break
	}
	s.offset = min(max(s.offset, 0), len(body)-room)
	return append(slices.Clone(body[s.offset:s.offset+room]), row{text: s.look.paint(dim, more(s.offset, len(body)-room-s.offset))})
}

// more says how many rows do not fit, above and below those that are shown.
func more(above, below int) string {
	switch {
	case above == 0:
		return fmt.Sprintf(" +%d more below", below)
	case below == 0:
		return fmt.Sprintf(" +%d more above", above)
	default:
		return fmt.Sprintf(" +%d more above, +%d below", above, below)
	}
}

// keys is the last line: what can be pressed.
func (s *screen) keys() string {
	key := func(name, what string) string { return s.look.paint(bold, name) + " " + s.look.paint(dim, what) }
	all := []string{key("q", "quit")}
	switch {
	case s.help || s.detail != "":
		all = append(all, key("esc", "back"))
	default:
		all = append(all, key(s.look.glyphs().arrow, "select"), key("enter", "why"), key("s", "sort: "+s.look.Order.String()), key("?", "help"))
	}
	return " " + strings.Join(all, "   ")
}
