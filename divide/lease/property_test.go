package lease

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/divide"
)

var hours = flag.Float64("lease.hours", 0, "hours of virtual time for each test of the rule's promises (0: 25, or 0.02 with -race)")

func virtualHours() float64 {
	switch {
	case *hours > 0:
		return *hours
	case raceEnabled:
		return 0.02
	}
	return 25
}

// processors are as many worlds as may be gone through at a time, in all tests.
var processors = make(chan struct{}, runtime.GOMAXPROCS(0))

// inWorlds runs a test on seed after seed until the worlds together have gone through the hours asked for, on all processors, and reports the
// first failure of a seed.
func inWorlds(t *testing.T, of func(seed uint64) (NS, worst, error)) {
	t.Helper()
	t.Parallel()
	var next, virtual atomic.Uint64
	began := time.Now()
	most := uint64(virtualHours() * float64(3600*second))
	var workers sync.WaitGroup
	var mutex sync.Mutex
	all := worst{}
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for virtual.Load() < most && !t.Failed() {
				seed := next.Add(1)
				processors <- struct{}{}
				time, figures, err := of(seed)
				<-processors
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				virtual.Add(uint64(time))
				mutex.Lock()
				for what, value := range figures {
					all.note(what, value)
				}
				mutex.Unlock()
			}
		})
	}
	workers.Wait()
	past := float64(virtual.Load()) / float64(3600*second)
	t.Logf("%d worlds, %.2f hours of virtual time, %.0f times as fast as time", next.Load(), past, past*3600/time.Since(began).Seconds())
	for _, what := range slices.Sorted(maps.Keys(all)) {
		t.Logf("at worst: %s: %.3f", what, all[what])
	}
}

var kernels = []NS{50 * microsecond, 200 * microsecond, 500 * microsecond, millisecond, 2 * millisecond, 5 * millisecond, 20 * millisecond}

// drawTenants draws up to eight tenants whose floors fit.
func drawTenants(random *rand.Rand, batches bool) []*tenant {
	tenants := make([]*tenant, 1+random.IntN(8))
	room := milli
	for i := range tenants {
		t := &tenant{kernel: kernels[random.IntN(len(kernels))]}
		t.policy = drawPolicy(random, &room)
		if batches && random.IntN(2) == 0 {
			t.batch = float64(1+random.IntN(100)) * float64(millisecond) / float64(t.kernel)
			t.pause = random.ExpFloat64() * float64(50*millisecond)
			if random.IntN(4) == 0 {
				t.pause *= 100
			}
			t.policy.Latency = random.IntN(3) == 0
		}
		tenants[i] = t
	}
	return tenants
}

func drawPolicy(random *rand.Rand, room *api.Milli) Policy {
	floor := api.Milli(random.Int64N(int64(*room)/2 + 1))
	*room -= floor
	ceiling := milli
	if random.IntN(2) == 0 {
		ceiling = max(floor+api.Milli(random.Int64N(int64(milli-floor)+1)), 20)
	}
	return Policy{Floor: floor, Ceiling: ceiling, Weight: uint32(1 + random.IntN(10))}
}

func describe(tenants []*tenant) string {
	text := ""
	for i, t := range tenants {
		text += fmt.Sprintf("\n  %d: %v..%v weight %d latency %v, kernels of %d us, batches of %.1f each %.1f ms: ran %.3f s, behind %.2f ms, ahead %.2f ms, longest wait %.1f ms",
			i, t.policy.Floor, t.policy.Ceiling, t.policy.Weight, t.policy.Latency, t.kernel/microsecond, t.batch, t.pause/1e6, float64(t.ran)/1e9,
			float64(t.behind)/1e9, float64(t.ahead)/1e9, float64(t.longest)/1e6)
	}
	return text
}

// Saturating tenants get what divide says within half a point, and 50 ms.
func TestConverges(t *testing.T) {
	inWorlds(t, func(seed uint64) (NS, worst, error) {
		w := newWorld(seed)
		for _, tenant := range drawTenants(w.random, false) {
			w.add(tenant)
		}
		length := 10 * second
		if w.random.IntN(4) == 0 {
			length = 120 * second
		}
		began := w.now
		w.until(began + length)
		w.finish()
		if err := w.judge(began, false); err != nil {
			return length, w.worst, err
		}
		return length, w.worst, w.compare(length)
	})
}

func (w *world) longestKernel() NS {
	longest := NS(0)
	for _, t := range w.all {
		longest = max(longest, t.kernel)
	}
	return longest
}

// compare holds what saturating tenants got against divide.
func (w *world) compare(length NS) error {
	shares := make([]divide.Share, len(w.tenants))
	for i, t := range w.tenants {
		part := func(of api.Milli) int64 { return int64(psOf(of, length) / perNS) }
		shares[i] = divide.Share{Floor: part(t.policy.Floor), Ceiling: part(t.policy.Ceiling), Weight: int64(t.policy.Weight), Demand: int64(length)}
	}
	for i, due := range divide.Divide(int64(length), shares) {
		off := float64(int64(w.tenants[i].ran)-due) / 1e6
		w.worst.note("off divide after 10 s, points", math.Abs(off)*1e6/float64(max(length, 10*second))*100)
		if length > 100*second {
			w.worst.note("off divide after 120 s, points", math.Abs(off)*1e6/float64(length)*100)
		}
		if part := float64(due) / float64(length); part >= 0.01 {
			w.worst.note("longest wait of one that is due 1 % or more, as ms × its part", float64(w.tenants[i].longest)/1e6*part)
			if most := 60 + float64(w.longestKernel())/1e6; float64(w.tenants[i].longest)/1e6*part > most {
				return fmt.Errorf("tenant %d, due %.1f %% of the device, waited for %.1f ms%s", i, part*100, float64(w.tenants[i].longest)/1e6, describe(w.tenants))
			}
		}
		if math.Abs(off) > 50+float64(length)/1e6*0.005 {
			return fmt.Errorf("tenant %d ran %.3f s of %.0f, due are %.3f%s", i, float64(w.tenants[i].ran)/1e9, float64(length)/1e9, float64(due)/1e9, describe(w.tenants))
		}
	}
	return nil
}

// Tenants that come, go, change their limits and want the device in batches have their floors whenever they want them, never pass their
// ceilings, leave no time unused that somebody wants, and wait for no longer than their part of the device explains.
func TestPromises(t *testing.T) {
	inWorlds(t, func(seed uint64) (NS, worst, error) {
		w := newWorld(seed)
		waiting := drawTenants(w.random, true)
		began := w.now
		for w.now < began+20*second {
			switch present := len(w.tenants); {
			case present > 0 && w.random.IntN(8) == 0:
				w.remove(w.tenants[w.random.IntN(present)])
			case present > 0 && w.random.IntN(3) == 0:
				w.resizeOne()
			case len(waiting) > 0:
				// What others were given meanwhile may have taken its room.
				waiting[0].policy.Floor = min(waiting[0].policy.Floor, w.room(nil))
				w.add(waiting[0])
				waiting = waiting[1:]
			}
			w.until(w.now + w.about(float64(second)))
			if err := w.checkRows(); err != nil {
				return w.now - began, w.worst, err
			}
		}
		w.finish()
		return w.now - began, w.worst, w.judge(began, true)
	})
}

// room is what the floors of all tenants but one leave.
func (w *world) room(except *tenant) api.Milli {
	room := milli
	for _, t := range w.tenants {
		if t != except {
			room -= t.policy.Floor
		}
	}
	return room
}

// resizeOne draws new limits for one tenant, in the room that the others leave.
func (w *world) resizeOne() {
	t := w.tenants[w.random.IntN(len(w.tenants))]
	room := w.room(t)
	policy := drawPolicy(w.random, &room)
	policy.Latency = t.policy.Latency
	w.resize(t, policy)
}

// In which order tasks were added decides over nothing that lasts.
func TestOrderOfTasks(t *testing.T) {
	inWorlds(t, func(seed uint64) (NS, worst, error) {
		const length = 10 * second
		run := func(shuffle uint64) []*tenant {
			w := newWorld(seed)
			tenants := drawTenants(w.random, false)
			drawn := slices.Clone(tenants)
			rand.New(rand.NewPCG(shuffle, 1)).Shuffle(len(tenants), func(i, j int) { tenants[i], tenants[j] = tenants[j], tenants[i] })
			for _, tenant := range tenants {
				w.add(tenant)
			}
			w.until(w.now + length)
			w.finish()
			return drawn
		}
		one, other := run(2*seed), run(2*seed+1)
		figures := worst{}
		for i, t := range one {
			off := math.Abs(float64(t.ran)-float64(other[i].ran)) / 1e6
			figures.note("off for another order, ms in 10 s", off)
			if off > 50 {
				return 2 * length, figures, fmt.Errorf("tenant %d ran %.3f s or %.3f: %s\n%s", i, float64(t.ran)/1e9, float64(other[i].ran)/1e9,
					describe(one), describe(other))
			}
		}
		return 2 * length, figures, nil
	})
}

// An owner who wakes has the device soon, whoever borrows it.
func TestGiveBack(t *testing.T) {
	inWorlds(t, func(seed uint64) (NS, worst, error) {
		const length = 20 * second
		w := newWorld(seed)
		owner := w.add(&tenant{
			kernel: 300 * microsecond, batch: 3, pause: float64(15 * millisecond),
			policy: Policy{Floor: 300 + api.Milli(w.random.IntN(200)), Ceiling: milli, Weight: 1},
		})
		longest := NS(0)
		for range 1 + w.random.IntN(3) {
			borrower := w.add(&tenant{kernel: kernels[w.random.IntN(5)], policy: Policy{Ceiling: milli, Weight: 1}})
			longest = max(longest, borrower.kernel)
		}
		w.until(w.now + length)
		books := w.rule.Books(owner.grant)
		if books.Wakes < 200 || books.WakeWorst > 2*millisecond+longest {
			return length, nil, fmt.Errorf("%d wake-ups, the worst took %.2f ms beside kernels of %.2f", books.Wakes, float64(books.WakeWorst)/1e6, float64(longest)/1e6)
		}
		return length, worst{"a wake-up beyond the longest kernel, ms": float64(books.WakeWorst)/1e6 - float64(longest)/1e6}, nil
	})
}

// judge holds a world against the invariants of DESIGN.md. Bounds are lengths of device time.
func (w *world) judge(began NS, resized bool) error {
	if err := w.checkRows(); err != nil {
		return err
	}
	if most := (w.now - began) / 50; w.wasted > most {
		return fmt.Errorf("the device was idle for %.1f ms while somebody waited for it, %.1f are allowed%s", float64(w.wasted)/1e6, float64(most)/1e6, describe(w.all))
	}
	w.worst.note("idle while somebody waits, % of time", 100*float64(w.wasted)/float64(w.now-began))
	for i, t := range w.all {
		if most := w.mostBehind(t); t.behind > most {
			return fmt.Errorf("tenant %d was %.2f ms behind its floor, %.2f are allowed%s", i, float64(t.behind)/1e9, float64(most)/1e9, describe(w.all))
		}
		if most := w.mostAhead(t, resized); t.ahead > most {
			return fmt.Errorf("tenant %d was %.2f ms ahead of its ceiling, %.2f are allowed%s", i, float64(t.ahead)/1e9, float64(most)/1e9, describe(w.all))
		}
		w.worst.note("behind a floor, ms", float64(t.behind)/1e9)
		w.worst.note("ahead of a ceiling, ms", float64(t.ahead)/1e9)
	}
	return nil
}

// carried is by how much what a tenant was charged and what the device ran for it may differ for a while: where work of two overlaps at a change of
// leases each is charged a half, which errs by part of a kernel, and who got too much of it pays later (admit.go).
func (w *world) carried() NS { return 10*millisecond + w.longestKernel() }

// mostBehind is how far a tenant may fall behind its floor over any time in which it wants it: each of the others may have its idle credit first,
// and hold the device for a lease and a kernel that outlives it; its own ceiling may bar it until there is enough for a lease after one.
func (w *world) mostBehind(t *tenant) PS {
	c := &w.rule.config
	most := w.carried() + c.Lease + 2*t.kernel
	for _, other := range w.all {
		if other == t {
			continue
		}
		most += c.IdleCap + c.Lease + other.kernel
		if other.policy.Latency {
			most += c.LatencyCap
		}
	}
	return PS(most) * perNS
}

// mostAhead is how far a tenant may pass its ceiling over any time: what native/arbiter/core.h says, two and a half bursts and what one lease and
// one launch overrun. What was queued when its limits changed runs under the new ones. And what is charged wrong and never mended, since nobody
// complains of it, comes to less than a thousandth of the time.
func (w *world) mostAhead(t *tenant, resized bool) PS {
	c := &w.rule.config
	most := w.carried() + c.Burst*5/2 + c.Lease + t.kernel
	if resized {
		most += runAhead + t.kernel
	}
	return PS(most+(w.now-t.since)/1000) * perNS
}

// worst keeps the greatest of figures by their names, to be logged.
type worst map[string]float64

func (w worst) note(what string, value float64) { w[what] = max(w[what], value) }

// Nothing is allocated while devices are shared.
func TestNoAllocations(t *testing.T) {
	w := newWorld(1)
	for range 4 {
		w.add(&tenant{kernel: 500 * microsecond, policy: Policy{Floor: 100, Ceiling: 900, Weight: 1}})
	}
	w.until(w.now + second)
	steps := w.steps
	if allocations := testing.AllocsPerRun(10, func() { w.until(w.now + second) }); allocations > 1 || w.steps-steps < 1000 {
		t.Errorf("%v allocations in a second of virtual time, %d runs", allocations, w.steps-steps)
	}
}
