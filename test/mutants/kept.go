package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// keptFile is the list of mutants that no test saw, in the module's folder.
const keptFile = "test/mutants/unseen.txt"

// unread stands before those that nobody has looked at yet.
const unread = "# not looked at yet"

// kept is the list of mutants that were not seen in runs so far. Each is a line, what it is without the number of its line in the file; lines that
// begin with # say why nothing sees those below.
type kept []string

// readKept reads the list; without a file it is empty.
func readKept(root string) (kept, error) {
	text, err := os.ReadFile(filepath.Join(root, keptFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of mutants that are not seen: %w", err)
	}
	return strings.Split(strings.TrimRight(string(text), "\n"), "\n"), nil
}

// update is the list after a run: without those that are seen now or are no longer there, and with those that are new.
func (k kept) update(all, chosen, unseen []mutant) kept {
	there, tried, missed := keys(all), keys(chosen), keys(unseen)
	k = slices.DeleteFunc(slices.Clone(k), func(line string) bool {
		return line != "" && !strings.HasPrefix(line, "#") && (!there[line] || tried[line] && !missed[line])
	})
	for _, m := range unseen {
		if slices.Contains(k, m.key()) {
			continue
		}
		if !slices.Contains(k, unread) {
			k = append(k, unread)
		}
		k = slices.Insert(k, slices.Index(k, unread)+1, m.key())
	}
	return k
}

func keys(all []mutant) map[string]bool {
	in := map[string]bool{}
	for _, m := range all {
		in[m.key()] = true
	}
	return in
}

func (k kept) write(root string) error {
	return os.WriteFile(filepath.Join(root, keptFile), []byte(strings.Join(k, "\n")+"\n"), 0o644)
}
