package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// checkAsData runs a command with -o json and with -o yaml and holds what they print against the value that is meant.
func checkAsData(t *testing.T, command func(line ...string) result, line string, want any) {
	t.Helper()
	for _, format := range []string{formatJSON, formatYAML} {
		got := command(append(strings.Fields(line), "-o", format)...)
		text := []byte(got.out)
		var err error
		if format == formatYAML {
			text, err = yaml.YAMLToJSON(text)
		}
		read := reflect.New(reflect.TypeOf(want))
		err = errors.Join(err, json.Unmarshal(text, read.Interface()))
		if have := read.Elem().Interface(); err != nil || !reflect.DeepEqual(have, want) || got.exit != (Exit{}) {
			t.Errorf("%s -o %s: %v %s\n%s", line, format, err, got.err, got.out)
		}
	}
}

// -o json and -o yaml are exactly the API's types.
func TestDataIsTheAPIs(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	checkAsData(t, f.command, "devices", f.devices)
	checkAsData(t, f.command, "ps -a", []api.Workload{*f.works[0], *f.works[1], *f.works[2]})
	checkAsData(t, f.command, "show train", *f.works[0])
	checkAsData(t, f.command, "why night", f.why)
	checkAsData(t, f.command, "queue list", f.queues)
	checkAsData(t, f.command, "up --detach", f.info) // a server answers already
}

// That a queue is removed is data too.
func TestRemovedAsData(t *testing.T) {
	checkAsData(t, newFakeServer(t).command, "queue remove vision", removed{"vision"})
}

// What `down` did is data where there was nothing to do, too.
func TestDownAsData(t *testing.T) {
	run := filepath.Join(t.TempDir(), "nobody")
	command := func(line ...string) result {
		return invoke(t, Program{}, append([]string{"--run", run}, line...)...)
	}
	checkAsData(t, command, "down --all", downed{Run: run, Stopped: []api.Workload{}})
}

// A replay as data, and in words.
func TestReplay(t *testing.T) {
	program := Program{Replay: func(path string) (*engine.Replayed, error) {
		if path != "/srv/job/log.events" {
			return nil, errors.New(path)
		}
		return &engine.Replayed{Engine: engine.New(engine.Config{}), Steps: 12, Torn: 3}, nil
	}}
	command := func(line ...string) result { return invoke(t, program, line...) }
	queues := engine.New(engine.Config{}).Queues()
	checkAsData(t, command, "debug replay log.events", replayed{"/srv/job/log.events", 12, 3, 0, queues})
	for _, want := range []string{"12 events", "came out the same", "torn (3 bytes)", "0 workloads wait"} {
		if got := command("debug", "replay", "log.events"); !strings.Contains(got.out, want) {
			t.Errorf("%q is not in %q (%s)", want, got.out, got.err)
		}
	}
}

// Everything that prints takes -o, but for what prints not its own words, `run` the program's and `completion` a shell's, and `help`.
func TestEverythingThatPrintsTakesAFormat(t *testing.T) {
	exempt := map[string]bool{"aliquot run": true, "aliquot completion": true, "aliquot help": true, "aliquot supervise": true}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() && cmd.Runnable() && exempt[cmd.CommandPath()] == (cmd.Flags().Lookup("output") != nil) {
			t.Errorf("%s: exempt from -o is %v", cmd.CommandPath(), exempt[cmd.CommandPath()])
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&invocation{Program: &Program{Out: os.Stdout}}).root())
}
