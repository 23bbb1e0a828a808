package api_test

import (
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

func TestParseHours(t *testing.T) {
	for text, want := range map[string]api.HoursQuota{
		"none": {}, "0/day": {Per: api.Day}, "100/week": {Amount: 100_000, Per: api.Week}, "0.125/month": {Amount: 125, Per: api.Month},
	} {
		got, err := api.ParseHours(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s is read as %+v and written as %s (%v)", text, got, got, err)
		}
	}
	for text, want := range map[string]string{
		"100": "a / is expected", "100/year": "\"year\" is no period", "/week": "a number of device-hours", "none/week": "a number of device-hours",
		"-1/day": "a number of device-hours", "0.0001/day": "at most three decimals", "1000000001/day": "1000000000 at most", "1/": "is no period",
	} {
		if got, err := api.ParseHours(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is read as %+v (%v), want %s", text, got, err, want)
		}
	}
	wrong := api.QueueSpec{Name: "x", Quota: api.Unlimited, Hours: api.HoursQuota{Amount: -1, Per: api.Day}}
	if err := wrong.Validate(); err == nil || !strings.Contains(err.Error(), "device-hours; give 0 to") {
		t.Errorf("%v", err)
	}
}
