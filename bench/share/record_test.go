package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The offsets are those that the C compiler gives the header.
func TestRecordLayout(t *testing.T) {
	fields := []struct {
		expression string
		here       int
	}{
		{"SIM_RECORD_MAGIC", recordMagic},
		{"SIM_RECORD_VERSION", recordVersion},
		{"sizeof(struct sim_record)", recordSize},
		{"offsetof(struct sim_record, version)", atVersion},
		{"offsetof(struct sim_record, seq)", atSeq},
		{"offsetof(struct sim_record, rows)", atRows},
		{"offsetof(struct sim_record, updated_ns)", atUpdated},
		{"offsetof(struct sim_record, device)", atDevice},
		{"offsetof(struct sim_record, row)", atRow},
		{"offsetof(struct sim_record_row, pid)", rowPID},
		{"offsetof(struct sim_record_row, device)", rowDevice},
		{"offsetof(struct sim_record_row, busy_ns)", rowBusy},
		{"offsetof(struct sim_record_row, ended_ns)", rowEnded},
		{"offsetof(struct sim_record_device, switch_ns)", deviceSwitch},
		{"offsetof(struct sim_record_device, peak_bytes)", devicePeak},
		{"SIM_SYNC", callSync},
		{"sizeof(struct sim_request)", requestSize},
		{"offsetof(struct sim_answer, status)", answerStatus},
	}
	var source strings.Builder
	source.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include \"simgpu/proto.h\"\nint main(void)\n{\n")
	for _, f := range fields {
		fmt.Fprintf(&source, "\tprintf(\"%%zu\\n\", (size_t)(%s));\n", f.expression)
	}
	source.WriteString("\treturn 0;\n}\n")
	folder := t.TempDir()
	program := filepath.Join(folder, "layout")
	if err := os.WriteFile(program+".c", []byte(source.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-std=gnu11", "-I../../native", "-o", program, program+".c").CombinedOutput(); err != nil {
		t.Fatalf("compile the header: %v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != len(fields) {
		t.Fatalf("%d figures for %d fields", len(lines), len(fields))
	}
	for i, f := range fields {
		if lines[i] != fmt.Sprint(f.here) {
			t.Errorf("%s is %s in C, %d here", f.expression, lines[i], f.here)
		}
	}
}

func TestParseRecord(t *testing.T) {
	page := make([]byte, recordSize)
	order := binary.LittleEndian
	order.PutUint64(page[atUpdated:], uint64(7*time.Second))
	order.PutUint64(page[atDevice+deviceSwitch:], uint64(3*time.Second))
	order.PutUint64(page[atDevice+deviceSize+devicePeak:], 5<<30)
	order.PutUint32(page[atRows:], 4)
	for i, row := range []struct {
		pid, device uint32
		busy, ended time.Duration
	}{{11, 0, time.Second, 0}, {12, 1, 2 * time.Second, 0}, {0, 0, 4 * time.Second, 0}, {13, 0, time.Second, time.Second}} {
		at := page[atRow+i*rowSize:]
		order.PutUint32(at[rowPID:], row.pid)
		order.PutUint32(at[rowDevice:], row.device)
		order.PutUint64(at[rowBusy:], uint64(row.busy))
		order.PutUint64(at[rowEnded:], uint64(row.ended))
	}
	got := parseRecord(page, 0)
	if got.At != 7*time.Second || got.Switching != 3*time.Second || got.Peak != 0 || len(got.Busy) != 1 || got.Busy[11] != time.Second {
		t.Errorf("got %+v", got)
	}
	order.PutUint32(page[atRows:], 1<<31) // more than there is room for must not be believed
	if got := parseRecord(page, 1); got.Busy[12] != 2*time.Second || got.Switching != 0 || got.Peak != 5<<30 {
		t.Errorf("got %+v", got)
	}
}

// A record that is read says what the driver says when it is asked, and a driver that went away is an error.
func TestRecordRead(t *testing.T) {
	run := t.TempDir()
	socket := filepath.Join(run, "socket")
	page := make([]byte, recordSize)
	order := binary.LittleEndian
	order.PutUint32(page, recordMagic)
	order.PutUint32(page[atVersion:], recordVersion)
	order.PutUint64(page[atUpdated:], uint64(time.Minute))
	if err := os.MkdirAll(filepath.Join(run, "sim"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, "sim", "record"), page, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unixpacket", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // answers well, then badly, then not at all
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		for _, status := range []uint32{0, 999} {
			request := make([]byte, 2*requestSize)
			if n, err := conn.Read(request); err != nil || n != requestSize || order.Uint32(request) != callSync {
				return
			}
			answer := make([]byte, 600)
			order.PutUint32(answer[answerStatus:], status)
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	}()
	r, err := openRecord(run, socket)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.read(t.Context(), 0); err != nil || got.At != time.Minute {
		t.Errorf("%+v, %v", got, err)
	}
	for _, why := range []string{"with a status", "from nobody"} {
		if got, err := r.read(t.Context(), 0); err == nil {
			t.Errorf("an answer %s is %+v", why, got)
		}
	}
	if err := errors.Join(r.close(), listener.Close()); err != nil {
		t.Error(err)
	}
}
