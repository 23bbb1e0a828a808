package predict

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What is predicted of use is what two slow predictors say that keep everything, each judged just before it learns, also after a snapshot.
func TestUsesAgainstHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		config := Config{Samples: rapid.IntRange(1, 9).Draw(rt, "samples"), HalfLife: rapid.SampledFrom([]int64{1, 7, 1000}).Draw(rt, "half-life"), Keys: 1000}
		config.Enough = rapid.IntRange(1, config.Samples).Draw(rt, "enough")
		u, compute, memory, now := NewUses(config), &history{config: config}, &history{config: config}, int64(0)
		expected := func(w Work) (said Expected, ok bool) {
			said.Compute, ok = compute.predict(w, -1, now)
			said.Compute.High = min(said.Compute.High, 1000)
			said.Memory, _ = memory.predict(w, -1, now)
			return said, ok
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now += rapid.Int64Range(0, 30).Draw(rt, "wait")
			w := drawnWork(rt)
			if rapid.IntRange(0, 3).Draw(rt, "learn") > 0 {
				used := Use{rapid.Int64Range(0, 1000).Draw(rt, "compute"), rapid.Int64Range(0, 1<<40).Draw(rt, "memory")}
				if said, ok := expected(w); ok {
					compute.took(said.Compute, used.Compute)
					memory.took(said.Memory, used.Memory)
				}
				compute.all, memory.all = append(compute.all, told{w, used.Compute, now}), append(memory.all, told{w, used.Memory, now})
				u.Learn(w, used, now)
				continue
			}
			want, known := expected(w)
			if got, ok := u.Predict(w, now); ok != known || ok && got != want {
				rt.Fatalf("%+v: %+v %v, want %+v %v", w, got, ok, want, known)
			}
			text, err := json.Marshal(u.Export())
			if err != nil {
				rt.Fatal(err)
			}
			var saved *LearnedUse
			if err := json.Unmarshal(text, &saved); err != nil {
				rt.Fatal(err)
			}
			if u, err = ImportUses(config, saved); err != nil {
				rt.Fatal(err)
			}
			if again := u.Export(); !reflect.DeepEqual(again, saved) {
				rt.Fatalf("a snapshot of a snapshot is\n%+v\ninstead of\n%+v", again, saved)
			}
		}
	})
}

func TestImportUsesRefuses(t *testing.T) {
	of := func(user string, n int) []Learned {
		return []Learned{{Like: SameUser, User: user, Values: make([]int64, n), At: make([]int64, n)}}
	}
	if _, err := ImportUses(Config{}, &LearnedUse{Compute: of("ann", 2), Memory: of("ann", 2)}); err != nil {
		t.Fatal(err)
	}
	for want, l := range map[string]*LearnedUse{
		"compute: what":     {Compute: of("", 1), Memory: of("ann", 1)},
		"memory: what":      {Compute: of("ann", 1), Memory: of("", 1)},
		"of 1 likenesses":   {Compute: of("ann", 1)},
		"not of the same w": {Compute: of("ann", 1), Memory: of("bob", 1)},
		"in place 0":        {Compute: of("ann", 1), Memory: of("ann", 2)},
		"memory: predictio": {MemoryWide: Wide{{Of: -1}}},
	} {
		if _, err := ImportUses(Config{}, l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
