package cli

import (
	"strings"
	"syscall"
	"testing"
)

// What is not UTF-8 reaches the server as it was typed, and is printed so that a shell would read it back.
func TestBytesThatAreNotUTF8(t *testing.T) {
	f := newFakeServer(t)
	program := Program{Env: []string{"PATH=/bin", "X=\xff\xfe", "Y\xff=y"}}
	if got := invoke(t, program, "--run", f.run, "submit", "--gpu", "0.1", "--", "./p\xfe", "q\xff"); got.exit.Status != 0 {
		t.Fatalf("%+v", got)
	}
	spec := f.find("job-1").Spec
	if spec.Command[0] != "./p\xfe" || spec.Command[1] != "q\xff" || spec.Env["X"] != "\xff\xfe" || spec.Env["Y\xff"] != "y" {
		t.Errorf("the server has %+q with %+q", spec.Command, spec.Env)
	}
	for _, test := range []struct{ line, has string }{
		{"show job-1", `$'./p\xfe' $'q\xff'`},
		{"ps -o wide", `$'./p\xfe' $'q\xff'`},
		{"show job-1 -o json", `"cf8="`},
		{"show job-1 -o yaml", "cf8="},
	} {
		if got := f.command(strings.Fields(test.line)...); !strings.Contains(got.out, test.has) {
			t.Errorf("%s prints %q, want %s in it", test.line, got.out, test.has)
		}
	}
}

// A folder that is gone is no folder to run in: not even / in its place.
func TestFolderThatIsGone(t *testing.T) {
	f := newFakeServer(t)
	for _, command := range []string{"run", "submit"} {
		got := invoke(t, Program{DirLost: syscall.ENOENT}, "--run", f.run, command, "--gpu", "0.1", "--", "pwd")
		if got.exit.Status != ExitFailed || got.out != "" || !strings.HasPrefix(got.err, "aliquot: the folder you are in is gone (no such file or directory)") {
			t.Errorf("%s: %+v", command, got)
		}
	}
	if len(f.works) != 0 {
		t.Errorf("%d were submitted", len(f.works))
	}
	if got := invoke(t, Program{DirLost: syscall.ENOENT}, "--run", f.run, "ps"); got.exit.Status != 0 {
		t.Errorf("ps, which runs nothing there: %+v", got)
	}
}
