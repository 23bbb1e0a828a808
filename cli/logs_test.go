package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// newTerminal makes a terminal and returns the side that is typed at and read by people, and the side of programs.
func newTerminal(t *testing.T) (people, programs *os.File) {
	t.Helper()
	people, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = people.Close() })
	fd := int(people.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	if programs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = programs.Close() })
	// What is printed is to be read back as it is.
	settings, err := unix.IoctlGetTermios(int(programs.Fd()), unix.TCGETS)
	if err == nil {
		settings.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(int(programs.Fd()), unix.TCSETS, settings)
	}
	if err != nil {
		t.Fatal(err)
	}
	return people, programs
}

// onTerminal is what a command shows on a terminal.
func onTerminal(t *testing.T, f *fakeServer, line ...string) string {
	t.Helper()
	people, programs := newTerminal(t)
	program := Program{In: programs, Out: programs, Err: programs, Env: []string{"HOME=" + t.TempDir()}, Dir: "/"}
	exit := program.Main(t.Context(), append([]string{"--run", f.run}, line...))
	if exit != (Exit{}) {
		t.Errorf("%q ended with %v", line, exit)
	}
	const mark = "<end>"
	if _, err := programs.WriteString(mark); err != nil {
		t.Fatal(err)
	}
	var shown bytes.Buffer
	for buffer := make([]byte, 4096); !strings.HasSuffix(shown.String(), mark); {
		n, err := people.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(buffer[:n])
	}
	return strings.TrimSuffix(shown.String(), mark)
}

// What another user's program printed gives the terminal of who looks no orders. One's own program is shown as it would show
// itself, and what goes to a file or a program is what was printed, byte for byte.
func TestLogsOfOthersGiveTheTerminalNoOrders(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	f.log = "\x1b[31mred\x1b[0m\t50%\rdone \u009b2J \u202e\xff ü\n"
	const harmless = `\x1b[31mred\x1b[0m` + "\t" + `50%\rdone \u009b2J \u202e\xff ü` + "\n"
	own, others := f.works[0], f.works[1]
	own.UserID, others.UserID = uint32(os.Getuid()), uint32(os.Getuid())+1
	for name, want := range map[string]string{own.Spec.Name: f.log, others.Spec.Name: harmless} {
		for _, line := range [][]string{{"logs", name}, {"logs", "-f", name}} {
			if got := onTerminal(t, f, line...); got != want {
				t.Errorf("%q shows %q, want %q", line, got, want)
			}
			if got := f.command(line...); got.out != f.log || got.exit != (Exit{}) {
				t.Errorf("%q writes %q into a file (%q)", line, got.out, got.err)
			}
		}
	}
}

// As data a log is its lines.
func TestLogsAsData(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	for log, want := range map[string][]string{
		"":                      {},
		"one\n\ntwo":            {"one", "", "two"},
		"\x1b[31mred\r\n\xff\n": {"\x1b[31mred\r", "\ufffd"},
	} {
		f.log = log
		checkAsData(t, f.command, "logs train", logged{"train", want})
	}
}
