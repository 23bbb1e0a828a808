package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Stranger says that what listens at a socket is neither this user's server nor root's. Anyone can make a folder under /tmp with the
// name of another's; a request has this user's environment in it, and an attachment this user's terminal, so nothing is sent.
type Stranger struct {
	Socket string
	UID    uint32
}

func (e *Stranger) Error() string {
	return fmt.Sprintf("the server at %s runs as user %d, who is neither you nor root: nothing was sent to it; name another with --run, or start one with `aliquot up`", e.Socket, e.UID)
}

// dial connects to a socket of the server, and to none but this user's or root's.
func (c *Client) dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	line := conn.(*net.UnixConn)
	peer, err := peerOf(line)
	if err == nil && peer.Uid != 0 && peer.Uid != c.user {
		err = &Stranger{socket, peer.Uid}
	}
	if err != nil {
		return nil, errors.Join(err, line.Close())
	}
	return line, nil
}

// peerOf is who listened at the other end, by the kernel's word.
func peerOf(line *net.UnixConn) (*unix.Ucred, error) {
	raw, err := line.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("ask who serves %s: %w", line.RemoteAddr(), err)
	}
	var peer *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { peer, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, asked); err != nil {
		return nil, fmt.Errorf("ask who serves %s: %w", line.RemoteAddr(), err)
	}
	return peer, nil
}

// HasServer says whether run has a socket of a server in it that can be this user's or root's: the folder belongs to one of them, and
// nobody else can write to it. Whether one listens there is not asked.
func HasServer(run string) bool {
	folder, err := os.Stat(run)
	if err != nil {
		return false
	}
	owner := folder.Sys().(*syscall.Stat_t).Uid
	if owner != 0 && owner != uint32(os.Geteuid()) || folder.Mode().Perm()&0o022 != 0 {
		return false
	}
	socket, err := os.Stat(filepath.Join(run, SocketName))
	return err == nil && socket.Mode()&os.ModeSocket != 0
}
