package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/node/page"
)

// helper, in the environment, makes this test's program one of those that are measured; gate names a file by which two of them meet.
const (
	helper = "MEASURE_HELPER"
	gate   = "MEASURE_GATE"
)

func TestMain(m *testing.M) {
	switch os.Getenv(helper) {
	case "":
		os.Exit(m.Run())
	case "stubborn": // counts, and does not end when it is told to
		signal.Ignore(syscall.SIGTERM)
		count(1 << 62)
	case "steady":
		count(1 << 62)
	case "brief": // ends by itself once there is a server
		for os.Remove(os.Getenv(gate)) != nil {
			count(1)
		}
		os.Exit(3)
	case "server":
		if path := os.Getenv(gate); path != "" {
			for err := os.WriteFile(path, nil, 0o600); err == nil; _, err = os.Stat(path) {
				<-time.After(time.Millisecond)
			}
		}
		from, err := monotonic()
		if err != nil {
			os.Exit(1)
		}
		<-time.After(300 * time.Millisecond)
		fmt.Printf("{\"from_s\": %f, \"to_s\": %f, \"p99_ms\": 4}\n", from.Seconds(), (from + 300*time.Millisecond).Seconds())
	}
}

// count says that a thousand steps are done in each second, as often as this.
func count(times int) {
	for range times {
		now, err := monotonic()
		if err != nil {
			os.Exit(1)
		}
		fmt.Println(now.Nanoseconds(), now.Milliseconds())
		<-time.After(10 * time.Millisecond)
	}
}

func helperLine(kind string) line {
	return line{[]string{os.Args[0]}, append(os.Environ(), helper+"="+kind)}
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	s := &suite{scale: scale{settle: 50 * time.Millisecond, torch: time.Second}}
	var err error
	if s.log, err = openLog(filepath.Join(t.TempDir(), "log.txt")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.log.close() })
	return s
}

// What a trainer does is judged over the time in which the server beside it served.
func TestServedBeside(t *testing.T) {
	s := newSuite(t)
	served, steps, err := s.servedBeside(t.Context(), helperLine("steady"), helperLine("server"))
	if err != nil {
		t.Fatal(err)
	}
	if served["p99_ms"] != 4. || math.Abs(steps-1000) > 10 {
		t.Errorf("served %v, %.1f steps a second; want 1000", served, steps)
	}
	alone, err := s.steady(t.Context(), helperLine("steady"))
	if err != nil || math.Abs(alone-1000) > 10 {
		t.Errorf("alone %.1f steps a second, %v; want 1000", alone, err)
	}
}

// How often leases changed is counted over the time in which the server served, not while it came and went.
func TestSharedBeside(t *testing.T) {
	s := newSuite(t)
	s.server, s.change = &server{run: t.TempDir()}, 100*time.Microsecond
	device := filepath.Join(s.server.run, "devices", "0")
	if err := os.Mkdir(filepath.Dir(device), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := page.Create[page.Device](device, 0o600, "GPU-0", 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	m, err := page.Open[page.Device](device, true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	over, changing := make(chan struct{}), make(chan error, 1)
	go func() { // a thousand changes in each second
		changing <- m.View(func(d *page.Device) error {
			for {
				now, err := monotonic()
				if err != nil {
					return err
				}
				d.Switches.Store(uint64(now.Milliseconds()))
				select {
				case <-over:
					return nil
				case <-time.After(time.Millisecond):
				}
			}
		})
	}()
	found := figures{}
	served, steps, err := s.sharedBeside(t.Context(), helperLine("steady"), helperLine("server"), found)
	close(over)
	if err := errors.Join(err, <-changing); err != nil {
		t.Fatal(err)
	}
	changes, _ := found["lease_changes_per_s"].(float64)
	switching, _ := found["switching_percent"].(float64)
	if served["p99_ms"] != 4. || math.Abs(steps-1000) > 10 || math.Abs(changes-1000) > 100 || math.Abs(switching-changes/100) > 1e-6 {
		t.Errorf("served %v, %.1f steps a second, %v", served, steps, found)
	}
	if err := os.WriteFile(device, []byte("no page"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.sharedBeside(t.Context(), helperLine("steady"), helperLine("server"), found); err == nil {
		t.Error("changes were counted where there is no page of a device")
	}
}

// A program that ends while it is measured is no figure.
func TestEndsTooEarly(t *testing.T) {
	s := newSuite(t)
	t.Setenv(gate, filepath.Join(t.TempDir(), "gate"))
	if _, _, err := s.servedBeside(t.Context(), helperLine("brief"), helperLine("server")); err == nil || !strings.Contains(err.Error(), "ended too early") {
		t.Errorf("a trainer that ended by itself: %v", err)
	}
}

// A program that ignores SIGTERM is killed, not before its time; nobody waits for it forever.
func TestLeaveIsBounded(t *testing.T) {
	s := newSuite(t)
	c, err := s.together(t.Context(), []string{"stubborn"}, []line{helperLine("stubborn")})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := c.leave(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < grace-time.Second {
		t.Errorf("it took %v to end a program that ignores SIGTERM, and it has %v", took, grace)
	}
}

// A program that never works is given up when the step's time is over.
func TestNeverWorks(t *testing.T) {
	s := newSuite(t)
	ctx, over := context.WithCancel(t.Context())
	began := filepath.Join(t.TempDir(), "began")
	go func() {
		for err := os.ErrNotExist; err != nil && t.Context().Err() == nil; _, err = os.Stat(began) {
			<-time.After(time.Millisecond)
		}
		over()
	}()
	if _, err := s.together(ctx, []string{"idle"}, []line{{[]string{"sh", "-c", "echo >" + began + "; exec sleep 60"}, os.Environ()}}); err == nil || !strings.Contains(err.Error(), "idle did nothing") {
		t.Errorf("a program that never worked: %v", err)
	}
}
