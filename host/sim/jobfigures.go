package sim

import (
	"cmp"
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
)

// JobResult is what a run of jobs came to. Times are in seconds.
type JobResult struct {
	Order    Order  `json:"order"`
	Policy   string `json:"policy"` // of placement
	Jobs     int    `json:"jobs"`
	Capacity int64  `json:"capacity"` // thousandths of a device

	MeanJCT   float64 `json:"meanJCT"` // job completion time: from a job's coming to its end
	MedianJCT float64 `json:"medianJCT"`
	P99JCT    float64 `json:"p99JCT"`
	MeanWait  float64 `json:"meanWait"` // until the first start
	P99Wait   float64 `json:"p99Wait"`
	// Fairness is the 99th percentile of the finish-time fairness: a job's completion time over what it would have taken with its part
	// of the devices, which is what it takes alone times what all wanted while it was there over what there is (at least 1, mean over its
	// time). 1 and less is fair. (Mahajan et al., NSDI'20; with the contention in devices, as Zheng et al., NSDI'23.)
	Fairness      float64 `json:"fairnessP99"`
	FairnessWorst float64 `json:"fairnessWorst"`
	Unfair        float64 `json:"unfairPercent"` // of jobs whose finish-time fairness is above 1

	Preemptions int     `json:"preemptions"`        // how often a job was stopped to go on later
	Grown       int     `json:"grown,omitempty"`    // replicas that elastic jobs got above those that they are sure of
	Shrunk      int     `json:"shrunk,omitempty"`   // and gave back before they ended
	TimedOut    int     `json:"timedOut,omitempty"` // how many their time limit, or the longest run of their queue by a policy file, ended before they were through
	Moves       int     `json:"moves"`              // how often one was placed elsewhere and went on at once
	Makespan    float64 `json:"makespan"`           // from the first coming to the last end
	Utilisation float64 `json:"utilisation"`        // percent of all devices over the makespan
	Fragmented  float64 `json:"fragmented"`         // percent of all devices, the mean over the makespan: free, and of no use to work like that of the trace; of a recorded run it is not known

	// NeverRun are the jobs that never ran, in the order in which they came. They are not among the jobs of any other figure.
	NeverRun []NeverRun `json:"neverRun,omitempty"`

	// Lost is what evictions cost; nil: no job of the trace says that they cost it something.
	Lost *LostResult `json:"lost,omitempty"`
	// Energy is what the devices drew; nil: of none it is known what it draws.
	Energy *EnergyResult `json:"energy,omitempty"`
	// Sharing is of a run whose jobs share devices; nil: every job ran as if it were alone.
	Sharing *SharingResult `json:"sharing,omitempty"`

	Plots JobPlots `json:"plots"`
}

// JobPlots are what a run is drawn from.
type JobPlots struct {
	Step      float64   `json:"stepSeconds"` // of Allocated and Tenants
	Allocated []float64 `json:"allocated"`   // percent of capacity, the mean of each step
	// Fragmented is what was free of devices and of no use to work like that of the trace, in percent of capacity, the mean of each step; nil: not known.
	Fragmented []float64 `json:"fragmented,omitempty"`
	Waits      []float64 `json:"waits"`    // seconds: entry i is the i-th of 100 equal parts of the jobs by their waits; 0 is the shortest
	Fairness   []float64 `json:"fairness"` // the same of their finish-time fairness
	Tenants    []Tenant  `json:"tenants"`  // by name
	// Others are the jobs of all queues but the largest; nil: there are no more queues than those.
	Others *OtherTenants `json:"others,omitempty"`
	// Watts is what all devices drew, the mean of each step; nil: not known.
	Watts []float64 `json:"watts,omitempty"`
}

// Tenant is what a queue of the trace used.
type Tenant struct {
	Name      string    `json:"name"`
	Jobs      int       `json:"jobs"`
	MeanJCT   float64   `json:"meanJCT"`
	Allocated []float64 `json:"allocated"` // percent of capacity, the mean of each step
	// Waits are as those of JobPlots, of its jobs alone; nil: all jobs are of one queue, or none of its ended.
	Waits []float64 `json:"waits,omitempty"`
}

// OtherTenants are queues that are not among the largest, taken together.
type OtherTenants struct {
	Queues int       `json:"queues"`
	Jobs   int       `json:"jobs"`
	Waits  []float64 `json:"waits"`
}

// plotSteps is into how many steps a run is cut for its plots.
const plotSteps = 200

func seconds(t engine.Time) float64 { return float64(t) / 1e6 }

// quantile is the smallest value that at least the part q of the sorted values do not pass.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(q*float64(len(sorted))))-1))]
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}

// figures makes the result of what was seen, first being when the first job came.
func (r *jobRun) figures(first engine.Time) {
	o := &r.out
	o.Order, o.Jobs, o.Capacity = r.order, len(r.ended), r.capacity
	slices.SortStableFunc(o.NeverRun, func(a, b NeverRun) int { return cmp.Compare(a.index, b.index) })
	var completions, waits, fairness []float64
	unfair := 0
	for _, f := range r.ended {
		completions = append(completions, seconds(f.completion))
		waits = append(waits, seconds(f.wait))
		rho := float64(f.completion) / (float64(f.job.Takes()) * f.contention)
		fairness = append(fairness, rho)
		if rho > 1+1e-9 {
			unfair++
		}
	}
	slices.Sort(completions)
	slices.Sort(waits)
	slices.Sort(fairness)
	o.MeanJCT, o.MedianJCT, o.P99JCT = mean(completions), quantile(completions, 0.5), quantile(completions, 0.99)
	o.MeanWait, o.P99Wait = mean(waits), quantile(waits, 0.99)
	o.Fairness, o.FairnessWorst = quantile(fairness, 0.99), quantile(fairness, 1)
	o.Unfair = float64(unfair) * 100 / float64(max(1, len(fairness)))
	o.Plots.Waits, o.Plots.Fairness = hundredths(waits), hundredths(fairness)
	r.plot(first)
	o.Lost = r.costs()
	if r.beside != nil {
		o.Sharing = r.sharing(first)
	}
}

// plot sums up what tenants used in each step from the first coming to the end.
func (r *jobRun) plot(first engine.Time) {
	span := max(1, r.now-first)
	step := (span + plotSteps - 1) / plotSteps
	steps := int((span + step - 1) / step)
	used := inSteps(r.usage, first, step, steps) // µs × thousandths of a device
	all := make([]float64, steps)
	for _, c := range r.usage {
		addFrom(all, c.at-first, step, float64(c.amount))
	}
	plots := &r.out.Plots
	plots.Step = seconds(step)
	plots.Allocated = accumulate(all, step, span, r.capacity)
	if r.out.Energy = r.energy.result(first, first+span); r.out.Energy != nil {
		plots.Watts = r.energy.watts(first, step, span, steps)
	}
	length := float64(span) / float64(step) // the last step may be shorter
	r.out.Utilisation = meanOfSteps(plots.Allocated, length)
	if r.pieces != nil {
		free := make([]float64, steps)
		for _, c := range r.pieces.changes {
			addFrom(free, max(0, c.at-first), step, float64(c.amount))
		}
		plots.Fragmented = accumulate(free, step, span, r.capacity*1000)
		r.out.Fragmented = meanOfSteps(plots.Fragmented, length)
	}
	r.out.Makespan = seconds(span)
	for _, name := range tenantNames(used) {
		plots.Tenants = append(plots.Tenants, Tenant{Name: name, Allocated: accumulate(used[name], step, span, r.capacity)})
	}
	r.byTenant(plots)
}

// hundredths are the values that 0 to 100 of 100 equal parts of the sorted ones do not pass.
func hundredths(sorted []float64) []float64 {
	out := make([]float64, 101)
	for i := range out {
		out[i] = quantile(sorted, float64(i)/100)
	}
	return out
}

// maxWaitQueues is of how many queues waits are drawn by themselves.
const maxWaitQueues = 8

// byTenant counts the jobs of each tenant that ended, with how long they took and waited.
func (r *jobRun) byTenant(plots *JobPlots) {
	at := map[string]int{}
	for i := range plots.Tenants {
		at[plots.Tenants[i].Name] = i
	}
	waits := make([][]float64, len(plots.Tenants))
	for _, f := range r.ended {
		i := at[f.job.Queue]
		plots.Tenants[i].Jobs++
		plots.Tenants[i].MeanJCT += seconds(f.completion)
		waits[i] = append(waits[i], seconds(f.wait))
	}
	for i := range plots.Tenants {
		t := &plots.Tenants[i]
		t.MeanJCT /= float64(max(1, t.Jobs))
		if t.Jobs > 0 && t.Jobs < len(r.ended) {
			slices.Sort(waits[i])
			t.Waits = hundredths(waits[i])
		}
	}
	own := map[string]bool{}
	for _, t := range largest(plots.Tenants) {
		own[t.Name] = true
	}
	var others OtherTenants
	var waited []float64
	for i, t := range plots.Tenants {
		if t.Waits != nil && !own[t.Name] {
			others.Queues++
			others.Jobs += t.Jobs
			waited = append(waited, waits[i]...)
		}
	}
	if others.Queues > 0 {
		slices.Sort(waited)
		others.Waits = hundredths(waited)
		plots.Others = &others
	}
}

// largest are the tenants with the most jobs of which waits are known, those first.
func largest(all []Tenant) []Tenant {
	known := slices.DeleteFunc(slices.Clone(all), func(t Tenant) bool { return t.Waits == nil })
	slices.SortStableFunc(known, func(a, b Tenant) int { return cmp.Compare(b.Jobs, a.Jobs) })
	return known[:min(len(known), maxWaitQueues)]
}

// meanOfSteps is the mean of a series over so many steps, of which the last may be a part.
func meanOfSteps(series []float64, length float64) float64 {
	var sum float64
	for _, v := range series {
		sum += v
	}
	return (sum - series[len(series)-1]*(float64(len(series))-length)) / length
}

// inSteps notes changes in a series of steps for each tenant: what a change adds, it adds to all that follows.
func inSteps(changes []change, first, step engine.Time, steps int) map[string][]float64 {
	used := map[string][]float64{}
	for _, c := range changes {
		if used[c.tenant] == nil {
			used[c.tenant] = make([]float64, steps)
		}
		addFrom(used[c.tenant], c.at-first, step, float64(c.amount))
	}
	return used
}

func tenantNames(used map[string][]float64) []string {
	var names []string
	for name := range used {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// addFrom notes a change at a time: in its step it counts for the rest of it, and in the next one for what was missing of that.
// What accumulate adds up is then what was used in each step.
func addFrom(series []float64, at, step engine.Time, amount float64) {
	i := int(at / step)
	if i >= len(series) {
		return
	}
	rest := float64(engine.Time(i+1)*step - at)
	series[i] += amount * rest
	if i+1 < len(series) {
		series[i+1] += amount * (float64(step) - rest)
	}
}

// accumulate makes percent of capacity in each step of what addFrom noted.
func accumulate(series []float64, step, span engine.Time, capacity int64) []float64 {
	out := make([]float64, len(series))
	var sum float64
	for i, v := range series {
		sum += v
		length := float64(min(step, span-engine.Time(i)*step))
		out[i] = max(0, math.Round(sum/length/float64(capacity)*1e5)/1e3)
	}
	return out
}
