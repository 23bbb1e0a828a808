package divide_test

import (
	"cmp"
	"math/big"
	"math/rand"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/divide"
)

func TestDivide(t *testing.T) {
	const all = 1000
	type shares = []divide.Share
	for name, c := range map[string]struct {
		shares shares
		want   []int64
	}{
		"nobody":                       {nil, []int64{}},
		"alone, whole":                 {shares{{Floor: all, Ceiling: all, Demand: all}}, []int64{1000}},
		"alone, up to its ceiling":     {shares{{Floor: 250, Ceiling: 800, Demand: all}}, []int64{800}},
		"alone, up to its demand":      {shares{{Floor: 250, Ceiling: 800, Demand: 100}}, []int64{100}},
		"floors first, rest by weight": {shares{{Floor: 250, Ceiling: all, Demand: all}, {Floor: 500, Ceiling: all, Demand: all}}, []int64{333, 667}},
		"equal weights": {
			shares{{Floor: 250, Ceiling: all, Weight: 1, Demand: all}, {Floor: 500, Ceiling: all, Weight: 1, Demand: all}},
			[]int64{375, 625},
		},
		"an idle floor is lent": {shares{{Floor: 700, Ceiling: 700}, {Floor: 300, Ceiling: all, Demand: all}}, []int64{0, 1000}},
		"a ceiling leaves the rest to others": {
			shares{{Floor: 100, Ceiling: 200, Weight: 9, Demand: all}, {Floor: 100, Ceiling: all, Weight: 1, Demand: all}},
			[]int64{200, 800},
		},
		"a borrower gets what is over": {
			shares{{Floor: 600, Ceiling: 600, Demand: all}, {Ceiling: all, Demand: all}}, []int64{600, 400},
		},
		"a borrower beside the greedy weighs 1": {
			shares{{Floor: 499, Ceiling: all, Demand: all}, {Ceiling: all, Demand: all}}, []int64{999, 1},
		},
		"a ceiling under the floor holds":    {shares{{Floor: 500, Ceiling: 300, Demand: all}}, []int64{300}},
		"nothing wanted":                     {shares{{Floor: 500, Ceiling: all}, {Floor: 500, Ceiling: all, Demand: -5}}, []int64{0, 0}},
		"floors over the capacity, in parts": {shares{{Floor: 900, Ceiling: all, Demand: all}, {Floor: 600, Ceiling: all, Demand: all}}, []int64{600, 400}},
		"ceilings bind one after the other": {
			shares{{Ceiling: 100, Weight: 3, Demand: all}, {Ceiling: 400, Weight: 2, Demand: all}, {Ceiling: all, Weight: 1, Demand: all}},
			[]int64{100, 400, 500},
		},
	} {
		if got := divide.Divide(all, c.shares); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	if got := divide.Divide(-1, shares{{Ceiling: 1, Demand: 1}}); got[0] != 0 {
		t.Errorf("less than nothing was divided into %v", got)
	}
}

// Ten days in microseconds among a thousand shares: nothing overflows, everything adds up.
func TestLargeAmounts(t *testing.T) {
	const capacity = 1_000_000_000_000_000
	var shares []divide.Share
	for i := range int64(1000) {
		shares = append(shares, divide.Share{Floor: capacity / 2000, Ceiling: capacity, Weight: capacity - i, Demand: capacity})
	}
	sum := int64(0)
	for _, got := range divide.Divide(capacity, shares) {
		if got < capacity/1001 || got > capacity/999 {
			t.Fatalf("one of a thousand equals got %d of %d", got, capacity)
		}
		sum += got
	}
	if sum != capacity {
		t.Fatalf("%d was handed out of %d", sum, int64(capacity))
	}
}

// oracle is the rule as it is told: units of floor one by one, then units of the rest one by one.
func oracle(capacity int64, shares []divide.Share) []int64 {
	weights, first, most := make([]int64, len(shares)), make([]int64, len(shares)), make([]int64, len(shares))
	floors := make([]int64, len(shares))
	for i, s := range shares {
		weights[i], floors[i] = s.Weight, max(s.Floor, 1)
		if s.Weight <= 0 {
			weights[i] = max(s.Floor, 1)
		}
		most[i] = max(0, min(s.Demand, s.Ceiling))
		first[i] = max(0, min(most[i], s.Floor))
	}
	rank := func(a, b int) int {
		return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(shares[b].Floor, shares[a].Floor),
			cmp.Compare(shares[b].Ceiling, shares[a].Ceiling), cmp.Compare(shares[b].Demand, shares[a].Demand), cmp.Compare(a, b))
	}
	hand := func(to, limit, weight []int64) {
		for ; capacity > 0; capacity-- {
			next := -1
			for i := range shares {
				if to[i] >= limit[i] {
					continue
				}
				if next < 0 {
					next = i
					continue
				}
				mine, best := big.NewRat(to[i]+1, weight[i]), big.NewRat(to[next]+1, weight[next])
				if order := mine.Cmp(best); order < 0 || order == 0 && rank(i, next) < 0 {
					next = i
				}
			}
			if next < 0 {
				return
			}
			to[next]++
		}
	}
	of, over, rest := make([]int64, len(shares)), make([]int64, len(shares)), make([]int64, len(shares))
	hand(of, first, floors)
	for i := range shares {
		rest[i] = most[i] - first[i]
	}
	hand(over, rest, weights)
	for i := range shares {
		of[i] += over[i]
	}
	return of
}

func anyShare(t *rapid.T, most int64) divide.Share {
	figure := func(name string, least int64) int64 { return rapid.Int64Range(least, most).Draw(t, name) }
	return divide.Share{Floor: figure("floor", 0), Ceiling: figure("ceiling", 0), Weight: figure("weight", 0), Demand: figure("demand", 0)}
}

func anyShares(t *rapid.T, most int64) []divide.Share {
	shares := make([]divide.Share, rapid.IntRange(0, 8).Draw(t, "shares"))
	for i := range shares {
		shares[i] = anyShare(t, most)
		if i > 0 && rapid.IntRange(0, 3).Draw(t, "twin") == 0 {
			shares[i] = shares[i-1]
		}
	}
	return shares
}

func TestAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int64{3, 10, 60}).Draw(t, "most")
		shares := anyShares(t, most)
		capacity := rapid.Int64Range(0, 3*most).Draw(t, "capacity")
		if got, want := divide.Divide(capacity, shares), oracle(capacity, shares); !slices.Equal(got, want) {
			t.Fatalf("%d among %+v: got %v, the oracle says %v", capacity, shares, got, want)
		}
	})
}

// promised draws shares as the engine grants them: floors fit, ceilings are not under floors.
func promised(t *rapid.T, capacity int64) []divide.Share {
	shares := anyShares(t, capacity)
	left := capacity
	for i := range shares {
		shares[i].Floor = min(shares[i].Floor, left)
		shares[i].Ceiling = max(shares[i].Ceiling, shares[i].Floor)
		left -= shares[i].Floor
	}
	return shares
}

func anyCapacity(t *rapid.T) int64 {
	most := rapid.SampledFrom([]int64{10, 1000, 10_000_000, 1e15}).Draw(t, "scale")
	return rapid.Int64Range(1, most).Draw(t, "capacity")
}

func TestPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := anyCapacity(t)
		shares := promised(t, capacity)
		got := divide.Divide(capacity, shares)
		sum, wanted := int64(0), int64(0)
		for i, s := range shares {
			if got[i] < min(s.Demand, s.Floor) {
				t.Fatalf("%+v is under its floor with %d", s, got[i])
			}
			if got[i] > min(s.Demand, s.Ceiling) {
				t.Fatalf("%+v is over its ceiling or demand with %d", s, got[i])
			}
			sum += got[i]
			wanted += min(s.Demand, s.Ceiling)
		}
		if sum != min(capacity, wanted) {
			t.Fatalf("%d handed out of %d, %d wanted: %+v", sum, capacity, wanted, shares)
		}
	})
}

// Who could take more got no less for its weight than anyone else, to one unit.
func TestFairness(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := anyCapacity(t)
		shares := promised(t, capacity)
		got := divide.Divide(capacity, shares)
		over := func(i int) int64 { return got[i] - max(0, min(shares[i].Demand, shares[i].Floor)) }
		for i, hungry := range shares {
			if got[i] >= min(hungry.Demand, hungry.Ceiling) {
				continue
			}
			for j, other := range shares {
				mine := big.NewRat(over(i)+1, cmp.Or(hungry.Weight, max(hungry.Floor, 1)))
				theirs := big.NewRat(over(j), cmp.Or(other.Weight, max(other.Floor, 1)))
				if theirs.Cmp(mine) > 0 {
					t.Fatalf("%+v got %d over its floor beside %+v, which got %d", other, over(j), hungry, over(i))
				}
			}
		}
	})
}

func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := anyCapacity(t)
		shares := anyShares(t, capacity)
		type pair struct {
			divide.Share
			got int64
		}
		outcome := func(shares []divide.Share) []pair {
			var all []pair
			for i, got := range divide.Divide(capacity, shares) {
				one := shares[i]
				one.Weight = cmp.Or(one.Weight, max(one.Floor, 1)) // what none stands for: shares that are the same but for that can trade places
				all = append(all, pair{one, got})
			}
			slices.SortFunc(all, func(a, b pair) int {
				return cmp.Or(cmp.Compare(a.Floor, b.Floor), cmp.Compare(a.Ceiling, b.Ceiling), cmp.Compare(a.Weight, b.Weight),
					cmp.Compare(a.Demand, b.Demand), cmp.Compare(a.got, b.got))
			})
			return all
		}
		shuffled := slices.Clone(shares)
		random := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if a, b := outcome(shares), outcome(shuffled); !slices.Equal(a, b) {
			t.Fatalf("%+v\n%+v", a, b)
		}
	})
}

func TestMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := anyCapacity(t)
		shares := promised(t, capacity)
		before := divide.Divide(capacity, shares)

		for i, got := range divide.Divide(capacity+rapid.Int64Range(1, capacity).Draw(t, "more"), shares) {
			if got < before[i] {
				t.Fatalf("%+v got %d, and less, %d, of a larger device", shares[i], before[i], got)
			}
		}
		if len(shares) == 0 {
			return
		}
		who := rapid.IntRange(0, len(shares)-1).Draw(t, "who")
		shares[who].Demand += rapid.Int64Range(1, capacity).Draw(t, "wanting")
		for i, got := range divide.Divide(capacity, shares) {
			if i == who && got < before[i] {
				t.Fatalf("%+v got %d, and less, %d, for wanting more", shares[i], before[i], got)
			}
		}
	})
}

func BenchmarkDivide(b *testing.B) {
	var shares []divide.Share
	for i := range int64(8) {
		shares = append(shares, divide.Share{Floor: 100 * i / 4, Ceiling: 400 + 60*i, Demand: 900 - 50*i})
	}
	for b.Loop() {
		divide.Divide(1000, shares)
	}
}
