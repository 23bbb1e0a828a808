package api

import "testing"

func TestParseDisruptions(t *testing.T) {
	for _, text := range []string{"none", "1/1s", "2/24h", "16/720h"} {
		b, err := ParseDisruptions(text)
		if again, wrong := ParseDisruptions(b.String()); err != nil || wrong != nil || again != b || !b.Valid() {
			t.Errorf("%s is %+v, written %s (%v, %v)", text, b, b, err, wrong)
		}
	}
	for text, want := range map[string]string{
		"":         `disruption budget a number from 1 to 16 is expected; write how often in any time so long, for example 2/24h, or none`,
		"0/1h":     `disruption budget "0/1h": a number from 1 to 16 is expected (character 1); write how often in any time so long, for example 2/24h, or none`,
		"2":        `disruption budget "2": a / is expected, and a time (character 2); write how often in any time so long, for example 2/24h, or none`,
		"2/721h":   `disruption budget "2/721h": a time of 1s to 720h is expected (character 3); write how often in any time so long, for example 2/24h, or none`,
		"2/500ms":  `disruption budget "2/500ms": a time of 1s to 720h is expected (character 3); write how often in any time so long, for example 2/24h, or none`,
		"17/24h":   `disruption budget "17/24h": a number from 1 to 16 is expected (character 1); write how often in any time so long, for example 2/24h, or none`,
		"2/always": "",
	} {
		if _, err := ParseDisruptions(text); err == nil || want != "" && err.Error() != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}
