package scheduler

import (
	"fmt"

	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// inParts is the selector that devices must match of which a part is asked for.
const inParts = `device.allowMultipleAllocations == true`

// someMatch is why the engine leaves a node out of which some devices match and others do not: it chooses among all of a node. See secondChance.
const someMatch = "some devices do not match the selectors"

// selected is why a node's devices do not all match selectors; empty: they do. A node on which some match and others do not is left out whole:
// which of its devices a pod gets is the engine's choice.
func (s *Scheduler) selected(selectors []string, n *node) string {
	for _, expression := range selectors {
		program, known := s.programs[expression]
		if !known {
			program = cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{})
			s.programs[expression] = program
		}
		if program.Error != nil {
			return fmt.Sprintf("the selector %s cannot be understood: %v", expression, program.Error)
		}
		matching := 0
		for _, d := range n.offered {
			matches, _, err := program.DeviceMatches(s.ctx, cel.Device{
				Driver: driver.Name, Attributes: d.Attributes, Capacity: d.Capacity, AllowMultipleAllocations: d.AllowMultipleAllocations,
			})
			if err != nil {
				return fmt.Sprintf("the selector %s fails on device %s: %v", expression, d.Name, err)
			}
			if matches {
				matching++
			}
		}
		switch matching {
		case len(n.offered):
		case 0:
			if expression == inParts {
				return "its devices are handed out whole alone, for the API server drops what is said of parts; ask for whole ones, or have it enable DRAConsumableCapacity"
			}
			return "no device matches the selectors"
		default:
			return someMatch
		}
	}
	return ""
}
