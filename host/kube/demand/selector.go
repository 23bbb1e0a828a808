package demand

import (
	"maps"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/lru"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// Whose devices may match selectors is found out without any device: each selector is evaluated for one of a driver of which nothing else is known (CEL's
// partial evaluation), and what comes out may be that none of it can. A device has attributes and capacity of its driver's domain and of Kubernetes' own alone;
// what a selector asks of another is an error, to CEL and to upstream's allocator, and so no match.

// Whose says which drivers' devices would do.
type Whose struct {
	Ours   bool // those of ours
	Others bool // those of another's
}

// whose keeps what was found out, by the selectors. Tenants write them, so it is bounded.
var whose = lru.New(1024)

// common is the domain of attributes that any driver's devices have.
const common = "resource.kubernetes.io"

// whoseMatch is whose devices may match all of these selectors.
func whoseMatch(selectors []resourceapi.DeviceSelector) Whose {
	var all []string
	for _, s := range selectors {
		if s.CEL != nil {
			all = append(all, s.CEL.Expression)
		}
	}
	key := strings.Join(all, "\x00")
	if known, is := whose.Get(key); is {
		return known.(Whose)
	}
	found := evaluate(all)
	whose.Add(key, found)
	return found
}

// evaluate is whoseMatch of CEL expressions. Of other drivers there is none whose name an expression does not know, but for those that it may tell apart by
// less than a name: to it they are all alike. What does not compile, which the API server lets nobody write, is another driver's.
func evaluate(expressions []string) Whose {
	drivers := map[string]bool{"a driver that is not named": true}
	var all []*selector
	for _, expression := range expressions {
		s := compile(expression)
		if s == nil {
			return Whose{Others: true}
		}
		all = append(all, s)
		for _, word := range s.words {
			drivers[word] = true
		}
	}
	delete(drivers, annotation.Driver)
	match := func(driver string) bool {
		return !slices.ContainsFunc(all, func(s *selector) bool { return !s.mayMatch(driver) })
	}
	return Whose{Ours: match(annotation.Driver), Others: slices.ContainsFunc(slices.Collect(maps.Keys(drivers)), match)}
}

// selector is a compiled expression.
type selector struct {
	program celgo.Program
	words   []string // strings in it: names of drivers, domains and others
}

// compile is an expression as upstream would have it, to be evaluated with what is known; nil: it is none.
func compile(expression string) *selector {
	compiled := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{DisableCostEstimation: true})
	if compiled.Error != nil {
		return nil
	}
	tree, issues := compiled.Environment.Compile(expression)
	if issues.Err() != nil {
		return nil
	}
	program, err := compiled.Environment.Program(tree, celgo.EvalOptions(celgo.OptPartialEval), celgo.CostLimit(resourceapi.CELSelectorExpressionMaxCost))
	if err != nil {
		return nil
	}
	s := &selector{program: program}
	for _, literal := range ast.MatchDescendants(ast.NavigateAST(tree.NativeRep()), ast.ConstantValueMatcher()) {
		if word, is := literal.AsLiteral().(types.String); is {
			s.words = append(s.words, string(word))
		}
	}
	return s
}

// mayMatch says whether a device of a driver may match.
func (s *selector) mayMatch(driver string) bool {
	attributes, capacity := map[string]any{}, map[string]any{}
	unknown := []*celgo.AttributePatternType{celgo.AttributePattern("device").QualString("allowMultipleAllocations")}
	for _, domain := range slices.Concat(s.words, []string{driver, common}) {
		attributes[domain], capacity[domain] = map[string]any{}, map[string]any{}
		if domain == driver || domain == common || driver != annotation.Driver && domain != annotation.Driver {
			unknown = append(unknown, celgo.AttributePattern("device").QualString("attributes").QualString(domain), celgo.AttributePattern("device").QualString("capacity").QualString(domain))
		}
	}
	known, err := celgo.PartialVars(map[string]any{"device": map[string]any{
		"driver": driver, "allowMultipleAllocations": false, "attributes": attributes, "capacity": capacity,
	}}, unknown...)
	if err != nil {
		return false
	}
	result, _, err := s.program.Eval(known)
	return err == nil && result != types.False || types.IsUnknown(result)
}
