package policy

import (
	"fmt"
	"testing"
)

// TestDoubts: what counts for nothing is said with its line, and what counts is not.
func TestDoubts(t *testing.T) {
	for text, want := range map[string]string{
		"queue a\npool p devices=0 classes=batch\nwindow w days=sat\nplacement default\n": "[a.policy:3: while there are pools places go by best fit, and placement says nothing]",
		"queue a\nplacement default\n": "[]",
	} {
		if got := fmt.Sprint(parsed(t, FormatLine+"\n"+text).Doubts()); got != want {
			t.Errorf("%s\nraises %s\nwant   %s", text, got, want)
		}
	}
}
