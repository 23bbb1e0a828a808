package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// head is what every ShareConfig begins with.
const head = `{"apiVersion":"aliquot.dev/v1alpha1","kind":"ShareConfig"`

func TestParseShareConfig(t *testing.T) {
	for name, test := range map[string]struct {
		text  string
		want  v1alpha1.ShareConfig
		error string
	}{
		"nothing":          {text: head + `}`},
		"ceilings":         {text: head + `,"ceiling":{"compute":"0.80","memory":"8Gi"}}`, want: v1alpha1.ShareConfig{Ceiling: v1alpha1.Ceiling{Compute: 800, Memory: api.Amount{Bytes: 8 << 30}}}},
		"parts":            {text: head + `,"ceiling":{"compute":"80%","memory":"50%"}}`, want: v1alpha1.ShareConfig{Ceiling: v1alpha1.Ceiling{Compute: 800, Memory: api.Amount{Part: 500}}}},
		"all the rest":     {text: head + `,"weight":3,"class":"inference"}`, want: v1alpha1.ShareConfig{Weight: 3, Class: api.Inference}},
		"misspelt":         {text: head + `,"cieling":{}}`, error: `unknown field "cieling"`},
		"misspelt within":  {text: head + `,"ceiling":{"cores":"1"}}`, error: `unknown field "cores"`},
		"no text":          {error: "EOF"},
		"more than one":    {text: head + `}` + head + `}`, error: "more follows"},
		"of another kind":  {text: `{"apiVersion":"aliquot.dev/v1alpha1","kind":"Queue"}`, error: `it is a "Queue"`},
		"newer":            {text: `{"apiVersion":"aliquot.dev/v1","kind":"ShareConfig"}`, error: "apiVersion: aliquot.dev/v1alpha1"},
		"over a device":    {text: head + `,"ceiling":{"compute":"1.5"}}`, error: "at most a whole device"},
		"negative weight":  {text: head + `,"weight":-1}`, error: "it must be 1 to 1000000"},
		"giant weight":     {text: head + `,"weight":1000001}`, error: "it must be 1 to 1000000"},
		"an unknown class": {text: head + `,"class":"urgent"}`, error: "one of interactive"},
		"no unit":          {text: head + `,"ceiling":{"memory":"1.5"}}`, error: "a unit is missing"},
	} {
		got, err := v1alpha1.ParseShareConfig([]byte(test.text))
		if test.error != "" {
			if err == nil || !strings.Contains(err.Error(), test.error) {
				t.Errorf("%s: got %+v, %v; want an error with %q", name, got, err, test.error)
			}
			continue
		}
		test.want.APIVersion, test.want.Kind = v1alpha1.APIVersion, v1alpha1.ShareConfigKind
		if err != nil || got != test.want {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, test.want)
		}
	}
}

// What is taken is written and read again the same, and within its bounds.
func FuzzParseShareConfig(f *testing.F) {
	f.Add([]byte(head + `,"ceiling":{"compute":"0.80","memory":"50%"},"weight":3,"class":"batch"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := v1alpha1.ParseShareConfig(text)
		if err != nil {
			return
		}
		if first.Ceiling.Compute < 0 || first.Ceiling.Compute > api.WholeDevice || first.Weight < 0 {
			t.Errorf("took %+v", first)
		}
		again, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := v1alpha1.ParseShareConfig(again); err != nil || second != first {
			t.Errorf("%+v is written as %s and read as %+v, %v", first, again, second, err)
		}
	})
}
