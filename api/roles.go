package api

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxRoles is how many roles a workload has beside its own processes at the most.
const MaxRoles = 3

// MaxRoleName is how long the name of a role may be.
const MaxRoleName = 32

// MainRole is the role of a workload's own processes where it has others.
const MainRole = "main"

// Role is further processes of a workload that ask for something else than its own: workers with parts of devices beside a leader with a small one.
// They start with it, all or none, in its directory and with its environment. Nothing said is as for a workload.
type Role struct {
	Name     string   `json:"name"`              // of it, a DNS label; no two roles of a workload have the same, and none is main
	Replicas Replicas `json:"replicas,omitzero"` // how many processes; default 1
	Share    Share    `json:"share"`             // of each device of each of them
	Devices  int      `json:"devices,omitempty"` // of each of them, distinct; default 1
	Model    string   `json:"model,omitempty"`   // device model wanted; empty: any
	CPU      Milli    `json:"cpu,omitempty"`     // limit of each of them in thousandths of a core; 0: none
	Memory   Bytes    `json:"hostMemory,omitempty"`
	Command  []string `json:"command,omitempty"` // default: the workload's
	// Exact is in JSON alone: the whole command, where a word of it is not UTF-8. It is filled in and read by the methods for JSON.
	Exact [][]byte `json:"exact,omitempty"`
}

// shownRole is a Role as encoding/json has it by itself.
type shownRole Role

// MarshalJSON fills in Exact.
func (r Role) MarshalJSON() ([]byte, error) {
	r.Exact = nil
	if slices.ContainsFunc(r.Command, func(word string) bool { return !utf8.ValidString(word) }) {
		for _, word := range r.Command {
			r.Exact = append(r.Exact, []byte(word))
		}
	}
	return json.Marshal(shownRole(r))
}

// UnmarshalJSON reads what MarshalJSON writes; Exact is nil then.
func (r *Role) UnmarshalJSON(text []byte) error {
	shown := shownRole(*r)
	if err := json.Unmarshal(text, &shown); err != nil {
		return err
	}
	if len(shown.Exact) > 0 {
		shown.Command = nil
		for _, word := range shown.Exact {
			shown.Command = append(shown.Command, string(word))
		}
	}
	shown.Exact = nil
	*r = Role(shown)
	return nil
}

// Several says that a workload may have more than one process.
func (s WorkloadSpec) Several() bool { return s.Replicas.Most() > 1 || len(s.Roles) > 0 }

// Tasks are how many processes a workload starts with and how many it may have, in all its roles.
func (s WorkloadSpec) Tasks() (least, most int) {
	least, most = s.Replicas.Least(), s.Replicas.Most()
	for _, r := range s.Roles {
		least += r.Replicas.Least()
		most += r.Replicas.Least()
	}
	return least, most
}

// RoleOf is the role of a process by its number in the workload, and its number in that role, both from 0: first come the workload's own, then
// those of each role. Without roles the name is empty.
func (s WorkloadSpec) RoleOf(number int) (role string, rank int) {
	if len(s.Roles) == 0 {
		return "", number
	}
	if number -= s.Replicas.Least(); number < 0 {
		return MainRole, number + s.Replicas.Least()
	}
	for _, r := range s.Roles {
		if number < r.Replicas.Least() {
			return r.Name, number
		}
		number -= r.Replicas.Least()
	}
	return MainRole, number + s.Replicas.Least()
}

// InRole is the specification of a workload as it is of a process of one of its roles: what that asks for is in the place of what the workload's own
// do, and theirs, by the name main, in the place of the role's. Whole has it as it was submitted.
func (s WorkloadSpec) InRole(name string) WorkloadSpec { return s.exchange(MainRole, name) }

// Whole is what was submitted of a workload, also of one that is a process of a role.
func (w Workload) Whole() WorkloadSpec {
	if one := w.Status.Replica; one != nil && one.Role != "" {
		return w.Spec.exchange(one.Role, MainRole)
	}
	return w.Spec
}

// exchange has what a role asks for in the place of what processes of the role here do, and that in the place of the role's.
func (s WorkloadSpec) exchange(here, name string) WorkloadSpec {
	i := slices.IndexFunc(s.Roles, func(r Role) bool { return r.Name == name })
	if i < 0 {
		return s
	}
	r := s.Roles[i]
	s.Roles = slices.Clone(s.Roles)
	s.Roles[i] = Role{Name: here, Replicas: s.Replicas, Share: s.Share, Devices: s.Devices, Model: s.Model, CPU: s.CPU, Memory: s.Memory, Command: s.Command}
	s.Replicas, s.Share, s.Devices, s.Model, s.CPU, s.Memory, s.Command = r.Replicas, r.Share, r.Devices, r.Model, r.CPU, r.Memory, r.Command
	return s
}

// EachRole gives what processes of each role ask for, by its name; the workload's own first, by none.
func (s WorkloadSpec) EachRole() iter.Seq2[string, WorkloadSpec] {
	return func(yield func(string, WorkloadSpec) bool) {
		if !yield("", s) {
			return
		}
		for _, r := range s.Roles {
			if !yield(r.Name, s.InRole(r.Name)) {
				return
			}
		}
	}
}

// defaultRoles fills in what has a default in roles. The command is that of the workload.
func (s WorkloadSpec) defaultRoles() []Role {
	roles := slices.Clone(s.Roles)
	for i := range roles {
		r := &roles[i]
		if r.Devices == 0 {
			r.Devices = 1
		}
		if len(r.Command) == 0 {
			r.Command = s.Command
		}
		r.Share = r.Share.Default()
	}
	return roles
}

// validRoles says what is wrong with the roles of a specification.
func (s WorkloadSpec) validRoles() error {
	if len(s.Roles) == 0 {
		return nil
	}
	switch {
	case len(s.Roles) > MaxRoles:
		return Invalid("%d roles were asked for; a workload has at most %d beside its own processes", len(s.Roles), MaxRoles)
	case s.Replicas.Elastic():
		return Invalid("a workload with roles has as many processes as it starts with, and %s were asked for: give one number of replicas, or leave the roles out", s.Replicas)
	}
	for i, r := range s.Roles {
		if err := r.validName(s.Roles[:i]); err != nil {
			return err
		}
		if err := s.validRole(r); err != nil {
			return Invalid("role %s: %v", r.Name, err)
		}
	}
	if least, _ := s.Tasks(); least > MaxReplicas {
		return Invalid("%d processes were asked for in all roles; a workload has at most %d", least, MaxReplicas)
	}
	return nil
}

// validName says what is wrong with the name of a role behind others.
func (r Role) validName(before []Role) error {
	switch err := validName("role", r.Name); {
	case err != nil:
		return err
	case len(r.Name) > MaxRoleName:
		return Invalid("the role name %s has %d characters; use at most %d", quoted(r.Name), len(r.Name), MaxRoleName)
	case r.Name == MainRole:
		return Invalid("a role has the name %s, which is that of the workload's own processes; give it another", MainRole)
	case slices.ContainsFunc(before, func(o Role) bool { return o.Name == r.Name }):
		return Invalid("two roles have the name %s; give each its own", r.Name)
	}
	return nil
}

// validRole says what is wrong with what a role asks for: nothing that a workload of such processes alone could not.
func (s WorkloadSpec) validRole(r Role) error {
	if r.Replicas.Elastic() {
		return Invalid("it has as many processes as it starts with, and %s were asked for: give one number of replicas", r.Replicas)
	}
	alone := s
	alone.Roles, alone.OnReclaim, alone.Env = nil, "", nil
	alone.Replicas, alone.Share, alone.Devices, alone.Model, alone.CPU, alone.Memory, alone.Command = r.Replicas, r.Share, r.Devices, r.Model, r.CPU, r.Memory, r.Command
	return alone.Validate()
}

// commandBytes is what the commands of roles take.
func (s WorkloadSpec) commandBytes() (size int) {
	for _, r := range s.Roles {
		for _, word := range r.Command {
			size += len(word) + 1
		}
	}
	return size
}

// AllRoles are the roles of what was submitted, its own processes first; nil: it has none.
func (w Workload) AllRoles() []Role {
	s := w.Whole()
	if len(s.Roles) == 0 {
		return nil
	}
	own := Role{Name: MainRole, Replicas: s.Replicas, Share: s.Share, Devices: s.Devices, Model: s.Model, CPU: s.CPU, Memory: s.Memory, Command: s.Command}
	return append([]Role{own}, s.Roles...)
}

// RolesText says how many processes there are of each role: `1 main, 4 worker`; empty: there are no roles.
func (w Workload) RolesText() string {
	var parts []string
	for _, r := range w.AllRoles() {
		parts = append(parts, fmt.Sprintf("%d %s", r.Replicas.Least(), r.Name))
	}
	return strings.Join(parts, ", ")
}
