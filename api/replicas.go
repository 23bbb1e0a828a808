package api

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxReplicas is how many replicas a workload may have.
const MaxReplicas = 1024

// Replicas is how many replicas a workload has, each a process with the share of the workload: it starts with Min, all or none, and has up to Max while
// nobody who waits could use what these hold. Its text form is `2..8`, or `4` for 4..4; the zero Replicas is one.
type Replicas struct {
	Min, Max int
}

const replicasAdvice = "write the least and the most, for example 2..8, or 4"

// ParseReplicas reads `2..8` or `4`.
func ParseReplicas(text string) (Replicas, error) {
	least, most, several := strings.Cut(text, "..")
	if !several {
		most = least
	}
	fail := func(at int, problem string) (Replicas, error) {
		return Replicas{}, &ParseError{What: "replicas", Input: text, Offset: at, Problem: problem, Advice: replicasAdvice}
	}
	var r Replicas
	var err error
	if r.Min, err = strconv.Atoi(least); err != nil || least[0] == '+' || r.Min < 1 || r.Min > MaxReplicas {
		return fail(0, fmt.Sprintf("a number from 1 to %d is expected", MaxReplicas))
	}
	at := len(text) - len(most)
	if r.Max, err = strconv.Atoi(most); err != nil || most[0] == '+' || r.Max > MaxReplicas {
		return fail(at, fmt.Sprintf("a number up to %d is expected", MaxReplicas))
	}
	if r.Max < r.Min {
		return fail(at, fmt.Sprintf("%d is less than %d", r.Max, r.Min))
	}
	return r, nil
}

// IsZero says that nothing was said: it is one.
func (r Replicas) IsZero() bool { return r == Replicas{} }

// Least is with how many a workload starts, at least 1.
func (r Replicas) Least() int { return max(1, r.Min) }

// Most is how many it may have, at least Least.
func (r Replicas) Most() int { return max(r.Least(), r.Max) }

// Elastic says that it may have more than it starts with.
func (r Replicas) Elastic() bool { return r.Most() > r.Least() }

// String writes what ParseReplicas reads.
func (r Replicas) String() string {
	if !r.Elastic() {
		return strconv.Itoa(r.Least())
	}
	return strconv.Itoa(r.Least()) + ".." + strconv.Itoa(r.Most())
}

// MarshalText is String.
func (r Replicas) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseReplicas.
func (r *Replicas) UnmarshalText(text []byte) error { return into(r, ParseReplicas, text) }

// valid says what is wrong with replicas of a specification.
func (s WorkloadSpec) validReplicas() error {
	r := s.Replicas
	switch {
	case r.IsZero():
	case r.Min < 1 || r.Max < r.Min || r.Max > MaxReplicas:
		return Invalid("%d..%d replicas were asked for; give 1 to %d, the smaller number first", r.Min, r.Max, MaxReplicas)
	}
	return nil
}
