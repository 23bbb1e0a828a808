package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
)

const runLong = `Run a program with a share of a device, with this terminal, directory and environment, as if it were started here. It waits in
line when nothing fits, and says so; Ctrl-C then takes it out of the line. Signals are passed on, all but
CHLD, PIPE, PROF, TTIN, TTOU, URG and 32 to 34 (TSTP, Ctrl-Z, reaches it as STOP), and the command ends as the program ended: with its status, or by its signal. A program
that is not there ends it with 127 and one that cannot be run with 126, as in a shell; other refusals with 1.

The program has this terminal as its input and output, but not as its controlling terminal: what opens /dev/tty (a prompt for a
password, a pager) fails there, and a shell has no job control. Inside "script -qec COMMAND /dev/null" it has a terminal of its own. Started
in the background of a terminal (with &) it has no input.

Of several processes (--replicas, --role) all print here, the first alone reads what is typed, signals are for all, and the command ends when
the last has ended: as the first ended, or as the next one did that failed where that did not. What is run here is not put back into the line
when it is evicted (--requeue of "submit"): whoever waits for it has seen it end.`

// live are the phases of a workload that has not ended, unstarted those of one whose program does not run yet.
var (
	unstarted = []api.Phase{api.Waiting, api.Starting}
	live      = []api.Phase{api.Waiting, api.Starting, api.Running, api.Stopping}
)

// quiet is how long a workload may take to start before the wait is worth a word.
const quiet = 200 * time.Millisecond

func (c *invocation) runCommand() *cobra.Command {
	var flags workloadFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run a program with a share of a device, here and now",
		Long:  runLong,
		Example: `  aliquot run --gpu 0.25..0.80 --mem 4Gi..8Gi -- python train.py
  aliquot run --gpu 0.1.. --class interactive -- jupyter lab`,
		Args: command,
		RunE: func(cmd *cobra.Command, given []string) error {
			spec, err := flags.spec(c, given)
			if err != nil {
				return err
			}
			spec.Attach = true
			return c.runHere(cmd.Context(), spec)
		},
	}
	flags.define(c, cmd)
	flags.defineRequeue(cmd) // refused, and the server says why
	must(cmd.Flags().MarkHidden("requeue"))
	return cmd
}

// attached is one `run` from its submission to its end.
type attached struct {
	*invocation
	client  *client.Client
	in      *os.File
	work    api.Workload
	follows string // the UID of the replica whose end is waited for
	line    *client.Attachment
	started bool
	held    []syscall.Signal // that came while the program was being started: for it
	waiting *waitingLine
}

func (c *invocation) runHere(ctx context.Context, spec api.WorkloadSpec) error {
	// Signals are taken before anything is submitted, so that none is lost between the two.
	signals := make(chan os.Signal, 32)
	c.notify(signals, passedOn()...)
	defer signal.Stop(signals)

	in, err := input(c.In)
	if err != nil {
		return err
	}
	server := c.client()
	defer server.Close()
	work, err := server.Submit(ctx, spec)
	if err != nil {
		return c.refusedProgram(err)
	}
	c.tellNotes(work)
	run := &attached{invocation: c, client: server, in: in, work: work, waiting: newWaitingLine(c.Err, c.colourful(c.Err))}
	run.follows = work.UID
	defer run.release()
	if err := run.attach(ctx); err != nil {
		_, stopped := server.Stop(ctx, work.UID, 0)
		return errors.Join(err, stopped)
	}
	ended, err := run.follow(ctx, signals)
	if err == nil && work.Spec.Several() {
		ended, err = run.followRest(ctx, signals, ended)
	}
	if err != nil {
		return err
	}
	return run.conclude(ended)
}

// input is what the program reads: what this command would, but nothing where it is in the background of a terminal. The kernel stops a
// background process that reads there; the program is in a session of its own, and would take from others what is typed for them.
func input(own *os.File) (*os.File, error) {
	foreground, err := unix.IoctlGetInt(int(own.Fd()), unix.TIOCGPGRP)
	if err != nil || foreground == unix.Getpgrp() { // it is not this process's terminal, or this process has it
		return own, nil
	}
	return os.Open(os.DevNull)
}

// refusedProgram ends with the status that shells give a program that is not there (127) or cannot be run (126), if that is what a
// submission was refused for.
func (c *invocation) refusedProgram(err error) error {
	var refused *api.Error
	if !errors.As(err, &refused) || refused.ExitCode == 0 {
		return err
	}
	c.complain(err)
	return exitStatus(refused.ExitCode)
}

func (a *attached) release() {
	a.waiting.clear()
	if a.line != nil {
		_ = a.line.Close()
	}
}

// phaseSeen is an answer of the server to a wait for a phase.
type phaseSeen struct {
	work api.Workload
	err  error
}

// follow passes signals on and shows the wait until the workload has ended, whatever becomes of the server meanwhile.
func (a *attached) follow(ctx context.Context, signals <-chan os.Signal) (api.Workload, error) {
	for {
		ended, err := a.followServer(ctx, signals)
		if !isLost(err) {
			return ended, err
		}
		if ended, err = a.reconnect(ctx, signals); err != nil || ended.Status.Phase == api.Ended {
			return ended, err
		}
	}
}

// followServer does so for as long as one server answers.
func (a *attached) followServer(ctx context.Context, signals <-chan os.Signal) (api.Workload, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun, ended := a.await(ctx, unstarted), a.await(ctx, live)
	patience := time.NewTimer(quiet)
	defer patience.Stop()
	var reasons <-chan api.Why
	lost := a.line.Lost()
	for {
		select {
		case seen := <-begun:
			begun = nil
			if seen.err == nil {
				a.started, reasons = true, nil
				patience.Stop()
				a.waiting.clear()
			}
			held := a.held
			a.held = nil
			for _, sig := range held {
				if err := a.pass(ctx, sig); err != nil {
					return api.Workload{}, err
				}
			}
		case seen := <-ended:
			return seen.work, seen.err
		case <-lost:
			return api.Workload{}, &client.Unreachable{Socket: a.client.Socket(), Err: io.EOF}
		case <-patience.C:
			reasons = a.watchReasons(ctx)
		case why := <-reasons:
			a.waiting.show(a.waitText(why))
		case sig := <-signals:
			if err := a.pass(ctx, sig.(syscall.Signal)); err != nil {
				return api.Workload{}, err
			}
		case <-ctx.Done():
			return api.Workload{}, ctx.Err()
		}
	}
}

// await asks once for the workload when its phase is none of the given ones.
func (a *attached) await(ctx context.Context, while []api.Phase) <-chan phaseSeen {
	answer := make(chan phaseSeen, 1)
	go func() {
		work, err := a.client.Wait(ctx, a.follows, while...)
		answer <- phaseSeen{work, err}
	}()
	return answer
}

// pass hands a signal to the program. While it waits in line, those that end programs take the workload out of the line; that is the
// server's to say, for the program may run before this client has heard of it.
func (a *attached) pass(ctx context.Context, sig syscall.Signal) error {
	handed := sig
	if sig == syscall.SIGTSTP {
		// The program is in a session of its own, where no shell could let it go on: there the kernel throws a terminal's stop away.
		handed = syscall.SIGSTOP
	}
	err := a.client.Signal(ctx, a.work.UID, signalName(handed))
	switch {
	case err == nil:
	case a.started && !isGone(err):
		a.waiting.say(fmt.Sprintf("aliquot: signal %s was not passed on: %s", signalName(handed), err))
	case !a.started && slices.Contains(ending, sig):
		_, err := a.client.Stop(ctx, a.work.UID, 0)
		if err != nil && !isGone(err) {
			return err
		}
		a.waiting.say(fmt.Sprintf("aliquot: %s left the line", a.work.Spec.Name))
		return endBy(sig)
	case !a.started:
		// It may run before the server has noted that it does, and what its user has seen of it is answered: not thrown away.
		if work, err := a.client.Workload(ctx, a.follows); err == nil && work.Status.Phase != api.Waiting {
			a.held = append(a.held, sig)
			return nil
		}
	}
	if sig == syscall.SIGTSTP {
		a.suspend()
	}
	return nil
}

// reconnect waits for a server that went away and hands the streams over again, or returns the workload if it has ended meanwhile.
// The program runs on without a server.
func (a *attached) reconnect(ctx context.Context, signals <-chan os.Signal) (api.Workload, error) {
	name := a.work.Spec.Name
	again := time.NewTicker(quiet)
	defer again.Stop()
	for said := false; ; {
		select {
		case <-ctx.Done():
			return api.Workload{}, ctx.Err()
		case sig := <-signals:
			if slices.Contains(ending, sig.(syscall.Signal)) {
				return api.Workload{}, fmt.Errorf("%s goes on without this terminal: see `aliquot show %s` when the server is back", name, name)
			}
			continue
		case <-again.C:
		}
		work, err := a.client.Workload(ctx, a.follows)
		if err == nil && work.Status.Phase != api.Ended {
			err = a.attach(ctx)
		}
		if !isLost(err) {
			return work, err
		}
		if !said {
			a.waiting.say(fmt.Sprintf("aliquot: the server at %s went away; %s goes on; waiting for the server to return", a.client.Socket(), name))
			said = true
		}
	}
}

// attach hands the streams over, in place of an earlier time.
func (a *attached) attach(ctx context.Context) error {
	line, err := a.client.Attach(ctx, a.follows, a.in, a.Out, a.Err)
	if err != nil {
		return err
	}
	if a.line != nil {
		_ = a.line.Close()
	}
	a.line = line
	return nil
}

// conclude says what became of the workload where its program's exit status does not, and ends as the program ended.
func (a *attached) conclude(ended api.Workload) error {
	a.waiting.clear()
	status := ended.Status
	name := ended.Spec.Name
	switch status.Outcome {
	case api.Succeeded:
	case api.Failed:
		if status.Reason != "" { // its status alone does not say it: what the kernel or a device did to it
			a.complain(fmt.Errorf("%s failed: %s", name, status.Reason))
		}
	case api.Refused:
		a.complain(errors.New(orText(status.Reason, name+" could not be started")))
	case api.Stopped:
		said := " was stopped" + because(status.Reason)
		if strings.HasPrefix(status.Reason, "stopped ") {
			said = " was " + status.Reason
		}
		a.complain(errors.New(name + said))
	case api.Unknown:
		reason := orText(status.Reason, "nothing more is known")
		if !strings.Contains(reason, "unknown") {
			reason = "its exit status is unknown: " + reason
		}
		a.complain(fmt.Errorf("%s ended: %s", name, reason))
	default:
		a.complain(fmt.Errorf("%s: %s%s", name, orText(string(status.Outcome), "ended"), because(status.Reason)))
	}
	if number := unix.SignalNum(status.Signal); number != 0 {
		return endBy(number)
	}
	return exitStatus(statusOf(status))
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// isLost says that the server went away or is about to, isGone that what was asked for is over.
func isLost(err error) bool {
	var lost *client.Unreachable
	var refused *api.Error
	return errors.As(err, &lost) || errors.As(err, &refused) && refused.Code == api.CodeUnavailable
}

func isGone(err error) bool {
	var refused *api.Error
	return errors.As(err, &refused) && (refused.Code == api.CodeNotFound || refused.Code == api.CodeConflict)
}
