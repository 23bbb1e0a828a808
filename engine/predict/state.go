package predict

import (
	"fmt"
	"slices"
)

// Learned is what is kept of one likeness, for a snapshot.
type Learned struct {
	Like   Likeness `json:"like"`
	User   string   `json:"user,omitempty"`
	Name   string   `json:"name,omitempty"`
	Shape  string   `json:"shape,omitempty"`
	Queue  string   `json:"queue,omitempty"`
	Values []int64  `json:"values"` // the oldest first
	At     []int64  `json:"at"`     // when each was learned
}

// Export is all that was learned of durations; Import makes a predictor of it, and of Wide, that answers as this one does. The one learned of last comes last.
func (p *Predictor) Export() []Learned {
	all := make([]Learned, 0, len(p.known))
	for e := p.recent.Back(); e != nil; e = e.Prev() {
		r := e.Value.(*ring)
		l := Learned{Like: r.key.like, User: r.key.user, Name: r.key.name, Shape: r.key.shape, Queue: r.key.queue}
		for s := range r.each {
			l.Values, l.At = append(l.Values, s.value), append(l.At, s.at)
		}
		all = append(all, l)
	}
	return all
}

// Import makes a predictor of what another exported, and of how wide its intervals are, or says what is wrong with it.
func Import(config Config, all []Learned, wide Wide) (*Predictor, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := wide.Validate(); err != nil {
		return nil, err
	}
	p := New(config)
	p.wide = wide
	for i := range all {
		l := &all[i]
		k := key{l.Like, l.User, l.Name, l.Shape, l.Queue}
		if l.Like >= likenesses {
			return nil, fmt.Errorf("what was learned as %+v is of no likeness that there is", k)
		}
		if want, ok := keyOf(&Work{l.User, l.Name, l.Shape, l.Queue}, l.Like); !ok || want != k || p.known[k] != nil {
			return nil, fmt.Errorf("what was learned as %+v comes twice or is not of its likeness", k)
		}
		if n := len(l.Values); n == 0 || n > p.config.Samples || n != len(l.At) || !slices.IsSorted(l.At) || slices.Min(l.Values) < 0 {
			return nil, fmt.Errorf("what was learned as %+v has %d figures, none of them less than 0, and %d times in order, of at most %d", k, n, len(l.At), p.config.Samples)
		}
		r := &ring{key: k}
		for i, value := range l.Values {
			r.add(value, l.At[i], p.config.Samples)
		}
		p.known[k] = p.recent.PushFront(r)
	}
	if len(p.known) > p.config.Keys {
		return nil, fmt.Errorf("%d likenesses were learned of, and at most %d are kept", len(p.known), p.config.Keys)
	}
	return p, nil
}
