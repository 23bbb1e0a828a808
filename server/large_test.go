package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// timed is an answer, and until when its request's body may come.
type timed struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (w *timed) SetReadDeadline(until time.Time) error {
	w.until = until
	return nil
}

// A busy machine has time to send what may be submitted.
func TestBodyHasTime(t *testing.T) {
	host := &fakeHost{asked: make(chan string, 1)}
	routes := newRoutes(Config{Host: host, Version: "v1", Log: slog.New(slog.DiscardHandler)})
	for _, one := range []struct{ method, path, body string }{
		{http.MethodPost, "/v1/workloads", `{"command":["x"],"dir":"/"}`}, {http.MethodPut, "/v1/policy", `{"name":"office","text":"x"}`},
	} {
		request := httptest.NewRequest(one.method, one.path, strings.NewReader(one.body))
		request.Header.Set("Content-Type", "application/json")
		got := &timed{ResponseRecorder: httptest.NewRecorder()}
		began := time.Now()
		routes.ServeHTTP(got, as(request, Caller{Name: "me"}))
		if got.Code != http.StatusOK || got.until.Sub(began) < bodyPatience {
			t.Errorf("%s: %d %s, and its body has %v", one.path, got.Code, got.Body, got.until.Sub(began))
		}
	}
}

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
