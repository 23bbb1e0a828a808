package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Of each queue it is known how its jobs waited, and of the smaller ones how those of all of them together did.
func TestWaitsByQueue(t *testing.T) {
	lines := []string{"nodes 1 devices=1"}
	// Queue q1 has one job, q2 two and so on, one job after the other; those of 10 queues are 55, and job n waits n × 10 s.
	n := 0
	for q := range 10 {
		for range q + 1 {
			lines = append(lines, fmt.Sprintf("job j%02d run=10s queue=q%d", n, q+1))
			n++
		}
	}
	r := runJobs(t, few(t, lines...), FirstCome)
	last := 0
	for _, tenant := range r.Plots.Tenants {
		var q int
		if _, err := fmt.Sscanf(tenant.Name, "q%d", &q); err != nil {
			t.Fatal(err)
		}
		before := q * (q - 1) / 2
		if tenant.Jobs != q || len(tenant.Waits) != 101 || tenant.Waits[0] != float64(before)*10 || tenant.Waits[100] != float64(before+q-1)*10 || !slices.IsSorted(tenant.Waits) {
			t.Errorf("%s has %d jobs, which waited %v", tenant.Name, tenant.Jobs, tenant.Waits)
		}
		last += tenant.Jobs
	}
	if o := r.Plots.Others; last != 55 || o == nil || o.Queues != 2 || o.Jobs != 3 || o.Waits[0] != 0 || o.Waits[50] != 10 || o.Waits[100] != 20 {
		t.Errorf("%d jobs in all; the others are %+v", last, o)
	}
	back := stored(t, &File{Trace: "few", Jobs: []*JobResult{r}})
	page := back.html()
	for want, times := range map[string]int{
		"<h2>Waits by queue: fifo/</h2>": 1, "</i>q10 (10 jobs)</span>": 1, "</i>q3 (3 jobs)</span>": 1, "</i>q2 (2 jobs)</span>": 0, "</i>2 others (3 jobs)</span>": 1,
		`stroke="#7f7f7f" stroke-dasharray="6 4"><title>2 others`: 1, "stroke-dasharray": 1, "transparent 6px 9px)": 1,
	} {
		if n := strings.Count(page, want); n != times {
			t.Errorf("the report has %q %d times, want %d", want, n, times)
		}
	}
	// One queue is all jobs: there is nothing to say beside them.
	one := runJobs(t, few(t, "nodes 1", "job a run=1s queue=q", "job b run=1s queue=q"), FirstCome)
	if page := (&File{Trace: "few", Jobs: []*JobResult{one}}).html(); one.Plots.Tenants[0].Waits != nil || one.Plots.Others != nil || strings.Contains(page, "by queue:") {
		t.Errorf("of one queue it is said %+v", one.Plots)
	}
}

// A distribution goes on to the end of the axis once all jobs are in it.
func TestDistributionsEndAtTheAxis(t *testing.T) {
	var most float64
	all := []curve{distribution("a", []float64{0, 1, 2}, &most), distribution("none", nil, &most)}
	values := slices.Clone(all[0].x)
	upTo(60, all)
	if most != 2 || !slices.Equal(all[0].x, append(values, 60)) || !slices.Equal(all[0].y, []float64{0, 1, 2, 2}) || len(all[1].x) != 0 {
		t.Errorf("the largest is %g, the lines are %v", most, all)
	}
}
