package server

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// What may be submitted fits into a request, whatever JSON makes of its bytes.
func TestLargestSubmissionFits(t *testing.T) {
	s := newSite(t)
	for _, odd := range []string{"\x01", "\xff", "\xff\x01\x01\x01", "\"", "e"} {
		want := api.WorkloadSpec{Command: []string{"x"}, Dir: "/", Env: map[string]string{"A": strings.Repeat(odd, (api.MaxCommandBytes-6)/len(odd)), "\xfe": ""}}
		want.Command[0] = want.Env["A"][:4]
		body, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		status, answer := s.call("POST", "/v1/workloads", string(body))
		if status != 200 || !reflect.DeepEqual(s.host.spec, want) {
			t.Errorf("%q: %d %.300s", odd, status, answer)
		}
	}
	want := api.WorkloadSpec{Command: []string{strings.Repeat("\x01", api.MaxCommandBytes-10) + "\xff"}, Dir: "/\xff"}
	body, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := s.call("POST", "/v1/workloads", string(body)); status != 200 || !reflect.DeepEqual(s.host.spec, want) {
		t.Errorf("%d %.300s", status, answer)
	}
}
