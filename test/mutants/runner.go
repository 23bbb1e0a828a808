package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// runner builds the tests with all mutants in and runs them with one.
type runner struct {
	work  string
	root  string // of the module
	limit time.Duration
	tests map[string]string // package -> program of its tests
}

// judges are the files that say in tests whether what must always hold does. As long as it holds, nobody sees what they leave out.
var judges = map[string]bool{"invariants.go": true, "check.go": true}

// listed is what `go list` says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, TestGoFiles    []string
	DepOnly                 bool
}

// build rewrites the engine's packages and builds their tests.
func (r *runner) build(ctx context.Context) ([]mutant, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("run this in Aliquot's own folder: %w", err)
	}
	r.root = strings.TrimSpace(string(root))
	// A copy is where tests run: those that fail leave files behind.
	if err := os.CopyFS(filepath.Join(r.work, "engine"), os.DirFS(filepath.Join(r.root, "engine"))); err != nil {
		return nil, err
	}
	packages, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	next := 1
	overlay := map[string]string{}
	var all []mutant
	for _, p := range packages {
		if p.DepOnly {
			continue
		}
		found, err := r.rewrite(p, exports, &next, overlay)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(r.work, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	for _, p := range packages {
		if p.DepOnly || len(p.TestGoFiles) == 0 {
			continue
		}
		r.tests[p.ImportPath] = filepath.Join(r.work, strings.ReplaceAll(p.ImportPath, "/", "_")+".test")
		build := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", file, "-o", r.tests[p.ImportPath], p.ImportPath)
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("the mutated %s does not build: %w\n%s", p.ImportPath, err, out)
		}
	}
	return all, nil
}

func (r *runner) list(ctx context.Context) ([]listed, error) {
	list := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,TestGoFiles,DepOnly", "./engine/...")
	list.Dir = r.root
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// rewrite puts the mutants into a package's files, and into the overlay where they are.
func (r *runner) rewrite(p listed, exports map[string]string, next *int, overlay map[string]string) ([]mutant, error) {
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	info := types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	if _, err := config.Check(p.ImportPath, set, files, &info); err != nil {
		return nil, err
	}
	var all []mutant
	for i, f := range files {
		if judges[p.GoFiles[i]] {
			continue
		}
		whole := filepath.Join(p.Dir, p.GoFiles[i])
		text, err := os.ReadFile(whole)
		if err != nil {
			return nil, err
		}
		m := mutation{file: path.Join(strings.TrimPrefix(p.ImportPath, module+"/"), p.GoFiles[i]), set: set, info: &info, text: text, next: next}
		m.walk(f)
		if len(m.found) == 0 {
			continue
		}
		into := filepath.Join(r.work, strings.ReplaceAll(m.file, "/", "_"))
		if err := os.WriteFile(into, m.rewritten(f.Name), 0o600); err != nil {
			return nil, err
		}
		overlay[whole] = into
		all = append(all, m.found...)
	}
	return all, nil
}

// reached is which mutants any test comes by. Without a mutant all tests must pass.
func (r *runner) reached(ctx context.Context) (map[int]bool, error) {
	file := filepath.Join(r.work, "reached")
	for p := range r.tests {
		if out, err := r.test(ctx, p, "", "ALIQUOT_MUTANT_REACHED="+file); err != nil {
			return nil, fmt.Errorf("without any mutant the tests of %s fail: %w\n%s", p, err, out)
		}
	}
	numbers, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := map[int]bool{}
	for ; len(numbers) >= 4; numbers = numbers[4:] {
		all[int(binary.LittleEndian.Uint32(numbers))] = true
	}
	return all, nil
}

// seen is by which tests a mutant is seen; empty: by none.
func (r *runner) seen(ctx context.Context, m mutant, reached bool) (by string, err error) {
	if !reached {
		return "", nil
	}
	whole := module + "/engine"
	tries := []struct{ in, only string }{{whole, "^TestScenarios$"}, {whole, ""}}
	if own := module + "/" + path.Dir(m.file); own != whole && r.tests[own] != "" {
		tries = append(tries, struct{ in, only string }{own, ""})
	}
	for _, try := range tries {
		out, err := r.test(ctx, try.in, try.only, fmt.Sprintf("ALIQUOT_MUTANT=%d", m.number))
		var failed *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case errors.As(err, &failed):
			return try.in + " " + try.only, nil
		case err != nil:
			return "", fmt.Errorf("%w\n%s", err, out)
		}
	}
	return "", nil
}

// test runs a package's tests, in the copy of its folder.
func (r *runner) test(ctx context.Context, in, only, environment string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limit+time.Minute)
	defer cancel()
	args := []string{"-test.failfast", "-test.timeout", r.limit.String()}
	if only != "" {
		args = append(args, "-test.run", only)
	}
	run := exec.CommandContext(ctx, r.tests[in], args...)
	run.Dir = filepath.Join(r.work, strings.TrimPrefix(in, module+"/"))
	run.Env = append(os.Environ(), environment)
	return run.CombinedOutput()
}
