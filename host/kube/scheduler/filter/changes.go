package filter

import "sync/atomic"

// changes counts what happened that may change judgements.
type changes struct{ count atomic.Uint64 }

// now is a number that grows with every change.
func (c *changes) now() uint64 { return c.count.Load() }

// note notes one.
func (c *changes) note() { c.count.Add(1) }
