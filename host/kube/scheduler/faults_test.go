package scheduler

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

var seedFlag = flag.Uint64("seed", 0, "first of the seeds from which faults are drawn (TestFaults)")

// Whatever write fails, before or after it was done, and whenever the scheduler ends and another begins: nothing is granted twice, a pod is
// bound with its claims or not at all, a gang is evicted whole or not, those of one that are made again when all have ended start together, and in the end everything
// that fits runs and nothing else is held. Every other time pods want CPU, too, and there are such without devices, that are evicted for others.
func TestFaults(t *testing.T) {
	for i := range uint64(16) {
		seed := *seedFlag + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.ends = true
			c.node("a", 2)
			c.node("b", 1)
			random, chance := rand.New(rand.NewPCG(seed, 1)), 0.3
			c.fails = func(string) fault {
				if random.Float64() >= chance {
					return none
				}
				return []fault{before, after, lostly}[random.IntN(3)]
			}
			s, end := c.run()
			var there []string
			again := map[string]func(number int){} // what makes a pod of a gang again, under another number
			for i := range 16 {
				switch pick := c.draw(random, 8); {
				case pick == 0 && len(there) > 0:
					at := c.draw(random, len(there))
					c.removeAll(there[at])
					there = slices.Delete(there, at, at+1)
				case pick == 1:
					end()
					s, end = c.run()
				case pick > 5 && len(there) > 0:
					c.idle(s, func() {}) // so that some run
					name, between := there[c.draw(random, len(there))], fmt.Sprint("p", i)
					if !c.whole(name) {
						continue
					}
					numbers := c.crash(random, name)
					c.pod(between, int64(100*(1+c.draw(random, 7)))) // may take what they had
					there = append(there, between)
					for _, number := range numbers {
						again[name](number)
					}
				default:
					name := fmt.Sprint("p", i)
					again[name] = c.drawn(random, name, pick < 4, seed%2 == 1)
					there = append(there, name)
				}
			}
			c.mu.Lock()
			chance = 0
			c.mu.Unlock()
			c.sound(s)
			for len(there) > 0 { // whoever waits has room at the latest when those before it have gone
				bound := func(name string) bool { return c.whole(name) }
				c.eventually("another is bound", func() bool { return slices.ContainsFunc(there, bound) })
				at := slices.IndexFunc(there, bound)
				c.removeAll(there[at])
				there = slices.Delete(there, at, at+1)
			}
			c.sound(s)
			c.idle(s, func() {
				if len(s.work) != 0 || s.engine.Waits() {
					t.Errorf("%d workloads are left", len(s.work))
				}
			})
		})
	}
}

// drawn adds a pod or a gang of a name, of which it returns what makes a pod of it again under another number. Where they are needy they want CPU, too, and
// some are without devices.
func (c *cluster) drawn(random *rand.Rand, name string, single, needy bool) (again func(number int)) {
	c.Helper()
	compute := int64(100 * (1 + c.draw(random, 7)))
	cpu, priority := "0", int32(c.draw(random, 3))
	if needy {
		cpu = fmt.Sprint(c.draw(random, 3))
	}
	ranking := needing(cpu, priority)
	if needy && c.draw(random, 3) == 0 {
		c.works(name, fmt.Sprint(3+c.draw(random, 4)))
	} else if single {
		c.pod(name, compute, ranking)
	} else {
		lead := compute / int64(2+2*c.draw(random, 2)) // as much as the others ask for, or half of that
		asks := func(*corev1.Pod, *resourceapi.ResourceClaim) {}
		if c.draw(random, 2) == 0 {
			asks = choosing(lead) // so that the gang is placed beside the line
		}
		again = func(number int) {
			if number%3 == 0 {
				c.member(name, number, 3, lead, ranking, asks)
			} else {
				c.member(name, number, 3, compute/2, ranking)
			}
		}
		for number := range 3 {
			again(number)
		}
	}
	return again
}

// crash ends what runs of a name. It returns the numbers of pods of a gang to be made again: of those that failed, and not of those that succeeded.
func (c *cluster) crash(random *rand.Rand, name string) (numbers []int) {
	c.Helper()
	ended := map[corev1.PodPhase][]string{}
	for _, pod := range c.called(name) {
		if over(pod) {
			continue
		}
		phase := corev1.PodFailed
		if c.draw(random, 3) == 0 {
			phase = corev1.PodSucceeded
		}
		ended[phase] = append(ended[phase], pod.Name)
		if number, err := strconv.Atoi(pod.Labels["number"]); err == nil && phase == corev1.PodFailed {
			numbers = append(numbers, number+3)
		}
	}
	c.end(ended)
	return numbers
}

// works adds a pod without devices that requests so much CPU, is of the lowest priority, and is made again when it was evicted.
func (c *cluster) works(name, cpu string) {
	c.Helper()
	c.recipes[name] = func() { c.works(name, cpu) }
	c.uids++
	uid := types.UID(fmt.Sprint("pod-", name, "-", c.uids))
	c.ordinary(name, cpu, 0, func(pod *corev1.Pod) { pod.UID = uid })
}

// draw is a number below n, of a source that the server's faults are drawn from, too.
func (c *cluster) draw(random *rand.Rand, n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return random.IntN(n)
}

// gang adds pods of a gang, of its name with a number behind.
func (c *cluster) gang(name string, size int, compute int64, changes ...func(*corev1.Pod, *resourceapi.ResourceClaim)) {
	c.Helper()
	for i := range size {
		c.member(name, i, size, compute, changes...)
	}
}

func (c *cluster) member(name string, i, size int, compute int64, changes ...func(*corev1.Pod, *resourceapi.ResourceClaim)) {
	c.Helper()
	c.pod(fmt.Sprint(name, "-", i), compute, append(changes, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Labels = map[string]string{annotation.Gang: name, annotation.GangMin: fmt.Sprint(size), "number": fmt.Sprint(i)}
	})...)
}

// ranking gives a pod a priority.
func ranking(priority int32) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Spec.Priority = &priority }
}

// called are the pods of a name: one alone, or a gang.
func (c *cluster) called(name string) (all []*corev1.Pod) {
	list, err := c.client.Tracker().List(podsResource, corev1.SchemeGroupVersion.WithKind("Pod"), "")
	if err != nil {
		c.Fatal(err)
	}
	for _, pod := range list.(*corev1.PodList).Items {
		if pod.Name == name || pod.Labels[annotation.Gang] == name {
			all = append(all, &pod)
		}
	}
	return all
}

// whole says whether all pods of a name are bound.
func (c *cluster) whole(name string) bool {
	return !slices.ContainsFunc(c.called(name), func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" })
}

func (c *cluster) removeAll(name string) {
	c.Helper()
	for _, pod := range c.called(name) {
		c.remove(pod.Name)
	}
}
