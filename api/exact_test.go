package api

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Any bytes come back from JSON as they were, and Exact is there only where it is needed.
func FuzzSpecKeepsBytes(f *testing.F) {
	for _, word := range []string{"", "q", "q\xff", "\xff\xfe", "\xed\xa0\x80", "\ufffd", "\x01\x7f\u2028<", "é"} {
		f.Add("x", word, "/", "A", word)
		f.Add(word, "x", "/"+word, "A"+word, "b")
	}
	f.Fuzz(func(t *testing.T, program, word, dir, name, value string) {
		name = strings.ReplaceAll(name, "=", "")
		want := WorkloadSpec{Command: []string{program, word}, Dir: dir, Env: map[string]string{name: value, "PATH": "/bin"}}
		text, err := json.Marshal(Workload{Spec: want})
		if err != nil {
			t.Fatal(err)
		}
		odd := !utf8.ValidString(program + "|" + word + "|" + dir + "|" + name + "|" + value)
		if !utf8.Valid(text) || strings.Contains(string(text), `"exact":{`) != odd {
			t.Errorf("odd %v: %s", odd, text)
		}
		var work Workload
		if err := json.Unmarshal(text, &work); err != nil {
			t.Fatal(err)
		}
		got := work.Spec
		if !slices.Equal(got.Command, want.Command) || got.Dir != want.Dir || !maps.Equal(got.Env, want.Env) || got.Exact != nil {
			t.Errorf("got %+q in %+q with %+q, want %+q in %+q with %+q", got.Command, got.Dir, got.Env, want.Command, want.Dir, want.Env)
		}
	})
}

func TestExactEntryWithoutValueIsRefused(t *testing.T) {
	var spec WorkloadSpec
	err := json.Unmarshal([]byte(`{"exact":{"env":["/w=="]}}`), &spec)
	if err == nil || !strings.Contains(err.Error(), "has no =") {
		t.Errorf("%v", err)
	}
}
