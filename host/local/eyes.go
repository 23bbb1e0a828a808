package local

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/host/local/supervise"
)

// asUser runs f, which looks at files, with the rights to files of that user: nil, this process' own. What the server may see must
// not be learnt through it by who may not, and what only the user may see must be found. It is the rights to files alone that are
// changed (setfsuid(2)), so that the user may not signal the thread meanwhile.
func asUser(user *supervise.User, f func()) error {
	if user == nil {
		f()
		return nil
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := takeRights(user)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

// takeRights gives this thread a user's rights to files, for good.
func takeRights(user *supervise.User) error {
	var first unsafe.Pointer
	if len(user.Groups) > 0 {
		first = unsafe.Pointer(&user.Groups[0])
	}
	// The raw call, because what the libraries offer changes all threads.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(user.Groups)), uintptr(first), 0); errno != 0 {
		return fmt.Errorf("take the groups of user %d: %w", user.UID, errno)
	}
	const none = -1 // changes nothing, and so says what is set: these calls tell no failure
	_ = unix.Setfsgid(int(user.GID))
	_ = unix.Setfsuid(int(user.UID))
	gid, _ := unix.SetfsgidRetGid(none)
	uid, _ := unix.SetfsuidRetUid(none)
	if uint32(gid) != user.GID || uint32(uid) != user.UID {
		return fmt.Errorf("take the rights of user %d: %w", user.UID, unix.EPERM)
	}
	return nil
}

// unseen says that not even the server may look at a file, as where a user keeps it on a file system of their own. Whether the user
// may is found when the program is started, as that user.
func unseen(path string, err error) bool {
	if !errors.Is(err, syscall.EACCES) {
		return false
	}
	looked := make(chan error, 1)
	go func() { // from another thread, which has the server's rights
		_, err := os.Stat(path)
		looked <- err
	}()
	return errors.Is(<-looked, syscall.EACCES)
}
