package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// head is what the page begins with.
const head = `# The API on Kubernetes

The kinds of ` + "`aliquot.dev/v1alpha1`" + `, field by field. This page is made from their definitions and, of what stands in claims, from the types in Go (in ` + "`host/kube`" + `:
` + "`go run ./reference`" + `); what to do with them says [kubernetes.md](kubernetes.md).
`

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Scope string
		Names struct{ Kind, Plural string }

		Versions []struct {
			Name    string
			Columns []column `json:"additionalPrinterColumns"`
			Schema  struct {
				Schema field `json:"openAPIV3Schema"`
			}
		}
	}
}

type column struct {
	Name, Description, Type, JSONPath string
	Priority                          int
}

// field is a field of an object, as far as it is told of.
type field struct {
	Description, Type, Format, Pattern string

	Enum             []string
	Required         []string
	Minimum, Maximum *float64
	MaxLength        *int64
	MaxItems         *int64
	Properties       map[string]field
	Items            *field

	Rules []struct{ Message, MessageExpression, FieldPath string } `json:"x-kubernetes-validations"`
}

// definitions are those of the chart, in the order of their files.
func definitions() ([]definition, error) {
	files, err := filepath.Glob(filepath.Join("..", "..", "deploy", "chart", "files", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("find the definitions in deploy/chart/files/crds: %v (run it in host/kube)", err)
	}
	all := make([]definition, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &all[i])
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
	}
	return all, nil
}

// page is the whole page, of all definitions and then of what stands in claims.
func page(all []definition) ([]byte, error) {
	out := bytes.NewBufferString(head)
	for i := range all {
		all[i].print(out)
	}
	rest, err := writtenPage()
	return append(out.Bytes(), rest...), err
}

func (d *definition) print(out io.Writer) {
	version := d.Spec.Versions[0]
	whole := version.Schema.Schema
	scope := "of the cluster"
	if d.Spec.Scope == "Namespaced" {
		scope = "of a namespace"
	}
	fmt.Fprintf(out, "\n## %s\n%s\n\nIt is %s: `kubectl get %s`.\n", d.Spec.Names.Kind, whole.Description, scope, d.Spec.Names.Plural)
	fmt.Fprint(out, "\n| field | type | what |\n|---|---|---|\n")
	var rules []string
	for _, name := range []string{"spec", "status"} {
		if f, ok := whole.Properties[name]; ok {
			f.print(out, name, slices.Contains(whole.Required, name))
			rules = append(rules, f.refusals(name)...)
		}
	}
	rules = append(whole.own(""), rules...)
	fmt.Fprint(out, "\nRefused, beside what types and bounds refuse:\n")
	for _, rule := range rules {
		fmt.Fprintf(out, "- %s\n", rule)
	}
	fmt.Fprint(out, "\n| column | what |\n|---|---|\n")
	for _, c := range version.Columns {
		shown := ""
		if c.Priority > 0 {
			shown = " (with `-o wide`)"
		}
		fmt.Fprintf(out, "| %s%s | `%s` %s |\n", strings.ToUpper(c.Name), shown, c.JSONPath, c.Description)
	}
}

// print is a field's line, and those of the fields in it.
func (f field) print(out io.Writer, path string, required bool) {
	kind := f.Type
	if f.Items != nil {
		kind = "list"
	}
	what := f.Description
	if bounds := f.bounds(); bounds != "" {
		what += " " + bounds
	}
	if required {
		what += " Required."
	}
	fmt.Fprintf(out, "| `%s` | %s | %s |\n", path, kind, strings.ReplaceAll(what, "|", `\|`))
	inner, prefix := f, path+"."
	if f.Items != nil {
		inner, prefix = *f.Items, path+"[]."
	}
	for _, name := range inner.names() {
		inner.Properties[name].print(out, prefix+name, slices.Contains(inner.Required, name))
	}
}

func (f field) names() []string { return slices.Sorted(maps.Keys(f.Properties)) }

// bounds are the bounds of a field in words; empty: it has none.
func (f field) bounds() string {
	var all []string
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	switch {
	case f.Minimum != nil && f.Maximum != nil:
		all = append(all, number(*f.Minimum)+" to "+number(*f.Maximum))
	case f.Minimum != nil:
		all = append(all, "at least "+number(*f.Minimum))
	}
	if len(f.Enum) > 0 {
		all = append(all, strings.Join(f.Enum, ", "))
	}
	if f.Pattern != "" {
		all = append(all, "as `"+f.Pattern+"`")
	}
	if f.Format == "date-time" {
		all = append(all, "as `2026-12-01T18:00:00Z`")
	}
	if f.MaxLength != nil {
		all = append(all, fmt.Sprintf("at most %d characters", *f.MaxLength))
	}
	if f.MaxItems != nil {
		all = append(all, fmt.Sprintf("at most %d", *f.MaxItems))
	}
	if len(all) == 0 {
		return ""
	}
	return "(" + strings.Join(all, "; ") + ")"
}

// own are what a field itself is refused for.
func (f field) own(path string) []string {
	var all []string
	for _, rule := range f.Rules {
		said := rule.Message
		if said == "" {
			said = "`" + rule.MessageExpression + "`"
		}
		at := strings.TrimPrefix(path+rule.FieldPath, ".")
		if at != "" {
			said = "`" + at + "`: " + said
		}
		all = append(all, said)
	}
	return all
}

// refusals are what a field and those in it are refused for.
func (f field) refusals(path string) []string {
	all := f.own(path)
	for _, name := range f.names() {
		all = append(all, f.Properties[name].refusals(path+"."+name)...)
	}
	if f.Items != nil {
		all = append(all, f.Items.refusals(path+"[]")...)
	}
	return all
}
