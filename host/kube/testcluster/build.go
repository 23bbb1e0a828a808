package testcluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Each part is a module of its own, so that no version is bent to fit another's: NAME.mod requires exact versions and names the
// programs as its tools, NAME.sum has the checksums of everything that these need.
//
//go:embed parts/*.mod parts/*.sum
var modules embed.FS

// part is what is built from one module.
type part struct {
	name     string            // of its files in parts
	version  string            // for people to read; parts/NAME.mod decides
	programs map[string]string // what a program is called here, and the file that the compiler makes
	tags     string
	cgo      bool
	link     string            // flags of the linker
	module   string            // of which files are kept beside the programs
	files    map[string]string // as what, and which
	only     string            // what alone needs it: a node, a control plane without one, or who asks for it by its name; empty: both of the first
}

// parts are all there are. runc is in part C: it enters namespaces before its first line of Go, and kubelet asks it to filter system calls,
// for which it needs libseccomp.
var parts = []part{
	{name: "etcd", version: "3.6.16", programs: map[string]string{"etcd": "server"}},
	{name: "runc", version: "1.4.3", programs: map[string]string{"runc": "runc"}, tags: "seccomp", cgo: true, only: aNode},
	{name: "cni", version: "1.9.1", programs: map[string]string{"ptp": "ptp", "loopback": "loopback", "host-local": "host-local"}, only: aNode},
	{
		name: "containerd", version: "2.2.9", programs: map[string]string{"containerd": "containerd", "containerd-shim-runc-v2": "containerd-shim-runc-v2", "ctr": "ctr"},
		tags: "no_btrfs,no_zfs,no_devmapper,no_aufs", only: aNode,
	},
	{
		name: "kubernetes", version: "1.36.3", programs: map[string]string{
			"kube-apiserver": "kube-apiserver", "kube-controller-manager": "kube-controller-manager",
			"kube-scheduler": "kube-scheduler", "kubelet": "kubelet",
		},
		link: kubernetesVersion,
	},
	{name: theKubectl, version: "1.36.3", programs: map[string]string{theKubectl: "kubectl"}, link: "-s -w " + kubernetesVersion, only: theKubectl},
	{
		name: theHelm, version: "3.21.4", programs: map[string]string{theHelm: "helm"}, only: theHelm,
		link: "-s -w -X helm.sh/helm/v3/internal/version.version=v3.21.4",
	},
	{name: "kwok", version: "0.7.0", programs: map[string]string{"kwok": "kwok"}, only: noNode},
	{
		name: JobSet, version: "0.10.1", programs: map[string]string{JobSet: "jobset"}, only: JobSet, module: "sigs.k8s.io/jobset", files: map[string]string{
			"kinds.yaml": "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml", "role.yaml": "config/components/rbac/role.yaml",
			"webhooks.yaml": "config/components/webhook/manifests.yaml",
		},
	},
	{
		name: LeaderWorkerSet, version: "0.7.0", programs: map[string]string{LeaderWorkerSet: "cmd"}, only: LeaderWorkerSet, module: "sigs.k8s.io/lws", files: map[string]string{
			"kinds.yaml": "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml", "role.yaml": "config/rbac/role.yaml",
			"webhooks.yaml": "config/webhook/manifests.yaml",
		},
	},
}

const (
	aNode      = "node"
	noNode     = "no node"
	theHelm    = "helm"
	theKubectl = "kubectl"

	// kubernetesVersion has programs say which version they are.
	kubernetesVersion = "-X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/client-go/pkg/version.gitVersion=v1.36.3"
)

// programs is where the programs are, by name.
type programs map[string]string

// key is the name of the folder in which a part is kept: another source, flag or compiler makes another.
func (p part) key() (string, error) {
	sum := sha256.New()
	for _, ending := range []string{"mod", "sum"} {
		content, err := modules.ReadFile("parts/" + p.name + "." + ending)
		if err != nil {
			return "", err
		}
		sum.Write(content)
	}
	fmt.Fprintln(sum, p.tags, p.cgo, p.link, p.programs, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if p.module != "" {
		fmt.Fprintln(sum, p.module, p.files)
	}
	return fmt.Sprintf("%s-%s-%x", p.name, p.version, sum.Sum(nil)[:6]), nil
}

// Build builds what is not in the cache yet of all that clusters are made of: of those with a node and without one, the controllers of others, kubectl and
// Helm. One part is built after the other since the compiler uses all processors by itself. With an empty cache it takes minutes; a part that is there is not
// looked at again. It is no error that others build into the same cache.
func Build(ctx context.Context, cache string, log *slog.Logger) error {
	for _, whose := range []string{aNode, noNode, JobSet, LeaderWorkerSet, theKubectl, theHelm} {
		if _, err := build(ctx, cache, whose, orDiscard(log)); err != nil {
			return err
		}
	}
	return nil
}

// podAsked has the caches of which this process knows that the program of the images is current.
var podAsked sync.Map

// build builds what is needed for a node, for a control plane alone, or for who asks for it.
func build(ctx context.Context, cache, whose string, log *slog.Logger) (all programs, err error) {
	if cache == "" {
		return nil, errors.New("build the test cluster: nobody said where to keep what is built; set Config.Cache (ALIQUOT_KUBE_CACHE)")
	}
	cache, err = filepath.Abs(cache)
	if err != nil {
		return nil, fmt.Errorf("build the test cluster: %w", err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("build the test cluster: %w", err)
	}
	lock, err := takeLock(filepath.Join(cache, "lock"), unix.LOCK_EX)
	if err != nil {
		return nil, fmt.Errorf("build the test cluster: %w", err)
	}
	defer lock.Close()
	all = programs{}
	for _, p := range parts {
		if p.only != whose && (p.only != "" || whose != aNode && whose != noNode) {
			continue
		}
		key, err := p.key()
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", p.name, err)
		}
		folder := filepath.Join(cache, key)
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			log.Info("building, which takes minutes where the compiler has not seen it before", "part", p.name, "version", p.version)
			begun := time.Now()
			if err := p.build(ctx, folder); err != nil {
				return nil, fmt.Errorf("build %s %s: %w", p.name, p.version, err)
			}
			log.Info("built", "part", p.name, "took", time.Since(begun).Round(time.Second))
		}
		for name, file := range p.programs {
			all[name] = filepath.Join(folder, file)
		}
	}
	if whose != aNode {
		return all, nil
	}
	// The program of the images is this module's own: the compiler's cache knows whether it changed. That is asked once.
	all["pod"] = filepath.Join(cache, "pod")
	if _, asked := podAsked.Load(cache); asked {
		return all, nil
	}
	defer func() {
		if err == nil {
			podAsked.Store(cache, true)
		}
	}()
	return all, run(ctx, "", []string{"CGO_ENABLED=0"}, "go", "build", "-o", all["pod"], "github.com/aliquot-dev/aliquot/host/kube/testcluster/pod")
}

// build makes the part's folder, whole or not at all.
func (p part) build(ctx context.Context, folder string) error {
	temporary := folder + ".new"
	source := filepath.Join(temporary, "source")
	if err := errors.Join(os.RemoveAll(temporary), os.MkdirAll(source, 0o755)); err != nil {
		return err
	}
	for ending, name := range map[string]string{"mod": "go.mod", "sum": "go.sum"} {
		content, err := modules.ReadFile("parts/" + p.name + "." + ending)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(source, name), content, 0o644); err != nil {
			return err
		}
	}
	cgo := "CGO_ENABLED=0"
	if p.cgo {
		cgo = "CGO_ENABLED=1"
	}
	args := []string{"build", "-mod=readonly", "-buildvcs=false", "-tags", p.tags, "-ldflags", p.link, "-o", temporary + string(filepath.Separator), "tool"}
	if err := run(ctx, source, []string{cgo, "GOWORK=off", "GOFLAGS="}, "go", args...); err != nil {
		return err
	}
	if err := p.keep(ctx, source, temporary); err != nil {
		return err
	}
	for _, file := range p.programs {
		if _, err := os.Stat(filepath.Join(temporary, file)); err != nil {
			return fmt.Errorf("parts/%s.mod makes no program %s: %w", p.name, file, err)
		}
	}
	return errors.Join(os.RemoveAll(source), os.Rename(temporary, folder))
}

// keep copies files of the part's module, of which the source says the version, beside its programs.
func (p part) keep(ctx context.Context, source, folder string) error {
	if p.module == "" {
		return nil
	}
	list := exec.CommandContext(ctx, "go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", p.module)
	list.Dir, list.Env = source, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	found, err := list.Output()
	if err != nil {
		return fmt.Errorf("find the files of module %s: %w", p.module, err)
	}
	for name, file := range p.files {
		content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(found)), filepath.FromSlash(file)))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// run runs a command to its end; what it said is in the error.
func run(ctx context.Context, folder string, environment []string, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = folder
	command.Env = append(os.Environ(), environment...)
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, bytes.TrimSpace(said))
	}
	return nil
}

// lock is a file that is held (flock) until it is closed.
type lock struct{ file *os.File }

func takeLock(path string, how int) (*lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), how)
		if err == nil {
			return &lock{file}, nil
		}
		if !errors.Is(err, unix.EINTR) {
			_ = file.Close()
			return nil, err
		}
	}
}

// Close lets it go at once: a process that is being forked just now has its descriptor, too, until it executes its program.
func (l *lock) Close() error {
	return errors.Join(unix.Flock(int(l.file.Fd()), unix.LOCK_UN), l.file.Close())
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
