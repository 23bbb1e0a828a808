package proc

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpen: a process opened as this kernel can, or as kernels before 5.10 can, may be waited for without blocking.
func TestOpen(t *testing.T) {
	for name, open := range map[string]func(int) (int, error){"as this kernel can": Open, "before 5.10": openBlocking} {
		t.Run(name, func(t *testing.T) {
			fd, err := open(os.Getpid())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Close(fd) }()
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			if err != nil || flags&unix.O_NONBLOCK == 0 {
				t.Errorf("flags %#x, %v", flags, err)
			}
			if _, err := open(1 << 30); !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) {
				t.Errorf("of no process: %v", err)
			}
		})
	}
}
