package filter

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// changed are the deltas of an Update.
func changed(t *testing.T, f *Filters) map[string]Delta {
	t.Helper()
	deltas, err := f.Update(background)
	if err != nil {
		t.Fatal(err)
	}
	return deltas
}

func TestUpdate(t *testing.T) {
	f, client := over(t, scene()...)
	p := pod("p", asks("cpu", "2"))
	class := f.Follow(p)
	if f.Follow(pod("q", asks("cpu", "2"))) != class || f.Follow(pod("r", spread("web", zone))) != "" {
		t.Fatal("what is followed is not a class")
	}
	first := changed(t, f)[class]
	is(t, "at first", first.Passes, "a", "b")
	if len(first.Refuses) != 2 {
		t.Errorf("at first refused: %v", first.Refuses)
	}
	if got := changed(t, f); len(got) != 0 {
		t.Errorf("when nothing happened: %v", got)
	}
	big := pod("big", asks("cpu", "3"))
	if err := f.Assume(big, "a"); err != nil {
		t.Fatal(err)
	}
	if got := changed(t, f)[class]; got.Refuses["a"] != "Insufficient cpu" || len(got.Refuses) != 1 || got.Passes != nil || got.Gone != nil {
		t.Errorf("when a is taken: %+v", got)
	}
	f.Forget(big)
	is(t, "when a is free again", changed(t, f)[class].Passes, "a")
	if err := client.CoreV1().Nodes().Delete(background, "d", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := []string{}
	until(t, "d is gone", func() bool { gone = append(gone, changed(t, f)[class].Gone...); return len(gone) > 0 })
	is(t, "gone", gone, "d")
	f.Unfollow(class)
	if err := f.Assume(big, "a"); err != nil {
		t.Fatal(err)
	}
	if got := changed(t, f); len(got) != 0 {
		t.Errorf("when nothing is followed: %v", got)
	}
}

// What reaches over nodes is seen through the informers: a volume, a pod that keeps others away, a namespace's labels.
func TestUpdateOfWhatReachesOverNodes(t *testing.T) {
	far := apart("loud", zone)
	elsewhere := pod("guard", far, on("b"), func(p *v1.Pod) {
		p.Namespace = "other"
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"noise": "yes"}}
	})
	space := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	f, client := over(t, scene(waiting("data"), elsewhere, space)...)
	store := f.Follow(pod("p", mounts("data")))
	loud := f.Follow(pod("p", labelled("app", "loud")))
	now := map[string]map[string]bool{store: {}, loud: {}}
	look := func() {
		for class, delta := range changed(t, f) {
			for _, name := range delta.Passes {
				now[class][name] = true
			}
			for name := range delta.Refuses {
				delete(now[class], name)
			}
		}
	}
	sees := func(class string, want ...string) {
		t.Helper()
		until(t, fmt.Sprintf("the nodes are %v", want), func() bool {
			look()
			return slices.Equal(slices.Sorted(maps.Keys(now[class])), want)
		})
	}
	sees(store)
	sees(loud, "a", "b")
	if _, err := client.CoreV1().PersistentVolumes().Create(background, freeVolume("disk", "west"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sees(store, "b")
	labels := space.DeepCopy()
	labels.Labels = map[string]string{"noise": "yes"}
	if _, err := client.CoreV1().Namespaces().Update(background, labels, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	sees(loud, "a")
	if err := client.CoreV1().Pods("other").Delete(background, "guard", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sees(loud, "a", "b")
}

// After any events, what Update says adds up to what Nodes says, for every class.
func TestUpdateAddsUpToNodes(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			f, _ := over(t, storage()...)
			w := &world{r: r, f: f, nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{}}
			book := map[string]map[string]string{}
			stands := map[string]*v1.Pod{}
			for step := range 120 {
				w.event(t)
				if step%4 == 0 {
					p := randomPod(r, fmt.Sprintf("f%d", step))
					if class := f.Follow(p); class != "" {
						stands[class] = p
						if book[class] == nil {
							book[class] = map[string]string{}
						}
					}
				}
				if step%3 != 0 {
					continue
				}
				for class, delta := range changed(t, f) {
					delta.into(book[class])
				}
				compare(t, f, stands, book)
			}
		})
	}
}

// into brings a book of answers up to date.
func (d Delta) into(book map[string]string) {
	for _, name := range d.Passes {
		book[name] = ""
	}
	maps.Copy(book, d.Refuses)
	for _, name := range d.Gone {
		delete(book, name)
	}
}

func compare(t *testing.T, f *Filters, stands map[string]*v1.Pod, book map[string]map[string]string) {
	t.Helper()
	for class, p := range stands {
		found, err := f.Nodes(background, p)
		if err != nil {
			t.Fatal(err)
		}
		want := found.Why
		for _, name := range found.Nodes {
			want[name] = ""
		}
		if !maps.Equal(book[class], want) {
			t.Fatalf("class of %s (%v):\nUpdate adds up to %v\nNodes says       %v", p.Name, p.Spec, book[class], want)
		}
	}
}

// world is a cluster in which things happen at random.
type world struct {
	r     *rand.Rand
	f     *Filters
	nodes map[string]*v1.Node
	pods  map[string]*v1.Pod // bound or assumed
	made  int
}

// event has one thing happen, as the informers would tell it.
func (w *world) event(t *testing.T) {
	t.Helper()
	w.made++
	name := fmt.Sprintf("n%d", w.r.IntN(12))
	old := w.nodes[name]
	switch w.r.IntN(9) {
	case 0, 1:
		n := randomNode(w.r, name)
		if old == nil {
			w.f.nodeAdded(n)
		} else {
			w.f.nodeChanged(old, n)
		}
		w.nodes[name] = n
	case 2:
		if old != nil {
			w.f.nodeGone(old)
			delete(w.nodes, name)
		}
	case 3:
		for _, key := range slices.Sorted(maps.Keys(w.pods)) {
			if w.r.IntN(4) == 0 {
				w.f.podGone(w.pods[key])
				delete(w.pods, key)
			}
		}
	case 4:
		p := randomPod(w.r, fmt.Sprintf("w%d", w.made), func(p *v1.Pod) { p.Status.NominatedNodeName = name })
		w.f.podAdded(p)
		w.pods[p.Name] = p
	case 5:
		w.change()
	default:
		w.place(t)
	}
}

// change has a bound pod be labelled or resized.
func (w *world) change() {
	for _, key := range slices.Sorted(maps.Keys(w.pods)) {
		old := w.pods[key]
		if old.Spec.NodeName == "" || w.r.IntN(4) > 0 {
			continue
		}
		p := old.DeepCopy()
		p.Labels["app"] = one(w.r, "web", "db", "loud")
		asks("cpu", one(w.r, "0", "500m", "1", "3"))(p)
		w.f.podChanged(old, p)
		w.pods[key] = p
	}
}

// place has a pod run: bound by anyone to any node, or assumed by us where it fits.
func (w *world) place(t *testing.T) {
	t.Helper()
	p := randomPod(w.r, fmt.Sprintf("p%d", w.made))
	if w.r.IntN(2) == 0 {
		p.Spec.NodeName = fmt.Sprintf("n%d", w.r.IntN(12))
		w.f.podAdded(p)
		w.pods[p.Name] = p
		return
	}
	fit := nodesOf(t, w.f, p)
	if len(fit) == 0 {
		return
	}
	chosen := fit[w.r.IntN(len(fit))]
	if err := w.f.Assume(p, chosen); err != nil {
		t.Fatal(err)
	}
	switch w.r.IntN(3) {
	case 0:
		w.f.Forget(p)
		return
	case 1:
		bound := p.DeepCopy()
		bound.Spec.NodeName = chosen
		w.f.podChanged(p, bound)
		p = bound
	}
	w.pods[p.Name] = p
}
