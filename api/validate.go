package api

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The codes of Error.
const (
	CodeInvalid     = "invalid"     // what was asked makes no sense; asking again will not help
	CodeNotFound    = "not_found"   // there is no such workload, queue or device
	CodeForbidden   = "forbidden"   // it is another user's
	CodeConflict    = "conflict"    // not in the state that it is in now
	CodeUnavailable = "unavailable" // not now: starting, stopping, disk full
)

// The limits that Validate holds a specification to.
const (
	MaxNameLength   = 63
	MaxDevices      = 16 // of one task on one node
	MaxPriority     = 1000
	MinPriority     = -MaxPriority
	MaxWeight       = 1_000_000
	MaxModelLength  = 128
	MaxCommandBytes = 1 << 20 // command and environment together

	// LeastMemory is what the smallest context takes on its device before the program asks for any: drivers take 100 to 600 MiB. A
	// share that may never hold as much serves no program.
	LeastMemory Bytes = 100 << 20
	// LeastTimeLimit is less time than any program takes to start.
	LeastTimeLimit = Duration(time.Millisecond)
	// LeastHostMemory is less of the machine's memory than any program runs in.
	LeastHostMemory Bytes = 1 << 20
)

// Invalid makes the error for a specification that makes no sense.
func Invalid(format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

// Default returns s with everything filled in that has a default: queue, class, one device, the share, see Share.Default, and those of roles.
func (s WorkloadSpec) Default() WorkloadSpec {
	if s.Queue == "" {
		s.Queue = DefaultQueue
	}
	if s.Class == "" {
		s.Class = Training
	}
	if s.Devices == 0 {
		s.Devices = 1
	}
	s.Share = s.Share.Default()
	s.Roles = s.defaultRoles()
	return s
}

// Default returns s with compute and memory filled in: without compute it is a whole device's; without memory it is the same
// part as the compute floor (`0.25..0.80` gets 25 % of the memory, floor and ceiling), for what is guaranteed to run must have
// memory to run in. A compute floor of 0 says nothing about memory, which then must be given. Weight stays as it is: see
// EffectiveWeight.
func (s Share) Default() Share {
	if s.Compute.IsZero() {
		s.Compute = Compute{Floor: WholeDevice, Ceiling: WholeDevice}
	}
	if s.Memory.IsZero() {
		part := Amount{Part: s.Compute.Floor}
		s.Memory = Memory{Floor: part, Ceiling: part}
	}
	if s.Memory.Ceiling.IsZero() {
		s.Memory.Ceiling = s.Memory.Floor
	}
	return s
}

// Validate checks a share to which Default was applied. It returns *Error.
func (s Share) Validate() error {
	c, m := s.Compute, s.Memory
	switch {
	case c.IsZero() || c.Ceiling < 1:
		return Invalid("a share of no compute was asked for; give --gpu a ceiling of at least 0.001, for example 0..0.50")
	case c.Floor < 0:
		return Invalid("the compute floor %s is negative; give a floor from 0 to 1.00", c.Floor)
	case c.Ceiling > WholeDevice:
		return Invalid("the compute ceiling %s is more than a whole device; ask for several devices with --devices", c.Ceiling)
	case c.Floor > c.Ceiling:
		return Invalid("the compute floor %s is over the ceiling %s; write the smaller one first", c.Floor, c.Ceiling)
	case m.IsZero():
		return Invalid("a share with a compute floor of 0 has no memory by default; say how much it needs, for example --mem 4Gi")
	case s.Weight < 0 || s.Weight > MaxWeight:
		return Invalid("the weight %d is out of range; give 1 to %d, or leave it out for the default", s.Weight, MaxWeight)
	}
	for _, amount := range []Amount{m.Floor, m.Ceiling} {
		switch {
		case amount.Bytes < 0 || amount.Part < 0:
			return Invalid("the memory %s is negative", amount)
		case amount.Part > WholeDevice:
			return Invalid("the memory %s is more than a whole device's; ask for several devices with --devices", amount)
		case amount.Part != 0 && amount.Bytes != 0:
			return Invalid("memory was given both as %s and as %s; give one of them", amount.Bytes, Amount{Part: amount.Part})
		}
	}
	switch {
	case m.Ceiling.IsZero():
		return Invalid("a share of no memory was asked for; give --mem a ceiling, for example 0..4Gi")
	case m.Floor.over(m.Ceiling):
		return Invalid("the memory floor %s is over the ceiling %s; write the smaller one first", m.Floor, m.Ceiling)
	}
	return nil
}

// Validate checks a specification to which Default was applied; an empty name is valid: the host makes one up. It returns
// *Error.
func (s WorkloadSpec) Validate() error {
	if s.Name != "" {
		if err := validName("workload", s.Name); err != nil {
			return err
		}
	}
	if err := validName("queue", s.Queue); err != nil {
		return err
	}
	if err := s.Share.Validate(); err != nil {
		return err
	}
	if err := validDated("", s.Priority, s.PriorityUntil, s.PriorityAfter); err != nil {
		return err
	}
	classes := []Class{Interactive, Inference, Training, Batch}
	switch {
	case !slices.Contains(classes, s.Class):
		return Invalid("unknown class %s; the classes are interactive, inference, training and batch", quoted(string(s.Class)))
	case s.Devices < 1 || s.Devices > MaxDevices:
		return Invalid("%d devices were asked for; a task has 1 to %d", s.Devices, MaxDevices)
	case s.TimeLimit < 0:
		return Invalid("the time limit %s is negative; give for example 2h, or leave it out for none", s.TimeLimit)
	case s.TimeLimit > 0 && s.TimeLimit < LeastTimeLimit:
		return Invalid("a time limit of %s is less than any program takes to start (%s); give for example 2h, or leave it out for none", s.TimeLimit, LeastTimeLimit)
	case s.RestartTime < 0:
		return Invalid("the restart time %s is negative; give what it takes to go on after a start, for example 5m, or leave it out for a minute", s.RestartTime)
	case s.CPU < 0:
		return Invalid("the CPU limit %s is negative; give a number of cores, or leave it out for none", s.CPU)
	case s.Memory < 0:
		return Invalid("the memory limit %s is negative; give for example 8Gi, or leave it out for none", s.Memory)
	case s.Memory > 0 && s.Memory < LeastHostMemory:
		return Invalid("a memory limit of %s is less than any program takes (%s); give for example 8Gi, or leave it out for none", s.Memory, LeastHostMemory)
	case s.Share.Memory.Ceiling.Part == 0 && s.Share.Memory.Ceiling.Bytes < LeastMemory:
		return Invalid("%s of memory is less than any context takes (%s); give for example --mem 1Gi", s.Share.Memory.Ceiling, LeastMemory)
	case s.OnReclaim == ReclaimPark:
		return Invalid("on-reclaim park cannot be had yet; give stop, or leave it out for memory that is never taken back")
	case s.OnReclaim != "" && s.OnReclaim != ReclaimStop:
		return Invalid("unknown on-reclaim %s; give stop, or leave it out for memory that is never taken back", quoted(string(s.OnReclaim)))
	case s.OnReclaim != "" && s.Share.Memory.Floor == s.Share.Memory.Ceiling:
		return Invalid("on-reclaim %s is of memory above the floor, and %s is both floor and ceiling; give --mem a higher ceiling, for example 4Gi..16Gi, or leave it out", s.OnReclaim, s.Share.Memory)
	case s.Requeue && s.Attach:
		return Invalid("a program whose streams are a client's own cannot be put back into the line, for that client ends with it; submit it, or leave requeue out")
	case len(s.Model) > MaxModelLength || !printable(s.Model):
		return Invalid("%s is not the name of a device model; `aliquot devices` prints those there are", quoted(s.Model))
	}
	switch {
	case s.MinCapability < 0 || s.MinCapability > 999:
		return Invalid("a compute capability of %s cannot be asked for; give for example 8.0, or leave it out for any", s.MinCapability)
	case s.MinBandwidth < 0 || s.MinBandwidth > MaxBandwidth:
		return Invalid("a memory bandwidth of at least %d GB/s cannot be asked for; give 1 to %d, or leave it out for any", s.MinBandwidth, MaxBandwidth)
	case s.MaxLatencyClass < 0 || s.MaxLatencyClass > SlowestLatency:
		return Invalid("latency class %d cannot be asked for; give 1, the fastest, to %d, or leave it out for any", s.MaxLatencyClass, SlowestLatency)
	}
	if err := s.validReplicas(); err != nil {
		return err
	}
	if err := s.validRoles(); err != nil {
		return err
	}
	return s.validProgram()
}

// validProgram checks what is to be run.
func (s WorkloadSpec) validProgram() error {
	if len(s.Command) == 0 || s.Command[0] == "" {
		return Invalid("no command was given; write it after --, for example: aliquot run --gpu 0.25 -- python train.py")
	}
	size := s.commandBytes()
	for _, arg := range s.Command {
		if strings.ContainsRune(arg, 0) {
			return Invalid("the argument %s contains a NUL, which no program can be given", quoted(arg))
		}
		size += len(arg) + 1
	}
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.ContainsRune(s.Env[key], 0) {
			return Invalid("the environment variable %s has an empty name, a = in its name or a NUL", quoted(key))
		}
		size += len(key) + len(s.Env[key]) + 2
	}
	switch {
	case size > MaxCommandBytes:
		return Invalid("command and environment together have %d bytes; at most %d can be passed on", size, MaxCommandBytes)
	case !filepath.IsAbs(s.Dir) || strings.ContainsRune(s.Dir, 0):
		return Invalid("the working directory %s is not an absolute path", quoted(s.Dir))
	}
	return nil
}

// Validate checks a queue. It returns *Error.
func (q QueueSpec) Validate() error {
	if err := validName("queue", q.Name); err != nil {
		return err
	}
	if q.Parent != "" {
		if err := validName("queue", q.Parent); err != nil {
			return err
		}
	}
	if err := validDated(" of queue "+q.Name, q.Priority, q.PriorityUntil, q.PriorityAfter); err != nil {
		return err
	}
	switch {
	case q.Parent == q.Name:
		return Invalid("the queue %s cannot be its own parent", q.Name)
	case q.Quota < Unlimited:
		return Invalid("the quota of queue %s is negative; give a number of devices, for example 2 or 0.5, or none", q.Name)
	case q.MaxPriority < 0 || q.MaxPriority > MaxPriority:
		return Invalid("the highest priority of queue %s is %d, out of range; give 0 to %d", q.Name, q.MaxPriority, MaxPriority)
	case !q.Hours.Valid():
		return Invalid("queue %s may use %s device-hours; give 0 to %s of a day, week or month, for example 100/week, or none", q.Name, q.Hours, MaxHours)
	case q.ShortestFirst < 0 || q.ShortestFirst > MaxShortestFirst:
		return Invalid("queue %s lets the shortest go first by %s, out of range; give 0 to %s", q.Name, q.ShortestFirst, MaxShortestFirst)
	case q.LongestRun < 0 || q.LongestRun > 0 && q.LongestRun < LeastTimeLimit:
		return Invalid("work in queue %s may run for %s at most, which is no time to run; give %s or more, or 0s for no bound", q.Name, q.LongestRun, LeastTimeLimit)
	case q.Order.Served != 0 && (q.Order.Served < LeastServed || q.Order.Served > MostServed):
		return Invalid("work in queue %s takes turns by levels of service, the first of %s; give %s to %s, or none", q.Name, q.Order.Served, LeastServed, MostServed)
	case q.Order.Held && q.Order.Served == 0:
		return Invalid("work in queue %s takes turns by the devices that it held, and by no levels of that; give the first, of %s to %s", q.Name, LeastServed, MostServed)
	case q.MinRun < 0:
		return Invalid("work in queue %s runs for %s before it is evicted for others, less than nothing; give for example 10m, or 0s for at once", q.Name, q.MinRun)
	case !q.Disruptions.Valid():
		return Invalid("work in queue %s may be evicted %d times in any %s, which is no budget; give 1 to %d in 1s to %s, for example 2/24h, or none",
			q.Name, q.Disruptions.Most, q.Disruptions.Per, MaxDisruptions, MaxDisruptionsPer)
	case q.Order.PriorityWorth < 0 || q.Order.PriorityWorth > MaxPriorityWorth:
		return Invalid("a step of priority in queue %s is worth %s, out of range; give 0s to %s", q.Name, q.Order.PriorityWorth, MaxPriorityWorth)
	}
	return nil
}

// Validate checks a policy file that is to be set, by its name and length alone. It returns *Error.
func (p Policy) Validate() error {
	switch {
	case p.Name == "" || len(p.Name) > MaxPolicyName || !printable(p.Name):
		return Invalid("a policy has the name of its file: 1 to %d bytes that can be printed", MaxPolicyName)
	case len(p.Text) > MaxPolicyBytes || !utf8.ValidString(p.Text):
		return Invalid("the policy %s is no text of at most %d bytes: split it, or write it in UTF-8", p.Name, MaxPolicyBytes)
	}
	return nil
}

// Limits of a policy file.
const (
	MaxPolicyName  = 1024
	MaxPolicyBytes = 1 << 20
)

// validName holds names to a DNS label: lower-case letters, digits and dashes, so that they are safe in paths, in labels of
// metrics and on Kubernetes.
func validName(what, name string) error {
	const rule = "use lower-case letters, digits and dashes, at most 63, a letter or digit at both ends"
	switch {
	case name == "":
		return Invalid("a %s needs a name; %s", what, rule)
	case len(name) > MaxNameLength:
		return Invalid("the %s name %s has %d characters; %s", what, quoted(name), utf8.RuneCountInString(name), rule)
	}
	for at, r := range name {
		alphanumeric := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		if !alphanumeric && (r != '-' || at == 0 || at == len(name)-1) {
			return Invalid("the %s name %s cannot have %q as character %d; %s", what, quoted(name), r, utf8.RuneCountInString(name[:at])+1, rule)
		}
	}
	return nil
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}
