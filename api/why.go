package api

import (
	"fmt"
	"strings"
)

// textClasses is how many node classes are named in the text of a count. All are in its Nodes.
const textClasses = 4

// CountTexts are the messages of counts, in their order; where the devices are on nodes of several classes each with how many on which:
// "less compute free than the floor of 0.5 (8 on h100 x8, 4 on a100 x4)".
func CountTexts(counts []WhyCount) []string {
	classes := map[string]bool{}
	for _, c := range counts {
		for _, n := range c.Nodes {
			classes[n.Class] = true
		}
	}
	texts := make([]string, len(counts))
	for i, c := range counts {
		texts[i] = c.Message
		if len(classes) > 1 && len(c.Nodes) > 0 {
			texts[i] += " (" + c.nodesText() + ")"
		}
	}
	return texts
}

// nodesText is a count by node class, the smallest of many together.
func (c WhyCount) nodesText() string {
	var parts []string
	for i, n := range c.Nodes {
		if i == textClasses-1 && len(c.Nodes) > textClasses {
			rest := 0
			for _, o := range c.Nodes[i:] {
				rest += o.Devices
			}
			return strings.Join(append(parts, fmt.Sprintf("%d on nodes of %d other classes", rest, len(c.Nodes)-i)), ", ")
		}
		parts = append(parts, fmt.Sprintf("%d on %s", n.Devices, n.Class))
	}
	return strings.Join(parts, ", ")
}
