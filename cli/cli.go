// Package cli is the commands of aliquot. What comes in are arguments, the environment and three streams; what goes out is text,
// JSON or YAML on standard output, one sentence on standard error when something cannot be done, and an exit status: 0 done,
// 1 refused or failed, 2 not understood; `run` and `wait` end as the program ended. The commands are thin clients of the HTTP API and decide
// nothing; the daemon's own work is passed in as functions.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
	"github.com/aliquot-dev/aliquot/cli/safe"
	"github.com/aliquot-dev/aliquot/engine"
)

// Exit statuses of the command line itself.
const (
	ExitFailed = 1
	ExitUsage  = 2
)

// Program is one invocation: everything a command may touch is in it, so that tests can run commands in their own process.
type Program struct {
	Version      string
	In, Out, Err *os.File
	Env          []string // KEY=VALUE, as os.Environ gives it
	Dir          string   // the current directory
	DirLost      error    // why it has no path, where it has been removed; Dir is / then
	Now          func() time.Time
	Notify       func(to chan<- os.Signal, which ...os.Signal) // signal.Notify when nil
	Suspend      func()                                        // stops this process until it is told to go on; nil: SIGSTOP

	// Serve runs the daemon until ctx ends; it calls ready once the API answers.
	Serve func(ctx context.Context, config ServeConfig, ready func()) error
	// Halt ends what outlives the daemon: tasks, arbiter and, if there are, simulated devices. No daemon runs there by then. It
	// returns how many tasks there were.
	Halt func(ctx context.Context, config HaltConfig) (int, error)
	// Replay feeds the engine's event log at path to a new engine. A decision that comes out differently is an error.
	Replay func(path string) (*engine.Replayed, error)
	// Driver says whether this machine has a driver of its own, and if not, why; without one devices are simulated.
	Driver func() error
	// Devices says how many devices that driver knows.
	Devices func() (int, error)
	// Supervise is the hidden command that a daemon starts for each task.
	Supervise func(args []string) int

	// What a test puts in place of the machine's own.
	machineRun string // the RUN folder of a server that root runs for everyone
	asUser     bool   // whoever runs this is taken for a user who is not root
}

// HaltConfig says what `aliquot down --all` ends when no daemon runs.
type HaltConfig struct {
	State    string // folder of the tasks; empty: there are none any more
	Run      string // folder of the arbiter, of pages and of simulated devices
	Simulate string // the simulated devices that run; empty: none
	Grace    time.Duration
}

// ServeConfig is what `aliquot up` is asked for.
type ServeConfig struct {
	State    string // folder of what survives a reboot
	Run      string // folder of what does not
	Simulate string // simulated devices, `h200x2,a10x4`; empty: the machine's own driver
	HTTP     string // address on loopback; empty: none
	Usual    bool   // nobody asked for that address: where it is taken, the server does without
	Version  string
	Log      io.Writer

	Unenforced     api.UnenforcedRule // what is done about processes that no share holds
	LatencyClasses api.LatencyClasses // that are declared of devices

	because string // why devices are simulated
}

// invocation is what the commands of one Program share.
type invocation struct {
	*Program
	settings settings
	runFlag  string
}

// Exit is how the command ends: with a status, or by a signal as the program did that it ran.
type Exit struct {
	Status int
	Signal syscall.Signal // 0: by none
}

// Main runs the command that args (without the program's name) ask for.
func (p *Program) Main(ctx context.Context, args []string) Exit {
	if p.Now == nil {
		p.Now = time.Now
	}
	call := &invocation{Program: p}
	root := call.root()
	root.SetArgs(args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	err := unknownFirst(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	return call.report(err)
}

// report prints the one sentence of an error and says how to end.
func (c *invocation) report(err error) Exit {
	var status exitStatus
	var usage *usageError
	var by endedBy
	switch {
	case err == nil:
		return Exit{}
	case errors.As(err, &status):
		return Exit{Status: int(status)}
	case errors.As(err, &by):
		return Exit{Status: 128 + int(by), Signal: syscall.Signal(by)}
	case errors.Is(err, context.Canceled):
		return Exit{Status: 128 + int(syscall.SIGINT), Signal: syscall.SIGINT}
	case errors.As(err, &usage):
		c.complain(err)
		return Exit{Status: ExitUsage}
	default:
		c.complain(err)
		return Exit{Status: ExitFailed}
	}
}

// complain prints an error as `aliquot: …`, with the place in the input where there is one.
func (c *invocation) complain(err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(several.Unwrap()...).Error() {
		for _, one := range several.Unwrap() {
			c.complain(one)
		}
		return
	}
	_, _ = fmt.Fprintf(c.Err, "aliquot: %s\n", safe.Lines(err.Error()))
	var pointed interface{ Caret() string }
	if errors.As(err, &pointed) {
		if caret := pointed.Caret(); caret != "" {
			_, _ = fmt.Fprintln(c.Err, "  "+strings.ReplaceAll(strings.TrimRight(caret, "\n"), "\n", "\n  "))
		}
	}
}

// usageError is a command line that cannot be understood.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// exitStatus ends the program with a status and without a further word.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

const rootLong = `Aliquot shares GPUs. A program asks for a part of a GPU with a floor and a ceiling: the floor is guaranteed whenever it
wants it, and up to the ceiling it may use what others leave idle, moment to moment.

  aliquot up                                             start the server (simulated devices where there is no GPU)
  aliquot run --gpu 0.25..0.80 --mem 4Gi..8Gi -- CMD     run a program with a share, here and now
  aliquot submit --name night --gpu 0.5.. -- CMD         hand it in and go
  aliquot top                                            see who uses, lends and borrows what`

// root makes the tree of commands.
func (c *invocation) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "aliquot",
		Short:         "Share GPUs: floors that are kept, ceilings that are not passed",
		Long:          rootLong,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := withoutValue(cmd); err != nil {
				return err
			}
			c.settings, err = loadSettings(c.Env)
			return err
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (see `%s --help`)", flagError(err), cmd.CommandPath())
	})
	root.Version = c.Version // gives it --version
	root.SetVersionTemplate("aliquot {{.Version}}\n")
	root.PersistentFlags().StringVar(&c.runFlag, "run", "", "the server's RUN folder (default: your own, else the machine's)")
	must(root.MarkPersistentFlagDirname("run"))
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(
		&cobra.Group{ID: groupWork, Title: "Work:"},
		&cobra.Group{ID: groupSee, Title: "See:"},
		&cobra.Group{ID: groupServer, Title: "Server:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		groupWork:   {c.runCommand(), c.submitCommand(), c.planCommand(), c.stopCommand(), c.waitCommand(), c.resizeCommand(), c.checkpointCommand(), c.queueCommand(), c.policyCommand()},
		groupSee:    {c.devicesCommand(), c.psCommand(), c.adviseCommand(), c.showCommand(), c.whyCommand(), c.logsCommand(), c.topCommand(), c.simCommand()},
		groupServer: {c.upCommand(), c.downCommand(), c.doctorCommand()},
		"":          {c.versionCommand(), c.completionCommand(root), c.debugCommand(), c.superviseCommand()},
	} {
		for _, command := range commands {
			command.GroupID = group
			root.AddCommand(command)
		}
	}
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultHelpCmd()
	return root
}

// flagError says what is wrong with a flag in words of the command line.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	name, value := "--"+invalid.GetFlag().Name, invalid.GetValue()
	switch kind := invalid.GetFlag().Value.Type(); {
	case value == "--":
		return fmt.Errorf("%s needs a value", name)
	case errors.Is(invalid, strconv.ErrRange):
		return fmt.Errorf("%s %s: the number is too large", name, value)
	case strings.HasPrefix(kind, "int"):
		return fmt.Errorf("%s %s: this is no whole number", name, value)
	case kind == "duration":
		return fmt.Errorf("%s %s: this is no time: write for example 10s or 2m", name, value)
	case kind == "bool":
		return fmt.Errorf("%s=%s: write %s=true or %s=false", name, value, name, name)
	default:
		return fmt.Errorf("%s %s: this is no %s", name, value, kind)
	}
}

// withoutValue refuses a flag that took the `--` before the program for its value.
func withoutValue(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Value.String() == "--" && err == nil {
			err = usagef("--%s needs a value (see `%s --help`)", flag.Name, cmd.CommandPath())
		}
	})
	return err
}

const (
	groupWork   = "work"
	groupSee    = "see"
	groupServer = "server"
)

// client is a client of the server that the flags and the settings name.
func (c *invocation) client() *client.Client { return client.New(c.clientRun()) }

// args wraps a rule for arguments so that breaking it is a usage error that names what is wanted.
func args(count int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		switch {
		case slices.Contains(given, ""):
			return usagef("%s needs %s, and what was given is empty: `%s`", cmd.CommandPath(), what, cmd.UseLine())
		case len(given) == count:
			return nil
		case len(given) < count:
			return usagef("%s needs %s: `%s`", cmd.CommandPath(), what, cmd.UseLine())
		default:
			return usagef("%s takes only %s, and %q is one too many: `%s`", cmd.CommandPath(), what, given[count], cmd.UseLine())
		}
	}
}

// none is the rule of commands without arguments.
func none(cmd *cobra.Command, given []string) error {
	if len(given) == 0 {
		return nil
	}
	return usagef("%s takes no arguments, and %q is one: `%s`", cmd.CommandPath(), given[0], cmd.UseLine())
}

// must is for mistakes in this package alone: a flag that is named but not defined.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
