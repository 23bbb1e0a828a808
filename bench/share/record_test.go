package main

import (
	"encoding/binary"
	"fmt"
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
	}
	var source strings.Builder
	source.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include \"simgpu/record.h\"\nint main(void)\n{\n")
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
	order.PutUint32(page[atRows:], 3)
	for i, row := range []struct {
		pid, device uint32
		busy        time.Duration
	}{{11, 0, time.Second}, {12, 1, 2 * time.Second}, {0, 0, 4 * time.Second}} {
		at := page[atRow+i*rowSize:]
		order.PutUint32(at[rowPID:], row.pid)
		order.PutUint32(at[rowDevice:], row.device)
		order.PutUint64(at[rowBusy:], uint64(row.busy))
	}
	got := parseRecord(page, 0)
	if got.at != 7*time.Second || len(got.busy) != 1 || got.busy[11] != time.Second {
		t.Errorf("got %+v", got)
	}
	order.PutUint32(page[atRows:], 1<<31) // more than there is room for must not be believed
	if got := parseRecord(page, 1); got.busy[12] != 2*time.Second {
		t.Errorf("got %+v", got)
	}
}
