package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/server"
)

// Logs copies what the task printed, as far as it is asked for.
func (h *Host) Logs(ctx context.Context, who server.Caller, name string, part server.LogPart, to io.Writer) error {
	work, err := h.Workload(ctx, name)
	if err != nil {
		return err
	}
	if !h.may(who.UID, work.UserID) {
		return refuse(api.CodeForbidden, "%s belongs to %s: only that user or root may read its log", work.Spec.Name, work.User)
	}
	if work.Spec.Attach {
		return refuse(api.CodeConflict, "%s printed to the terminal that it was run from: there is no log; use `aliquot submit` for one", work.Spec.Name)
	}
	log := &logReader{path: h.logPath(work.UID), to: to}
	defer log.close()
	if part.Tail != nil {
		if err := log.skip(*part.Tail); err != nil {
			return err
		}
	}
	for part.Follow && work.Status.Phase != api.Ended {
		if work, err = h.followLog(ctx, work, log); err != nil {
			return err
		}
	}
	return log.copy() // what came before its end, or all there is
}

// followLog copies until the workload's phase changes.
func (h *Host) followLog(ctx context.Context, work api.Workload, log *logReader) (api.Workload, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		work api.Workload
		err  error
	}
	changed := make(chan outcome, 1)
	go func() {
		next, err := h.Wait(ctx, work.UID, work.Status.Phase)
		changed <- outcome{next, err}
	}()
	grown, err := watchFile(ctx, log.path)
	if err != nil {
		return work, refusal(err)
	}
	for {
		if err := log.copy(); err != nil {
			return work, err
		}
		select {
		case <-grown:
		case next := <-changed:
			return next.work, next.err
		case <-ctx.Done():
			return work, ctx.Err()
		}
	}
}

// watchFile tells when a file grows, until ctx ends. A file that is not there yet does not grow.
func watchFile(ctx context.Context, path string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch a log: %w", err)
	}
	file := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, errors.Join(fmt.Errorf("watch a log: %w", err), file.Close())
	}
	context.AfterFunc(ctx, func() { _ = file.Close() })
	grown := make(chan struct{}, 1)
	go func() {
		buffer := make([]byte, 4096)
		for {
			if _, err := file.Read(buffer); err != nil {
				return
			}
			select {
			case grown <- struct{}{}:
			default: // it is known already
			}
		}
	}()
	return grown, nil
}

// logReader reads a log on from where it stopped.
type logReader struct {
	path string
	to   io.Writer
	file *os.File
	at   int64
	torn bool // what comes next begins within a line whose head was trimmed
	open bool // the last line written is not at its end
}

// find opens the log, if there is one yet.
func (l *logReader) find() (found bool, err error) {
	if l.file != nil {
		return true, nil
	}
	file, err := os.OpenFile(l.path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // nothing was started yet
	}
	if err != nil {
		return false, refusal(err)
	}
	l.file = file
	return true, nil
}

// skip goes to where the last lines begin that there are now. Where there are fewer, or they are trimmed meanwhile, copy begins
// with what is left.
func (l *logReader) skip(tail int) error {
	found, err := l.find()
	if err != nil || !found {
		return err
	}
	start, err := supervise.FirstByte(l.file)
	if err != nil {
		return refusal(err)
	}
	info, err := l.file.Stat()
	if err != nil {
		return refusal(err)
	}
	if tail == 0 {
		l.at = info.Size()
		return nil
	}
	buffer := make([]byte, 64<<10)
	for end := info.Size() - 1; end > start; { // the last byte ends the last line or is within it: it begins none
		from := max(start, end-int64(len(buffer)))
		chunk := buffer[:end-from]
		if n, err := l.file.ReadAt(chunk, from); n < len(chunk) {
			return refusal(err)
		}
		for i := bytes.LastIndexByte(chunk, '\n'); i >= 0; i = bytes.LastIndexByte(chunk[:i], '\n') {
			if tail--; tail == 0 {
				l.at = from + int64(i) + 1
				return nil
			}
		}
		end = from
	}
	return nil
}

// copy writes what is there and was not written yet. What was trimmed meanwhile is left out, whole lines of it.
func (l *logReader) copy() error {
	if found, err := l.find(); err != nil || !found {
		return err
	}
	for buffer := make([]byte, 64<<10); ; {
		n, err := l.file.ReadAt(buffer, l.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return refusal(err)
		}
		if n == 0 {
			return nil
		}
		// Asked after it was read: what is there now was there then, and what was trimmed meanwhile may have been read as zeros.
		start, err := supervise.FirstByte(l.file)
		if err != nil {
			return refusal(err)
		}
		if start > l.at {
			l.at, l.torn = start, true
			continue
		}
		l.at += int64(n)
		if err := l.write(buffer[:n]); err != nil {
			return err
		}
	}
}

// write passes on what follows what was written before, from the next whole line on where something is missing between the two.
func (l *logReader) write(chunk []byte) error {
	if l.torn {
		if l.open {
			l.open = false
			if _, err := l.to.Write([]byte("\n")); err != nil {
				return err
			}
		}
		_, rest, ended := bytes.Cut(chunk, []byte("\n"))
		chunk, l.torn = rest, !ended
	}
	if len(chunk) == 0 {
		return nil
	}
	l.open = chunk[len(chunk)-1] != '\n'
	_, err := l.to.Write(chunk)
	return err
}

func (l *logReader) close() {
	if l.file != nil {
		_ = l.file.Close()
	}
}
