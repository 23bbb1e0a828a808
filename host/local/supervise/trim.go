package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A log is one file that its writers append to and that is never copied, renamed or truncated, so no line can fall into a gap
// between two files, whoever dies when. When it holds more than its limit, its head is given back to the file system by punching
// a hole: offsets stay what they are, writers at the end notice nothing, and doing it twice does no harm.

// trimStep is what is given back at once: trimming is rare, and the hole is a whole number of any file system's blocks.
const trimStep = 1 << 20

// Trim gives the head of a log back so that about limit bytes, and at most a step less, stay.
func Trim(path string, limit int64) error {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	end := (info.Size() - limit) / trimStep * trimStep
	if end <= 0 {
		return nil
	}
	start, err := FirstByte(file)
	if err != nil || start >= end {
		return err
	}
	err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, end)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("the file system of %s cannot give back the head of a file: its log grows without limit", path)
	}
	return err
}

// How soon a log is looked at again: the first while it grows, twice as late each time it has not, up to the second.
const (
	TrimSoon = time.Second
	trimLate = 10 * time.Second
)

// Trimmer trims one log while a task runs.
type Trimmer struct {
	Path  string
	Limit int64 // bytes

	size  int64
	pause time.Duration
}

// Look trims the log and says after how long it is to be looked at again. What could not be trimmed is tried again then.
func (t *Trimmer) Look() time.Duration {
	_ = Trim(t.Path, t.Limit)
	before := t.size
	if info, err := os.Lstat(t.Path); err == nil {
		t.size = info.Size()
	}
	t.pause = min(2*t.pause, trimLate)
	if t.size != before {
		t.pause = TrimSoon
	}
	return max(t.pause, TrimSoon)
}

// FirstByte returns the offset at which a log's content begins: 0, or the end of what was trimmed.
func FirstByte(file *os.File) (int64, error) {
	start, err := file.Seek(0, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // nothing in it
		return file.Seek(0, io.SeekEnd)
	}
	return start, err
}
