package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/bench/judge"
)

// The layout of native/simgpu/record.h that the benchmark reads, and of the one request of proto.h that it makes; record_test.go holds
// them to the headers.
const (
	recordMagic   = 0x31524d53
	recordVersion = 1

	atVersion = 4
	atSeq     = 16
	atRows    = 20
	atUpdated = 24
	atDevice  = 64

	deviceSize   = 128
	deviceMost   = 16
	deviceSwitch = 64
	devicePeak   = 104
	atRow        = atDevice + deviceSize*deviceMost

	rowSize   = 64
	rowMost   = 4096
	rowPID    = 0
	rowDevice = 4
	rowBusy   = 16
	rowEnded  = 48

	recordSize = atRow + rowSize*rowMost

	callSync     = 8
	requestSize  = 64
	answerStatus = 4
	answerMost   = 4096 // more than any answer has
)

// record is the simulated driver's own record of device time, mapped read-only, and a line to that driver, which brings it up to now.
type record struct {
	page []byte
	line net.Conn
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
	line, err := net.Dial("unixpacket", socket)
	if err != nil {
		_ = unix.Munmap(page)
		return nil, fmt.Errorf("reach the simulated driver: %w", err)
	}
	return &record{page: page, line: line}, nil
}

func (r *record) close() error { return errors.Join(r.line.Close(), unix.Munmap(r.page)) }

// sync has the driver bring the record up to now.
func (r *record) sync() error {
	if err := r.line.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	request := make([]byte, requestSize)
	binary.LittleEndian.PutUint32(request, callSync)
	if _, err := r.line.Write(request); err != nil {
		return err
	}
	answer := make([]byte, answerMost)
	n, err := r.line.Read(answer)
	if err != nil {
		return err
	}
	if n < answerStatus+4 {
		return fmt.Errorf("its answer has %d bytes", n)
	}
	if status := binary.LittleEndian.Uint32(answer[answerStatus:]); status != 0 {
		return fmt.Errorf("it answered with status %d", status)
	}
	return nil
}

// read brings the record up to now and returns what every process that lives has used of one device.
func (r *record) read(ctx context.Context, device int) (judge.Reading, error) {
	if err := r.sync(); err != nil {
		return judge.Reading{}, fmt.Errorf("bring the record of the simulated devices up to now: %w", err)
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
	return judge.Reading{}, ctx.Err()
}

// parseRecord leaves out processes that have ended.
func parseRecord(page []byte, device int) judge.Reading {
	order := binary.LittleEndian
	of := page[atDevice+device*deviceSize:]
	got := judge.Reading{
		At: time.Duration(order.Uint64(page[atUpdated:])), Switching: time.Duration(order.Uint64(of[deviceSwitch:])),
		Peak: int64(order.Uint64(of[devicePeak:])), Busy: map[int]time.Duration{},
	}
	for i := range min(int(order.Uint32(page[atRows:])), rowMost) {
		row := page[atRow+i*rowSize:]
		pid := int(int32(order.Uint32(row[rowPID:])))
		if pid != 0 && int(order.Uint32(row[rowDevice:])) == device && order.Uint64(row[rowEnded:]) == 0 {
			got.Busy[pid] += time.Duration(order.Uint64(row[rowBusy:]))
		}
	}
	return got
}
