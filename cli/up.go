package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
	"github.com/aliquot-dev/aliquot/cli/safe"
)

// Defaults of `aliquot up`.
const (
	defaultSimulate = "h200x2"
	defaultHTTP     = "127.0.0.1:8787"
	off             = "off"
)

const upLong = `Start the server of this machine. As root it serves every user, else the one who starts it; where root's serves that user already, it is left at that,
and --run names a folder for one of one's own. Without an NVIDIA driver it
simulates devices, and says so; --simulate does so in any case. Tasks outlive the server, and so do simulated devices: a new server
finds both again.`

// upFlags are the flags of `up`.
type upFlags struct {
	state, simulate, http string
	detach                bool
	format                string
	unenforced, latency   string
}

func (c *invocation) upCommand() *cobra.Command {
	var flags upFlags
	cmd := &cobra.Command{
		Use:     "up [flags]",
		Short:   "Start the server",
		Long:    upLong,
		Example: "  aliquot up --detach\n  aliquot up --simulate h200x2,a10x4",
		Args:    none,
	}
	cmd.Flags().StringVar(&flags.state, "state", "", "folder of what must survive a reboot")
	cmd.Flags().StringVar(&flags.simulate, "simulate", "", "simulated devices, h200x2,a10x4, linked with each other and at memory nodes so many in a row, linked=2,numa=4, and costs of theirs, switch_ns=100000 (default: those that run already, else "+defaultSimulate+" where there is no driver)")
	cmd.Flags().StringVar(&flags.http, "http", "", "loopback address of HTTP with a token, or off (default: "+defaultHTTP+", or off if it is taken)")
	cmd.Flags().StringVar(&flags.unenforced, "unenforced", "", "what uses a device and is not held to a share (processes past it, work that does not end): show it, or stop (end) it too (default: show)")
	cmd.Flags().StringVar(&flags.latency, "latency-class", "", "the latency class of devices, 1 for those that answer fastest, to 9: of all, 2, or of a model or one device by its UUID, 1@H200,2@A10 (default: none is known)")
	cmd.Flags().BoolVarP(&flags.detach, "detach", "d", false, "start it in the background and return once it answers")
	must(cmd.MarkFlagDirname("state"))
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		flags.format = *format
		config, err := c.serveConfig(flags)
		if err != nil {
			return err
		}
		if answered, err := c.beside(cmd.Context(), flags, config); answered {
			return err
		}
		if flags.detach {
			return c.detach(cmd.Context(), config, flags.format)
		}
		return c.serve(cmd.Context(), config, flags.format)
	}
	return cmd
}

// serveConfig puts flags, settings and defaults together.
func (c *invocation) serveConfig(flags upFlags) (ServeConfig, error) {
	config := ServeConfig{Run: c.ownRun(), Simulate: flags.simulate, HTTP: flags.http, Version: c.Version, Log: c.Err}
	var err error
	if config.State, err = c.ownState(flags.state); err != nil {
		return config, err
	}
	if config.Unenforced, err = c.unenforced(flags.unenforced); err != nil {
		return config, err
	}
	if config.LatencyClasses, err = api.ParseLatencyClasses(cmp.Or(flags.latency, c.settings.LatencyClass)); err != nil {
		return config, usagef("--latency-class: %w", err)
	}
	c.chooseSimulated(&config)
	if config.HTTP == "" {
		config.HTTP = c.settings.HTTP
	}
	switch config.HTTP {
	case "":
		config.HTTP, config.Usual = defaultHTTP, true
	case off:
		config.HTTP = ""
		return config, nil
	}
	host, _, err := net.SplitHostPort(config.HTTP)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return config, usagef("--http %s: HTTP is served on loopback only: write %s, or off", config.HTTP, defaultHTTP)
	}
	return config, nil
}

// unenforced is the rule about processes that no share holds; flag is --unenforced.
func (c *invocation) unenforced(flag string) (api.UnenforcedRule, error) {
	rule := api.UnenforcedRule(cmp.Or(flag, c.settings.Unenforced, string(api.ShowUnenforced)))
	if rule != api.ShowUnenforced && rule != api.StopUnenforced {
		return "", usagef("--unenforced %s: write %s or %s", rule, api.ShowUnenforced, api.StopUnenforced)
	}
	return rule, nil
}

// chooseSimulated says which devices are simulated, if any, and why: those that were asked for, else those of an earlier server
// that tasks may be using, else some where there is no driver.
func (c *invocation) chooseSimulated(config *ServeConfig) {
	if config.Simulate == "" {
		config.Simulate = c.settings.Simulate
	}
	config.because = "--simulate asks for simulated devices"
	if !c.hasDriver() {
		config.because = "no NVIDIA driver was found"
	}
	if config.Simulate != "" {
		return
	}
	left := outlivingIn(config.Run)
	switch {
	case left.simulated != "" && (left.tasks > 0 || !c.hasDriver()):
		config.Simulate = left.simulated
		if c.hasDriver() {
			config.because = plural(left.tasks, "task") + " of the last server run on its simulated devices"
		}
	case !c.hasDriver():
		config.Simulate = defaultSimulate
	}
}

func (c *invocation) hasDriver() bool { return c.Driver != nil && c.Driver() == nil }

// serve runs the server in this process until a signal ends it.
func (c *invocation) serve(ctx context.Context, config ServeConfig, format string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := newDaemonLog(config.State, c.Out, c.Err)
	if log != nil {
		config.Log = log
	}
	return c.Serve(ctx, config, func() {
		if log != nil {
			log.own()
		}
		if err := c.sayUp(ctx, config, format); err != nil {
			c.complain(err)
		}
	})
}

// answerPatience is how long a server in the background may take until it answers.
const answerPatience = 60 * time.Second

// detach starts the server in the background and waits until it answers.
func (c *invocation) detach(ctx context.Context, config ServeConfig, format string) error {
	server := client.New(config.Run)
	defer server.Close()
	if err := os.MkdirAll(config.State, 0o700); err != nil {
		return fmt.Errorf("make the folder for the server's state: %w", err)
	}
	path := filepath.Join(config.State, daemonLogName)
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	began, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	child, err := c.startDaemon(config, log)
	if err != nil {
		return err
	}
	died := make(chan error, 1)
	go func() { died <- child.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-died:
			return fmt.Errorf("the server did not start: %s", lastWords(log, began, path))
		case <-ctx.Done():
			return fmt.Errorf("the server (pid %d) does not answer at %s yet: see %s", child.Process.Pid, server.Socket(), path)
		case <-again.C:
			if _, err := server.Info(ctx); err == nil {
				return c.sayUp(ctx, config, format)
			}
		}
	}
}

// startDaemon starts this program again, in a session of its own.
func (c *invocation) startDaemon(config ServeConfig, log *os.File) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	line := []string{"up", "--state", config.State, "--run", config.Run, "--unenforced", string(config.Unenforced)}
	if !config.Usual {
		line = append(line, "--http", orText(config.HTTP, off))
	}
	if config.Simulate != "" {
		line = append(line, "--simulate", config.Simulate)
	}
	if len(config.LatencyClasses) > 0 {
		line = append(line, "--latency-class", config.LatencyClasses.String())
	}
	child := exec.Command(self, line...)
	child.Env = c.Env
	child.Dir = "/"
	child.Stdout, child.Stderr = log, log
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	return child, nil
}

// lastWords is the last line that the server wrote into its log since offset.
func lastWords(log *os.File, offset int64, path string) string {
	text, err := io.ReadAll(io.NewSectionReader(log, offset, 1<<20))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := strings.TrimPrefix(lines[len(lines)-1], "aliquot: ")
	if err != nil || last == "" {
		return "it said nothing; see " + path
	}
	return last
}

// sayUp says that the server answers and what to try next; as JSON or YAML what the server is.
func (c *invocation) sayUp(ctx context.Context, config ServeConfig, format string) error {
	server := client.New(config.Run)
	defer server.Close()
	info, err := server.Info(ctx)
	if err != nil {
		return err
	}
	return c.say(format, info, c.upText(info, config))
}

// upText is what `up` says to people.
func (c *invocation) upText(info api.Info, config ServeConfig) string {
	s := c.style()
	kind := plural(info.Devices, "device")
	if info.Simulated {
		kind = plural(info.Devices, "simulated device") + " (" + config.Simulate + ")"
	}
	whom := "for " + orUnknown(info.User)
	if info.AllUsers {
		whom = "for all users"
	}
	prefix := c.itself()
	if c.runFlag != "" {
		prefix += " --run " + c.runFlag
	}
	text := s.paint(green, "aliquot is up") + " on " + info.Node + ", " + whom + ": " + kind + "\n"
	if info.Simulated {
		text += "  nothing runs on a real GPU here: " + config.because + "\n"
	}
	for _, warning := range info.Warnings {
		text += "  " + s.paint(yellow, "! ") + safe.Line(warning) + "\n"
	}
	return text + "\nTry\n" +
		"  " + prefix + " devices\n" +
		"  " + prefix + " run --gpu 0.25..0.80 --mem 4Gi..8Gi -- PROGRAM\n" +
		"  " + prefix + " top\n" +
		"  " + prefix + " doctor"
}

// itself is how a shell of this user finds this program: by its name, else by its path.
func (c *invocation) itself() string {
	const name = "aliquot"
	path, _ := lookup(c.Env, "PATH")
	for _, folder := range filepath.SplitList(path) {
		path := c.absolute(filepath.Join(folder, name))
		if info, err := os.Stat(path); err == nil && !info.IsDir() && unix.Access(path, unix.X_OK) == nil {
			return name
		}
	}
	self, err := os.Executable()
	if err != nil {
		return name
	}
	if below, err := filepath.Rel(c.Dir, self); err == nil && filepath.IsLocal(below) {
		return "./" + below
	}
	return self
}
