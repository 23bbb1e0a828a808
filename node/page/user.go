package page

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// User is a user of the machine, by number.
type User uint32

// userLink is the link in a task's folder that says whose it is, as native/abi.h describes it: it leads to the user's number. A link is made whole or not at all,
// and of two that are made at a time one is; and the folder is the agent's, so that who has the task can change nothing of it.
const userLink = "user"

// UserError is that a task was to be one user's and is another's already.
type UserError struct {
	Folder     string // the task's
	Asked, Has User
}

func (e *UserError) Error() string {
	return fmt.Sprintf("give %s to user %d: it is user %d's already, and a task's pages are one user's; run all of its programs as user %d, or make a task for each user",
		e.Folder, e.Asked, e.Has, e.Has)
}

// Give gives a task to the user whom its programs run as: the page that they write and the socket by which they register. Given to the same user again it makes sure
// of that. It is a *UserError where the task is another's, also where that was given to another at the same time. The folder has to be one that this process' user alone
// writes to, and nothing in it is followed anywhere else. Only root gives to others.
func Give(folder string, user User) error {
	opened, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("give %s to user %d: %w", folder, user, err)
	}
	defer func() { _ = unix.Close(opened) }()
	has, err := settle(opened, user)
	if err == nil && has != user {
		return &UserError{Folder: folder, Asked: user, Has: has}
	}
	if err == nil {
		err = giveFile(opened, "tel", unix.S_IFREG, user)
	}
	if err == nil {
		err = giveFile(opened, "arbiter.sock", unix.S_IFSOCK, user)
		if errors.Is(err, unix.ENOENT) { // the arbiter makes it anew, and it is the user's then
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("give %s to user %d: %w", folder, user, err)
	}
	return nil
}

// Given says whom a task was given to, if it was.
func Given(folder string) (user User, given bool) {
	number, err := os.Readlink(filepath.Join(folder, userLink))
	if err != nil {
		return 0, false
	}
	user, err = parseUser(number)
	return user, err == nil
}

func parseUser(number string) (User, error) {
	user, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: its link %s leads to %q, which is no user's number", ErrDamaged, userLink, number)
	}
	return User(user), nil
}

// settle is whose a task is from here on: this user's, unless it was another's before.
func settle(folder int, user User) (User, error) {
	var all, page unix.Stat_t
	if err := unix.Fstat(folder, &all); err != nil {
		return 0, err
	}
	if int(all.Uid) != os.Geteuid() || all.Mode&0o022 != 0 {
		return 0, fmt.Errorf("it belongs to user %d and has the mode %#o, so that others than user %d may write to it; the agent makes these folders itself", all.Uid, all.Mode&0o7777, os.Geteuid())
	}
	number := make([]byte, 16)
	switch n, err := unix.Readlinkat(folder, userLink, number); {
	case err == nil:
		return parseUser(string(number[:n]))
	case !errors.Is(err, unix.ENOENT):
		return 0, err
	}
	if err := unix.Fstatat(folder, "tel", &page, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, err
	}
	if page.Uid != all.Uid && User(page.Uid) != user {
		return User(page.Uid), nil // an earlier agent, which made no links, gave it away
	}
	err := unix.Symlinkat(strconv.FormatUint(uint64(user), 10), folder, userLink)
	if errors.Is(err, unix.EEXIST) {
		return settle(folder, user)
	}
	return user, err
}

// giveFile gives a file of a folder to a user, if it is what it should be there and nowhere else.
func giveFile(folder int, name string, kind uint32, user User) error {
	file, err := unix.Openat(folder, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = unix.Close(file) }()
	var is unix.Stat_t
	if err := unix.Fstat(file, &is); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if is.Mode&unix.S_IFMT != kind || is.Nlink != 1 {
		return fmt.Errorf("%s: %w: it is a file of the mode %#o with %d names, where the task's own was", name, ErrDamaged, is.Mode, is.Nlink)
	}
	if User(is.Uid) == user {
		return nil
	}
	if err := unix.Fchownat(file, "", int(user), -1, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
