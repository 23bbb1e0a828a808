package supervise

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A limit that is too low to start in is named, not what the kernel happened to lack for it.
func TestStartWithinTooLittle(t *testing.T) {
	recipe := Recipe{Command: []string{"train"}, Program: "/bin/sh", Dir: "/", Cgroups: []string{"/none"}}
	if err := explainStart(recipe, unix.ENFILE); !strings.Contains(err.Error(), "within its limits") || !strings.Contains(err.Error(), "--host-memory") {
		t.Error(err)
	}
	recipe.Cgroups = nil
	if err := explainStart(recipe, unix.ENFILE); strings.Contains(err.Error(), "--host-memory") {
		t.Errorf("without limits: %v", err)
	}
}
