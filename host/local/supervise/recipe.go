// Package supervise runs one task. The daemon writes a recipe into the task's folder and starts a supervisor on it; the supervisor
// starts the program, keeps its time limit, ends all of its processes and writes its exit status, and lives on when the daemon
// dies. The same package reads the folder back: what runs, what ended and how, what was left behind.
//
// The folder is the whole of what the two say to each other:
//
//	recipe       what to start (the daemon, before it starts the supervisor)
//	lock         held by the supervisor from before its own start until its end; so whoever holds it, lives
//	supervisor   the supervisor's process
//	begun        the program may have been started from now on
//	child        the program's first process, and what does not hold on this machine
//	stop         the daemon's order to end the task; a SIGTERM to the supervisor says that it is there
//	exit         how it ended
//
// The program's output goes into files or the client's own streams, never through the supervisor: a killed supervisor's task runs
// on. What belongs to a task is known by descent from its supervisor and, when that is dead, by user together with
// the session or the variable ALIQUOT_WORKLOAD in its environment.
package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/aliquot-dev/aliquot/host/local/internal/exact"
)

// Marker is the environment variable that says which workload a process belongs to.
const Marker = "ALIQUOT_WORKLOAD"

// DefaultGrace is how long a task has between SIGTERM and SIGKILL when nobody said otherwise.
const DefaultGrace = 10 * time.Second

// Mount is a file to bind over another in the task's private mount namespace.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// User is whom the program runs as.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// Recipe is what a supervisor needs to know.
type Recipe struct {
	UID         string        `json:"uid"`
	Command     []string      `json:"command"`
	Program     string        `json:"program"` // the file to execute
	Dir         string        `json:"dir"`
	Env         []string      `json:"env"`            // all of it
	User        *User         `json:"user,omitempty"` // nil: the supervisor's own
	Mounts      []Mount       `json:"mounts,omitempty"`
	LibraryPath string        `json:"libraryPath,omitempty"` // put in front of LD_LIBRARY_PATH where the mounts cannot be made
	Log         string        `json:"log,omitempty"`         // empty: the streams were handed over
	LogLimit    int64         `json:"logLimit,omitempty"`    // bytes kept; 0: all
	TimeLimit   time.Duration `json:"timeLimit,omitempty"`   // 0: none
	Grace       time.Duration `json:"grace"`
	Cgroups     []string      `json:"cgroups,omitempty"` // folders the program is put into
}

// plainRecipe is a Recipe without its methods for JSON, exactRecipe one whose texts need not be UTF-8.
type (
	plainRecipe Recipe
	exactRecipe struct {
		plainRecipe
		Command []exact.Text `json:"command"`
		Program exact.Text   `json:"program"`
		Dir     exact.Text   `json:"dir"`
		Env     []exact.Text `json:"env"`
	}
)

// MarshalJSON keeps every byte of what the program is given.
func (r Recipe) MarshalJSON() ([]byte, error) {
	return json.Marshal(exactRecipe{plainRecipe(r), exact.Texts(r.Command), exact.Text(r.Program), exact.Text(r.Dir), exact.Texts(r.Env)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Recipe) UnmarshalJSON(data []byte) error {
	var read exactRecipe
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	*r = Recipe(read.plainRecipe)
	r.Command, r.Program, r.Dir, r.Env = exact.Strings(read.Command), string(read.Program), string(read.Dir), exact.Strings(read.Env)
	return nil
}

// Child is a program that was started.
type Child struct {
	Process
	At    time.Time `json:"at"`
	Notes []string  `json:"notes,omitempty"`
	// It was found without such a record, so that its exit status may not be the program's.
	Guessed bool `json:"-"`
}

// Exit is how a task ended.
type Exit struct {
	Code       int       `json:"code"`
	Signal     string    `json:"signal,omitempty"` // that ended it; Code is then 128 and its number
	At         time.Time `json:"at"`
	TimedOut   bool      `json:"timedOut,omitempty"`
	Stopped    bool      `json:"stopped,omitempty"`    // on the daemon's order
	NotStarted bool      `json:"notStarted,omitempty"` // the daemon's order came before the program was started
	Refused    string    `json:"refused,omitempty"`    // why it could not be started; Code is then 126 or 127
	Note       string    `json:"note,omitempty"`       // what more is known of why
}

// Order is what the daemon's stop says.
type Order struct {
	Grace time.Duration `json:"grace"`
}

// The names of the files in a task's folder.
const (
	recipeFile     = "recipe"
	lockFile       = "lock"
	supervisorFile = "supervisor"
	begunFile      = "begun"
	childFile      = "child"
	stopFile       = "stop"
	exitFile       = "exit"
)

// write puts a value into a file whole: under another name, then renamed. It is on disk when durable was asked for.
func write(dir, name string, value any, durable bool) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	temporary := filepath.Join(dir, name+".new")
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil && durable {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		return err
	}
	if durable {
		return syncFolder(dir)
	}
	return nil
}

func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// read reads what write wrote; false if it never did.
func read(dir, name string, into any) (bool, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return false, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, name), err)
	}
	return true, nil
}
