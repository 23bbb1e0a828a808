package policy

import (
	"fmt"
	"slices"
)

// Doubts are what is allowed and may not do what it was written for, each a sentence with its line, said once for all windows.
func (p *Policy) Doubts() []string {
	var all []string
	say := func(line int, format string, args ...any) {
		if text := fmt.Sprintf("%s:%d: ", p.Name, line) + fmt.Sprintf(format, args...); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	for _, w := range append([]*Window{nil}, p.Windows...) {
		e := p.During(w, nil)
		if len(e.Pools) > 0 && e.Placement != nil {
			say(p.Pools[0].Line, "while there are pools places go by best fit, and placement says nothing")
		}
	}
	return all
}
