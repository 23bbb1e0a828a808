package main

import (
	"bytes"
	"encoding"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// written is a kind that stands in claims, and so is no object that the API server has a definition of: what is said of it stands at its type in Go.
type written struct {
	kind  reflect.Type
	where string // it stands, in a sentence
}

func allWritten() []written {
	return []written{
		{reflect.TypeFor[v1alpha1.ShareConfig](), "Users write it into claims and their templates: `spec.devices.config[].opaque.parameters`, with `driver: gpu.aliquot.dev`; see [by a claim](kubernetes.md#by-a-claim). It is read when a pod with the claim starts: a field " +
			"that there is none of, a value that is out of bounds or a ceiling below its floor keeps the pod from starting, and its events say why."},
		{reflect.TypeFor[v1alpha1.ShareStatus](), "Nodes write it into claims, one for each device: `status.devices[].data`."},
	}
}

// comments are what is said of types and their fields in a folder of Go's sources, by Type and Type.Field.
func comments(folder string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("find sources in %s: %v (run it in host/kube)", folder, err)
	}
	said := map[string]string{}
	for _, file := range files {
		read, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		for _, declared := range read.Decls {
			general, ok := declared.(*ast.GenDecl)
			if !ok || general.Tok != token.TYPE {
				continue
			}
			for _, spec := range general.Specs {
				named := spec.(*ast.TypeSpec)
				said[named.Name.Name] = words(general.Doc)
				fields, ok := named.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range fields.Fields.List {
					for _, name := range field.Names {
						said[named.Name.Name+"."+name.Name] = sentence(name.Name, strings.TrimSpace(words(field.Doc)+" "+words(field.Comment)))
					}
				}
			}
		}
	}
	return said, nil
}

func words(group *ast.CommentGroup) string { return strings.Join(strings.Fields(group.Text()), " ") }

// sentence is a field's comment as a line of the page: without the field's name in Go, which the page does not have.
func sentence(name, comment string) string {
	comment = strings.TrimPrefix(comment, name+" is ")
	if comment == "" {
		return ""
	}
	return strings.ToUpper(comment[:1]) + strings.TrimSuffix(comment[1:], ".") + "."
}

// print is a kind's part of the page.
func (w written) print(out io.Writer, said map[string]string) {
	fmt.Fprintf(out, "\n## %s\n%s\n\n%s\n", w.kind.Name(), said[w.kind.Name()], w.where)
	fmt.Fprint(out, "\n| field | type | what |\n|---|---|---|\n")
	printFields(out, w.kind, "", said)
}

func printFields(out io.Writer, kind reflect.Type, prefix string, said map[string]string) {
	for one := range kind.Fields() {
		name, options, _ := strings.Cut(one.Tag.Get("json"), ",")
		what := said[kind.Name()+"."+one.Name]
		if options == "" {
			what += " Required."
		}
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", prefix+name, typeOf(one.Type), strings.ReplaceAll(what, "|", `\|`))
		if typeOf(one.Type) == "object" {
			printFields(out, one.Type, prefix+name+".", said)
		}
	}
}

// typeOf is the type of a field in JSON.
func typeOf(kind reflect.Type) string {
	switch {
	case kind.Implements(reflect.TypeFor[encoding.TextMarshaler]()) || kind.Kind() == reflect.String:
		return "string"
	case kind.Kind() == reflect.Struct:
		return "object"
	}
	return "integer"
}

// writtenPage is the part of the page that is made from types in Go.
func writtenPage() ([]byte, error) {
	said, err := comments(filepath.Join("api", "v1alpha1"))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, one := range allWritten() {
		one.print(&out, said)
	}
	return out.Bytes(), nil
}
