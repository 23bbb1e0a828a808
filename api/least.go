package api

import (
	"fmt"
	"strconv"
	"strings"
)

// Capability is a compute capability, 10 × major + minor. Its text form is `9.0`; 0 is none, and has the empty one.
type Capability int32

const capabilityAdvice = "write it as 8.0 or 12.1"

// ParseCapability reads `9.0`.
func ParseCapability(text string) (Capability, error) {
	fail := func(at int, problem string) (Capability, error) {
		return 0, &ParseError{What: "compute capability", Input: text, Offset: at, Problem: problem, Advice: capabilityAdvice}
	}
	major, minor, dotted := strings.Cut(text, ".")
	a, err := strconv.ParseUint(major, 10, 16)
	if err != nil || a < 1 || a > 99 {
		return fail(0, "a number from 1 to 99 is expected")
	}
	if !dotted {
		return fail(len(text), "a point and a digit are expected")
	}
	b, err := strconv.ParseUint(minor, 10, 16)
	if err != nil || b > 9 || len(minor) != 1 {
		return fail(len(major)+1, "one digit is expected")
	}
	return Capability(10*a + b), nil
}

// String writes what ParseCapability reads.
func (c Capability) String() string {
	if c == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", c/10, c%10)
}

// MarshalText writes its text form.
func (c Capability) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads its text form.
func (c *Capability) UnmarshalText(text []byte) error {
	var err error
	*c = 0
	if len(text) > 0 {
		*c, err = ParseCapability(string(text))
	}
	return err
}

// MaxBandwidth is the most that may be asked for of a device's memory, in GB/s.
const MaxBandwidth = 1_000_000
