package cli

import (
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// A run of several processes goes on until the last has ended, passes signals on until then, and ends as the first did that did not end well; what is above
// the least may be evicted.
func TestRunOfSeveral(t *testing.T) {
	code := func(n int) *int { return &n }
	well := api.WorkloadStatus{Outcome: api.Succeeded, ExitCode: code(0)}
	failed := func(n int) api.WorkloadStatus { return api.WorkloadStatus{Outcome: api.Failed, ExitCode: code(n)} }
	for name, test := range map[string]struct {
		ends [4]api.WorkloadStatus
		exit Exit
		says string
	}{
		"well":     {[4]api.WorkloadStatus{well, well, well, {Outcome: api.Evicted, Reason: "another waits"}}, Exit{}, ""},
		"first":    {[4]api.WorkloadStatus{failed(3), failed(4), well, well}, Exit{Status: 3}, ""},
		"another":  {[4]api.WorkloadStatus{well, well, failed(4), failed(5)}, Exit{Status: 4}, ""},
		"evicted":  {[4]api.WorkloadStatus{well, {Outcome: api.Evicted, Reason: "device 0 is down"}, well, well}, Exit{Status: ExitFailed}, "aliquot: job-1-1: evicted: device 0 is down\n"},
		"the last": {[4]api.WorkloadStatus{well, well, well, failed(6)}, Exit{Status: 6}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t)
			r := f.start(nil, "--replicas", "3..4", "--", "./job")
			<-f.attached
			first := f.works[0]
			f.change(func() {
				first.Status.Phase = api.Running
				for i := range 3 {
					other := *first
					other.UID += string(rune('a' + i))
					other.Spec.Name += "-" + string(rune('1'+i))
					other.Status.Replica = &api.Replica{Of: first.UID, Number: i + 1}
					f.works = append(f.works, &other)
				}
			})
			end := func(number int) {
				f.change(func() {
					status := test.ends[number]
					status.Phase, status.Replica = api.Ended, f.works[number].Status.Replica
					f.works[number].Status = status
				})
			}
			for _, number := range []int{0, 3, 1} {
				end(number)
			}
			r.signals <- syscall.SIGUSR1
			f.eventually("SIGUSR1", func() bool { return f.called(`POST /v1/workloads/u1/signal {"signal":"SIGUSR1"}`) })
			select {
			case got := <-r.done:
				t.Fatalf("it ended before the last: %+v", got)
			default:
			}
			end(2)
			if got := r.wait(); got.exit != test.exit || got.err != test.says {
				t.Errorf("%v, error %q", got.exit, got.err)
			}
		})
	}
}
