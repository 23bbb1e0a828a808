package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// docs/commands.md says what `--help` says. `go test ./cli -run TestCommandsDocument -update` writes it again.
func TestCommandsDocument(t *testing.T) {
	path := filepath.Join("..", "docs", "commands.md")
	root := (&invocation{Program: &Program{}}).root()
	var out strings.Builder
	out.WriteString("# Commands\n\nWritten from the commands themselves by `go test ./cli -run TestCommandsDocument -update`; a test holds the two together.\n" +
		"Every command that prints takes `-o table|wide|json|yaml`, but for `run`, which prints what its program does, and `completion`; every\n" +
		"command takes `--run FOLDER`. Exit statuses: 0 done, 1 refused or failed, 2 not understood; `run` and `wait` end as the program ended.\n\nSettings come from flags, else from the environment (`ALIQUOT_RUN`, `ALIQUOT_STATE`, `ALIQUOT_SIMULATE`, `ALIQUOT_HTTP`,\n" +
		"`ALIQUOT_UNENFORCED`, `ALIQUOT_LATENCY_CLASS`, `ALIQUOT_QUEUE`), else from `~/.config/aliquot/config.yaml`, else from `/etc/aliquot/config.yaml`, with the keys\n`" +
		strings.Join(settingKeys, "`, `") + "`.\n")
	document(&out, root)
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != out.String() {
		t.Error("docs/commands.md is not what the commands say: go test ./cli -run TestCommandsDocument -update")
	}
}

// document writes a command and those below it.
func document(out *strings.Builder, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.Hidden || sub.Name() == "help" {
			continue
		}
		if sub.Runnable() && !sub.HasSubCommands() {
			about := sub.Long
			if about == "" {
				about = sub.Short + "."
			}
			fmt.Fprintf(out, "\n## %s\n\n%s\n\n```\n%s\n```\n", sub.CommandPath(), strings.TrimSpace(about), sub.UseLine())
			if sub.HasExample() {
				fmt.Fprintf(out, "\nExamples:\n\n```\n%s\n```\n", unindent(sub.Example))
			}
			if usages := sub.LocalFlags().FlagUsages(); usages != "" {
				fmt.Fprintf(out, "\nFlags:\n\n```\n%s```\n", usages)
			}
		}
		document(out, sub)
	}
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

// Every command says what it is for, and every flag what it does.
func TestEverythingIsExplained(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short help is %q; it is a phrase without a full stop", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Args == nil {
			t.Errorf("%s takes any arguments in silence", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if usage := flag.Usage; usage == "" || strings.HasSuffix(usage, ".") {
				t.Errorf("%s --%s: the help is %q; it is a phrase without a full stop", cmd.CommandPath(), flag.Name, usage)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&invocation{Program: &Program{}}).root())
}
