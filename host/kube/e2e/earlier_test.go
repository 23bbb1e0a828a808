package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// upgradeFrom is whose build is upgraded to this one.
var upgradeFrom = flag.String("upgrade.from", "", "revision of this repository from which is upgraded; empty: the newest that differs in what is in the image (TestUpgrade)")

// earlierVersion is what the arbiter of an earlier build calls itself: it is another program, whatever else differs.
const earlierVersion = "earlier"

// earlier is a build of another revision of this repository.
type earlier struct {
	folder  string // with what the revision holds
	program string // aliquot-kube
	arbiter string
	differs []string // files that the image is built from, in which it differs from the working tree
}

// buildEarlier builds the revision from which is upgraded, behind everything else that has something to do.
func buildEarlier(ctx context.Context) (one earlier, err error) {
	commit, differs, err := earlierRevision(ctx)
	if err != nil {
		return one, err
	}
	folder, err := sourceOf(ctx, commit)
	if err != nil {
		return one, err
	}
	one = earlier{folder: folder, program: filepath.Join(folder, "aliquot-kube"), arbiter: arbiterIn(folder), differs: differs}
	return one, errors.Join(made(ctx, filepath.Join(folder, "native"), "make", `CFLAGS=-DARBITER_VERSION=\"`+earlierVersion+`\"`),
		// The pattern is for the programs that are in the image: revisions of some time ago have one.
		made(ctx, filepath.Join(folder, "host", "kube"), "go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", folder+"/", "./cmd/aliquot-..."))
}

// dist is where the native parts of a revision in a folder are.
func dist(folder string) string { return filepath.Join(folder, "native", "dist") }

func arbiterIn(folder string) string { return filepath.Join(dist(folder), "bin", "aliquot-arbiter") }

// earlierRevision is the commit from which is upgraded, and the files that the image is built from in which it differs from the working tree. One that
// differs in none would have nothing but the arbiter replaced by anything else.
func earlierRevision(ctx context.Context) (commit string, differs []string, err error) {
	files, err := builtFrom(ctx)
	if err != nil {
		return "", nil, err
	}
	of := func(args ...string) []string { return slices.Concat(args, []string{"--"}, files) }
	revision, oldest := *upgradeFrom, false
	if revision == "" {
		if revision, oldest, err = newestOther(ctx, of); err != nil {
			return "", nil, err
		}
	}
	found, err := git(ctx, "rev-parse", "--verify", "--quiet", revision+"^{commit}")
	if err != nil {
		return "", nil, fmt.Errorf("this repository has no %s to upgrade from (%w); fetch its history, or give another by -upgrade.from", revision, err)
	}
	if differs, err = git(ctx, of("diff", "--name-only", found[0])...); err == nil && len(differs) == 0 && !oldest {
		err = fmt.Errorf("%s is built from the same files as the working tree: there is nothing to upgrade", revision)
	}
	return found[0], differs, err
}

// newestOther is the newest revision that differs from the working tree in some files, of which git is asked by of; or the oldest of a history that was not
// fetched whole, where none that is here does.
func newestOther(ctx context.Context, of func(...string) []string) (revision string, oldest bool, err error) {
	changed, err := git(ctx, of("diff", "--name-only", "HEAD")...)
	if err != nil || len(changed) > 0 {
		return "HEAD", false, err
	}
	newest, err := git(ctx, of("rev-list", "--max-count=1", "HEAD")...)
	if err == nil && len(newest) == 0 {
		err = errors.New("this repository has no commit that changes what the image is built from; fetch its history, or give a revision by -upgrade.from")
	}
	if err != nil {
		return "", false, err
	}
	if _, err := git(ctx, "rev-parse", "--verify", "--quiet", newest[0]+"^"); err != nil {
		return newest[0], true, nil
	}
	return newest[0] + "^", false, nil
}

// builtFrom is, as git is asked for files, what aliquot-kube and the native parts in it are built from: neither tests nor texts.
func builtFrom(ctx context.Context) (files []string, err error) {
	top, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	said, err := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{.Dir}}", "github.com/aliquot-dev/aliquot/host/kube/cmd/aliquot-kube", "github.com/aliquot-dev/aliquot/host/kube/cmd/aliquot-cover").Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of aliquot-kube: %w", err)
	}
	for folder := range strings.Lines(string(said)) {
		if of, is := strings.CutPrefix(strings.TrimSpace(folder), top+"/"); is {
			files = append(files, ":(glob)"+of+"/*")
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no package of aliquot-kube is in %s", top)
	}
	return append(files, ":(glob)native/*/**", ":(exclude,glob)native/*/test/**", ":(exclude,glob)**/*_test.go", ":(exclude,glob)**/*.md", ":(exclude,glob)**/*.mk"), nil
}

// git is the words that git says about this repository.
func git(ctx context.Context, args ...string) ([]string, error) {
	command := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	said, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.Fields(string(said)), nil
}

// sourceOf is a folder with what a commit of this repository holds. It is kept beside what the cluster is built of, for the next time.
func sourceOf(ctx context.Context, commit string) (string, error) {
	// Always the same folder, for what the compiler made for one it does not take for another.
	folder, err := filepath.Abs(filepath.Join(cache, "earlier"))
	if err != nil {
		return "", err
	}
	note, is := filepath.Join(folder, ".revision"), commit+" "+earlierVersion
	if have, err := os.ReadFile(note); err == nil && string(have) == is {
		return folder, nil
	}
	unpack := exec.CommandContext(ctx, "bash", "-c", `set -o pipefail; rm -rf "$2" && mkdir -p "$2" && git -C "$0" archive "$1" | tar -x -C "$2" && printf %s "$4" >"$3"`, root, commit, folder, note, is)
	if said, err := unpack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w\n%s", commit, err, said)
	}
	return folder, nil
}

// made runs a command that builds something of another revision in its folder, behind everything else that has something to do. A make that this test
// runs under is none of its.
func made(ctx context.Context, folder, name string, args ...string) error {
	command := exec.CommandContext(ctx, "nice", slices.Concat([]string{"-n", "19", name}, args)...)
	command.Dir = folder
	command.Env = slices.DeleteFunc(os.Environ(), func(one string) bool { return strings.HasPrefix(one, "MAKE") || strings.HasPrefix(one, "MFLAGS=") })
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("in %s: %s: %w\n%s", folder, command, err, said)
	}
	return nil
}

// runsOnly waits until of two programs the first is run by one process of a control group, and the second by none: who is replaced ends a moment after the next one serves.
func (w *world) runsOnly(group, program, other string) {
	w.Helper()
	var contents [2][]byte
	for i, file := range []string{program, other} {
		var err error
		contents[i], err = os.ReadFile(file)
		w.no(err)
	}
	w.eventually(fmt.Sprintf("in the control group %s one process runs %s, and none %s", group, program, other), func() (bool, string) {
		var count [2]int
		for pid := range w.processesIn(group) {
			runs, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", pid))
			for i, content := range contents {
				if err == nil && bytes.Equal(runs, content) { // else it has ended
					count[i]++
				}
			}
		}
		return count == [2]int{1, 0}, fmt.Sprintf("%d and %d do", count[0], count[1])
	})
}
