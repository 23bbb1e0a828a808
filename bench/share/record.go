package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The layout of native/simgpu/record.h that the benchmark reads; record_test.go holds it to the header.
const (
	recordMagic   = 0x31524d53
	recordVersion = 1

	atVersion = 4
	atSeq     = 16
	atRows    = 20
	atUpdated = 24
	atDevice  = 64

	deviceSize = 128
	deviceMost = 16
	atRow      = atDevice + deviceSize*deviceMost

	rowSize   = 64
	rowMost   = 4096
	rowPID    = 0
	rowDevice = 4
	rowBusy   = 16

	recordSize = atRow + rowSize*rowMost
)

// record is the simulated driver's own record of device time, mapped read-only.
type record struct {
	page   []byte
	helper string // aliquot-simgpu, which brings the record up to now
	socket string
}

// openRecord maps the record of the simulated driver of a run folder.
func openRecord(run, socket string) (*record, error) {
	path := filepath.Join(run, "sim", "record")
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the record of the simulated devices: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("open the record of the simulated devices: %w", err)
	}
	if info.Size() < recordSize {
		return nil, fmt.Errorf("%s has %d bytes, a record has %d: was it made by another version?", path, info.Size(), recordSize)
	}
	page, err := unix.Mmap(int(file.Fd()), 0, recordSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	order := binary.LittleEndian
	if magic, version := order.Uint32(page), order.Uint32(page[atVersion:]); magic != recordMagic || version != recordVersion {
		_ = unix.Munmap(page)
		return nil, fmt.Errorf("%s is no record of version %d (magic %#x, version %d)", path, recordVersion, magic, version)
	}
	return &record{page: page, helper: filepath.Join(run, "bin", "aliquot-simgpu"), socket: socket}, nil
}

func (r *record) close() { _ = unix.Munmap(r.page) }

// read brings the record up to now and returns what every process has used of one device.
func (r *record) read(ctx context.Context, device int) (reading, error) {
	out, err := exec.CommandContext(ctx, r.helper, "sync", "--socket", r.socket).CombinedOutput()
	if err != nil {
		return reading{}, fmt.Errorf("bring the record up to now: %w: %s", err, strings.TrimSpace(string(out)))
	}
	seq := (*atomic.Uint32)(unsafe.Pointer(&r.page[atSeq]))
	for ctx.Err() == nil {
		before := seq.Load()
		if before%2 != 0 {
			time.Sleep(time.Microsecond) // the server is in the middle of writing
			continue
		}
		got := parseRecord(r.page, device)
		if seq.Load() == before {
			return got, nil
		}
	}
	return reading{}, ctx.Err()
}

func parseRecord(page []byte, device int) reading {
	order := binary.LittleEndian
	got := reading{at: time.Duration(order.Uint64(page[atUpdated:])), busy: map[int]time.Duration{}}
	for i := range min(int(order.Uint32(page[atRows:])), rowMost) {
		row := page[atRow+i*rowSize:]
		pid := int(int32(order.Uint32(row[rowPID:])))
		if pid != 0 && int(order.Uint32(row[rowDevice:])) == device {
			got.busy[pid] += time.Duration(order.Uint64(row[rowBusy:]))
		}
	}
	return got
}
