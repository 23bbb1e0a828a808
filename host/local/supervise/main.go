package supervise

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/internal/point"
)

// supervisor is the state of a running one.
type supervisor struct {
	dir    Folder
	recipe Recipe
	pid    int // the program's first process
	exit   Exit
	ending bool
	// room is the exit file's space, taken at the start: an exit status must not be lost to a full disk.
	room *os.File
}

// Main is the supervisor's process: args is the task's folder. It returns the status to exit with.
func Main(args []string) int {
	if len(args) == 2 && args[0] == mountedFlag {
		return mounted(Folder(args[1]))
	}
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "aliquot supervise: one argument is needed, the task's folder; the server starts this itself")
		return 2
	}
	s := &supervisor{dir: Folder(args[0])}
	if err := s.run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s supervise %s: %v\n", time.Now().UTC().Format(time.RFC3339), args[0], err)
		return 1
	}
	return 0
}

func (s *supervisor) run() error {
	// Caught, not ignored: the program would inherit what is ignored.
	orders := make(chan os.Signal, 8)
	signal.Notify(orders, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of what the task leaves behind: %w", err)
	}
	streams, tell, err := s.inherit()
	if err != nil {
		return err
	}
	self, err := Find(os.Getpid())
	if err != nil {
		return err
	}
	if err := write(string(s.dir), supervisorFile, self, false); err != nil {
		return err
	}
	if s.room, err = makeRoom(s.dir); err != nil {
		return err
	}
	if _, ordered := s.ordered(); ordered { // it is to end, and has not begun
		s.exit = Exit{Stopped: true, NotStarted: true, At: time.Now()}
		if err := s.record(); err != nil {
			return err
		}
		s.tell(tell, report{Exit: &s.exit})
		return nil
	}
	child, err := s.begin(streams)
	for _, stream := range streams {
		_ = stream.Close() // or the client would never see the end of its pipes
	}
	if err != nil {
		s.exit = refusal(err)
		if err := s.record(); err != nil {
			return err
		}
		s.tell(tell, report{Exit: &s.exit})
		return nil
	}
	s.tell(tell, report{Child: child})
	s.watch(orders)
	point.Here("supervise.exit.seen")
	if err := s.record(); err != nil {
		return err
	}
	point.Here("supervise.exit.written")
	return nil
}

// inherit takes over what Start handed down.
func (s *supervisor) inherit() ([]*os.File, *os.File, error) {
	if there, err := read(string(s.dir), recipeFile, &s.recipe); err != nil || !there {
		return nil, nil, fmt.Errorf("read the recipe: there %v: %w", there, err)
	}
	if err := CloseOnExecFrom(lockDescriptor); err != nil {
		return nil, nil, err
	}
	// The lock must come from the one who started this: taking it here would leave a moment in which nobody held it.
	if held, err := s.dir.held(); err != nil || !held {
		return nil, nil, fmt.Errorf("the task's lock was not handed down (held %v): %w", held, err)
	}
	var streams []*os.File
	if s.recipe.Log == "" {
		for i := range 3 {
			streams = append(streams, os.NewFile(uintptr(firstStream+i), "stream"))
		}
	}
	return streams, os.NewFile(reportDescriptor, "report"), nil
}

// begin starts the program and records it.
func (s *supervisor) begin(streams []*os.File) (*Child, error) {
	if err := write(string(s.dir), begunFile, true, false); err != nil {
		return nil, err
	}
	point.Here("supervise.child.begun")
	pid, notes, err := launch(s.dir, s.recipe, streams)
	if err != nil {
		return nil, err
	}
	point.Here("supervise.child.started")
	s.pid = pid
	process, err := Find(pid)
	if err != nil {
		return nil, err
	}
	child := &Child{Process: process, At: time.Now(), Notes: notes}
	if err := write(string(s.dir), childFile, child, false); err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // without this record nobody could find it
		return nil, fmt.Errorf("record the program that was started: %w", err)
	}
	point.Here("supervise.child.recorded")
	return child, nil
}

// tell says once how the start went. That nobody listens any more changes nothing.
func (s *supervisor) tell(to *os.File, what report) {
	_ = json.NewEncoder(to).Encode(what)
	_ = to.Close()
}

// watch returns when the program and all that came from it have ended.
func (s *supervisor) watch(orders <-chan os.Signal) {
	reaped := make(chan reaping)
	go reap(reaped)
	var limit, kill <-chan time.Time
	if s.recipe.TimeLimit > 0 {
		timer := time.NewTimer(s.recipe.TimeLimit)
		defer timer.Stop()
		limit = timer.C
	}
	log := Trimmer{Path: s.recipe.Log, Limit: s.recipe.LogLimit}
	trim := time.NewTimer(TrimSoon)
	defer trim.Stop()
	if s.recipe.LogLimit > 0 && s.recipe.Log != "" {
		defer log.Look() // nobody writes any more
	} else {
		trim.Stop()
	}
	end := func(grace time.Duration) {
		if kill == nil && !s.ending {
			s.signalAll(unix.SIGTERM)
			s.signalAll(unix.SIGCONT) // what is stopped could not obey
			kill = time.After(grace)
		}
	}
	if _, ordered := s.ordered(); ordered {
		s.exit.Stopped = true
		end(s.grace())
	}
	for {
		select {
		case one, more := <-reaped:
			if !more {
				return
			}
			s.reaped(one)
		case sig := <-orders:
			if sig == unix.SIGTERM && !s.exit.TimedOut {
				s.exit.Stopped = true
				grace := s.grace()
				if kill != nil {
					kill = time.After(grace) // a second order may be more urgent
				}
				end(grace)
			}
		case <-limit:
			s.exit.TimedOut = !s.exit.Stopped
			end(s.recipe.Grace)
		case <-kill:
			s.ending = true
			s.signalAll(unix.SIGKILL)
		case <-trim.C:
			trim.Reset(log.Look())
		}
	}
}

func (s *supervisor) ordered() (Order, bool) {
	var order Order
	there, err := read(string(s.dir), stopFile, &order)
	return order, err == nil && there
}

func (s *supervisor) grace() time.Duration {
	if order, ordered := s.ordered(); ordered {
		return order.Grace
	}
	return s.recipe.Grace
}

// reaped takes note of a process that ended. With the first process the task ends: what it left behind is killed.
func (s *supervisor) reaped(one reaping) {
	if one.pid == s.pid {
		s.ending = true
		s.exit.At = time.Now()
		s.exit.Code = one.status.ExitStatus()
		if one.status.Signaled() {
			s.exit.Signal = signalName(one.status.Signal())
			s.exit.Code = 128 + int(one.status.Signal())
			s.exit.Note = overMemory(s.recipe.Cgroups, one.status.Signal())
		}
	}
	if s.ending && !one.last {
		// Again after each, because one may have forked before it was killed.
		s.signalAll(unix.SIGKILL)
	}
}

func (s *supervisor) signalAll(sig unix.Signal) {
	list, err := descendants(os.Getpid())
	if err != nil {
		fmt.Fprintf(os.Stderr, "list the task's processes: %v\n", err)
	}
	for _, process := range list {
		if err := process.Send(sig); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// record writes the exit status into the room kept for it, durably, and renames it into place.
func (s *supervisor) record() error {
	data, err := json.Marshal(s.exit)
	if err != nil {
		return err
	}
	if _, err := s.room.WriteAt(blanks(data), 0); err != nil {
		return fmt.Errorf("write the exit status: %w", err)
	}
	if err := s.room.Sync(); err != nil {
		return fmt.Errorf("write the exit status: %w", err)
	}
	if err := os.Rename(s.room.Name(), filepath.Join(string(s.dir), exitFile)); err != nil {
		return fmt.Errorf("write the exit status: %w", err)
	}
	return syncFolder(string(s.dir))
}

// roomSize is enough for any exit status or order.
const roomSize = 4096

// blanks fills data up to the size of a room.
func blanks(data []byte) []byte {
	return append(data, bytes.Repeat([]byte(" "), max(0, roomSize-len(data)))...)
}

func makeRoom(dir Folder) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(string(dir), exitFile+".room"), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = file.Write(blanks(nil))
	return file, err
}

// reaping is a process that ended; last: no other is left.
type reaping struct {
	pid    int
	status syscall.WaitStatus
	last   bool
}

// reap waits for every child and closes the channel when none is left.
func reap(to chan<- reaping) {
	defer close(to)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return
		}
		// Looked at without reaping: a task of one process then ends without a look at all the machine's processes.
		var next unix.Siginfo
		last := unix.Waitid(unix.P_ALL, 0, &next, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == unix.ECHILD
		to <- reaping{pid, status, last}
	}
}

func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}
