package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

func TestPageIsCurrent(t *testing.T) {
	want, err := page(chart(t))
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(filepath.Join("..", "..", "docs", "kubernetes-api.md"))
	if err != nil || !bytes.Equal(have, want) {
		t.Errorf("docs/kubernetes-api.md is not what the definitions say (%v); in host/kube: go run ./reference > ../../docs/kubernetes-api.md", err)
	}
}

// Each field of a kind in Go is one of its definition, and the other way around; each field says what it is.
func TestDefinitionsAreTheTypes(t *testing.T) {
	all := chart(t)
	if len(all) != 3 {
		t.Errorf("there are %d definitions, want 3", len(all))
	}
	for _, d := range all {
		kind := map[string]any{"Queue": v1alpha1.Queue{}, "Policy": v1alpha1.Policy{}, "Share": v1alpha1.Share{}}[d.Spec.Names.Kind]
		compare(t, d.Spec.Names.Kind, reflect.TypeOf(kind), d.Spec.Versions[0].Schema.Schema)
	}
}

// What stands in claims says of each of its fields what it is, as JSON has it; and of bounds what is true.
func TestWritten(t *testing.T) {
	t.Chdir("..")
	said, err := comments(filepath.Join("api", "v1alpha1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range allWritten() {
		var out bytes.Buffer
		one.print(&out, said)
		raw, err := json.Marshal(full(one.kind).Interface())
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(raw, &fields); err != nil {
			t.Fatal(err)
		}
		lines(t, out.String(), "", fields)
		if rows := strings.Count(out.String(), "\n| `"); rows < 5 || said[one.kind.Name()] == "" {
			t.Errorf("of %s it says\n%s", one.kind.Name(), out.String())
		}
	}
	if weight := said["ShareConfig.Weight"]; !strings.Contains(weight, fmt.Sprintf("1 to %d;", api.MaxWeight)) {
		t.Errorf("a weight is %q", weight)
	}
	for _, class := range []api.Class{api.Interactive, api.Inference, api.Training, api.Batch} {
		if said := said["ShareConfig.Class"]; !strings.Contains(said, string(class)) {
			t.Errorf("a class is %q, without %s", said, class)
		}
	}
}

// full is a value of a struct of which no field is empty.
func full(kind reflect.Type) reflect.Value {
	value := reflect.New(kind).Elem()
	for i := range kind.NumField() {
		switch field := value.Field(i); field.Kind() {
		case reflect.Struct:
			field.Set(full(field.Type()))
		case reflect.String:
			field.SetString("word")
		default:
			field.SetInt(1)
		}
	}
	return value
}

// lines checks that each field in JSON has a line that says its type and what it is.
func lines(t *testing.T, page, prefix string, fields map[string]any) {
	t.Helper()
	for name, value := range fields {
		kind := "string"
		switch inner := value.(type) {
		case float64:
			kind = "integer"
		case map[string]any:
			kind = "object"
			lines(t, page, prefix+name+".", inner)
		}
		if line := regexp.MustCompile("\n\\| `" + regexp.QuoteMeta(prefix+name) + "` \\| " + kind + " \\| [^ |][^|]{3,} \\|\n"); !line.MatchString(page) {
			t.Errorf("of the %s %s it does not say what it is:\n%s", kind, prefix+name, page)
		}
	}
}

// chart are the definitions of the chart, read as the command reads them: in host/kube.
func chart(t *testing.T) []definition {
	t.Helper()
	t.Chdir("..")
	all, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// compare compares a type with what is defined of it. What reads and writes text by itself has no fields.
func compare(t *testing.T, path string, kind reflect.Type, f field) {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if f.Description == "" && !strings.HasSuffix(path, ".metadata") {
		t.Errorf("%s says nothing of itself", path)
	}
	switch {
	case f.Items != nil && kind.Kind() == reflect.Slice:
		compare(t, path+"[]", kind.Elem(), *f.Items)
		return
	case f.Type != "object" || strings.HasSuffix(path, ".metadata"):
		if kind.Kind() == reflect.Struct && !strings.HasSuffix(path, ".metadata") && f.Type != "string" {
			t.Errorf("%s is a %s, and in Go %s", path, f.Type, kind)
		}
		return
	case kind.Kind() != reflect.Struct:
		t.Errorf("%s is an object, and in Go %s", path, kind)
		return
	}
	var names []string
	for i := range kind.NumField() {
		one := kind.Field(i)
		name, _, _ := strings.Cut(one.Tag.Get("json"), ",")
		if one.Anonymous && name == "" { // kind and apiVersion
			names = append(names, "apiVersion", "kind")
			continue
		}
		names = append(names, name)
		if inner, ok := f.Properties[name]; ok {
			compare(t, path+"."+name, one.Type, inner)
		}
	}
	slices.Sort(names)
	if defined := f.names(); !slices.Equal(names, defined) {
		t.Errorf("%s has the fields %v, and by its definition %v", path, names, defined)
	}
}
