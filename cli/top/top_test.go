package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/aliquot-dev/aliquot/api"
)

var update = flag.Bool("update", false, "write the golden files again")

const gib = api.Bytes(1 << 30)

func ptr[T any](v T) *T { return &v }

func grant(floor, ceiling api.Milli, memFloor, memCeiling api.Bytes) api.Grant {
	return api.Grant{ComputeFloor: floor, ComputeLimit: ceiling, MemoryFloor: memFloor, MemoryCeiling: memCeiling}
}

// busy is a server with everything on it that the screen can show.
func busy() Snapshot {
	at := time.Date(2026, 11, 20, 14, 3, 22, 0, time.UTC)
	waiting := func(place int, name, gpu string, devices int, reason string) api.Workload {
		work := api.Workload{Spec: api.WorkloadSpec{Name: name, Devices: devices, Command: []string{"./" + name}, Queue: "default"}}
		if err := work.Spec.Share.Compute.UnmarshalText([]byte(gpu)); err != nil {
			panic(err)
		}
		work.Status = api.WorkloadStatus{Phase: api.Waiting, Place: place, Reason: reason, Submitted: at.Add(-time.Duration(place) * 83 * time.Minute)}
		return work
	}
	running := func(name string) api.Workload {
		return api.Workload{Spec: api.WorkloadSpec{Name: name, Command: []string{"python", name + ".py"}}, Status: api.WorkloadStatus{Phase: api.Running}}
	}
	return Snapshot{
		At:   at,
		Info: api.Info{Node: "gpu-server", Simulated: true, Warnings: []string{"The real-time priority is not permitted: leases come late on a busy machine."}},
		Devices: []api.Device{
			{
				Index: 0, UUID: "GPU-0", Model: "H200", Simulated: true, Memory: 140 * gib, MemoryUsed: ptr(53 * gib), Busy: ptr(api.Milli(570)),
				ComputeFree: 200, Health: api.Healthy,
				Grants: []api.Usage{
					{
						Workload: "train-llm", Grant: grant(250, 800, 20*gib, 40*gib), Compute: ptr(api.Milli(620)), Over: 10 * time.Second, Memory: ptr(36 * gib),
						Borrowing: 370, Enforced: true, Processes: 2,
					},
					{
						Workload: "notebook", Grant: grant(300, 1000, 10*gib, 20*gib), Compute: ptr(api.Milli(60)), Over: 10 * time.Second, Memory: ptr(3 * gib),
						Lending: 240, Enforced: true, Processes: 1,
					},
					{
						Workload: "inference-of-the-day", Grant: grant(250, 250, 14*gib, 14*gib), Compute: ptr(api.Milli(250)), Over: 10 * time.Second, Memory: ptr(14 * gib),
						Enforced: true, Processes: 1,
					},
				},
			},
			{
				Index: 1, UUID: "GPU-1", Model: "A10", Simulated: true, Memory: 22 * gib, Busy: ptr(api.Milli(870)), Health: api.Draining, HealthReason: "XID 63: a page was retired",
				Grants: []api.Usage{
					{Workload: "escaped", Grant: grant(500, 1000, 4*gib, 8*gib), Processes: 1},
				},
				Unenforced: []api.Process{{PID: 4242, Name: "python", User: "bob"}},
			},
			{Index: 2, UUID: "GPU-2", Model: "A10", Memory: 22 * gib, MemoryUsed: ptr(api.Bytes(0)), Busy: ptr(api.Milli(0)), ComputeFree: 1000, Health: api.Healthy},
		},
		Workloads: []api.Workload{
			running("train-llm"), running("notebook"), running("inference-of-the-day"), running("escaped"),
			waiting(2, "wide", "1", 2, "two whole devices are needed and only 1 is free"),
			waiting(1, "night", "0.5..", 1, "no device has 0.50 of its compute free: 2 are held by others and one is draining, which takes nothing new"),
		},
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is now:\n%s\nand was:\n%s", path, got, want)
	}
}

func TestText(t *testing.T) {
	for _, test := range []struct {
		name     string
		snapshot Snapshot
		look     Look
	}{
		{"busy-80", busy(), Look{Width: 80}},
		{"busy-120", busy(), Look{Width: 120, Order: ByUse}},
		{"busy-80-ascii", busy(), Look{Width: 80, ASCII: true, Order: ByName}},
		{"busy-100-colour", busy(), Look{Width: 100, Colour: true, Cursor: "notebook"}},
		{"nothing", Snapshot{Info: api.Info{Node: "bare"}}, Look{Width: 80}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Text(test.snapshot, test.look)
			golden(t, test.name, got)
			for line := range strings.Lines(got) {
				if width := ansi.StringWidth(strings.TrimSuffix(line, "\n")); width > test.look.Width {
					t.Errorf("a line takes %d columns of %d: %q", width, test.look.Width, line)
				}
			}
		})
	}
}

// Colours never change what is where.
func TestColoursChangeNoCharacter(t *testing.T) {
	look := Look{Width: 90}
	without := Text(busy(), look)
	look.Colour = true
	got := ansi.Strip(Text(busy(), look))
	// Without colours neighbours in a device's bar differ in their characters instead.
	same := strings.NewReplacer("▞", "█")
	if same.Replace(got) != same.Replace(without) {
		t.Errorf("with colours:\n%s\nwithout:\n%s", got, without)
	}
}

func TestBar(t *testing.T) {
	look := Look{}
	for _, test := range []struct {
		name string
		g    gauge
		want string
	}{
		{"all idle", gauge{floor: 500, ceiling: 1000}, "░░░░░│····┤"},
		{"within its floor", gauge{floor: 500, ceiling: 800, use: 300}, "███░░│··┤  "},
		{"borrows", gauge{floor: 200, ceiling: 800, use: 600}, "██│▓▓▓··┤  "},
		{"lends", gauge{floor: 500, ceiling: 1000, use: 100, lent: 300}, "█▒▒▒░│····┤"},
		{"floor is ceiling", gauge{floor: 300, ceiling: 300, use: 300}, "███┤       "},
		{"not known", gauge{floor: 300, ceiling: 1000, use: -1}, "░░░│······┤"},
		{"no floor", gauge{ceiling: 500, use: 450}, "▓▓▓▓▌┤     "},
		{"over its ceiling", gauge{floor: 100, ceiling: 300, use: 450}, "█│▓┤▌      "},
		{"a trace", gauge{floor: 0, ceiling: 1000, use: 1}, "▏·········┤"},
		{"everything", gauge{floor: 0, ceiling: 1000, use: 1000}, "▓▓▓▓▓▓▓▓▓▓┤"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.g.scale = 1000
			if got := look.bar(test.g, 10); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// drive feeds messages to a screen of 80 by 24 and carries out what it asks for, but for the clock.
func drive(t *testing.T, source Source, messages ...tea.Msg) *screen {
	t.Helper()
	s := &screen{ctx: t.Context(), source: source}
	queue := append([]tea.Msg{tea.WindowSizeMsg{Width: 80, Height: 24}, s.fetch()}, messages...)
	for len(queue) > 0 {
		msg := queue[0]
		queue = queue[1:]
		_, cmd := s.Update(msg)
		if _, isKey := msg.(tea.KeyPressMsg); isKey && cmd != nil {
			queue = append(queue, cmd())
		}
	}
	return s
}

func press(keys ...string) []tea.Msg {
	special := map[string]rune{"down": tea.KeyDown, "up": tea.KeyUp, "enter": tea.KeyEnter, "esc": tea.KeyEscape, "end": tea.KeyEnd}
	out := make([]tea.Msg, len(keys))
	for i, key := range keys {
		if code, ok := special[key]; ok {
			out[i] = tea.KeyPressMsg{Code: code}
			continue
		}
		out[i] = tea.KeyPressMsg{Code: []rune(key)[0], Text: key}
	}
	return out
}

func fixed(snapshot Snapshot) Source {
	return Source{
		Snapshot: func(context.Context) (Snapshot, error) { return snapshot, nil },
		Why: func(_ context.Context, name string) (api.Why, error) {
			return api.Why{
				Workload: name, Phase: api.Waiting, Place: 1, Message: "no device has 0.50 of its compute free",
				Counts:  []api.WhyCount{{Message: "floors of others are in the way", Devices: 2, Nodes: []api.WhyNodes{{Class: "H200 x2", Devices: 1}, {Class: "A10 x4", Devices: 1}}}},
				Unblock: "one of train-llm or notebook ending", Estimate: ptr(time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)),
				History: []api.WhyRecord{{At: time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC), Message: "submitted"}},
			}, nil
		},
	}
}

func TestScreen(t *testing.T) {
	for _, test := range []struct {
		name string
		keys []string
	}{
		{"screen", nil},
		{"screen-selected", []string{"down", "down", "s"}},
		{"screen-end", []string{"end"}},
		{"screen-help", []string{"?"}},
		{"screen-why", []string{"end", "up", "enter"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := drive(t, fixed(busy()), press(test.keys...)...)
			lines := s.lines()
			if len(lines) != 24 {
				t.Errorf("%d lines on a screen of 24", len(lines))
			}
			for _, line := range lines {
				if ansi.StringWidth(line) > 80 {
					t.Errorf("too wide: %q", line)
				}
			}
			golden(t, test.name, strings.Join(lines, "\n")+"\n")
		})
	}
}

// What does not fit is announced, and nothing of it is lost.
func TestRowsThatDoNotFitAreAnnounced(t *testing.T) {
	s := drive(t, fixed(busy()), tea.WindowSizeMsg{Width: 80, Height: 12})
	all := len(s.look.body(s.snapshot))
	for offset, want := range map[int]string{0: fmt.Sprintf(" +%d more below", all-7), 3: fmt.Sprintf(" +3 more above, +%d below", all-10), all: fmt.Sprintf(" +%d more above", all-7)} {
		s.offset = offset
		lines := s.lines()
		if len(lines) != 12 || strings.TrimRight(lines[9], " ") != want {
			t.Errorf("from row %d on: %q, want %q in\n%s", offset, lines[9], want, strings.Join(lines, "\n"))
		}
	}
	s.Update(tea.WindowSizeMsg{Width: 80, Height: 60})
	if text := strings.Join(s.lines(), "\n"); strings.Contains(text, " more ") {
		t.Errorf("everything fits:\n%s", text)
	}
}

// Without colours the shares of a device's row are told apart by signs that mean nothing else.
func TestDeviceRowBorrowsNoSign(t *testing.T) {
	for _, look := range []Look{{Width: 80}, {Width: 80, ASCII: true}} {
		row := look.stack(busy().Devices[0], nil, 40)
		if glyph := look.glyphs(); strings.Contains(row, glyph.over) || !strings.Contains(row, glyph.next) {
			t.Errorf("%q", row)
		}
	}
}

// A small screen keeps the selected line in sight, whichever it is.
func TestCursorStaysInSight(t *testing.T) {
	s := drive(t, fixed(busy()), tea.WindowSizeMsg{Width: 70, Height: 12})
	for _, key := range append(strings.Fields(strings.Repeat("down ", 8)), strings.Fields(strings.Repeat("up ", 8))...) {
		s.Update(press(key)[0])
		text := strings.Join(s.lines(), "\n")
		if !strings.Contains(text, "▸ ") {
			t.Fatalf("after %q the selected %s is not on the screen:\n%s", key, s.look.Cursor, text)
		}
	}
}

func TestKeysAndErrors(t *testing.T) {
	s := drive(t, fixed(busy()), press("down", "enter", "esc", "s", "s")...)
	if s.detail != "" || s.look.Order != ByMemory || s.look.Cursor != "train-llm" {
		t.Errorf("detail %q, order %s, cursor %q", s.detail, s.look.Order, s.look.Cursor)
	}
	if cmd := s.key("q"); cmd == nil || !s.left {
		t.Error("q does not quit")
	}

	// A server that goes away leaves what was seen last, and says so.
	s.Update(snapshotMsg{err: errors.New("no server answers")})
	if text := strings.Join(s.lines(), "\n"); !strings.Contains(text, "! no server answers") || !strings.Contains(text, "train-llm") {
		t.Errorf("after the server went away:\n%s", text)
	}

	// A workload that ends under the cursor lets go of it.
	s.Update(snapshotMsg{snapshot: Snapshot{}})
	if s.look.Cursor != "" {
		t.Errorf("the cursor is at %q, which is gone", s.look.Cursor)
	}

	// Without a first answer there is nothing to show.
	failing := Source{Snapshot: func(context.Context) (Snapshot, error) { return Snapshot{}, errors.New("nobody home") }}
	if s := drive(t, failing); s.fatal == nil {
		t.Error("a server that never answered is no error")
	}
}
