package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// TestModels: the words of a file for a model are about the devices there are, whatever part of the name they write.
func TestModels(t *testing.T) {
	p := parsed(t, FormatLine+`
# It's "fine in a comment
queue a limit@h200=2 quota@"NVIDIA A10"=1
queue b limit@A100=1
pool p models="NVIDIA A10",h200 classes=training
window w days=sat
queue a limit@"nvidia h200"=3
`)
	of, wrong, err := p.For([]string{"NVIDIA H200", "NVIDIA A10", "NVIDIA A100 80GB", "NVIDIA H200", "NVIDIA A100 40GB"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "[a.policy:4: model A100 is a part of several names: write one of them, NVIDIA A100 40GB or NVIDIA A100 80GB]"; fmt.Sprint(wrong) != want {
		t.Errorf("%v, want %s", wrong, want)
	}
	for i, want := range []string{"2", "3"} {
		e := of.During(append([]*Window{nil}, of.Windows...)[i], nil)
		at := slices.IndexFunc(e.Queues[0].Models, func(m api.QueueModel) bool { return m.Model == "NVIDIA H200" })
		if len(e.Queues[0].Models) != 2 || at < 0 || e.Queues[0].Models[at].Limit.Compute.String() != want || e.Queues[1].Models[0].Model != "A100" {
			t.Errorf("in window %d: %+v", i, e.Queues)
		}
		if got := fmt.Sprintf("%q", e.Pools[0].Models); got != `["NVIDIA A10" "NVIDIA H200"]` {
			t.Errorf("the pool has %s", got)
		}
	}
	// What it says is as one would write it.
	got := strings.Join(of.Always(monday), "\n")
	for _, want := range []string{`queue a, limit@"NVIDIA H200"=2: `, `queue a, quota@"NVIDIA A10"=1: `, `pool p, models="NVIDIA A10","NVIDIA H200": `} {
		if !strings.Contains(got, want) {
			t.Errorf("it says\n%s\nwithout %s", got, want)
		}
	}
	if _, wrong, _ := p.For(nil); len(wrong) != 6 || wrong[0].Error() != "a.policy:3: no device is of model h200, there are none: leave the word out until there are" {
		t.Errorf("without devices %v", wrong)
	}
	if _, wrong, _ := p.For([]string{"NVIDIA A10"}); len(wrong) != 4 || wrong[1].Error() != "a.policy:4: no device is of model A100: name one of those there are (NVIDIA A10), or leave the word out" {
		t.Errorf("with other devices %v", wrong)
	}
	twice := parsed(t, FormatLine+"\nqueue a limit@H200=2 limit@h200=1\n")
	if _, _, err := twice.For([]string{"NVIDIA H200"}); err == nil || err.Error() != "a.policy:2: limit@NVIDIA H200 of queue a is said twice, by two names of one model: say it once" {
		t.Errorf("two names of one model: %v", err)
	}
}

// A weight on a model that the policy says stays the policy's, and what a queue has there by itself stays its own.
func TestOwnWeightOnModel(t *testing.T) {
	p := parsed(t, FormatLine+"\nqueue a weight@H200=3\n")
	if _, err := p.Own(nil, api.QueueSpec{Name: "a"}, api.QueueSpec{Name: "a", Quota: api.Unlimited}, monday); err == nil || !strings.HasPrefix(err.Error(), "weight@H200 of queue a is what the policy says, 3 (a.policy:2)") {
		t.Errorf("another weight: %v", err)
	}
	asked := api.QueueSpec{Name: "a", Quota: api.Unlimited, Models: []api.QueueModel{{Model: "H200", Weight: api.QueueWeight{All: 3, Memory: 2}}}}
	own, err := p.Own(nil, api.QueueSpec{Name: "a", Models: []api.QueueModel{{Model: "H200", Weight: api.QueueWeight{All: 7}}}}, asked, monday)
	if err != nil || len(own.Models) != 1 || own.Models[0].Weight != (api.QueueWeight{All: 7, Memory: 2}) {
		t.Errorf("%+v, %v", own, err)
	}
	if asked.Models[0].Weight.All != 3 {
		t.Errorf("what was asked is changed: %+v", asked)
	}
	for _, text := range []string{"weight@H200=0", "weight@=3", "weight=none", "weight-cpu@H200=3"} {
		if _, err := Read("a.policy", FormatLine+"\nqueue a "+text+"\n"); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
