package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Later files count before earlier ones, and what is set before all; what cannot be is refused and nothing is written.
func TestRender(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := file("first", "{agent: {simulate: h200x1, unenforced: stop}, namespace: {name: there}}")
	second := file("second", "agent: {simulate: h200x2}")
	chart := []string{"--chart", "../../../../deploy/chart"}
	for _, c := range []struct {
		args []string
		want []string // in what is written
		err  string
	}{
		{[]string{"--set", "agent.simulate=a10x4", "--values", first, "--values", second}, []string{"--simulate=a10x4", "--unenforced=stop", "namespace: there"}, ""},
		{[]string{"--values", first, "--values", second}, []string{"--simulate=h200x2", "--unenforced=stop"}, ""},
		{[]string{"--values", second, "--values", first, "--set", "webhook.replicas=7"}, []string{"--simulate=h200x1", "replicas: 7"}, ""},
		{nil, []string{"--driver-root=/"}, ""},
		{[]string{"--set", "agent.simulated=h200x1"}, nil, "simulated"},
		{[]string{"--set", "agent"}, nil, "--set agent: "},
		{[]string{"--values", filepath.Join(folder, "none")}, nil, "--values "},
		{[]string{"more"}, nil, "it takes options alone"},
	} {
		var said bytes.Buffer
		err := render(append(c.args, chart...), &said)
		if c.args != nil && c.args[0] == "more" {
			err = render(append(chart, c.args...), &said)
		}
		if (c.err == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), c.err) || said.Len() > 0) {
			t.Errorf("%v: %v, want %q", c.args, err, c.err)
		}
		for _, want := range c.want {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%v: there is no %s in\n%s", c.args, want, said.String())
			}
		}
	}
}
