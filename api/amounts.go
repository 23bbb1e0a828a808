package api

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Granule is the granularity at which drivers hand out device memory. Amounts are turned into multiples of it.
const Granule Bytes = 2 << 20

const (
	milliAdvice    = "write for example 0.25 or 25%"
	bytesAdvice    = "write for example 10Gi or 512Mi"
	quotaAdvice    = "write a number of devices, for example 2 or 0.5, or none"
	durationAdvice = "write for example 2h30m or 90s"
)

// ParseMilli reads a non-negative amount in devices (or cores): `0.25`, `25%`, `2`. More than three decimals of a device are
// refused, not rounded.
func ParseMilli(text string) (Milli, error) {
	s := scan("amount", text)
	m, err := s.milli(milliAdvice)
	if err != nil {
		return 0, err
	}
	return m, s.done(milliAdvice)
}

func (s *scanner) milli(advice string) (Milli, error) {
	n, err := s.number(advice)
	if err != nil {
		return 0, err
	}
	unit := uint64(WholeDevice)
	if s.accept('%') {
		unit /= 100
	}
	value, exact, ok := n.scaled(unit)
	switch {
	case !ok || value > math.MaxInt32:
		return 0, s.fail(n.offset, "", "the number is too large")
	case !exact:
		return 0, s.fail(n.offset, "write at most three decimals of a device, or one of a percentage",
			"%s is finer than a thousandth", s.input[n.offset:s.at])
	}
	return Milli(value), nil
}

// String is the amount in devices with two decimals, and a third where it is needed: `0.25`, `2.00`, `0.125`.
func (m Milli) String() string {
	text := decimal(int64(m), 3)
	return strings.TrimSuffix(text, "0")
}

// MarshalText is String.
func (m Milli) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is ParseMilli.
func (m *Milli) UnmarshalText(text []byte) error { return into(m, ParseMilli, text) }

// decimal prints value × 10^-places with all its decimals.
func decimal(value int64, places int) string {
	sign, magnitude := "", uint64(value)
	if value < 0 {
		sign, magnitude = "-", -magnitude
	}
	digits := fmt.Sprintf("%0*d", places+1, magnitude)
	return sign + digits[:len(digits)-places] + "." + digits[len(digits)-places:]
}

// units of memory, largest first; what is printed is binary.
var units = []struct {
	name  string
	bytes uint64
}{
	{"Ti", 1 << 40},
	{"Gi", 1 << 30},
	{"Mi", 1 << 20},
	{"Ki", 1 << 10},
	{"", 1},
	{"T", 1e12},
	{"G", 1e9},
	{"M", 1e6},
	{"k", 1e3},
}

// ParseBytes reads a non-negative amount of memory: `10Gi`, `1.5Gi`, `500M`, `4096`. Units are Ki, Mi, Gi, Ti (powers of 1024) and
// k, M, G, T (powers of 1000). A fraction of a byte counts as a byte.
func ParseBytes(text string) (Bytes, error) {
	s := scan("memory", text)
	b, err := s.bytes(bytesAdvice)
	if err != nil {
		return 0, err
	}
	return b, s.done(bytesAdvice)
}

func (s *scanner) bytes(advice string) (Bytes, error) {
	n, err := s.number(advice)
	if err != nil {
		return 0, err
	}
	return s.bytesOf(n)
}

// bytesOf reads the unit after n.
func (s *scanner) bytesOf(n number) (Bytes, error) {
	at := s.at
	name := s.word()
	for _, unit := range units {
		if unit.name != name {
			continue
		}
		value, exact, ok := n.scaled(unit.bytes)
		switch {
		case !ok:
			return 0, s.fail(n.offset, "", "the amount is too large")
		case !exact && unit.bytes == 1:
			return 0, s.fail(n.offset, "write a unit, for example 1.5Gi", "a part of a byte is not an amount of memory")
		}
		return Bytes(value), nil
	}
	advice := "units are Ki, Mi, Gi, Ti (powers of 1024) and k, M, G, T (powers of 1000)"
	if meant := likeUnit(name); meant != "" {
		advice = "did you mean " + s.input[n.offset:at] + meant + "? " + advice
	}
	return 0, s.fail(at, advice, "unknown unit %s", quoted(name))
}

// likeUnit is the unit that a name was meant for which differs in case or has a B for bytes: `gi`, `GB` and `GiB`; empty: none.
func likeUnit(name string) string {
	short := strings.TrimSuffix(strings.ToLower(name), "b")
	for _, unit := range units {
		if short != "" && strings.ToLower(unit.name) == short {
			return unit.name
		}
	}
	return ""
}

// String is the amount in the largest binary unit that divides it, so that nothing is lost: `10Gi`, `1536Mi`, `4097`.
func (b Bytes) String() string {
	for _, unit := range units {
		if size := Bytes(unit.bytes); b != 0 && b%size == 0 {
			return strconv.FormatInt(int64(b/size), 10) + unit.name
		}
	}
	return "0"
}

// Short is the amount for people, with three digits at most and never more than there is, for what is shown may be typed back:
// `11.9Gi`, `139Gi` of a device with 139.9.
func (b Bytes) Short() string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}
	// In tenths of a unit, rounded down.
	tenths, unit := int64(b), 0
	for scale := int64(1); unit < len(units)-1 && int64(b)/scale >= 1000; unit++ {
		scale <<= 10
		tenths = int64(b)/scale*10 + int64(b)%scale*10/scale
	}
	if unit == 0 {
		return strconv.FormatInt(int64(b), 10)
	}
	whole, tenth := tenths/10, tenths%10
	if whole >= 100 || tenth == 0 {
		return strconv.FormatInt(whole, 10) + units[unit]
	}
	return fmt.Sprintf("%d.%d%s", whole, tenth, units[unit])
}

// MarshalText is String.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText is ParseBytes.
func (b *Bytes) UnmarshalText(text []byte) error { return into(b, ParseBytes, text) }

// ParseQuota reads a number of devices (`2`, `0.5`) or `none`.
func ParseQuota(text string) (Quota, error) {
	if text == "none" {
		return Unlimited, nil
	}
	s := scan("quota", text)
	n, err := s.number(quotaAdvice)
	if err != nil {
		return 0, err
	}
	value, exact, ok := n.scaled(uint64(WholeDevice))
	switch {
	case !ok:
		return 0, s.fail(n.offset, "", "the number is too large")
	case !exact:
		return 0, s.fail(n.offset, "write at most three decimals", "%s is finer than a thousandth of a device", s.input[n.offset:s.at])
	}
	return Quota(value), s.done(quotaAdvice)
}

// String is the number of devices with the decimals that are needed, or `none`.
func (q Quota) String() string {
	if q < 0 {
		return "none"
	}
	return strings.TrimRight(strings.TrimRight(decimal(int64(q), 3), "0"), ".")
}

// MarshalText is String.
func (q Quota) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText is ParseQuota.
func (q *Quota) UnmarshalText(text []byte) error { return into(q, ParseQuota, text) }

var durationUnits = map[string]uint64{
	"d":  uint64(24 * time.Hour),
	"h":  uint64(time.Hour),
	"m":  uint64(time.Minute),
	"s":  uint64(time.Second),
	"ms": uint64(time.Millisecond),
	"us": uint64(time.Microsecond),
	"µs": uint64(time.Microsecond), // U+00B5, as Go prints it
	"μs": uint64(time.Microsecond), // U+03BC, the Greek letter
	"ns": 1,
}

// ParseDuration reads a non-negative duration: numbers with a unit, d, h, m, s, ms, us or ns, one after the other: `2h30m`, `1.5h`,
// `7d`; `0` needs no unit.
func ParseDuration(text string) (Duration, error) {
	s := scan("duration", text)
	var total int64
	for first := true; first || s.at < s.end; first = false {
		n, err := s.number(durationAdvice)
		if err != nil {
			return 0, err
		}
		at := s.at
		name := s.word()
		if name == "" && s.at == s.end && n.digits == 0 && first {
			return 0, nil
		}
		unit, known := durationUnits[name]
		switch {
		case name == "" && s.at == s.end:
			return 0, s.fail(at, durationAdvice, "a unit is missing")
		case name == "":
			return 0, s.fail(at, durationAdvice, "a unit is expected, not %s", s.here())
		case !known:
			return 0, s.fail(at, "units are d, h, m, s, ms, us and ns", "unknown unit %s", quoted(name))
		}
		value, exact, ok := n.scaled(unit)
		switch {
		case !ok || value > math.MaxInt64-total:
			return 0, s.fail(n.offset, "", "the duration is too long")
		case !exact:
			return 0, s.fail(n.offset, "", "%s is finer than a nanosecond", s.input[n.offset:s.at])
		}
		total += value
	}
	return Duration(total), nil
}

// String is the duration in hours, minutes and seconds, without the zeros at its end: `2h30m`, `48h`, `1.5s`, `0s`.
func (d Duration) String() string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error { return into(d, ParseDuration, text) }

// into parses text into to and leaves to as it was on an error.
func into[T any](to *T, parse func(string) (T, error), text []byte) error {
	value, err := parse(string(text))
	if err != nil {
		return err
	}
	*to = value
	return nil
}
