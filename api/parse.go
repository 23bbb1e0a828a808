package api

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ParseError says what is wrong with a text and where. Error is one sentence that names the character; Caret shows it.
type ParseError struct {
	What    string // what the text should have been: "compute", "memory", "duration"
	Input   string // the whole text
	Offset  int    // of the offending character in Input, in bytes; len(Input) where something is missing
	Problem string // what is wrong there
	Advice  string // what to write instead; may be empty
}

// Error is one sentence with the position counted in characters from 1.
func (e *ParseError) Error() string {
	text := e.What + " "
	if e.Input != "" {
		text += quoted(e.Input) + ": "
	}
	text += e.Problem
	if e.Input != "" {
		text += fmt.Sprintf(" (character %d)", utf8.RuneCountInString(e.Input[:e.Offset])+1)
	}
	if e.Advice != "" {
		text += "; " + e.Advice
	}
	return text
}

// Caret shows the input with a caret under the offending character, over two lines:
//
//	0.25..O.80
//	      ^ a digit is expected, not "O"
//
// A terminal shows the caret at the right place as long as no character is wider than one column.
func (e *ParseError) Caret() string {
	visible := func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}
	before := utf8.RuneCountInString(e.Input[:e.Offset])
	return strings.Map(visible, e.Input) + "\n" + strings.Repeat(" ", before) + "^ " + e.Problem
}

// quoted quotes a text for an error, cut where it is long: an error is a sentence, whatever the input was.
func quoted(text string) string {
	const longest = 80
	if utf8.RuneCountInString(text) <= longest {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q…", string([]rune(text)[:longest]))
}

// scanner reads one text from left to right. Its methods return *ParseError at the place where they stand.
type scanner struct {
	what  string
	input string
	at    int // offset in input
	end   int // where this scanner stops
}

func scan(what, input string) *scanner {
	return &scanner{what: what, input: input, end: len(input)}
}

func (s *scanner) rest() string { return s.input[s.at:s.end] }

// fail makes the error at offset.
func (s *scanner) fail(offset int, advice, problem string, args ...any) *ParseError {
	return &ParseError{What: s.what, Input: s.input, Offset: offset, Problem: fmt.Sprintf(problem, args...), Advice: advice}
}

// cut splits at the first "..", the sign between floor and ceiling. found says whether there is one.
func (s *scanner) cut() (floor, ceiling *scanner, found bool) {
	i := strings.Index(s.rest(), "..")
	if i < 0 {
		return s, nil, false
	}
	floor, ceiling = new(scanner), new(scanner)
	*floor, *ceiling = *s, *s
	floor.end = s.at + i
	ceiling.at = s.at + i + len("..")
	return floor, ceiling, true
}

// number is an exact decimal: digits × 10^-places.
type number struct {
	digits uint64
	places int
	offset int // where it began
}

// mostPlaces is how many decimals a number may have: 10^mostPlaces still fits in 64 bits.
const mostPlaces = 18

// number reads digits with an optional fraction, or a fraction alone. No sign, no exponent: an amount is never negative, and what is written is what
// is meant.
func (s *scanner) number(advice string) (number, error) {
	n := number{offset: s.at}
	digit := func() bool { return s.at < s.end && s.input[s.at] >= '0' && s.input[s.at] <= '9' }
	// `.25` is 0.25, but not after a dot: `0.1...25` is a slip of the finger.
	bare := s.at+1 < s.end && s.input[s.at] == '.' && s.input[s.at+1] >= '0' && s.input[s.at+1] <= '9' && (s.at == 0 || s.input[s.at-1] != '.')
	if !digit() && !bare {
		return n, s.noDigit(advice)
	}
	take := func() error {
		for ; digit(); s.at++ {
			high, low := bits.Mul64(n.digits, 10)
			low, carry := bits.Add64(low, uint64(s.input[s.at]-'0'), 0)
			if high+carry != 0 || low > math.MaxInt64 {
				return s.fail(n.offset, "", "the number is too large")
			}
			n.digits = low
		}
		return nil
	}
	if err := take(); err != nil {
		return n, err
	}
	if s.at == s.end || s.input[s.at] != '.' {
		return n, nil
	}
	s.at++
	if !digit() {
		return n, s.noDigit(advice)
	}
	fraction := s.at
	if err := take(); err != nil {
		return n, err
	}
	n.places = s.at - fraction
	for n.places > 0 && n.digits%10 == 0 { // 0.2500 is 0.25
		n.digits /= 10
		n.places--
	}
	if n.places > mostPlaces {
		return n, s.fail(fraction+mostPlaces, "", "more than %d decimals", mostPlaces)
	}
	return n, nil
}

// noDigit says what stands where a digit is expected.
func (s *scanner) noDigit(advice string) error {
	rest := s.rest()
	switch lower := strings.ToLower(strings.TrimLeft(rest, "+-")); {
	case rest == "" && s.input == "":
		return s.fail(s.at, advice, "is empty")
	case rest == "":
		return s.fail(s.at, advice, "a number is missing")
	case strings.HasPrefix(lower, "nan"), strings.HasPrefix(lower, "inf"):
		return s.fail(s.at, advice, "%s is not an amount", quoted(rest))
	case rest[0] == '-':
		return s.fail(s.at, advice, "an amount cannot be negative")
	}
	return s.fail(s.at, advice, "a digit is expected, not %s", s.here())
}

// here is the character at which the scanner stands, quoted.
func (s *scanner) here() string {
	_, size := utf8.DecodeRuneInString(s.rest())
	return fmt.Sprintf("%q", s.input[s.at:s.at+size])
}

// done fails if anything is left.
func (s *scanner) done(advice string) error {
	if s.at == s.end {
		return nil
	}
	return s.fail(s.at, advice, "%s is not expected here", s.here())
}

// word takes the letters at which the scanner stands: a unit.
func (s *scanner) word() string {
	from := s.at
	for s.at < s.end {
		r, size := utf8.DecodeRuneInString(s.rest())
		if !unicode.IsLetter(r) {
			break
		}
		s.at += size
	}
	return s.input[from:s.at]
}

// accept takes c if it is next.
func (s *scanner) accept(c byte) bool {
	if s.at < s.end && s.input[s.at] == c {
		s.at++
		return true
	}
	return false
}

// scaled is n × unit as an integer, with whether it is exact; what is not is rounded up. ok is false when it is over
// math.MaxInt64.
func (n number) scaled(unit uint64) (value int64, exact, ok bool) {
	scale := uint64(1)
	for range n.places {
		scale *= 10
	}
	high, low := bits.Mul64(n.digits, unit)
	if high >= scale {
		return 0, false, false
	}
	quotient, remainder := bits.Div64(high, low, scale)
	if remainder != 0 {
		quotient++
	}
	if quotient > math.MaxInt64 {
		return 0, false, false
	}
	return int64(quotient), remainder == 0, true
}
