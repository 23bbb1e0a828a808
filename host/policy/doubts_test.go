package policy

import (
	"fmt"
	"testing"
)

// TestDoubts: what counts for nothing is said with its line, and what counts is not.
func TestDoubts(t *testing.T) {
	for text, want := range map[string]string{
		"queue org order=fifo\nqueue a parent=org order=fifo\nqueue b parent=org order=fifo\n":    "[]",
		"queue org order=fair+priority:1h\nqueue a parent=org order=fifo\n":                       "[]",
		"queue org\nqueue a parent=org\nwindow w days=sat\nqueue org order=priority\n":            "[]",
		"queue org order=shortest:2\nqueue a parent=org\nwindow w days=sat\nqueue a order=fifo\n": "[a.policy:3: work of queue a stands in the line of queue org, and counts there by the order of its own queue, fair+priority: write the same words of order for both if that is not meant a.policy:3: work of queue a stands in the line of queue org, and counts there by the order of its own queue, fifo: write the same words of order for both if that is not meant]",
		"queue a\npool p devices=0 classes=batch\nwindow w days=sat\nplacement default\n":         "[a.policy:3: while there are pools places go by best fit, and placement says nothing]",
		"queue a\nplacement default\n": "[]",
	} {
		if got := fmt.Sprint(parsed(t, FormatLine+"\n"+text).Doubts()); got != want {
			t.Errorf("%s\nraises %s\nwant   %s", text, got, want)
		}
	}
}
