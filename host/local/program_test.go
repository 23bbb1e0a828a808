package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
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
		{"elf", "\x7fELF", 0, ""},
	} {
		if test.words == "not a program" && foreignForms() {
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
