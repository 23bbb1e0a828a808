package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/aliquot-dev/aliquot/cli/client"
)

// settings are what configuration files and the environment say where no flag does. Later sources win: the machine's file
// (/etc/aliquot/config.yaml), the user's ($XDG_CONFIG_HOME/aliquot/config.yaml), ALIQUOT_STATE, ALIQUOT_RUN, ALIQUOT_SIMULATE,
// ALIQUOT_HTTP, ALIQUOT_UNENFORCED, ALIQUOT_LATENCY_CLASS and ALIQUOT_QUEUE.
type settings struct {
	State    string `json:"state"`
	Run      string `json:"run"`
	Simulate string `json:"simulate"`
	HTTP     string `json:"http"`
	Queue    string `json:"queue"`

	Unenforced   string `json:"unenforced"`
	LatencyClass string `json:"latency-class"`
}

// settingKeys are the keys of a file of settings.
var settingKeys = []string{"state", "run", "simulate", "http", "unenforced", "latency-class", "queue"}

// machineConfig is the machine's file of settings.
const machineConfig = "/etc/aliquot/config.yaml"

// loadSettings reads the files and the environment. A file that is not there says nothing; one that cannot be understood is
// refused rather than passed over.
func loadSettings(env []string) (settings, error) {
	var out settings
	files := []string{machineConfig}
	if home := configHome(env); home != "" {
		files = append(files, filepath.Join(home, "aliquot", "config.yaml"))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = yaml.UnmarshalStrict(text, &out)
		}
		if wrong := wrongKeys(text); len(wrong) > 0 {
			return out, fmt.Errorf("the settings in %s have the key %s, and the keys there are %s: correct it, or leave it out", file, strings.Join(wrong, ", "), strings.Join(settingKeys, ", "))
		}
		if err != nil {
			return out, fmt.Errorf("the settings in %s cannot be read: %w", file, err)
		}
	}
	for name, field := range map[string]*string{
		"ALIQUOT_STATE": &out.State, "ALIQUOT_RUN": &out.Run, "ALIQUOT_SIMULATE": &out.Simulate,
		"ALIQUOT_HTTP": &out.HTTP, "ALIQUOT_UNENFORCED": &out.Unenforced, "ALIQUOT_QUEUE": &out.Queue,
		"ALIQUOT_LATENCY_CLASS": &out.LatencyClass,
	} {
		if value, ok := lookup(env, name); ok && value != "" {
			*field = value
		}
	}
	return out, nil
}

// wrongKeys are the keys in a file of settings that mean nothing, in order.
func wrongKeys(text []byte) []string {
	var said map[string]any
	if yaml.Unmarshal(text, &said) != nil {
		return nil
	}
	for _, key := range settingKeys {
		delete(said, key)
	}
	wrong := make([]string, 0, len(said))
	for key := range said {
		wrong = append(wrong, strconv.Quote(key))
	}
	slices.Sort(wrong)
	return wrong
}

func configHome(env []string) string {
	if home, ok := lookup(env, "XDG_CONFIG_HOME"); ok && home != "" {
		return home
	}
	if home, ok := lookup(env, "HOME"); ok && home != "" {
		return filepath.Join(home, ".config")
	}
	return ""
}

// lookup finds a variable; the last one counts, as it does for a shell's children.
func lookup(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if key, value, ok := strings.Cut(env[i], "="); ok && key == name {
			return value, true
		}
	}
	return "", false
}

// theMachineRun and machineState are the folders of a server that root runs for everyone.
const (
	theMachineRun = "/run/aliquot"
	machineState  = "/var/lib/aliquot"
)

func (c *invocation) allUsersRun() string { return orText(c.machineRun, theMachineRun) }
func (c *invocation) isRoot() bool        { return os.Geteuid() == 0 && !c.asUser }

// ownRun is the RUN folder of a server that this user starts.
func (c *invocation) ownRun() string {
	switch folder, _ := lookup(c.Env, "XDG_RUNTIME_DIR"); {
	case c.runFlag != "":
		return c.absolute(c.runFlag)
	case c.settings.Run != "":
		return c.absolute(c.settings.Run)
	case c.isRoot():
		return c.allUsersRun()
	case folder != "":
		return filepath.Join(folder, "aliquot")
	default:
		return filepath.Join(os.TempDir(), "aliquot-"+strconv.Itoa(os.Geteuid()))
	}
}

// ownState is the STATE folder of a server that this user starts; flag is --state.
func (c *invocation) ownState(flag string) (string, error) {
	switch {
	case flag != "":
		return c.absolute(flag), nil
	case c.settings.State != "":
		return c.absolute(c.settings.State), nil
	case c.isRoot():
		return machineState, nil
	}
	if folder, _ := lookup(c.Env, "XDG_STATE_HOME"); folder != "" {
		return filepath.Join(folder, "aliquot"), nil
	}
	if home, _ := lookup(c.Env, "HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "aliquot"), nil
	}
	return "", errors.New("there is no folder for the server's state: HOME is not set, so name one with --state")
}

// clientRun is the RUN folder of the server to talk to: the one named, else the user's own if there is one in it, else the
// machine's if there is one in that, else the user's own. A folder that another user made or can write to has none.
func (c *invocation) clientRun() string {
	own := c.ownRun()
	if c.runFlag != "" || c.settings.Run != "" || client.HasServer(own) || !client.HasServer(c.allUsersRun()) {
		return own
	}
	return c.allUsersRun()
}

// otherRun is the RUN folder of the machine's server where the user's own, which answers first, hides it; empty: it does not.
func (c *invocation) otherRun(run string) string {
	all := c.allUsersRun()
	if c.runFlag != "" || c.settings.Run != "" || run == all || !client.HasServer(all) {
		return ""
	}
	return all
}

func (c *invocation) absolute(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(c.Dir, path)
}
