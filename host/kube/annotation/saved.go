package annotation

import (
	"fmt"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// Restart reads what a pod takes after a start until it goes on where it was; 0: it does not say.
func Restart(annotations map[string]string) (time.Duration, error) {
	text, given := annotations[RestartTime]
	if !given {
		return 0, nil
	}
	took, err := api.ParseDuration(text)
	if err != nil {
		return 0, in(RestartTime, err)
	}
	return time.Duration(took), nil
}

// Checkpointed reads when a pod last said that what it has done is saved; the zero time: it did not.
func Checkpointed(annotations map[string]string) (time.Time, error) {
	text, given := annotations[CheckpointedAt]
	if !given {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("the annotation %s: %q is no time; write it as 2026-11-22T05:00:09Z (date -u +%%FT%%TZ)", CheckpointedAt, text)
	}
	return at, nil
}
