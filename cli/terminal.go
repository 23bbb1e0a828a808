package cli

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminalWidth is the width of a terminal, 80 where it cannot be had.
func terminalWidth(file *os.File) int {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// endedBy is the end of a command by a signal.
type endedBy syscall.Signal

func (e endedBy) Error() string {
	return fmt.Sprintf("ended by %s", unix.SignalName(syscall.Signal(e)))
}

func endBy(sig syscall.Signal) error { return endedBy(sig) }
