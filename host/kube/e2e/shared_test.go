package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/aliquot-dev/aliquot/host/kube/deploy"
	"github.com/aliquot-dev/aliquot/host/kube/images"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// shared is one of the clusters that tests have one after the other, for a new one takes longer than most of them. It has our kinds of object, which its
// controllers know from the begin. Each test finds it as the first one did: what the one before left is taken away first, which finds what should not be
// there any more. One in which a test failed is ended, and the next has a new one.
type shared struct {
	*testcluster.Cluster                         // nil: it is not started, or was ended
	state                string                  // its folder
	audit                testcluster.Audit       // what of requests is noted
	told                 teller                  // where it says what it begins: in the log of the test that has it
	was                  map[object]bool         // what was there at first
	labels               map[string]string       // of the namespace in which tests work, at first
	node                 map[string]string       // labels of the node
	loaded               map[string]images.Image // by name, what the node has
	last                 *world                  // that had it last
	bare                 bool                    // it is without our kinds and our namespace
	alone                bool                    // it is without the stock scheduler
	drops                bool                    // its API server has other options, by which it drops fields
}

// teller passes on what is written to it, to whom it was told last.
type teller struct {
	mu sync.Mutex
	to io.Writer
}

func (t *teller) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.to == nil {
		return len(line), nil
	}
	return t.to.Write(line)
}

// tell has it pass on to another; nil: to nobody.
func (t *teller) tell(to io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.to = to
}

// end ends the cluster, if it was started.
func (s *shared) end() error {
	if s.Cluster == nil {
		return nil
	}
	cluster := s.Cluster
	s.Cluster = nil
	return cluster.Stop()
}

// kinds are our kinds of object.
func kinds(t *testing.T) []deploy.Object {
	t.Helper()
	return keptOf(rendered(t, "h200x1"))
}

// ready makes the cluster for a test what it was at first.
func (s *shared) ready(ctx context.Context, t *testing.T) {
	t.Helper()
	s.told.tell(t.Output())
	t.Cleanup(func() { s.told.tell(nil) })
	if s.Cluster != nil {
		if err := s.tidy(ctx, t); err != nil {
			t.Fatal(errors.Join(fmt.Errorf("take away what the test before this one left: %w", err), s.end()))
		}
		return
	}
	cluster, err := testcluster.Start(ctx, testcluster.Config{
		Cache: cache, State: s.state, Audit: s.audit, Log: slog.New(slog.NewTextHandler(&s.told, nil)), Kinds: deploy.Stream(kinds(t)),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster, s.loaded, s.last, s.bare, s.alone, s.drops = cluster, map[string]images.Image{}, nil, false, false, false
	if err := s.note(ctx); err != nil {
		t.Fatal(errors.Join(err, s.end()))
	}
}

// note notes what is there.
func (s *shared) note(ctx context.Context) error {
	all, err := s.objects(ctx)
	if err != nil {
		return err
	}
	s.was = map[object]bool{}
	for _, one := range all {
		s.was[one] = true
	}
	namespace, err := s.Client().CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
	if err != nil {
		return err
	}
	node, err := s.Client().CoreV1().Nodes().Get(ctx, testcluster.NodeName, metav1.GetOptions{})
	s.labels, s.node = namespace.Labels, node.Labels
	return err
}

// tidy makes the cluster what it was at first.
func (s *shared) tidy(ctx context.Context, t *testing.T) error {
	t.Helper()
	begun := time.Now()
	// Agents are needed until no pod has a share any more.
	if err := s.without(ctx, func(one object) bool { return one.namespace == metav1.NamespaceDefault }); err != nil {
		return err
	}
	if err := s.EndBeside(); err != nil {
		return err
	}
	// To delete a namespace takes seconds, and the next test has the same.
	if err := s.without(ctx, func(one object) bool { return one.kind.Resource != "namespaces" || one.name != ours }); err != nil {
		return err
	}
	if err := errors.Join(s.last.ended(), s.again(ctx, t), s.relabel(ctx)); err != nil {
		return err
	}
	for _, namespace := range []string{metav1.NamespaceDefault, ours} {
		if err := s.Client().CoreV1().Events(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return err
		}
	}
	t.Logf("the cluster is as it was, after %v", time.Since(begun).Round(time.Millisecond))
	return nil
}

// again gives the cluster back what a test did without: the options of its API server, the stock scheduler, and our kinds of object.
func (s *shared) again(ctx context.Context, t *testing.T) error {
	t.Helper()
	if s.drops {
		s.drops = false
		if err := s.RestartServer(ctx); err != nil {
			return err
		}
	}
	if s.alone {
		s.alone = false
		if err := s.Restart(ctx, "kube-scheduler"); err != nil {
			return err
		}
	}
	if !s.bare {
		return nil
	}
	s.bare = false
	if err := s.Create(ctx, deploy.Stream(kinds(t))); err != nil {
		return err
	}
	for _, one := range kinds(t) {
		s.was[definition(one)] = true
	}
	return s.Restart(ctx, "kube-controller-manager") // the garbage collector looks every half minute which kinds there are
}

// strip takes our kinds and our namespace away, for a test that installs them.
func (s *shared) strip(ctx context.Context, t *testing.T) error {
	t.Helper()
	for _, one := range kinds(t) {
		delete(s.was, definition(one))
	}
	s.bare = true
	return s.without(ctx, func(object) bool { return true })
}

// definition is that of one of our kinds, as the API server has it.
func definition(one deploy.Object) object {
	return object{kind: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, name: one.Name}
}

// relabel gives namespace and node the labels that they had, and takes the node's taints away.
func (s *shared) relabel(ctx context.Context) error {
	for {
		namespace, err := s.Client().CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if maps.Equal(namespace.Labels, s.labels) {
			break
		}
		namespace.Labels = s.labels
		if _, err := s.Client().CoreV1().Namespaces().Update(ctx, namespace, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	for {
		node, err := s.Client().CoreV1().Nodes().Get(ctx, testcluster.NodeName, metav1.GetOptions{})
		if err != nil || maps.Equal(node.Labels, s.node) && len(node.Spec.Taints) == 0 {
			return err
		}
		node.Labels, node.Spec.Taints = s.node, nil
		if _, err := s.Client().CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
}

// ours is the chart's namespace.
const ours = "aliquot"

// object is one that the API server has.
type object struct {
	kind            schema.GroupVersionResource
	namespace, name string
}

// without deletes what was not there at first and is meant, whoever makes it anew meanwhile, and waits until it is gone; of namespaces, for ours alone.
func (s *shared) without(ctx context.Context, meant func(object) bool) error {
	client, err := dynamic.NewForConfig(s.REST())
	if err != nil {
		return err
	}
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		all, err := s.objects(ctx)
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(all, func(one object) bool { return s.was[one] || one.made() || !meant(one) })
		if len(left) == 0 {
			return nil
		}
		for _, one := range left {
			err := client.Resource(one.kind).Namespace(one.namespace).Delete(ctx, one.name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("delete %v: %w", one, err)
			}
		}
		// A namespace goes seconds after what is in it.
		if !slices.ContainsFunc(left, func(one object) bool { return one.kind.Resource != "namespaces" || one.name == ours }) {
			return nil
		}
		select {
		case <-within.Done():
			return fmt.Errorf("waited %v until these are gone: %v", patience, left)
		case <-look.C:
		}
	}
}

// made says of an object that the API server or a controller makes it, for its own ends or with another, with which it goes.
func (o object) made() bool {
	switch o.kind.Resource {
	case "configmaps":
		return o.name == "kube-root-ca.crt"
	case "serviceaccounts":
		return o.name == "default"
	}
	return strings.HasPrefix(o.namespace, "kube-") && o.kind.Group != "rbac.authorization.k8s.io"
}

// objects are all that the API server has.
func (s *shared) objects(ctx context.Context) (all []object, err error) {
	err = each(ctx, s.Cluster, func(kind metav1.APIResource, of schema.GroupVersionResource, one *unstructured.Unstructured) {
		all = append(all, object{of, one.GetNamespace(), one.GetName()})
	})
	return all, err
}

// each does something with each object that the API server has, of every kind but those that are passed. A kind that goes meanwhile has none.
func each(ctx context.Context, cluster *testcluster.Cluster, do func(metav1.APIResource, schema.GroupVersionResource, *unstructured.Unstructured)) error {
	client, err := dynamic.NewForConfig(cluster.REST())
	if err != nil {
		return err
	}
	lists, err := cluster.Client().Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return err
	}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, kind := range list.APIResources {
			if slices.Contains(passed, kind.Name) {
				continue
			}
			of := group.WithResource(kind.Name)
			found, err := client.Resource(of).List(ctx, metav1.ListOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("list %s: %w", of, err)
			}
			if err == nil {
				for i := range found.Items {
					do(kind, of, &found.Items[i])
				}
			}
		}
	}
	return nil
}

// ended ends what outlives this world's agents and removes their folders.
func (w *world) ended() error {
	return errors.Join(w.endOutliving(), os.RemoveAll(w.run), os.RemoveAll(w.state), os.RemoveAll(filepath.Join(w.Kubelet(), "plugins", "gpu.aliquot.dev")))
}

// endOutliving ends what outlives this world's agents, the arbiter and the simulated devices, and waits until it has ended.
func (w *world) endOutliving() (wrong error) {
	ended, left := within(patience, func() (bool, string) {
		programs, err := filepath.Glob("/proc/[0-9]*/exe")
		var left []string
		for _, link := range programs {
			program, gone := os.Readlink(link)
			if gone != nil || !strings.HasPrefix(program, w.run+"/") {
				continue // it has ended, or is another's
			}
			left = append(left, program)
			pid, failed := strconv.Atoi(strings.Split(link, "/")[2])
			if failed == nil {
				failed = syscall.Kill(pid, syscall.SIGKILL)
			}
			if !errors.Is(failed, syscall.ESRCH) {
				err = errors.Join(err, failed)
			}
		}
		wrong = err
		return err != nil || len(left) == 0, strings.Join(left, "\n")
	})
	if !ended {
		return fmt.Errorf("these were killed and have not ended:\n%s", left)
	}
	return wrong
}

// load gives the node an image, unless it has it.
func (w *world) load(image images.Image) {
	w.Helper()
	if had, is := w.shared.loaded[image.Name]; is && maps.Equal(had.Files, image.Files) {
		return
	}
	w.no(w.Load(w.ctx, image))
	w.shared.loaded[image.Name] = image
}

// missing are the objects that are not there yet of those that a chart is to install: our kinds and our namespace may be.
func (w *world) missing(objects []deploy.Object) []deploy.Object {
	w.Helper()
	_, err := w.client.CoreV1().Namespaces().Get(w.ctx, ours, metav1.GetOptions{})
	there := !apierrors.IsNotFound(err)
	if there {
		w.no(err)
	}
	return slices.DeleteFunc(slices.Clone(objects), func(one deploy.Object) bool {
		return isKind(one) || there && one.Kind == "Namespace" && one.Name == ours
	})
}
