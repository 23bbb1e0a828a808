package server

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// described are the methods of each path in the document that the server gives out.
func described(t *testing.T) map[string][]string {
	t.Helper()
	status, body := newSite(t).call("GET", "/openapi.json", "")
	var document struct {
		OpenAPI string                    `json:"openapi"`
		Paths   map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal([]byte(body), &document); err != nil || status != 200 || !strings.HasPrefix(document.OpenAPI, "3.1") {
		t.Fatalf("%d %v", status, err)
	}
	out := map[string][]string{}
	for path, methods := range document.Paths {
		out[path] = slices.Sorted(maps.Keys(methods))
	}
	return out
}

// The document describes the calls of docs/architecture.md, all of them and no others.
func TestOpenAPIDescribesEveryPath(t *testing.T) {
	want := map[string][]string{
		"/v1/info": {"get"}, "/v1/devices": {"get"}, "/v1/workloads": {"get", "post"}, "/v1/plan": {"post"}, "/v1/workloads/{name}": {"get"},
		"/v1/workloads/{name}/why": {"get"}, "/v1/workloads/{name}/logs": {"get"}, "/v1/workloads/{name}/stop": {"post"},
		"/v1/workloads/{name}/signal": {"post"}, "/v1/workloads/{name}/resize": {"post"},
		"/v1/workloads/{name}/checkpoint": {"post"}, "/v1/queues": {"get"},
		"/v1/queues/{name}": {"delete", "put"}, "/v1/policy": {"delete", "get", "put"}, "/v1/events": {"get"}, "/v1/record": {"get"},
	}
	if have := described(t); !maps.EqualFunc(have, want, slices.Equal) {
		t.Errorf("described are %v,\nand there should be %v: change this test and docs/architecture.md with the calls", have, want)
	}
}

// The document says how callers over HTTP are known, and that those on the socket need nothing.
func TestOpenAPISaysWhoMayCall(t *testing.T) {
	_, body := newSite(t).call("GET", "/openapi.json", "")
	var document struct {
		Components struct {
			SecuritySchemes map[string]struct{ Type, Scheme string } `json:"securitySchemes"`
		} `json:"components"`
		Security []map[string][]string `json:"security"`
	}
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	if scheme := document.Components.SecuritySchemes["token"]; scheme.Type != "http" || scheme.Scheme != "bearer" || len(document.Security) != 2 {
		t.Errorf("schemes %+v, security %v", document.Components.SecuritySchemes, document.Security)
	}
}

// No path is served beside the document: each that the sources name is in it.
func TestNoPathIsLeftOut(t *testing.T) {
	have := described(t)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	path := regexp.MustCompile(`"(?:[A-Z]+ )?(/v[0-9]+/[^"?]*)"`)
	named := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range path.FindAllStringSubmatch(string(text), -1) {
			named++
			if have[found[1]] == nil {
				t.Errorf("%s names %s, which the document does not describe", file, found[1])
			}
		}
	}
	if named < len(have) {
		t.Errorf("the sources name %d paths and %d are described: this test does not see them all", named, len(have))
	}
}
