package cli

import (
	"errors"
	"strings"
	"testing"
)

// Where there is a driver, doctor asks it how many devices it knows; where there is none, it does not.
func TestDoctorAsksTheDriver(t *testing.T) {
	for _, test := range []struct {
		name    string
		driver  error
		devices int
		failed  error
		want    string
	}{
		{"three", nil, 3, nil, "answers, and knows 3 devices"},
		{"none", nil, 0, nil, "answers, and knows no devices"},
		{"broken", nil, 0, errors.New("start NVML: driver not loaded"), "start NVML: driver not loaded"},
		{"no driver", errors.New("no libcuda.so.1 here"), 3, nil, "no libcuda.so.1 here"},
	} {
		asked := false
		program := Program{
			Driver:  func() error { return test.driver },
			Devices: func() (int, error) { asked = true; return test.devices, test.failed },
		}
		folder := t.TempDir()
		got := invoke(t, program, "--run", folder, "doctor", "--state", folder)
		if !strings.Contains(got.out, test.want) || asked != (test.driver == nil) {
			t.Errorf("%s: asked %v, want %q in\n%s%s", test.name, asked, test.want, got.out, got.err)
		}
	}
}
