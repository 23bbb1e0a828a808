package client

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

var errPermission = os.ErrPermission

// Attachment is a line to the server that carries this process' standard streams. The task gets SIGHUP when it closes before the
// task has ended.
type Attachment struct {
	conn *net.UnixConn
	lost chan struct{}
}

// Close lets go of the task.
func (a *Attachment) Close() error { return a.conn.Close() }

// Lost is closed when the line ends: the server did not take the streams, or it went away, or Close was called.
func (a *Attachment) Lost() <-chan struct{} { return a.lost }

// Attach hands over the three standard streams for the workload with this UID. They stay open here too.
func (c *Client) Attach(ctx context.Context, uid string, in, out, errs *os.File) (*Attachment, error) {
	path := filepath.Join(c.run, AttachName)
	line, err := c.dial(ctx, path)
	if err != nil {
		return nil, c.lost(ctx, err, "hand over the standard streams at %s", path)
	}
	rights := syscall.UnixRights(int(in.Fd()), int(out.Fd()), int(errs.Fd()))
	if _, _, err := line.WriteMsgUnix([]byte(uid+"\n"), rights, nil); err != nil {
		return nil, errors.Join(c.lost(ctx, err, "hand over the standard streams at %s", path), line.Close())
	}
	held := &Attachment{line, make(chan struct{})}
	go func() {
		_, _ = line.Read(make([]byte, 1)) // the server says nothing on it
		close(held.lost)
	}()
	return held, nil
}

// ServerPID is the process that serves the API's socket, by the kernel's word.
func (c *Client) ServerPID(ctx context.Context) (int, error) {
	line, err := c.dial(ctx, c.Socket())
	if err != nil {
		return 0, c.lost(ctx, err, "ask who serves %s", c.Socket())
	}
	defer func() { _ = line.Close() }()
	peer, err := peerOf(line)
	if err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}
