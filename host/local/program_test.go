package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
)

// What the kernel would not take for a program is refused at its submission, with the status that shells have for it, and leaves no
// workload behind.
func TestWhatIsNoProgramIsRefusedAtItsSubmission(t *testing.T) {
	if foreignForms() {
		t.Log("this kernel may take anything for a program: only scripts are judged")
	}
	s := newSite(t, nil)
	folder := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("plain", "#!/bin/sh\n", 0o600)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	self = self[:firstBytes]
	altered := func(at int, to uint16) string {
		other := bytes.Clone(self)
		binary.NativeEndian.PutUint16(other[at:], to)
		return string(other)
	}
	for _, test := range []struct {
		name, text string
		exit       int // 0: taken
		words      string
	}{
		{"garbage", "garbage", 126, "not a program"},
		{"empty", "", 126, "not a program"},
		{"nameless", "#! \n", 126, "names no interpreter"},
		{"lost", "#!/no/such/interp -x\n", 127, "its interpreter /no/such/interp does not exist"},
		{"unrunnable", "#! ./plain\n", 126, "its interpreter ./plain: permission denied"},
		{"nested", "#!./lost\n", 127, "its interpreter ./lost: its interpreter /no/such/interp does not exist"},
		{"script", "#!/bin/sh\n", 0, ""},
		{"arguments", "#!\t/usr/bin/env sh\r\n", 0, ""},
		{"beside", "#!./script\n", 0, ""},
		{"long", "#!/" + strings.Repeat("x", 400) + "\n", 0, ""}, // the kernel's to say
		{"loop", "#!./loop\n", 0, ""},
		{"elf", string(self), 0, ""},
		{"short", "\x7fELFgarbage", 126, "its header is of ELF, and of no program"},
		{"object", altered(16, 1), 126, "its header is of ELF, and of no program"},
		{"foreign", altered(18, 8), 126, "it is made for another machine (EM_MIPS, and this one is " + ownMachine().String() + ")"},
		{"hollow", altered(56, 0), 126, "names nothing to load"},
	} {
		if test.exit == 126 && !strings.HasPrefix(test.text, "#!") && foreignForms() {
			continue
		}
		write(test.name, test.text, 0o700)
		for _, name := range []string{"./" + test.name, test.name} {
			asked := spec("0.1", "true")
			asked.Dir, asked.Command, asked.Env = folder, []string{name}, map[string]string{"PATH": "/nowhere:."}
			_, err := findProgram(asked, nil)
			if test.exit == 0 {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			_, err = s.Submit(context.Background(), me, asked)
			refused(t, err, api.CodeInvalid, test.words)
			var why *api.Error
			if !errors.As(err, &why) || why.ExitCode != test.exit {
				t.Errorf("%s: %+v, want status %d", name, err, test.exit)
			}
		}
	}
	if list, err := s.Workloads(context.Background(), true); err != nil || len(list) != 0 {
		t.Errorf("%d workloads, %v; want none", len(list), err)
	}
}

// Who may not run a file is told what they can do themselves: to change the rights of another's is not among it.
func TestAdviceForAnothersProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := uint32(os.Geteuid())
	for _, test := range []struct {
		as    supervise.User
		words string
	}{
		{supervise.User{UID: own}, "permission denied; `chmod +x " + path + "` lets it be run"},
		{supervise.User{UID: own + 12345}, "permission denied: " + path + " belongs to " + userName(own) + ", and only " + whoMay(own) + " can let you run it"},
	} {
		if err := executable(path, &test.as); err == nil || err.Error() != test.words {
			t.Errorf("user %d: %v, want %s", test.as.UID, err, test.words)
		}
	}
}
