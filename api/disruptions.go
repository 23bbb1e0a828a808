package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DisruptionBudget is how often one workload may be evicted for others, or moved, in any time so long. Its text form is `2/24h`. The zero
// DisruptionBudget is no bound, and has the text form `none`.
type DisruptionBudget struct {
	Most int32    // 1 to MaxDisruptions
	Per  Duration // 1 s to MaxDisruptionsPer
}

// The most of a DisruptionBudget.
const (
	MaxDisruptions    = 16
	MaxDisruptionsPer = Duration(30 * 24 * time.Hour)
)

const disruptionsAdvice = "write how often in any time so long, for example 2/24h, or none"

// ParseDisruptions reads `2/24h`, or `none`.
func ParseDisruptions(text string) (DisruptionBudget, error) {
	if text == "none" {
		return DisruptionBudget{}, nil
	}
	most, per, both := strings.Cut(text, "/")
	fail := func(at int, problem string) (DisruptionBudget, error) {
		return DisruptionBudget{}, &ParseError{What: "disruption budget", Input: text, Offset: at, Problem: problem, Advice: disruptionsAdvice}
	}
	n, err := strconv.ParseInt(most, 10, 32)
	if err != nil || n < 1 || n > MaxDisruptions {
		return fail(0, fmt.Sprintf("a number from 1 to %d is expected", MaxDisruptions))
	}
	if !both {
		return fail(len(text), "a / is expected, and a time")
	}
	long, err := ParseDuration(per)
	if err != nil {
		return DisruptionBudget{}, err
	}
	budget := DisruptionBudget{int32(n), long}
	if !budget.Valid() {
		return fail(len(most)+1, "a time of 1s to "+MaxDisruptionsPer.String()+" is expected")
	}
	return budget, nil
}

// Valid says that it is no bound, or one in range.
func (b DisruptionBudget) Valid() bool {
	return b == DisruptionBudget{} || b.Most >= 1 && b.Most <= MaxDisruptions && b.Per >= Duration(time.Second) && b.Per <= MaxDisruptionsPer
}

// IsZero says that it is no bound.
func (b DisruptionBudget) IsZero() bool { return b == DisruptionBudget{} }

// String writes what ParseDisruptions reads.
func (b DisruptionBudget) String() string {
	if b.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%d/%s", b.Most, b.Per)
}

// MarshalText writes its text form.
func (b DisruptionBudget) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads its text form.
func (b *DisruptionBudget) UnmarshalText(text []byte) error {
	var err error
	*b, err = ParseDisruptions(string(text))
	return err
}
