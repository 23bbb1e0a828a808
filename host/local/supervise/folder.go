package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Folder is a task's folder as its owner sees it.
type Folder string

// Found is what a task's folder says.
type Found struct {
	Recipe     *Recipe
	Supervised bool // a supervisor lives, or is being started
	Supervisor Process
	Begun      bool // the program may have been started
	Child      *Child
	Exit       *Exit
	owner      uint32 // of the folder
}

// Task is the task of the folder found, which runs as the recipe says, else as the folder's owner.
func (f Found) Task(uid string) Task {
	task := Task{UID: uid, User: f.owner, Child: f.Child}
	if f.Recipe != nil && f.Recipe.User != nil {
		task.User = f.Recipe.User.UID
	}
	return task
}

// Prepare makes the folder and writes the recipe.
func (f Folder) Prepare(recipe Recipe) error {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return fmt.Errorf("make the task's folder: %w", err)
	}
	if err := write(string(f), recipeFile, recipe, false); err != nil {
		return fmt.Errorf("write the task's recipe: %w", err)
	}
	if err := os.WriteFile(filepath.Join(string(f), stopFile+".room"), blanks(nil), 0o600); err != nil {
		return fmt.Errorf("keep room for the order to stop: %w", err)
	}
	return nil
}

// Look reads what is there.
func (f Folder) Look() (Found, error) {
	var found Found
	// The lock is looked at first: who is alive then may write the rest meanwhile, but what a dead one wrote stays.
	held, err := f.held()
	if err != nil {
		return found, err
	}
	found.Supervised = held
	var about unix.Stat_t
	if err := unix.Stat(string(f), &about); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return found, fmt.Errorf("look at the task's folder: %w", err)
	}
	found.owner = about.Uid
	var recipe Recipe
	var child Child
	var exit Exit
	has := func(name string, into any) bool {
		there, failed := read(string(f), name, into)
		err = errors.Join(err, failed)
		return there
	}
	if has(recipeFile, &recipe) {
		found.Recipe = &recipe
	}
	has(supervisorFile, &found.Supervisor)
	found.Begun = has(begunFile, new(bool))
	if has(childFile, &child) {
		found.Child = &child
	}
	if has(exitFile, &exit) {
		found.Exit = &exit
	}
	return found, err
}

// Order writes the order to end the task and tells its supervisor, if one lives. It may be given again. Without a folder there is
// nothing to end, or not yet: whoever makes it must look for himself whether the task is to end.
func (f Folder) Order(order Order) error {
	err := write(string(f), stopFile, order, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil && f.orderInRoom(order) != nil {
		return fmt.Errorf("write the order to stop: %w", err)
	}
	var supervisor Process
	if there, err := read(string(f), supervisorFile, &supervisor); err != nil || !there {
		return err // a supervisor that starts reads the order itself
	}
	return supervisor.Send(unix.SIGTERM)
}

// orderInRoom writes the order where there is room for it on a full disk: that which Prepare kept, or an earlier order's.
func (f Folder) orderInRoom(order Order) error {
	data, err := json.Marshal(order)
	if err != nil {
		return err
	}
	final := filepath.Join(string(f), stopFile)
	room, err := os.OpenFile(final+".room", os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		room, err = os.OpenFile(final, os.O_WRONLY, 0)
	}
	if err != nil {
		return err
	}
	_, err = room.WriteAt(blanks(data), 0)
	if err = errors.Join(err, room.Close()); err != nil || room.Name() == final {
		return err
	}
	return os.Rename(room.Name(), final)
}

// Remove forgets the task.
func (f Folder) Remove() error { return os.RemoveAll(string(f)) }

// lock takes the folder's lock; false if another holds it.
func (f Folder) lock() (*os.File, bool, error) {
	file, err := os.OpenFile(filepath.Join(string(f), lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return file, true, nil
	}
	_ = file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", f, err)
}

// held says that someone holds the folder's lock.
func (f Folder) held() (bool, error) {
	file, err := os.Open(filepath.Join(string(f), lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	// A shared lock, so that two who look do not take each other for a supervisor.
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
