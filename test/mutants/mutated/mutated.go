// Package mutated is what code under mutation calls in place of its operators: one of them, by number, does something else.
//
// ALIQUOT_MUTANT has the number of the mutant that lives, 0 or nothing for none. With ALIQUOT_MUTANT_REACHED, the number of every mutant that is
// come by is written to that file once, four bytes each, little-endian.
package mutated

import (
	"cmp"
	"encoding/binary"
	"os"
	"strconv"
	"sync/atomic"
)

// Most is one more than the highest number of a mutant.
const Most = 1 << 16

var (
	living   = number(os.Getenv("ALIQUOT_MUTANT"))
	comeBy   = open(os.Getenv("ALIQUOT_MUTANT_REACHED"))
	reached  [Most]atomic.Bool
	noMutant = 0
)

func number(text string) int {
	if text == "" {
		return noMutant
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= Most {
		panic("ALIQUOT_MUTANT is " + text + ", which is no number of a mutant")
	}
	return n
}

func open(path string) *os.File {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	return f
}

// On says whether mutant n lives.
func On(n int) bool {
	if comeBy != nil && !reached[n].Swap(true) {
		if _, err := comeBy.Write(binary.LittleEndian.AppendUint32(nil, uint32(n))); err != nil {
			panic(err)
		}
	}
	return living == n
}

// Number is what arithmetic is mutated of.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Less is a < b; its mutant a <= b.
func Less[T cmp.Ordered](n int, a, b T) bool {
	if On(n) {
		return a <= b
	}
	return a < b
}

// LessEqual is a <= b; its mutant a < b.
func LessEqual[T cmp.Ordered](n int, a, b T) bool {
	if On(n) {
		return a < b
	}
	return a <= b
}

// Greater is a > b; its mutant a >= b.
func Greater[T cmp.Ordered](n int, a, b T) bool {
	if On(n) {
		return a >= b
	}
	return a > b
}

// GreaterEqual is a >= b; its mutant a > b.
func GreaterEqual[T cmp.Ordered](n int, a, b T) bool {
	if On(n) {
		return a > b
	}
	return a >= b
}

// Equal is a == b; its mutant a != b.
func Equal[T comparable](n int, a, b T) bool { return (a == b) != On(n) }

// NotEqual is a != b; its mutant a == b.
func NotEqual[T comparable](n int, a, b T) bool { return (a != b) != On(n) }

// Add is a + b; its mutant a - b.
func Add[T Number](n int, a, b T) T {
	if On(n) {
		return a - b
	}
	return a + b
}

// Sub is a - b; its mutant a + b.
func Sub[T Number](n int, a, b T) T {
	if On(n) {
		return a + b
	}
	return a - b
}

// Mul is a * b; its mutant a + b.
func Mul[T Number](n int, a, b T) T {
	if On(n) {
		return a + b
	}
	return a * b
}

// Div is a / b; its mutant a * b.
func Div[T Number](n int, a, b T) T {
	if On(n) {
		return a * b
	}
	return a / b
}

// And is a && b; its mutant a || b. What is on the right is looked at where it counts.
func And(n int, a bool, b func() bool) bool {
	if On(n) {
		return a || b()
	}
	return a && b()
}

// Or is a || b; its mutant a && b.
func Or(n int, a bool, b func() bool) bool {
	if On(n) {
		return a && b()
	}
	return a || b()
}

// Not is !a; its mutant a.
func Not(n int, a bool) bool { return a == On(n) }
