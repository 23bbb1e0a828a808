package test

// The example programs are held to what their README says, on simulated devices and without Aliquot: what a program says it did is
// compared with what the devices recorded.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	built  = "../build/examples"
	native = "../build/native"
)

// build builds the examples, once, and the simulated driver with them.
var build = sync.OnceValue(func() error {
	out, err := exec.Command("make", "--no-print-directory", "-C", "../examples").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the examples: %w\n%s", err, out)
	}
	return nil
})

// devices is a simulated driver of one test's own.
type devices struct {
	t      *testing.T
	socket string
}

func serve(t *testing.T, list string) devices {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "aliquot-examples-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	d := devices{t, filepath.Join(folder, "socket")}
	var said strings.Builder
	server := exec.Command(native+"/bin/aliquot-simgpu", "serve", "--devices", list, "--socket", d.socket, "--record", filepath.Join(folder, "record"))
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	t.Cleanup(func() {
		_ = server.Process.Kill()
		<-ended
	})
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for d.ask("sync") != nil {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the simulated driver ended: %v: %s", err, said.String())
		case <-deadline.C:
			t.Fatal("the simulated driver does not answer")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return d
}

func (d devices) ask(what string) error {
	return exec.Command(native+"/bin/aliquot-simgpu", what, "--socket", d.socket).Run()
}

func (d devices) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(built, program), args...)
	library, err := filepath.Abs(native + "/sim")
	if err != nil {
		d.t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+library, "ALIQUOT_SIMGPU="+d.socket)
	return cmd
}

// run runs a program that must succeed and returns what it printed.
func (d devices) run(program string, args ...string) string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := d.command(ctx, program, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
	return string(out)
}

// recorded is what the devices say they did: kernels and seconds of device time, for each.
func (d devices) recorded() (kernels []int, busy []float64) {
	d.t.Helper()
	if err := d.ask("sync"); err != nil {
		d.t.Fatal(err)
	}
	out, err := exec.Command(native+"/bin/aliquot-simgpu", "status", "--socket", d.socket).Output()
	if err != nil {
		d.t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\d+ +GPU-\S+ +.*? +(\d+\.\d+) +\d+\.\d+ +(\d+) `)
	for _, match := range row.FindAllStringSubmatch(string(out), -1) {
		seconds, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			d.t.Fatal(err)
		}
		count, err := strconv.Atoi(match[2])
		if err != nil {
			d.t.Fatal(err)
		}
		busy, kernels = append(busy, seconds), append(kernels, count)
	}
	if len(kernels) == 0 {
		d.t.Fatalf("no devices in:\n%s", out)
	}
	return kernels, busy
}

// figures are the numbers that a pattern finds in text.
func figures(t *testing.T, text, pattern string) []int {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if match == nil {
		t.Fatalf("%q is not like %q", text, pattern)
	}
	var all []int
	for _, digits := range match[1:] {
		n, err := strconv.Atoi(digits)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// calibration is how many kernels a program launches on each device before its work.
const calibration = 4

func TestTrainer(t *testing.T) {
	for _, args := range [][]string{
		{"--seconds", "0.3", "--kernel-us", "1000", "--batch", "4"},
		{"--seconds=0.3", "--kernel-us=1000", "--batch=1"},
		{"--seconds", "0.3", "--kernel-us", "1000", "--batch", "8", "--graph"},
		{"--seconds", "0.3", "--kernel-us", "1000", "--batch", "2", "--demand", "0.2", "--mem-mib", "64"},
	} {
		d := serve(t, "h200x1")
		said := d.run("trainer", args...)
		ran := figures(t, said, `^trainer: (\d+) kernels of 1000 µs in [\d.]+ s: [\d.]+ of a device\n$`)[0]
		kernels, busy := d.recorded()
		if ran == 0 || kernels[0] != ran+calibration || busy[0] != float64(kernels[0])/1000 {
			t.Errorf("%v: the trainer says %d kernels of 1 ms, the device %d in %v s", args, ran, kernels[0], busy[0])
		}
	}
}

// Whoever follows a trainer's log sees while it runs that it gets on.
func TestTrainerSaysHowFarItIs(t *testing.T) {
	d := serve(t, "h200x1")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command := d.command(ctx, "trainer", "--seconds", "0", "--kernel-us", "1000", "--progress", "0.05")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines, last := bufio.NewScanner(out), 0
	for range 2 {
		if !lines.Scan() {
			t.Fatal("it said nothing while it ran")
		}
		if now := figures(t, lines.Text(), `^trainer: (\d+) kernels queued after [\d.]+ s$`)[0]; now <= last {
			t.Errorf("after %d kernels come %d", last, now)
		} else {
			last = now
		}
	}
	_ = command.Process.Signal(syscall.SIGTERM)
	for lines.Scan() {
		continue // its last words
	}
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

func TestTrainerEndsWhenTold(t *testing.T) {
	d := serve(t, "h200x1")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	trainer := d.command(ctx, "trainer", "--seconds", "0", "--kernel-us", "500")
	var said strings.Builder
	trainer.Stdout = &said
	if err := trainer.Start(); err != nil {
		t.Fatal(err)
	}
	for kernels := 0; kernels <= calibration; { // until it is at work
		counts, _ := d.recorded()
		kernels = counts[0]
	}
	if err := trainer.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := trainer.Wait(); err != nil || !strings.HasPrefix(said.String(), "trainer: ") {
		t.Errorf("%v: %q", err, said.String())
	}
}

func TestInference(t *testing.T) {
	d := serve(t, "h200x1")
	said := d.run("inference", "--seconds", "0.5", "--kernel-us", "100", "--kernels", "5", "--load", "0.5")
	served := figures(t, said, `^inference: (\d+) requests of 0.5 ms in [\d.]+ s: latency ms p50 [\d.]+ p90 [\d.]+ p99 [\d.]+ p99.9 [\d.]+ max [\d.]+\n$`)[0]
	if kernels, _ := d.recorded(); served == 0 || kernels[0] != 5*served+calibration {
		t.Errorf("%d requests of 5 kernels, the device ran %d", served, kernels[0])
	}
}

func TestNotebook(t *testing.T) {
	d := serve(t, "h200x1")
	said := d.run("notebook", "--seconds", "0.3", "--cell-ms", "10", "--think-ms", "10")
	if cells := figures(t, said, `^notebook: (\d+) cells, `)[0]; cells == 0 {
		t.Error(said)
	}
	if kernels, _ := d.recorded(); kernels[0] <= calibration {
		t.Errorf("the device ran %d kernels", kernels[0])
	}
}

func TestHog(t *testing.T) {
	d := serve(t, "a10x1")
	said := d.run("hog", "--block-mib", "256")
	f := figures(t, said, `^hog: was shown (\d+) MiB free of (\d+); got (\d+) MiB in (\d+) blocks, then CUDA_ERROR_OUT_OF_MEMORY with (\d+) MiB shown free\n$`)
	free, total, got, blocks, left := f[0], f[1], f[2], f[3], f[4]
	if free > total || got != 256*blocks || got+left != free || left >= 256 {
		t.Error(said)
	}
}

func TestPair(t *testing.T) {
	d := serve(t, "a10x2")
	said := d.run("pair", "--seconds", "0.3", "--kernels", "3")
	steps := figures(t, said, `^pair: (\d+) steps `)[0]
	kernels, _ := d.recorded()
	if want := 3*steps + calibration; steps == 0 || kernels[0] != want || kernels[1] != want {
		t.Errorf("%d steps of 3 kernels on each device, they ran %v", steps, kernels)
	}
}

func TestRefusals(t *testing.T) {
	d := serve(t, "h200x1")
	for _, c := range []struct {
		line   string
		status int
		says   string
	}{
		{"pair", 1, "pair: needs two devices and sees 1"},
		{"trainer --kernel-us none", 2, `trainer: --kernel-us wants a number of 0 or more, not "none"`},
		{"trainer --seconds", 2, `trainer: --seconds wants a number of 0 or more, not ""`},
		{"trainer --demand nan", 2, `trainer: --demand wants a number`},
		{"trainer --batch 0", 2, "trainer: --batch and --kernel-us must be at least 1"},
		{"inference --load 2", 2, "inference: "},
		{"hog --block-mib 0", 2, "hog: --block-mib must be more than 0"},
		{"notebook --colour blue", 2, "notebook: no option --colour"},
	} {
		words := strings.Fields(c.line)
		out, err := d.command(context.Background(), words[0], words[1:]...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != c.status || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: %v: %s; want status %d and %q", c.line, err, out, c.status, c.says)
		}
	}
	if kernels, _ := d.recorded(); kernels[0] != 0 {
		t.Errorf("programs that refused ran %d kernels", kernels[0])
	}
}

// Without a driver there is one sentence, from the dynamic linker or from the program.
func TestWithoutDriver(t *testing.T) {
	if err := build(); err != nil {
		t.Fatal(err)
	}
	d := devices{t, filepath.Join(t.TempDir(), "nobody")}
	out, err := d.command(context.Background(), "trainer").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "cuInit failed") {
		t.Errorf("%v: %s", err, out)
	}
}
