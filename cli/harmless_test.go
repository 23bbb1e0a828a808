package cli

import (
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"github.com/aliquot-dev/aliquot/api"
)

// What another user chose, be it a command, a reason or the name of a process, gives the reader's terminal no orders.
func TestOthersGiveTheTerminalNoOrders(t *testing.T) {
	const orders = "\x1b]0;gone\x07\x1b[2J\r\u009b31m\u202e"
	for _, line := range []string{"ps", "ps -a -o wide", "ps -o wide", "show train", "show train -o wide", "why night", "devices", "devices -o wide", "top --once", "show nobody"} {
		f := newFakeServer(t)
		furnish(f)
		f.info.Warnings, f.info.Node = []string{orders}, orders
		for _, work := range f.works {
			work.User = orders
			work.Spec.Command, work.Spec.Dir, work.Spec.Model = []string{"./" + orders, orders + "\nfake row"}, orders, orders
			work.Spec.Env = map[string]string{"A": orders}
			work.Status.Reason, work.Status.Notes = orders, []string{orders}
		}
		for i := range f.devices {
			f.devices[i].HealthReason, f.devices[i].Model = orders, orders
			f.devices[i].Unenforced = []api.Process{{PID: 99, Name: orders, User: orders}}
		}
		f.why.Message, f.why.Unblock, f.why.History[0].Message = orders, orders, orders
		got := f.command(strings.Fields(line)...)
		for name, text := range map[string]string{"output": got.out, "error": got.err} {
			if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
				t.Errorf("%s: the %s has %q", line, name, text[at:min(at+20, len(text))])
			}
		}
		if strings.Contains(got.out, "\nfake row") {
			t.Errorf("%s: a command makes a line of its own:\n%s", line, got.out)
		}
	}
}

// A shell reads a command back as it was, whatever is in it.
func TestShellReadsCommandsBack(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Fatalf("the tests need bash: %v", err)
	}
	for _, word := range []string{"", "plain", "two words", "it's", `back\slash`, "$HOME", "\x1b[31m", "a\nb", "it's\x1b", "back\\slash\n", "\u202e", "\x01f", "\"\x7f\""} {
		got, err := exec.CommandContext(t.Context(), shell, "-c", "printf %s "+commandText([]string{word})).Output()
		if err != nil || string(got) != word {
			t.Errorf("%q came back as %q: %v (%s)", word, got, err, commandText([]string{word}))
		}
	}
}
