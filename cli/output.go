package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/aliquot-dev/aliquot/cli/safe"
)

// The formats of -o.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

var formats = []string{formatTable, formatWide, formatJSON, formatYAML}

// outputFlag gives a command -o.
func outputFlag(cmd *cobra.Command) *string {
	format := cmd.Flags().StringP("output", "o", formatTable, "how to print: table, wide, json or yaml")
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	earlier := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(formats, *format) {
			return usagef("-o %s: there is no such format: use table, wide, json or yaml", *format)
		}
		if earlier != nil {
			return earlier(cmd, args)
		}
		return nil
	}
	return format
}

// print writes value as JSON or YAML, or as the table that draw makes of it.
func (c *invocation) print(format string, value any, draw func(wide bool) table) error {
	if format == formatJSON || format == formatYAML {
		return encode(c.Out, format, value)
	}
	return draw(format == formatWide).write(c.Out, c.style())
}

// say writes value as JSON or YAML, or the sentence that says the same.
func (c *invocation) say(format string, value any, sentence string) error {
	if format == formatJSON || format == formatYAML {
		return encode(c.Out, format, value)
	}
	_, err := fmt.Fprintln(c.Out, sentence)
	return err
}

// encode writes value as JSON or YAML, in exactly the API's types.
func encode(to io.Writer, format string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil && format == formatYAML {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", format, err)
	}
	_, err = fmt.Fprintln(to, strings.TrimRight(string(text), "\n"))
	return err
}

// style says whether to colour what is printed.
type style struct{ colour bool }

// The colours are the terminal's own sixteen, so that they follow its theme.
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	cyan   = "36"
)

func (s style) paint(colour, text string) string {
	if !s.colour || colour == plain || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// style colours only a terminal, and none of a user who asked for no colour (no-color.org).
func (c *invocation) style() style { return style{c.colourful(c.Out)} }

func (c *invocation) colourful(file *os.File) bool {
	without, _ := lookup(c.Env, "NO_COLOR")
	terminal, _ := lookup(c.Env, "TERM")
	return without == "" && terminal != "dumb" && isTerminal(file)
}

func isTerminal(file *os.File) bool {
	if file == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// cell is one entry of a table.
type cell struct{ text, colour string }

func text(s string) cell { return cell{text: s} }

// harmless are rows as a terminal may show them: what is in their cells may be of any user's choosing.
func harmless(rows [][]cell) [][]cell {
	out := make([][]cell, len(rows))
	for i, row := range rows {
		out[i] = make([]cell, len(row))
		for j, one := range row {
			out[i][j] = cell{safe.Line(one.text), one.colour}
		}
	}
	return out
}

// table is columns under headings. Columns whose heading begins with `>` are set to the right, as numbers are read.
type table struct {
	head  []string
	rows  [][]cell
	empty string // said instead of a table without rows
}

// gap is the space between columns.
const gap = 3

func (t table) write(to io.Writer, s style) error {
	var out strings.Builder
	if len(t.rows) == 0 && t.empty != "" {
		out.WriteString(t.empty + "\n")
	} else {
		t.rows = harmless(t.rows)
		widths := t.widths()
		head := make([]cell, len(t.head))
		for i, title := range t.head {
			head[i] = cell{strings.TrimPrefix(title, ">"), dim}
		}
		for _, row := range append([][]cell{head}, t.rows...) {
			out.WriteString(t.line(row, widths, s))
		}
	}
	_, err := io.WriteString(to, out.String())
	return err
}

func (t table) widths() []int {
	widths := make([]int, len(t.head))
	for i, title := range t.head {
		widths[i] = columns(strings.TrimPrefix(title, ">"))
		for _, row := range t.rows {
			widths[i] = max(widths[i], columns(row[i].text))
		}
	}
	return widths
}

func (t table) line(row []cell, widths []int, s style) string {
	var line strings.Builder
	for i, one := range row {
		pad := strings.Repeat(" ", widths[i]-columns(one.text))
		right := strings.HasPrefix(t.head[i], ">")
		if right {
			line.WriteString(pad)
		}
		line.WriteString(s.paint(one.colour, one.text))
		if i == len(row)-1 {
			break
		}
		if !right {
			line.WriteString(pad)
		}
		line.WriteString(strings.Repeat(" ", gap))
	}
	return strings.TrimRight(line.String(), " ") + "\n"
}

// fields is a list of named values, one a line, as `show` prints it.
type fields struct{ rows [][2]cell }

func (f *fields) add(name, value string) { f.paint(name, value, plain) }

func (f *fields) paint(name, value, colour string) {
	if value != "" {
		f.rows = append(f.rows, [2]cell{{name + ":", dim}, {value, colour}})
	}
}

func (f *fields) write(to io.Writer, s style) error {
	width := 0
	for _, row := range f.rows {
		width = max(width, columns(row[0].text))
	}
	var out strings.Builder
	for _, row := range f.rows {
		pad := strings.Repeat(" ", width-columns(row[0].text)+gap-1)
		lines := strings.Split(safe.Lines(row[1].text), "\n")
		out.WriteString(s.paint(row[0].colour, row[0].text) + pad + s.paint(row[1].colour, lines[0]) + "\n")
		for _, line := range lines[1:] {
			out.WriteString(strings.Repeat(" ", width+gap-1) + s.paint(row[1].colour, line) + "\n")
		}
	}
	_, err := io.WriteString(to, out.String())
	return err
}
