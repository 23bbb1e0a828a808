package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
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

// smallDisk is a folder on a file system of its own of that size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	disk, err := os.MkdirTemp("", "alqdisk")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	t.Cleanup(func() { _, _ = unix.Unmount(disk, unix.MNT_DETACH), os.Remove(disk) })
	return disk
}

// Where there is room for a little, but not for a request's outcome, who asked is not told that nothing was changed.
func TestNearlyFullDiskSaysThatItIsDoneLater(t *testing.T) {
	disk := smallDisk(t, "8m")
	s := newSite(t, func(config *Config) { config.State = filepath.Join(disk, "state") })
	asked := spec("1", "sleep 1000")
	for _, name := range []string{"A", "B", "C", "D"} {
		asked.Env[name] = strings.Repeat("x", 100_000)
	}
	work := s.submit(asked)
	s.running(work.UID)
	free := fill(t, disk)
	if err := os.Truncate(filepath.Join(disk, "filler"), fileSize(t, filepath.Join(disk, "filler"))-100_000); err != nil {
		t.Fatal(err)
	}
	_, err := s.Stop(context.Background(), me, work.UID, 0)
	refused(t, err, api.CodeUnavailable, "is done as soon as it can")
	if strings.Contains(err.Error(), "nothing was changed") {
		t.Error(err)
	}
	_, err = s.SetQueue(context.Background(), me, api.QueueSpec{Name: "vision", Quota: 1000})
	refused(t, err, api.CodeUnavailable, "nothing was changed")
	free()
	if status := s.ended(work.UID).Status; status.Outcome != api.Stopped {
		t.Errorf("ended with %+v", status)
	}
	if queues, err := s.Queues(context.Background()); err != nil || len(queues) != 1 {
		t.Errorf("a refused queue is there: %+v, %v", queues, err)
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestFullDiskRefusesAndLosesNothing(t *testing.T) {
	disk := smallDisk(t, "4m")
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
	var err error
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
	until.File(t, filepath.Join(string(s.folder(before[0].UID)), "exit"), "the exit status is written", func() bool {
		found, err := s.folder(before[0].UID).Look()
		return err != nil || found.Exit != nil || len(s.agent.Prepared()) == 0
	})
	free()
	if status := s.ended("running").Status; status.ExitCode == nil || *status.ExitCode != 5 {
		t.Errorf("ended with %+v", status)
	}
	until.Polled(t, "the queue can be set", func() bool {
		_, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "vision", Quota: 1000})
		return err == nil
	})
	for _, work := range before {
		if _, err := s.Workload(ctx, work.UID); err != nil {
			t.Errorf("%s is lost: %v", work.Spec.Name, err)
		}
	}
}

// On a full disk a workload is ended all the same, and what it frees goes to nobody before that is stored: why says so.
func TestFullDiskStops(t *testing.T) {
	disk := smallDisk(t, "4m")
	s := newSite(t, func(config *Config) { config.State = filepath.Join(disk, "state") })
	ctx := context.Background()
	asked := spec("1", "sleep 1000")
	asked.Devices = 2
	running := s.running(s.submit(asked).UID)
	asked.Name = "next"
	next := s.submit(asked)
	free := fill(t, disk)
	var err error
	for i := 0; err == nil && i < 100_000; i++ {
		_, err = s.SetQueue(ctx, me, api.QueueSpec{Name: "vision", Quota: api.Quota(i)})
	}
	refused(t, err, api.CodeUnavailable, "free some space")
	_, err = s.Stop(ctx, me, running.UID, api.Duration(time.Minute))
	refused(t, err, api.CodeUnavailable, "are told to end; the rest is done as soon as it can be stored")
	until.Polled(t, "its program has ended", func() bool { return errors.Is(unix.Kill(running.Status.PID, 0), unix.ESRCH) })
	until.Polled(t, "why names the full disk", func() bool {
		why, err := s.Why(ctx, next.UID)
		return err == nil && strings.Contains(why.Message, "as soon as it can be stored") && strings.Contains(why.Message, "free some space")
	})
	free()
	if status := s.ended(running.UID).Status; status.Outcome != api.Stopped || status.Reason != "stopped by me" {
		t.Errorf("ended with %+v", status)
	}
	s.running(next.UID)
}
