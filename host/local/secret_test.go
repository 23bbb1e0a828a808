package local

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// holding are the files below a folder that hold a text.
func holding(t *testing.T, folder, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The environment of a workload may hold secrets: it is kept as long as the workload may be started, and is then in no file of the
// server's, whether it ran or never did.
func TestEnvironmentIsForgottenAtTheEnd(t *testing.T) {
	const secret = "hunter2-and-more"
	s := newSite(t, nil)
	for _, name := range []string{"runs", "waits"} {
		asked := spec("1", `test "$TOKEN" = `+secret[:7]+`"-and-more" && exec sleep 1000`)
		asked.Name, asked.Devices = name, 2
		asked.Env["TOKEN"] = secret
		s.submit(asked)
	}
	s.running("runs")
	s.restart()
	if work := s.wait("waits"); work.Spec.Env["TOKEN"] != secret {
		t.Errorf("what waits has lost its environment: %q", work.Spec.Env)
	}
	s.stopAll()
	if work := s.ended("runs"); work.Status.Outcome != api.Stopped || len(work.Spec.Env) != 0 || len(work.Spec.Command) != 3 {
		t.Errorf("what ran is shown as %+v", work)
	}
	if err := s.Host.Close(); err != nil {
		t.Fatal(err)
	}
	if found := holding(t, s.root, secret); len(found) != 0 {
		t.Errorf("the secret is in %q", found)
	}
	s.open()
	for _, name := range []string{"runs", "waits"} {
		if work := s.ended(name); len(work.Spec.Env) != 0 {
			t.Errorf("%s has %q", name, work.Spec.Env)
		}
	}
}
