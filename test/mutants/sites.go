package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// mutant is one place of a file and what stands there instead.
type mutant struct {
	number int
	file   string // relative to the module
	line   int
	was    string
	is     string
}

func (m mutant) String() string { return fmt.Sprintf("%s:%d: %s -> %s", m.file, m.line, m.was, m.is) }

// key is the mutant wherever in its file it is.
func (m mutant) key() string { return fmt.Sprintf("%s: %s -> %s", m.file, m.was, m.is) }

// insertion is text that goes into a file in front of what stands at an offset.
type insertion struct {
	at, cut int // cut: so many bytes go
	text    string
	closes  bool // goes in front of what opens at the same offset
}

// mutation is a file being rewritten so that each of its mutants can live by its number.
type mutation struct {
	file  string
	set   *token.FileSet
	info  *types.Info
	text  []byte
	next  *int // number of the next mutant
	found []mutant
	put   []insertion
}

// operators are the calls that operators become, and what their mutants are.
var operators = map[token.Token]struct{ call, mutant string }{
	token.LSS: {"Less", "<="}, token.LEQ: {"LessEqual", "<"}, token.GTR: {"Greater", ">="}, token.GEQ: {"GreaterEqual", ">"},
	token.EQL: {"Equal", "!="}, token.NEQ: {"NotEqual", "=="},
	token.ADD: {"Add", "-"}, token.SUB: {"Sub", "+"}, token.MUL: {"Mul", "+"}, token.QUO: {"Div", "*"},
	token.LAND: {"And", "||"}, token.LOR: {"Or", "&&"},
}

// walk finds the mutants of a parsed file.
func (m *mutation) walk(file *ast.File) {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil && !strings.HasSuffix(f.Name.Name, "String") {
			ast.Inspect(f.Body, m.visit)
		}
	}
}

func (m *mutation) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.BinaryExpr:
		if m.info.Types[n].Value == nil {
			m.operator(n)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			m.add(n, "!", "")
			m.replace(n.OpPos, 1, fmt.Sprintf("mutated.Not(%d, ", m.last()))
			m.close(n.X.End())
		}
	case *ast.BlockStmt:
		m.statements(n.List)
	case *ast.CaseClause:
		m.statements(n.Body)
	}
	return true
}

// operator makes a call of an operator.
func (m *mutation) operator(n *ast.BinaryExpr) {
	with, known := operators[n.Op]
	if !known || !m.callable(n) {
		return
	}
	m.add(n, n.Op.String(), with.mutant)
	m.open(n.X.Pos(), fmt.Sprintf("mutated.%s(%d, ", with.call, m.last()))
	if n.Op == token.LAND || n.Op == token.LOR {
		m.replace(n.OpPos, 2, ", func() bool { return (")
		m.put = append(m.put, insertion{at: m.offset(n.Y.End()), text: ") })", closes: true})
		return
	}
	m.replace(n.OpPos, len(n.Op.String()), ", ")
	m.close(n.Y.End())
}

// callable says whether both sides are of one type that the call can be of.
func (m *mutation) callable(n *ast.BinaryExpr) bool {
	x, y := m.info.Types[n.X], m.info.Types[n.Y]
	if x.IsNil() || y.IsNil() {
		return false
	}
	same := types.Identical(x.Type, y.Type)
	basic, ok := x.Type.Underlying().(*types.Basic)
	switch n.Op {
	case token.LAND, token.LOR:
		return plainBool(x.Type) && plainBool(y.Type)
	case token.ADD, token.SUB, token.MUL, token.QUO:
		return same && ok && basic.Info()&types.IsInteger != 0
	case token.EQL, token.NEQ:
		return same && types.Comparable(x.Type)
	}
	return same && ok && basic.Info()&types.IsOrdered != 0
}

func plainBool(t types.Type) bool {
	return t == types.Typ[types.Bool] || t == types.Typ[types.UntypedBool]
}

// statements lets each be left out that nothing after it needs to compile.
func (m *mutation) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok {
				if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "panic" {
					continue
				}
			}
		case *ast.IncDecStmt:
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || blank(s) {
				continue
			}
		default:
			continue
		}
		m.add(s, m.source(s), "")
		m.open(s.Pos(), fmt.Sprintf("if !mutated.On(%d) { ", m.last()))
		m.put = append(m.put, insertion{at: m.offset(s.End()), text: " }", closes: true})
	}
}

func blank(s *ast.AssignStmt) bool {
	return slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool {
		name, ok := e.(*ast.Ident)
		return ok && name.Name == "_"
	})
}

func (m *mutation) add(n ast.Node, was, is string) {
	if is == "" {
		is = "(left out)"
	}
	if _, expression := n.(ast.Expr); expression {
		was = fmt.Sprintf("%s in %s", was, m.source(n))
	}
	m.found = append(m.found, mutant{number: *m.next, file: m.file, line: m.set.Position(n.Pos()).Line, was: was, is: is})
	*m.next++
}

func (m *mutation) last() int { return m.found[len(m.found)-1].number }

// source is how a node stands there, in one line.
func (m *mutation) source(n ast.Node) string {
	text := strings.Join(strings.Fields(string(m.text[m.offset(n.Pos()):m.offset(n.End())])), " ")
	if runes := []rune(text); len(runes) > 80 {
		return string(runes[:79]) + "…"
	}
	return text
}

func (m *mutation) offset(pos token.Pos) int { return m.set.Position(pos).Offset }

func (m *mutation) open(pos token.Pos, text string) {
	m.put = append(m.put, insertion{at: m.offset(pos), text: text})
}

func (m *mutation) close(pos token.Pos) {
	m.put = append(m.put, insertion{at: m.offset(pos), text: ")", closes: true})
}

func (m *mutation) replace(pos token.Pos, cut int, text string) {
	m.put = append(m.put, insertion{at: m.offset(pos), cut: cut, text: text})
}

// rewritten is the file with all its mutants in. What encloses was found first: it opens first and closes last.
func (m *mutation) rewritten(name *ast.Ident) []byte {
	m.put = append(m.put, insertion{at: m.offset(name.End()), text: `; import "github.com/aliquot-dev/aliquot/test/mutants/mutated"`})
	opens := slices.DeleteFunc(slices.Clone(m.put), func(i insertion) bool { return i.closes })
	closes := slices.DeleteFunc(slices.Clone(m.put), func(i insertion) bool { return !i.closes })
	slices.Reverse(closes)
	all := append(closes, opens...)
	slices.SortStableFunc(all, func(a, b insertion) int { return a.at - b.at })
	var out []byte
	from := 0
	for _, i := range all {
		out = append(append(out, m.text[from:i.at]...), i.text...)
		from = i.at + i.cut
	}
	return append(out, m.text[from:]...)
}
