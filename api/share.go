package api

import (
	"math"
	"strconv"
)

const (
	computeAdvice = "write for example 0.25, 0.25..0.80 or 25%"
	memoryAdvice  = "write for example 10Gi, 10Gi..20Gi or 25%"
)

// ParseCompute reads a floor and a ceiling of a device's compute: `0.25..0.80`, `0.25` (both), `0.25..` (up to the whole device),
// and each also as a percentage.
func ParseCompute(text string) (Compute, error) {
	s := scan("compute", text)
	var c Compute
	first, second, isRange := s.cut()
	err := first.computePart(&c.Floor)
	switch {
	case err != nil:
		return Compute{}, err
	case !isRange:
		c.Ceiling = c.Floor
	case second.rest() == "":
		c.Ceiling = WholeDevice
	default:
		if err := second.computePart(&c.Ceiling); err != nil {
			return Compute{}, err
		}
	}
	switch {
	case c.Ceiling == 0 && !isRange:
		return Compute{}, s.fail(0, "a share that only borrows is written 0..0.50", "a share of nothing")
	case c.Ceiling == 0:
		return Compute{}, s.fail(first.end+2, "give the ceiling at least 0.001", "a share of nothing")
	case c.Floor > c.Ceiling:
		return Compute{}, s.fail(first.end+2, "write the smaller one first", "the floor %s is over the ceiling %s", c.Floor, c.Ceiling)
	}
	return c, nil
}

func (s *scanner) computePart(to *Milli) error {
	from := s.at
	if s.rest() == "" && s.input != "" && from == 0 {
		return s.fail(from, "a share without a guarantee is written 0..0.50", "the floor is missing")
	}
	m, err := s.milli(computeAdvice)
	if err != nil {
		return err
	}
	if err := s.done(computeAdvice); err != nil {
		return err
	}
	if m > WholeDevice {
		return s.fail(from, "a share is at most 1.00; ask for several devices with --devices", "%s is more than a whole device", s.input[from:s.at])
	}
	*to = m
	return nil
}

// IsZero says that no compute was given.
func (c Compute) IsZero() bool { return c == Compute{} }

// String is the text form, `0.25..0.80`, or `0.25` where floor and ceiling are the same. It is empty for the zero Compute.
func (c Compute) String() string {
	switch {
	case c.IsZero():
		return ""
	case c.Floor == c.Ceiling:
		return c.Floor.String()
	}
	return c.Floor.String() + ".." + c.Ceiling.String()
}

// MarshalText is String: empty where no compute was given.
func (c Compute) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is ParseCompute, but empty text is the zero Compute: not given.
func (c *Compute) UnmarshalText(text []byte) error { return optional(c, ParseCompute, text) }

// ParseAmount reads an amount of device memory in bytes (`10Gi`) or as a part of the device's memory (`80%`).
func ParseAmount(text string) (Amount, error) {
	s := scan("memory", text)
	return s.amount()
}

func (s *scanner) amount() (Amount, error) {
	from := s.at
	n, err := s.number(memoryAdvice)
	if err != nil {
		return Amount{}, err
	}
	if s.at < s.end && s.input[s.at] == '%' {
		s.at = from
		part, err := s.milli(memoryAdvice)
		if err != nil {
			return Amount{}, err
		}
		if part > WholeDevice {
			return Amount{}, s.fail(from, "a share has at most 100% of one device's memory", "%s is more than a whole device", s.input[from:s.at])
		}
		return Amount{Part: part}, s.done(memoryAdvice)
	}
	if n.places > 0 && s.at == s.end {
		return Amount{}, s.fail(s.at, "write for example 1.5Gi, or 25% for a part of the device", "a unit is missing")
	}
	b, err := s.bytesOf(n)
	if err != nil {
		return Amount{}, err
	}
	return Amount{Bytes: b}, s.done(memoryAdvice)
}

// IsZero says that it is no memory.
func (a Amount) IsZero() bool { return a == Amount{} }

// Of is the amount in bytes on a device with so much memory. Bytes are rounded up to whole granules, for that is what they
// will occupy. A part is rounded down to whole granules, but to no less than one: parts that add up to a device then fit on
// it together. 100% is the device's memory exactly.
func (a Amount) Of(device Bytes) Bytes {
	switch {
	case a.IsZero():
		return 0
	case a.Part == 0:
		if a.Bytes > math.MaxInt64-Granule {
			return math.MaxInt64 / Granule * Granule
		}
		return (a.Bytes + Granule - 1) / Granule * Granule
	case a.Part == WholeDevice:
		return device
	}
	// device × Part / 1000 without passing 64 bits on the way.
	whole, part := Bytes(WholeDevice), Bytes(a.Part)
	size := device/whole*part + device%whole*part/whole
	return max(size/Granule*Granule, min(Granule, device))
}

// String is the text form: `10Gi` or `80%`; `0` for no memory.
func (a Amount) String() string {
	if a.Part == 0 {
		return a.Bytes.String()
	}
	if a.Part%10 == 0 {
		return strconv.Itoa(int(a.Part/10)) + "%"
	}
	return decimal(int64(a.Part), 1) + "%"
}

// MarshalText is String.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is ParseAmount.
func (a *Amount) UnmarshalText(text []byte) error { return into(a, ParseAmount, text) }

// ParseMemory reads a floor and a ceiling of a device's memory: `10Gi..20Gi`, `10Gi` (both), `10Gi..` (up to the whole device), `80%`.
// Where one is in bytes and the other a part, which is larger depends on the device: see Memory.Fits.
func ParseMemory(text string) (Memory, error) {
	s := scan("memory", text)
	first, second, isRange := s.cut()
	if first.rest() == "" && text != "" {
		return Memory{}, s.fail(0, "a share without reserved memory is written 0..10Gi", "the floor is missing")
	}
	var m Memory
	var err error
	if m.Floor, err = first.amount(); err != nil {
		return Memory{}, err
	}
	switch {
	case !isRange:
		m.Ceiling = m.Floor
	case second.rest() == "":
		m.Ceiling = Amount{Part: WholeDevice}
	default:
		if m.Ceiling, err = second.amount(); err != nil {
			return Memory{}, err
		}
	}
	switch {
	case m.Ceiling.IsZero() && !isRange:
		return Memory{}, s.fail(0, memoryAdvice, "a share of no memory")
	case m.Ceiling.IsZero():
		return Memory{}, s.fail(first.end+2, memoryAdvice, "a share of no memory")
	case m.Floor.over(m.Ceiling):
		return Memory{}, s.fail(first.end+2, "write the smaller one first", "the floor %s is over the ceiling %s", m.Floor, m.Ceiling)
	}
	return m, nil
}

// over says that a is more than b on every device. A part and an amount of bytes do not compare.
func (a Amount) over(b Amount) bool {
	if a.Part != 0 || b.Part != 0 {
		return b.Bytes == 0 && a.Part > b.Part
	}
	return a.Bytes > b.Bytes
}

// IsZero says that no memory was given.
func (m Memory) IsZero() bool { return m == Memory{} }

// On is the floor and the ceiling in bytes on a device with so much memory. The ceiling is never over the device nor under the
// floor. A floor over the device's memory, or over the ceiling there, stays what it is: the share does not fit there, see Fits.
func (m Memory) On(device Bytes) (floor, ceiling Bytes) {
	floor = m.Floor.Of(device)
	return floor, max(floor, min(m.Ceiling.Of(device), device))
}

// Fits says that the share can be on a device with so much memory: the floor is there no more than the device has, and no more than
// the ceiling.
func (m Memory) Fits(device Bytes) bool {
	floor := m.Floor.Of(device)
	return floor <= device && floor <= m.Ceiling.Of(device)
}

// Bound is the ceiling if it depends on the device whether it is over the floor: if one is in bytes and the other a part. Zero: on
// every device that has the floor it is.
func (m Memory) Bound() Amount {
	if (m.Floor.Part > 0) == (m.Ceiling.Part > 0) || m.Floor.IsZero() || m.Ceiling.Part == WholeDevice {
		return Amount{}
	}
	return m.Ceiling
}

// String is the text form, `10Gi..20Gi`, or `10Gi` where floor and ceiling are the same. It is empty for the zero Memory.
func (m Memory) String() string {
	switch {
	case m.IsZero():
		return ""
	case m.Floor == m.Ceiling:
		return m.Floor.String()
	}
	return m.Floor.String() + ".." + m.Ceiling.String()
}

// MarshalText is String: empty where no memory was given.
func (m Memory) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is ParseMemory, but empty text is the zero Memory: not given.
func (m *Memory) UnmarshalText(text []byte) error { return optional(m, ParseMemory, text) }

// EffectiveWeight is the weight by which what is over the floors is divided: Weight, or by default the compute floor in
// thousandths, at least 1.
func (s Share) EffectiveWeight() int32 {
	if s.Weight > 0 {
		return s.Weight
	}
	return max(1, int32(s.Compute.Floor))
}

// optional is into, but empty text gives the zero value.
func optional[T any](to *T, parse func(string) (T, error), text []byte) error {
	if len(text) == 0 {
		var zero T
		*to = zero
		return nil
	}
	return into(to, parse, text)
}
