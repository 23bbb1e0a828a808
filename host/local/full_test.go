package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
)

// fill takes all the space that is left on a file system, and returns what gives it back.
func fill(t *testing.T, folder string) (free func()) {
	t.Helper()
	path := filepath.Join(folder, "filler")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, size := range []int{1 << 16, 1 << 12} {
		for block := make([]byte, size); ; {
			if _, err := file.Write(block); errors.Is(err, unix.ENOSPC) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullDiskRefusesAndLosesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	disk, err := os.MkdirTemp("", "alqdisk")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(disk) }()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	defer func() { _ = unix.Unmount(disk, unix.MNT_DETACH) }()
	s := newSite(t, func(config *Config) { config.State = filepath.Join(disk, "state") })
	ctx := context.Background()
	gate := filepath.Join(s.root, "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	running := spec("1", "read x < "+gate+"; exit 5")
	running.Name = "running"
	s.submit(running)
	s.running("running")

	free := fill(t, disk)
	// A little may still fit into the pages that the database has; then nothing does.
	for i := 0; err == nil && i < 100_000; i++ {
		_, err = s.Submit(ctx, me, spec("1", "true"))
	}
	refused(t, err, api.CodeUnavailable, "free some space")
	before, err := s.Workloads(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.SetQueue(ctx, me, api.QueueSpec{Name: "vision", Quota: 1000})
	refused(t, err, api.CodeUnavailable, "cannot store")
	if queues, err := s.Queues(ctx); err != nil || len(queues) != 1 {
		t.Errorf("a refused queue is there: %+v, %v", queues, err)
	}
	// What ends on a full disk keeps its exit status.
	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	until(t, "the exit status is written", func() bool {
		found, err := s.folder(before[0].UID).Look()
		return err != nil || found.Exit != nil || len(s.agent.Prepared()) == 0
	})
	free()
	if status := s.ended("running").Status; status.ExitCode == nil || *status.ExitCode != 5 {
		t.Errorf("ended with %+v", status)
	}
	until(t, "the queue can be set", func() bool {
		_, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "vision", Quota: 1000})
		return err == nil
	})
	for _, work := range before {
		if _, err := s.Workload(ctx, work.UID); err != nil {
			t.Errorf("%s is lost: %v", work.Spec.Name, err)
		}
	}
}
