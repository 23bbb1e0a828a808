package local

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
)

// stubborn is a socket that takes its time to be closed: what was written to it is not read by the other end.
func stubborn(t *testing.T) *net.TCPConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = other.(*net.TCPConn).SetLinger(0), other.Close(), listener.Close() })
	socket := conn.(*net.TCPConn)
	if err := socket.SetLinger(60); err != nil {
		t.Fatal(err)
	}
	_ = socket.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for block := make([]byte, 1<<16); err == nil; {
		_, err = socket.Write(block)
	}
	return socket
}

// waiting submits a workload that is to be attached to and waits behind another.
func (s *site) waiting() api.Workload {
	s.Helper()
	for range 2 { // devices
		s.running(s.submit(spec("1", "sleep 1000")).UID)
	}
	asked := spec("1", "true")
	asked.Attach = true
	return s.submit(asked)
}

// What a user hands over may take for ever to be closed. That is nobody else's.
func TestStreamsThatCannotBeClosedStopNobody(t *testing.T) {
	s := newSite(t, nil)
	work := s.waiting()
	s.attach(work.UID)
	until.Polled(t, "the first are taken", func() bool { return s.attachments(work.UID) == 1 })
	conn, err := net.Dial("unix", filepath.Join(s.Host.Run, AttachName))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var files []int
	var own []io.Closer
	for range 3 {
		socket := stubborn(t)
		file, err := socket.File()
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, socket, file)
		files = append(files, int(file.Fd()))
	}
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte(work.UID+"\n"), syscall.UnixRights(files...), nil); err != nil {
		t.Fatal(err)
	}
	for _, one := range own { // so that the host's are the last; where it was faster these are, and take their time
		go func() { _ = one.Close() }()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for attached := 0; attached < 2; {
		if err := s.look(ctx, func() { attached = s.Host.work[work.UID].attached }); err != nil {
			t.Fatalf("the host does not answer: %v", err)
		}
	}
	if _, err := s.Workloads(ctx, false); err != nil {
		t.Errorf("the host does not answer: %v", err)
	}
}

// attachments are the connections of a workload's client.
func (s *site) attachments(uid string) (count int) {
	s.Helper()
	if err := s.look(context.Background(), func() { count = s.Host.work[uid].attached }); err != nil {
		s.Fatal(err)
	}
	return count
}

// Streams that nobody will take are closed, so that who reads from them (`aliquot run … | tee`) sees their end.
func TestStreamsThatNobodyTakesAreClosed(t *testing.T) {
	s := newSite(t, nil)
	ends := func(when string, out interface {
		io.Reader
		SetReadDeadline(time.Time) error
	},
	) {
		t.Helper()
		_ = out.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadAll(out); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	work := s.waiting()
	_, _, out := s.attach(work.UID)
	until.Polled(t, "they are taken", func() bool { return s.attachments(work.UID) == 1 })
	if _, err := s.Stop(context.Background(), me, work.UID, 0); err != nil {
		t.Fatal(err)
	}
	ends("stopped in line", out)

	s.stopAll()
	asked := spec("1", "sleep 1000")
	asked.Attach = true
	work = s.submit(asked)
	first, _, _ := s.attach(work.UID)
	s.running(work.UID)
	s.restart()
	_ = first.Close()
	_, _, out = s.attach(work.UID)
	ends("back after a restart", out)
	if phase := s.wait(work.UID).Status.Phase; phase != api.Running {
		t.Errorf("it is %s", phase)
	}
}

// A user has no more open than a daemon can bear, and what was given back can be had again.
func TestTallyIsBounded(t *testing.T) {
	var counts tally
	for range openLimit {
		if !counts.take(1) {
			t.Fatal("refused below the limit")
		}
	}
	if counts.take(1) || !counts.take(2) {
		t.Error("one user's limit is not its own")
	}
	if counts.give(1); !counts.take(1) {
		t.Error("what was given back cannot be had again")
	}
}
