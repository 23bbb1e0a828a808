package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
)

// AttachName is the name of the socket in RUN at which clients hand over their streams.
const AttachName = "attach.sock"

// helloLimit is how long a client may take to say what it wants.
const helloLimit = 10 * time.Second

// takeStreams takes clients' streams until ctx ends.
func (h *Host) takeStreams(ctx context.Context, listener *net.UnixListener) {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.AcceptUnix()
		switch {
		case err == nil:
			h.spawn(func(ctx context.Context) { h.attach(ctx, conn) })
		case ctx.Err() != nil:
			return
		default: // out of descriptors, for one
			h.Log.Error("a client's streams could not be taken", "error", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		}
	}
}

func (h *Host) listenAttach() (*net.UnixListener, error) {
	path := filepath.Join(h.Run, AttachName)
	// The lock on RUN is ours: whatever is there is left over.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("make the socket for streams: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket for streams: %w", err)
	}
	mode := os.FileMode(0o600)
	if h.uid == 0 {
		mode = 0o666 // who it is, the kernel says
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("make the socket for streams: %w", err), listener.Close())
	}
	return listener, nil
}

// attach serves one client for as long as it stays.
func (h *Host) attach(ctx context.Context, conn *net.UnixConn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	peer, err := peerOf(conn)
	if err == nil && !h.opened.take(peer.Uid) {
		err = fmt.Errorf("user %d has %d connections and streams open, and may not have more", peer.Uid, openLimit)
	}
	if err != nil {
		h.Log.Info("a client's streams were not taken", "error", err)
		return
	}
	defer h.opened.give(peer.Uid)
	uid, files, err := receive(conn)
	h.opened.more(peer.Uid)
	streams := &handed{files, func() { h.opened.give(peer.Uid) }, func() { h.opened.more(peer.Uid) }}
	var w *work
	taken := false
	if err == nil {
		var refused error
		err = h.look(ctx, func() { w, taken, refused = h.attachTo(uid, peer.Uid, streams) })
		err = errors.Join(err, refused)
	}
	if !taken {
		streams.close()
	}
	if uid == "" && (errors.Is(err, io.EOF) || ctx.Err() != nil) {
		return // someone only looked whether anybody listens here, or this daemon ends before a word was said
	}
	if err != nil || w == nil {
		h.Log.Info("a client's streams were not taken", "workload", uid, "error", err)
		return
	}
	// The client says nothing more: what comes next is its end.
	_, _ = conn.Read(make([]byte, 1))
	if ctx.Err() != nil {
		return // this daemon ends, not the client
	}
	h.tell(func() { h.clientGone(w) })
}

func receive(conn *net.UnixConn) (string, []*os.File, error) {
	_ = conn.SetReadDeadline(time.Now().Add(helloLimit))
	line, rights := make([]byte, 256), make([]byte, unix.CmsgSpace(8*4))
	n, rightsLength, _, _, err := conn.ReadMsgUnix(line, rights)
	if err != nil {
		return "", nil, err
	}
	_ = conn.SetReadDeadline(time.Time{})
	streams, err := descriptors(rights[:rightsLength])
	if err == nil && len(streams) != 3 {
		err = fmt.Errorf("%d streams were handed over, not 3", len(streams))
	}
	return strings.TrimSuffix(string(line[:n]), "\n"), streams, err
}

func descriptors(rights []byte) ([]*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, message := range messages {
		fds, err := syscall.ParseUnixRights(&message)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "stream"))
		}
	}
	return files, nil
}

func peerOf(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { peer, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, asked)
}

// attachTo gives streams to a workload that has none yet, or takes a client back that was attached to it before this daemon lived;
// taken says that it did the former.
func (h *Host) attachTo(uid string, peer uint32, streams *handed) (w *work, taken bool, err error) {
	w = h.work[uid]
	switch {
	case w == nil || w.over:
		return nil, false, fmt.Errorf("there is no live workload %q", uid)
	case w.now.UserID != peer && peer != 0:
		return nil, false, fmt.Errorf("user %d is not its owner", peer)
	case !w.now.Spec.Attach:
		return nil, false, errors.New("it was not submitted to be attached to")
	}
	w.attached++
	if w.number() == 0 && w.spare == nil && w.now.Spec.Several() {
		var failed error
		if w.spare, failed = streams.again(); failed != nil {
			h.Log.Error("a client's streams are not to be had for further replicas", "workload", uid, "error", failed)
		}
		h.feed(w, h.others(w)...)
	}
	if w.child != nil || w.now.Status.Started != nil {
		return w, false, nil // its program has its streams
	}
	select {
	case w.streams <- streams:
		return w, true, nil
	default: // it has some
		return w, false, nil
	}
}

// clientGone does what a terminal does that is closed: SIGHUP to what runs, and SIGCONT, as the kernel sends an orphaned group of processes
// that is stopped and could not obey; what does not run yet has nobody to run for. It is so of all replicas that are left.
func (h *Host) clientGone(w *work) {
	w.attached--
	if w.attached > 0 {
		return
	}
	if !w.over && w.child == nil {
		h.stop(w, order{Outcome: api.Stopped, Reason: "its client went away"})
		return
	}
	for _, one := range append(h.others(w), w) {
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT} {
			switch {
			case one.over:
			case one.child != nil:
				_ = one.child.Signal(sig)
			default:
				one.signals = append(one.signals, sig)
			}
		}
	}
}

// expectClient sees to it that a workload whose client never comes, or never comes back, does not stay for ever.
func (h *Host) expectClient(w *work) {
	stopping := w.stopping // the loop's, and another once it was put back into the line
	h.spawn(func(ctx context.Context) {
		patience := time.NewTimer(h.AttachGrace)
		defer patience.Stop()
		select {
		case <-patience.C:
			h.tell(func() {
				if w.attached == 0 && !slices.ContainsFunc(h.others(w), func(o *work) bool { return o.attached > 0 }) {
					w.attached = 1
					h.clientGone(w)
				}
			})
		case <-stopping:
		case <-ctx.Done():
		}
	})
}
