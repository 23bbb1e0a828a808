package predict

import "fmt"

// wholeDevice is the most compute that anything uses of a device, in thousandths.
const wholeDevice = 1000

// Use is what work used of each of its devices.
type Use struct {
	Compute int64 // thousandths of a device, the mean over all the time that it ran; 0 to 1,000
	Memory  int64 // bytes, the most that it held at once of one device; ≥ 0
}

// Expected is a prediction of use. Both parts are of the same work.
type Expected struct {
	Compute, Memory Quantiles
}

// Uses holds what was learned of use: as a Predictor of durations does, by the same likenesses. Its intervals are judged by what would have been said of
// work just before it was learned of. It is not for several goroutines at once.
type Uses struct {
	compute, memory *Predictor
}

// NewUses makes one that knows nothing. The configuration must be valid.
func NewUses(config Config) *Uses { return &Uses{New(config), New(config)} }

// Learn takes in what a workload used that ended at a time; see Predictor.Learn.
func (u *Uses) Learn(w Work, used Use, at int64) {
	if said, ok := u.Predict(w, at); ok {
		u.compute.Fared(said.Compute, used.Compute)
		u.memory.Fared(said.Memory, used.Memory)
	}
	u.compute.Learn(w, used.Compute, at)
	u.memory.Learn(w, used.Memory, at)
}

// Predict tells what a workload uses at a time, not before that of the last Learn. False: not enough is known by any likeness.
func (u *Uses) Predict(w Work, at int64) (said Expected, ok bool) {
	if said.Compute, ok = u.compute.Predict(w, -1, at); !ok {
		return Expected{}, false
	}
	said.Compute.High = min(said.Compute.High, wholeDevice)
	said.Memory, ok = u.memory.Predict(w, -1, at)
	return said, ok
}

// LearnedUse is what is kept of use, for a snapshot.
type LearnedUse struct {
	Compute     []Learned `json:"compute"`
	ComputeWide Wide      `json:"computeWide,omitzero"`
	Memory      []Learned `json:"memory"`
	MemoryWide  Wide      `json:"memoryWide,omitzero"`
}

// Export is all that was learned of use; ImportUses makes one of it that answers as this one does. Nil: nothing was.
func (u *Uses) Export() *LearnedUse {
	if len(u.compute.known) == 0 {
		return nil
	}
	return &LearnedUse{u.compute.Export(), u.compute.Wide(), u.memory.Export(), u.memory.Wide()}
}

// ImportUses makes one of what another exported, or says what is wrong with it.
func ImportUses(config Config, l *LearnedUse) (*Uses, error) {
	if l == nil {
		l = &LearnedUse{}
	}
	u := &Uses{}
	var err error
	if u.compute, err = Import(config, l.Compute, l.ComputeWide); err != nil {
		return nil, fmt.Errorf("use of compute: %w", err)
	}
	if u.memory, err = Import(config, l.Memory, l.MemoryWide); err != nil {
		return nil, fmt.Errorf("use of memory: %w", err)
	}
	if len(l.Compute) != len(l.Memory) {
		return nil, fmt.Errorf("use of compute was learned of %d likenesses and of memory of %d: both are learned of together", len(l.Compute), len(l.Memory))
	}
	for i := range l.Compute {
		c, m := &l.Compute[i], &l.Memory[i]
		if c.Like != m.Like || c.User != m.User || c.Name != m.Name || c.Shape != m.Shape || c.Queue != m.Queue || len(c.Values) != len(m.Values) {
			return nil, fmt.Errorf("use of compute and of memory are not of the same work in place %d", i)
		}
	}
	return u, nil
}
