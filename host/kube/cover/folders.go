package cover

import (
	"bytes"
	"fmt"
	"path"
	"strings"
)

// usual are the folders in which the dynamic linker looks where nobody says anything, and those in which images are known to have a driver of their own: CUDA's
// forward compatibility, which NVIDIA's images look for when they start. A star stands for any name.
var usual = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
	"/usr/local/lib", "/usr/local/cuda/compat", "/usr/local/cuda/compat/lib", "/usr/local/cuda/compat/lib.real",
	"/usr/local/cuda-*/compat", "/usr/local/cuda-*/compat/lib", "/usr/local/cuda-*/compat/lib.real",
}

// better are the folders in each of these in which the linker looks first, by what the processor can do.
var better = []string{"glibc-hwcaps/x86-64-v2", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v4"}

// gathered are folders, each once, in the order in which they came.
type gathered struct {
	seen map[string]bool
	list []string
}

func (g *gathered) add(folders ...string) error {
	for _, folder := range folders {
		if !g.seen[folder] {
			g.seen[folder] = true
			g.list = append(g.list, folder)
		}
	}
	if len(g.list) > foldersMax {
		return fmt.Errorf("the image has libraries in more than %d folders, by LD_LIBRARY_PATH, /etc/ld.so.conf and /etc/ld.so.cache", foldersMax)
	}
	return nil
}

// folders are those in which a program of the container may find a library, by its environment, the linker's configuration and its cache, and by use.
func (r *root) folders(environment []string, working string) ([]string, error) {
	all := gathered{seen: map[string]bool{}}
	for _, variable := range environment {
		if value, is := strings.CutPrefix(variable, "LD_LIBRARY_PATH="); is {
			if err := all.add(libraryPath(value, working)...); err != nil {
				return nil, err
			}
		}
	}
	if err := r.configured(&all); err != nil {
		return nil, err
	}
	cache, _, err := r.read("/etc/ld.so.cache")
	if err == nil {
		err = all.add(cached(cache)...)
	}
	if err != nil {
		return nil, err
	}
	for _, pattern := range usual {
		found, err := r.match(pattern)
		if err == nil {
			err = all.add(found...)
		}
		if err != nil {
			return nil, err
		}
	}
	return all.list, nil
}

// libraryPath are the folders of a library path. Those that say where the program is are left out, as that differs from one program to the next.
func libraryPath(value, working string) (folders []string) {
	for _, folder := range strings.FieldsFunc(value, func(c rune) bool { return c == ':' || c == ';' }) {
		for _, lib := range []string{"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"} { // what the linkers of different systems take $LIB for
			one := strings.NewReplacer("${LIB}", lib, "$LIB", lib).Replace(folder)
			if !path.IsAbs(one) {
				one = below(working, one)
			}
			folders = append(folders, one)
			if !strings.Contains(folder, "LIB") {
				break
			}
		}
	}
	if value == "" || strings.HasPrefix(value, ":") || strings.HasSuffix(value, ":") || strings.Contains(value, "::") {
		folders = append(folders, working) // an empty part is the folder in which the program works
	}
	return folders
}

// configured gathers the folders of the linker's configuration and of all that it includes, each file once.
func (r *root) configured(all *gathered) error {
	seen := map[node]bool{}
	for todo := []string{"/etc/ld.so.conf"}; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		content, of, err := r.read(name)
		if err != nil {
			return err
		}
		if seen[of] {
			continue
		}
		seen[of] = true
		folders, includes := parseConfiguration(content)
		if err := all.add(folders...); err != nil {
			return err
		}
		for _, pattern := range includes {
			if !path.IsAbs(pattern) {
				pattern = below(path.Dir(name), pattern)
			}
			found, err := r.match(pattern)
			if err != nil {
				return err
			}
			if todo = append(todo, found...); len(todo) > filesMax {
				return fmt.Errorf("%s of the image includes more than %d files", name, filesMax)
			}
		}
	}
	return nil
}

// parseConfiguration are the folders that a file of the linker's configuration names, and the patterns of what it includes, as ldconfig(8) understands them.
func parseConfiguration(content []byte) (folders, includes []string) {
	for line := range bytes.Lines(content) {
		text, _, _ := strings.Cut(string(line), "#")
		words := strings.Fields(text)
		switch {
		case len(words) == 0:
		case words[0] == "include":
			includes = append(includes, words[1:]...)
		case words[0] == "hwcap":
		default:
			folder, _, _ := strings.Cut(strings.TrimSpace(text), "=") // what follows is the kind of library
			if folder = strings.TrimSpace(folder); path.IsAbs(folder) {
				folders = append(folders, folder)
			}
		}
	}
	return folders, includes
}

// cached are the folders of the libraries that the linker's cache names: its paths stand in it as strings, each with its end.
func cached(cache []byte) (folders []string) {
	for one := range bytes.SplitSeq(cache, []byte{0}) {
		if at := bytes.LastIndexByte(one, '/'); at > 0 && one[0] == '/' && bytes.Contains(one[at:], []byte(".so")) {
			if folder := string(one[:at]); len(folders) == 0 || folders[len(folders)-1] != folder {
				folders = append(folders, folder)
			}
		}
	}
	return folders
}

func splitPath(pattern string) []string {
	return strings.FieldsFunc(pattern, func(c rune) bool { return c == '/' })
}

func hasMeta(part string) bool { return strings.ContainsAny(part, `*?[\`) }
