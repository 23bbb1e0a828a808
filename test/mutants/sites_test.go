package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/test/mutants/mutated"
)

const source = `package p

type milli int64

func f(a, b milli, of []int, text string) (ok bool) {
	const half = 1000 / 2
	if a+b < half && !ok ||
		of == nil {
		a++
		panic("no")
	}
	for i := range of {
		of[i], _ = 1, 2
		of[i] = 3 * i
	}
	println(text + "!")
	return a == b-1
}
`

const with = `package p; import "github.com/aliquot-dev/aliquot/test/mutants/mutated"

type milli int64

func f(a, b milli, of []int, text string) (ok bool) {
	const half = 1000 / 2
	if mutated.Or(2, mutated.And(3, mutated.Less(4, mutated.Add(5, a,b), half), func() bool { return ( mutated.Not(6, ok)) }) , func() bool { return (
		of == nil) }) {
		if !mutated.On(7) { a++ }
		panic("no")
	}
	for i := range of {
		of[i], _ = 1, 2
		if !mutated.On(8) { of[i] = mutated.Mul(9, 3 , i) }
	}
	if !mutated.On(1) { println(text + "!") }
	return mutated.Equal(10, a , mutated.Sub(11, b,1))
}
`

// Every operator that can be a call is one, every statement that can be left out can be, and nothing else changes; what comes of it is Go.
func TestRewritten(t *testing.T) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info := types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	if _, err := (&types.Config{Importer: importer.Default()}).Check("p", set, []*ast.File{file}, &info); err != nil {
		t.Fatal(err)
	}
	next := 1
	m := mutation{file: "p.go", set: set, info: &info, text: []byte(source), next: &next}
	m.walk(file)
	got := string(m.rewritten(file.Name))
	if strip(got) != strip(with) {
		t.Errorf("rewritten:\n%s\nnot\n%s", got, with)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "p.go", got, parser.SkipObjectResolution); err != nil {
		t.Error(err)
	}
	var found []string
	for _, m := range m.found {
		found = append(found, m.String())
	}
	if want := "p.go:7: < in a+b < half -> <="; len(found) != 11 || found[3] != want {
		t.Errorf("%d mutants, the fourth of which should be %q:\n%s", len(found), want, strings.Join(found, "\n"))
	}
}

// strip takes out the blanks, of which rewriting leaves as many as there were.
func strip(text string) string { return strings.Join(strings.Fields(text), "") }

// While no mutant lives, every call is its operator.
func TestMutatedIsTheOperator(t *testing.T) {
	for a := -2; a <= 2; a++ {
		for b := -2; b <= 2; b++ {
			if mutated.Less(1, a, b) != (a < b) || mutated.LessEqual(1, a, b) != (a <= b) || mutated.Greater(1, a, b) != (a > b) ||
				mutated.GreaterEqual(1, a, b) != (a >= b) || mutated.Equal(1, a, b) != (a == b) || mutated.NotEqual(1, a, b) != (a != b) {
				t.Errorf("a comparison of %d and %d", a, b)
			}
			if mutated.Add(1, a, b) != a+b || mutated.Sub(1, a, b) != a-b || mutated.Mul(1, a, b) != a*b || b != 0 && mutated.Div(1, a, b) != a/b {
				t.Errorf("arithmetic of %d and %d", a, b)
			}
		}
	}
	for _, a := range []bool{false, true} {
		for _, b := range []bool{false, true} {
			looked := 0
			look := func() bool { looked++; return b }
			if mutated.And(1, a, look) != (a && b) || mutated.Or(1, a, look) != (a || b) || mutated.Not(1, a) != !a || looked != 1 {
				t.Errorf("logic of %v and %v", a, b)
			}
		}
	}
}
