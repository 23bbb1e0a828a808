package main

import (
	"slices"
	"testing"
)

// TestKeptFollowsRuns holds the list to what a run found: what is new is entered as not looked at, what is seen now or no longer there goes, and what was
// not tried stays, with its reason.
func TestKeptFollowsRuns(t *testing.T) {
	all := []mutant{{file: "a.go", line: 1, was: "x", is: "y"}, {file: "a.go", line: 2, was: "p", is: "q"}, {file: "b.go", line: 3, was: "r", is: "s"}, {file: "b.go", line: 9, was: "v", is: "w"}}
	before := kept{"# a cache", "a.go: x -> y", "a.go: gone -> z", "b.go: r -> s"}
	after := before.update(all, all[1:], []mutant{all[1], all[3]})
	want := kept{"# a cache", "a.go: x -> y", unread, "b.go: v -> w", "a.go: p -> q"}
	if !slices.Equal(after, want) {
		t.Fatalf("the list is %q, want %q", after, want)
	}
	if again := after.update(all, all[1:], []mutant{all[1], all[3]}); !slices.Equal(again, want) {
		t.Fatalf("after the same run again it is %q", again)
	}
}
