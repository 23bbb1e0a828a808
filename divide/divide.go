// Package divide is the rule that divides one device among shares: every share first gets what it wants of its floor; the rest
// is water-filled by weight, up to what each wants and may have. Whoever promises a share, delivers it, forecasts it or judges
// it afterwards uses this one rule.
//
// What comes in are integers of any one unit (thousandths of a device, microseconds of device time); what goes out are
// integers of that unit which add up exactly. It knows no device, no time and no history.
package divide

import (
	"cmp"
	"math/bits"
	"slices"
)

// Share is one claim on a device. All amounts are in the unit of the capacity that is divided; a negative amount counts as
// none. Amounts, weights and their sums over all shares must stay below 2^62.
type Share struct {
	Floor   int64 // guaranteed
	Ceiling int64 // never passed; where it is under the floor, it holds
	Weight  int64 // what is over the floors goes by it; 0 or less: the floor, at least 1
	Demand  int64 // wanted now
}

// Divide divides capacity and returns what each share gets, in the order of shares.
//
// Each gets min(Demand, Floor) and then its part of the rest by weight, up to min(Demand, Ceiling). It is work conserving: the
// results add up to the capacity, or to all that may be wanted if that is less. Where integers do not divide evenly, units go
// one by one to the share whose next unit is the cheapest for its weight, (received + 1) / weight (the method of Jefferson and
// D'Hondt); equals are told apart by their own figures, larger first, and never by their order, so that only shares that are
// identical can trade places. More capacity never gives anyone less.
//
// Floors that together are over the capacity break the promise before Divide is asked; then what each wants of its floor is
// filled in proportion to the floors.
func Divide(capacity int64, shares []Share) []int64 {
	claims := make([]claim, len(shares))
	for i, s := range shares {
		claims[i] = newClaim(i, s)
	}
	byRank(claims)

	left := max(capacity, 0)
	for i := range claims {
		claims[i].limit, claims[i].weight = claims[i].first, max(claims[i].Floor, 1)
	}
	left -= fill(left, claims)
	result := make([]int64, len(shares))
	for i := range claims {
		c := &claims[i]
		result[c.index] = c.got
		c.limit, c.weight, c.got = c.most-c.first, c.Weight, 0
	}
	fill(left, claims)
	for i := range claims {
		result[claims[i].index] += claims[i].got
	}
	return result
}

// claim is a share with what the rule makes of it.
type claim struct {
	Share
	index       int   // in the caller's order
	first, most int64 // wanted of the floor; wanted in all, 0 ≤ first ≤ most

	// One round of filling.
	limit, weight, got int64
}

func newClaim(index int, s Share) claim {
	if s.Weight <= 0 {
		s.Weight = max(s.Floor, 1)
	}
	most := max(min(s.Demand, s.Ceiling), 0)
	return claim{Share: s, index: index, most: most, first: max(min(most, s.Floor), 0)}
}

// byRank sorts claims by the rank that decides between equals.
func byRank(claims []claim) {
	slices.SortStableFunc(claims, func(a, b claim) int {
		return cmp.Or(
			cmp.Compare(b.Weight, a.Weight),
			cmp.Compare(b.Floor, a.Floor),
			cmp.Compare(b.Ceiling, a.Ceiling),
			cmp.Compare(b.Demand, a.Demand),
		)
	})
}

// fill hands amount out to claims by weight, none over its limit, and returns how much it handed out. The claims are in rank
// order and stay so.
func fill(amount int64, claims []claim) int64 {
	handed := int64(0)
	rest, open := level(amount, claims)
	for i := range claims {
		c := &claims[i]
		if c.got < c.limit && open > 0 {
			c.got = mulDiv(c.weight, rest, open) // at the exact level, rounded down: what rounding keeps back is less than one each
		}
		handed += c.got
	}
	for handed < amount {
		next := -1
		for i := range claims {
			if claims[i].got < claims[i].limit && (next < 0 || cheaper(&claims[i], &claims[next])) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		claims[next].got++
		handed++
	}
	return handed
}

// level gives every claim that water reaches the brim of its limit, and returns what is left for the others and the sum of
// their weights.
func level(amount int64, claims []claim) (rest, open int64) {
	order := make([]*claim, 0, len(claims))
	for i := range claims {
		if claims[i].limit > 0 {
			order = append(order, &claims[i])
			open += claims[i].weight
		}
	}
	// Limits are reached in the order of limit / weight.
	slices.SortStableFunc(order, func(a, b *claim) int { return compareProducts(a.limit, b.weight, b.limit, a.weight) })
	rest = amount
	for _, c := range order {
		if compareProducts(c.limit, open, rest, c.weight) > 0 {
			break
		}
		c.got = c.limit
		rest -= c.limit
		open -= c.weight
	}
	return rest, open
}

// cheaper says that a's next unit is cheaper for its weight than b's: (a.got + 1) / a.weight < (b.got + 1) / b.weight.
func cheaper(a, b *claim) bool {
	return compareProducts(a.got+1, b.weight, b.got+1, a.weight) < 0
}

// compareProducts compares a × b with c × d, none of them negative, without overflow.
func compareProducts(a, b, c, d int64) int {
	high1, low1 := bits.Mul64(uint64(a), uint64(b))
	high2, low2 := bits.Mul64(uint64(c), uint64(d))
	return cmp.Or(cmp.Compare(high1, high2), cmp.Compare(low1, low2))
}

// mulDiv is a × b / c rounded down, without overflow on the way; a ≤ c.
func mulDiv(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(quotient)
}
