//go:build race

package lease

// raceEnabled: the race detector makes everything ten times slower, and there is one goroutine in a Rule.
const raceEnabled = true
