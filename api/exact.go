package api

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Exact is what of a program JSON has no text for, byte for byte: words, folders and variables need not be UTF-8, and a program gets
// them as they were given. JSON has each as base64. Only what is not UTF-8 is in it, and it goes before what stands as text.
type Exact struct {
	Command [][]byte `json:"command,omitempty" doc:"the whole command, where a word of it is not UTF-8"`
	Dir     []byte   `json:"dir,omitempty" doc:"the folder, where its path is not UTF-8"`
	Env     [][]byte `json:"env,omitempty" doc:"NAME=VALUE of each variable that is not UTF-8; it is not in env"`
}

// shownSpec is a WorkloadSpec as encoding/json has it by itself.
type shownSpec WorkloadSpec

// MarshalJSON fills in Exact. Text that is not UTF-8 reads as U+FFFD beside it.
func (s WorkloadSpec) MarshalJSON() ([]byte, error) {
	s.Exact = nil
	var exact Exact
	for _, word := range s.Command {
		if !utf8.ValidString(word) {
			exact.Command = make([][]byte, len(s.Command))
			for i, word := range s.Command {
				exact.Command[i] = []byte(word)
			}
			break
		}
	}
	if !utf8.ValidString(s.Dir) {
		exact.Dir = []byte(s.Dir)
	}
	s.Env, exact.Env = splitEnv(s.Env)
	if exact.Command != nil || exact.Dir != nil || exact.Env != nil {
		s.Exact = &exact
	}
	return json.Marshal(shownSpec(s))
}

// UnmarshalJSON reads what MarshalJSON writes; Exact is nil then, for what it held is in its place.
func (s *WorkloadSpec) UnmarshalJSON(text []byte) error {
	shown := shownSpec(*s)
	if err := json.Unmarshal(text, &shown); err != nil {
		return err
	}
	exact := shown.Exact
	shown.Exact = nil
	*s = WorkloadSpec(shown)
	if exact == nil {
		return nil
	}
	if len(exact.Command) > 0 {
		s.Command = make([]string, len(exact.Command))
		for i, word := range exact.Command {
			s.Command[i] = string(word)
		}
	}
	if len(exact.Dir) > 0 {
		s.Dir = string(exact.Dir)
	}
	for _, entry := range exact.Env {
		name, value, ok := strings.Cut(string(entry), "=")
		if !ok {
			return Invalid("the environment variable %s of exact.env has no =; write NAME=VALUE, in base64", quoted(name))
		}
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		s.Env[name] = value
	}
	return nil
}

// splitEnv takes out of an environment what is not UTF-8, as NAME=VALUE in the order of names.
func splitEnv(env map[string]string) (map[string]string, [][]byte) {
	var odd [][]byte
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if value := env[name]; !utf8.ValidString(name) || !utf8.ValidString(value) {
			odd = append(odd, []byte(name+"="+value))
		}
	}
	if odd == nil {
		return env, nil
	}
	rest := make(map[string]string, len(env))
	for name, value := range env {
		if utf8.ValidString(name) && utf8.ValidString(value) {
			rest[name] = value
		}
	}
	return rest, odd
}
