package demand

import (
	"crypto/sha256"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/lru"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// Whose devices may match selectors is found out without any device: each selector is evaluated for one of a driver of which nothing else is known (CEL's
// partial evaluation), and what comes out may be that none of it can. A device has attributes and capacity of its driver's domain and of Kubernetes' own alone;
// a selector that asks of another without looking whether it is there is an error, and matches nothing. Where this cannot be said, or would take long, devices
// of any driver may match: then they are looked for among all, and that is the devices' own answer.

// Whose says which drivers' devices would do.
type Whose struct {
	Ours   bool // those of ours
	Others bool // those of another's
}

// anyones is what is said of selectors of which no more can be.
var anyones = Whose{Ours: true, Others: true}

// whose keeps what was found out, by a digest of the selectors. Tenants write them, so it is bounded.
var whose = lru.New(4096)

// What is looked into: tenants' selectors are read where pods of all wait for that.
const (
	longest = 4 << 10 // bytes of a request's expressions, which stand beside those of its class
	most    = 16      // drivers, and domains, that an expression names
	dearest = 10_000  // in CEL's units of cost, of one evaluation; the API server has ten times as much of a selector
)

// common is the domain of attributes that any driver's devices have.
const common = "resource.kubernetes.io"

// whoseMatch is whose devices may match all selectors of a class and of a request.
func whoseMatch(class, request []resourceapi.DeviceSelector) Whose {
	var all []string
	length := 0
	for i, s := range slices.Concat(class, request) {
		if s.CEL == nil {
			continue
		}
		all = append(all, s.CEL.Expression)
		if i >= len(class) {
			length += len(s.CEL.Expression)
		}
	}
	if length > longest {
		return anyones
	}
	text := strings.Join(all, "\x00")
	key := sha256.Sum256([]byte(text))
	if known, is := whose.Get(key); is {
		return known.(Whose)
	}
	found := evaluate(all)
	whose.Add(key, found)
	return found
}

// evaluate is whoseMatch of CEL expressions. Other drivers are those that an expression names, and one that none does.
func evaluate(expressions []string) Whose {
	drivers := map[string]bool{"a driver that is not named": true}
	var all []*selector
	for _, expression := range expressions {
		s := compile(expression)
		if s == nil || len(s.drivers)+len(drivers) > most || len(s.domains) > most {
			return anyones
		}
		all = append(all, s)
		for _, driver := range s.drivers {
			drivers[driver] = true
		}
	}
	match := func(driver string) bool {
		for _, s := range all {
			if !s.mayMatch(driver) {
				return false
			}
		}
		return true
	}
	found := Whose{Ours: match(annotation.Driver)}
	for driver := range drivers {
		found.Others = found.Others || driver != annotation.Driver && match(driver)
	}
	for _, s := range all { // of drivers that it does not name it may tell some apart, as by a pattern
		found.Others = found.Others || s.odd
	}
	return found
}

// selector is a compiled expression.
type selector struct {
	program celgo.Program
	drivers []string // that it compares the device's with
	domains []string // of attributes and capacity that it looks at
	odd     bool     // it does something else with the device's driver
	dear    bool     // evaluating it costs too much
}

// compile is an expression as upstream would have it, to be evaluated with what is known; nil: it is none to the version that is known here.
func compile(expression string) *selector {
	compiled := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{DisableCostEstimation: true})
	if compiled.Error != nil {
		return nil
	}
	tree, issues := compiled.Environment.Compile(expression)
	if issues.Err() != nil {
		return nil
	}
	program, err := compiled.Environment.Program(tree, celgo.EvalOptions(celgo.OptPartialEval), celgo.CostLimit(dearest))
	if err != nil {
		return nil
	}
	s := &selector{program: program}
	ast.PreOrderVisit(ast.NavigateAST(tree.NativeRep()), ast.NewExprVisitor(func(e ast.Expr) {
		if node, is := e.(ast.NavigableExpr); is {
			s.read(node)
		}
	}))
	return s
}

// read notes what one place of an expression says of drivers and domains.
func (s *selector) read(e ast.NavigableExpr) {
	parent, within := e.Parent()
	switch {
	case e.Kind() == ast.IdentKind && e.AsIdent() == "device":
		s.odd = s.odd || !within || parent.Kind() != ast.SelectKind
	case e.Kind() == ast.SelectKind && e.AsSelect().FieldName() == "driver" && e.AsSelect().Operand().Kind() == ast.IdentKind:
		words, plain := compared(parent, within, e.ID())
		s.drivers, s.odd = append(s.drivers, words...), s.odd || !plain
	case within && parent.Kind() == ast.CallKind && e.Kind() == ast.LiteralKind:
		switch parent.AsCall().FunctionName() {
		case operators.Index, operators.OptIndex, operators.In:
			if word, is := e.AsLiteral().(types.String); is {
				s.domains = append(s.domains, string(word))
			}
		}
	}
}

// compared are the strings that a part of an expression is compared with by what it stands in: whether it equals one, or is one of several. Plain: it is
// nothing else.
func compared(parent ast.Expr, within bool, part int64) (words []string, plain bool) {
	if !within || parent.Kind() != ast.CallKind {
		return nil, false
	}
	call := parent.AsCall()
	switch call.FunctionName() {
	case operators.Equals, operators.NotEquals, operators.In:
	default:
		return nil, false
	}
	for _, arg := range call.Args() {
		others := []ast.Expr{arg}
		if arg.Kind() == ast.ListKind {
			others = arg.AsList().Elements()
		}
		for _, other := range others {
			if other.ID() == part {
				continue
			}
			if other.Kind() != ast.LiteralKind {
				return nil, false
			}
			word, is := other.AsLiteral().(types.String)
			if !is {
				return nil, false
			}
			words = append(words, string(word))
		}
	}
	return words, true
}

// mayMatch says whether a device of a driver may match.
func (s *selector) mayMatch(driver string) bool {
	if s.dear {
		return true
	}
	attributes, capacity := map[string]any{}, map[string]any{}
	unknown := []*celgo.AttributePatternType{celgo.AttributePattern("device").QualString("allowMultipleAllocations")}
	see := func(domain string) {
		if attributes[domain] != nil {
			return
		}
		attributes[domain], capacity[domain] = map[string]any{}, map[string]any{}
		if domain == driver || domain == common || driver != annotation.Driver && domain != annotation.Driver {
			unknown = append(unknown, celgo.AttributePattern("device").QualString("attributes").QualString(domain), celgo.AttributePattern("device").QualString("capacity").QualString(domain))
		}
	}
	see(driver)
	see(common)
	for _, domain := range s.domains {
		see(domain)
	}
	known, err := celgo.PartialVars(map[string]any{"device": map[string]any{
		"driver": driver, "allowMultipleAllocations": false, "attributes": attributes, "capacity": capacity,
	}}, unknown...)
	if err != nil {
		return true
	}
	result, _, err := s.program.Eval(known)
	if err != nil {
		s.dear = strings.Contains(err.Error(), "cost limit")
		return !strings.Contains(err.Error(), "no such key")
	}
	return result != types.False
}
