package predict

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// history is a predictor for clarity: it keeps everything and looks at all of it each time.
type history struct {
	config Config
	all    []told
	fared  [likenesses]struct{ low, high, of int }
}

type told struct {
	work      Work
	value, at int64
}

// alike are the figures that a likeness has of a workload, the oldest first.
func (h *history) alike(w Work, like Likeness) []told {
	var out []told
	for _, t := range h.all {
		same := map[Likeness]bool{
			SameName:  w.User != "" && w.Name != "" && w.Shape != "" && w.User == t.work.User && w.Name == t.work.Name && w.Shape == t.work.Shape,
			SameShape: w.User != "" && w.Shape != "" && w.User == t.work.User && w.Shape == t.work.Shape,
			SameUser:  w.User != "" && w.User == t.work.User,
			SameQueue: w.Queue != "" && w.Queue == t.work.Queue,
			All:       true,
		}
		if same[like] {
			out = append(out, t)
		}
	}
	return out[max(0, len(out)-h.config.Samples):]
}

func (h *history) predict(w Work, above, at int64) (Quantiles, bool) {
	for like := range likenesses {
		kept := slices.DeleteFunc(h.alike(w, like), func(t told) bool { return t.value <= above })
		if len(kept) < h.config.Enough {
			continue
		}
		slices.SortFunc(kept, func(a, b told) int { return cmp.Compare(a.value, b.value) })
		weights, total := make([]int64, len(kept)), int64(0)
		for i, t := range kept {
			weights[i] = h.weight(at - t.at)
			total += weights[i]
		}
		find := func(tenths int64) int64 {
			var sum int64
			for i, t := range kept {
				if sum += weights[i]; sum*10 >= total*tenths {
					return t.value
				}
			}
			panic("the whole is not reached")
		}
		f := h.fared[like]
		return Quantiles{max(above+1, min(find(5), times(find(1), -f.low))), find(5), max(find(5), times(find(9), f.high)), like, len(kept)}, true
	}
	return Quantiles{}, false
}

// weight is 2^20 halved each half-life and a straight line between, rounded up, at least 1.
func (h *history) weight(age int64) int64 {
	halves := age / h.config.HalfLife
	if halves >= 20 {
		return 1
	}
	full := big.NewInt(1 << 20 >> halves)
	less := new(big.Int).Mul(big.NewInt(full.Int64()/2), big.NewInt(age%h.config.HalfLife))
	less.Div(less, big.NewInt(h.config.HalfLife))
	return max(1, full.Int64()-less.Int64())
}

// took follows the widths of one prediction.
func (h *history) took(said Quantiles, ran int64) {
	f := &h.fared[said.Like]
	step := 64
	for seen := 64; seen <= f.of && step > 4; seen *= 4 {
		step /= 2
	}
	f.of++
	move := func(width *int, missed bool) {
		if *width -= step; missed {
			*width += 10 * step
		}
		*width = max(-512, min(*width, 16*1024))
	}
	move(&f.low, ran < said.Low)
	move(&f.high, ran > said.High)
}

// times is a value doubled so many times 1/1024: 2^k × (1 + r/1024), rounded down at each of the two.
func times(value int64, by int) int64 {
	k, r := by/1024, by%1024
	if r < 0 {
		k, r = k-1, r+1024
	}
	x := big.NewInt(min(value, 1<<60))
	x.Mul(x, big.NewInt(int64(1024+r))).Div(x, big.NewInt(1024))
	if k < 0 {
		x.Rsh(x, uint(-k))
	} else {
		x.Lsh(x, uint(k))
	}
	if most := big.NewInt(1 << 60); x.Cmp(most) > 0 && k >= 0 {
		x = most
	}
	return x.Int64()
}

// A scaled duration is what exact arithmetic says, over the whole range.
func TestScaled(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		value, by := rapid.Int64Range(0, 1<<62).Draw(rt, "value"), rapid.Int32Range(-widest, widest).Draw(rt, "by")
		if got, want := scaled(value, by), times(value, int(by)); got != want {
			rt.Fatalf("%d doubled %d / 1024 times is %d, want %d", value, by, got, want)
		}
	})
}

// TestIntervalsHold: work comes in batches of which each is alike in itself and unlike the one before, so that what ran before tells far too
// narrow intervals. One in ten is below and one in ten above all the same.
func TestIntervalsHold(t *testing.T) {
	for _, change := range []int{0, 3000} { // after so many the batches spread twice as wide; 0: never
		plain, wide := New(Config{}), New(Config{})
		random, centre := uint64(1), 0
		rand := func(n int) int {
			random = random*6364136223846793005 + 1442695040888963407
			return int(random>>33) % n
		}
		const jobs, first = 6000, 500
		within, below, above := 0, 0, 0
		for i := range jobs {
			spread := 8
			if change > 0 && i >= change {
				spread = 16
			}
			if i%20 == 0 {
				centre = rand(spread)
			}
			w, ran := Work{User: "ann", Shape: "1"}, int64(1000+rand(500))<<centre
			if q, ok := plain.Predict(w, -1, int64(i)); ok && i >= first && q.Low <= ran && ran <= q.High {
				within++
			}
			q, ok := wide.Predict(w, -1, int64(i))
			if ok {
				wide.Fared(q, ran)
			}
			if ok && i >= first {
				below, above = below+tell(ran < q.Low), above+tell(ran > q.High)
			}
			plain.Learn(w, ran, int64(i))
			wide.Learn(w, ran, int64(i))
		}
		of := jobs - first
		if within > of*72/100 {
			t.Errorf("%d of %d are within the plain tenths: the test shows nothing", within, of)
		}
		if tenth := of / 10; max(below, above) > tenth*125/100 || min(below, above) < tenth*75/100 {
			t.Errorf("of %d, %d are below and %d above: a tenth each should be", of, below, above)
		}
	}
}

func tell(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func drawnWork(t *rapid.T) Work {
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	return Work{pick("user", "", "ann", "bob"), pick("name", "", "train", "eval"), pick("shape", "", "1", "0.5"), pick("queue", "", "vision", "nlp")}
}

// What is predicted is what a slow predictor says that keeps everything, at any moment, also after a snapshot.
func TestAgainstHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		config := Config{
			Samples: rapid.IntRange(1, 9).Draw(rt, "samples"), HalfLife: rapid.SampledFrom([]int64{1, 7, 1000, maxHalfLife}).Draw(rt, "half-life"), Keys: 1000,
		}
		config.Enough = rapid.IntRange(1, config.Samples).Draw(rt, "enough")
		p, slow, now := New(config), &history{config: config}, int64(0)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now += rapid.Int64Range(0, 30).Draw(rt, "wait")
			w := drawnWork(rt)
			if rapid.IntRange(0, 3).Draw(rt, "learn") > 0 {
				value := rapid.Int64Range(0, 20).Draw(rt, "value")
				if said, ok := p.Predict(w, -1, now); ok && rapid.Bool().Draw(rt, "was predicted") {
					p.Fared(said, value)
					slow.took(said, value)
				}
				p.Learn(w, value, now)
				slow.all = append(slow.all, told{w, value, now})
				continue
			}
			above := rapid.Int64Range(-1, 20).Draw(rt, "above")
			got, ok := p.Predict(w, above, now)
			want, known := slow.predict(w, above, now)
			if got != want || ok != known {
				rt.Fatalf("%+v above %d: %+v %v, want %+v %v", w, above, got, ok, want, known)
			}
			text, err := json.Marshal(p.Export())
			if err != nil {
				rt.Fatal(err)
			}
			var saved []Learned
			if err := json.Unmarshal(text, &saved); err != nil {
				rt.Fatal(err)
			}
			if p, err = Import(config, saved, p.Wide()); err != nil {
				rt.Fatal(err)
			}
			if again := p.Export(); !reflect.DeepEqual(again, saved) {
				rt.Fatalf("a snapshot of a snapshot is\n%+v\ninstead of\n%+v", again, saved)
			}
		}
	})
}

// A figure weighs half of one that came a half-life later, three quarters of it halfway there.
func TestWeights(t *testing.T) {
	p := New(Config{HalfLife: 1000})
	for age, want := range map[int64]int64{0: unit, 500: unit * 3 / 4, 1000: unit / 2, 1500: unit * 3 / 8, 20_000: 1, 1 << 60: 1} {
		if got := p.weight(age); got != want {
			t.Errorf("after %d of 1,000 a figure weighs %d of %d, want %d", age, got, unit, want)
		}
	}
	p = New(Config{HalfLife: maxHalfLife})
	if got := p.weight(maxHalfLife - 1); got < unit/2 || got > unit/2+1 {
		t.Errorf("just before the longest half-life: %d of %d", got, unit)
	}
}

// What changed lately outweighs what was long so, and what has run for long is compared with what ran as long.
func TestPredict(t *testing.T) {
	p := New(Config{Samples: 100, HalfLife: 1000})
	w := Work{User: "ann", Name: "train", Shape: "1", Queue: "vision"}
	for range 20 {
		p.Learn(w, 60, 0)
	}
	for range 10 {
		p.Learn(w, 600, 10_000)
	}
	if got, ok := p.Predict(w, -1, 10_000); !ok || got != (Quantiles{600, 600, 600, SameName, 30}) {
		t.Errorf("%+v %v", got, ok)
	}
	if got, ok := p.Predict(w, 60, 10_000); !ok || got.Samples != 10 || got.Low != 600 {
		t.Errorf("of those above 60: %+v %v", got, ok)
	}
	if got, ok := p.Predict(w, 600, 10_000); ok {
		t.Errorf("nothing ran for longer: %+v", got)
	}
	for _, c := range []struct {
		w    Work
		like Likeness
	}{
		{w, SameName},
		{Work{"ann", "other", "1", "vision"}, SameShape},
		{Work{"ann", "other", "2", "vision"}, SameUser},
		{Work{"bob", "train", "1", "vision"}, SameQueue},
		{Work{"bob", "train", "1", "nlp"}, All},
	} {
		if got, ok := p.Predict(c.w, -1, 10_000); !ok || got.Like != c.like {
			t.Errorf("%+v is predicted as %s: %+v %v, want as %s", c.w, got.Like, got, ok, c.like)
		}
	}
}

// What was learned of longest ago is forgotten first.
func TestBound(t *testing.T) {
	p := New(Config{Keys: 3, Enough: 1})
	for i, user := range []string{"a", "b", "a", "c"} { // with "all" that is one too much, and b was learned of longest ago
		p.Learn(Work{User: user}, int64(i), int64(i))
	}
	for user, like := range map[string]Likeness{"a": SameUser, "b": All, "c": SameUser} {
		if got, ok := p.Predict(Work{User: user}, -1, 9); !ok || got.Like != like {
			t.Errorf("%s is predicted as %s: %+v %v, want as %s", user, got.Like, got, ok, like)
		}
	}
	if n := len(p.Export()); n != 3 {
		t.Errorf("%d likenesses are kept", n)
	}
}

func TestImportRefuses(t *testing.T) {
	good := Learned{User: "ann", Like: SameUser, Values: []int64{1, 2}, At: []int64{1, 2}}
	if _, err := Import(Config{}, []Learned{good}, Wide{}); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(l *Learned){
		"no likeness": func(l *Learned) { l.Like = likenesses },
		"not of its":  func(l *Learned) { l.Queue = "vision" },
		"is not of":   func(l *Learned) { l.User = "" },
		"0 figures":   func(l *Learned) { l.Values = nil },
		"1 times":     func(l *Learned) { l.At = l.At[:1] },
		"in order":    func(l *Learned) { l.At = []int64{2, 1} },
		"less than":   func(l *Learned) { l.Values = []int64{1, -2} },
	} {
		bad := good
		change(&bad)
		if _, err := Import(Config{}, []Learned{bad}, Wide{}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Import(Config{}, []Learned{good, good}, Wide{}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Error(err)
	}
	if _, err := Import(Config{Keys: 1}, []Learned{good, {Like: All, Values: []int64{1}, At: []int64{1}}}, Wide{}); err == nil || !strings.Contains(err.Error(), "at most 1") {
		t.Error(err)
	}
	for _, bad := range []Width{{Low: tightest - 1}, {High: widest + 1}, {Of: -1}} {
		if _, err := Import(Config{}, nil, Wide{SameUser: bad}); err == nil || !strings.Contains(err.Error(), "give -512 to 16384") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, bad := range []Config{{Samples: -1}, {Samples: maxSamples + 1}, {Enough: 65}, {HalfLife: -1}, {HalfLife: maxHalfLife + 1}, {Keys: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func BenchmarkLearnAndPredict(b *testing.B) {
	p := New(Config{})
	works := make([]Work, 1000)
	for i := range works {
		works[i] = Work{User: fmt.Sprint(i % 100), Name: fmt.Sprint(i), Shape: fmt.Sprint(i % 10), Queue: fmt.Sprint(i % 20)}
	}
	b.ReportAllocs()
	for i := range b.N {
		w := works[i%len(works)]
		p.Learn(w, int64(i%977), int64(i))
		p.Predict(w, -1, int64(i))
	}
}
