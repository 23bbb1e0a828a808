package api_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// spec is a valid workload, changed by each test where it matters.
func spec(change func(*api.WorkloadSpec)) api.WorkloadSpec {
	s := api.WorkloadSpec{
		Share:   api.Share{Compute: compute(250, 800)},
		Command: []string{"python", "train.py"},
		Dir:     "/home/ada",
	}
	if change != nil {
		change(&s)
	}
	return s.Default()
}

func TestDefault(t *testing.T) {
	got := api.WorkloadSpec{}.Default()
	whole := api.Memory{Floor: part(1000), Ceiling: part(1000)}
	if got.Queue != api.DefaultQueue || got.Class != api.Training || got.Devices != 1 ||
		got.Share != (api.Share{Compute: compute(1000, 1000), Memory: whole}) {
		t.Errorf("the default of nothing is %+v", got)
	}
	for _, c := range []struct {
		name        string
		share, want api.Share
	}{
		{
			"memory follows the compute floor",
			api.Share{Compute: compute(250, 800)},
			api.Share{Compute: compute(250, 800), Memory: api.Memory{Floor: part(250), Ceiling: part(250)}},
		},
		{
			"memory alone leaves compute whole",
			api.Share{Memory: api.Memory{Floor: bytes(gibi), Ceiling: bytes(gibi)}},
			api.Share{Compute: compute(1000, 1000), Memory: api.Memory{Floor: bytes(gibi), Ceiling: bytes(gibi)}},
		},
		{
			"memory's ceiling is its floor",
			api.Share{Memory: api.Memory{Floor: bytes(gibi)}},
			api.Share{Compute: compute(1000, 1000), Memory: api.Memory{Floor: bytes(gibi), Ceiling: bytes(gibi)}},
		},
		{
			"no memory follows from no floor",
			api.Share{Compute: compute(0, 500)},
			api.Share{Compute: compute(0, 500)},
		},
	} {
		if got := c.share.Default(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestDefaultIsAppliedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s api.Share
		if rapid.Bool().Draw(t, "has compute") {
			s.Compute = anyCompute(t)
		}
		if rapid.Bool().Draw(t, "has memory") {
			s.Memory = anyMemory(t)
		}
		once := s.Default()
		if once.Default() != once {
			t.Fatalf("%+v, then %+v", once, once.Default())
		}
		if s.Compute.Floor == 0 && !s.Compute.IsZero() && s.Memory.IsZero() {
			if err := once.Validate(); err == nil || !strings.Contains(err.Error(), "--mem") {
				t.Fatalf("a pure borrower without memory: %v", err)
			}
			return
		}
		if err := once.Validate(); err != nil {
			t.Fatalf("%+v: %v", once, err)
		}
	})
}

func TestEffectiveWeight(t *testing.T) {
	for _, c := range []struct {
		share api.Share
		want  int32
	}{
		{api.Share{Compute: compute(250, 800)}, 250},
		{api.Share{Compute: compute(0, 800)}, 1},
		{api.Share{Compute: compute(250, 800), Weight: 7}, 7},
	} {
		if got := c.share.EffectiveWeight(); got != c.want {
			t.Errorf("%+v weighs %d, want %d", c.share, got, c.want)
		}
	}
}

func TestValidWorkloads(t *testing.T) {
	for name, change := range map[string]func(*api.WorkloadSpec){
		"least":        nil,
		"longest name": func(s *api.WorkloadSpec) { s.Name = strings.Repeat("a", 63) },
		"dashes":       func(s *api.WorkloadSpec) { s.Name, s.Queue = "a-1", "0--z" },
		"all set":      func(s *api.WorkloadSpec) { s.Class, s.Priority, s.Devices = api.Batch, -1000, 16 },
		"limits": func(s *api.WorkloadSpec) {
			s.TimeLimit, s.CPU, s.Memory, s.Model = api.LeastTimeLimit, 1, api.LeastHostMemory, "NVIDIA H200"
		},
		"pure borrower": func(s *api.WorkloadSpec) {
			s.Share = api.Share{Compute: compute(0, 1), Memory: api.Memory{Ceiling: bytes(api.LeastMemory)}}
		},
		"empty arguments": func(s *api.WorkloadSpec) { s.Command = []string{"x", ""}; s.Env = map[string]string{"A": ""} },
	} {
		if err := spec(change).Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInvalidWorkloads(t *testing.T) {
	for _, c := range []struct {
		change func(*api.WorkloadSpec)
		says   string
	}{
		{func(s *api.WorkloadSpec) { s.Name = "Night" }, `the workload name "Night" cannot have 'N' as character 1`},
		{func(s *api.WorkloadSpec) { s.Name = "-a" }, `cannot have '-' as character 1`},
		{func(s *api.WorkloadSpec) { s.Name = "a-" }, `cannot have '-' as character 2`},
		{func(s *api.WorkloadSpec) { s.Name = "../etc" }, `cannot have '.' as character 1`},
		{func(s *api.WorkloadSpec) { s.Name = strings.Repeat("a", 64) }, `has 64 characters`},
		{func(s *api.WorkloadSpec) { s.Queue = "a b" }, `the queue name "a b" cannot have ' ' as character 2`},
		{func(s *api.WorkloadSpec) { s.Class = "gold" }, `unknown class "gold"`},
		{func(s *api.WorkloadSpec) { s.Priority = 1001 }, `the priority 1001 is out of range`},
		{func(s *api.WorkloadSpec) { s.PriorityAfter = 1 }, `a priority of 1 after a date was asked for, and no date until which another holds`},
		{func(s *api.WorkloadSpec) { s.PriorityUntil, s.PriorityAfter = &time.Time{}, -1001 }, `the priority -1001 after the date is out of range`},
		{func(s *api.WorkloadSpec) { s.PriorityUntil = &time.Time{} }, `the priority is 0 until a date and after it`},
		{func(s *api.WorkloadSpec) { s.Priority, s.PriorityUntil = 1, &time.Time{} }, `the priority holds until the year 1; give a date from 1970 to 9999`},
		{func(s *api.WorkloadSpec) { s.Devices = 17 }, `17 devices`},
		{func(s *api.WorkloadSpec) { s.Devices = -1 }, `-1 devices`},
		{func(s *api.WorkloadSpec) { s.TimeLimit = 1 }, `a time limit of 1ns is less than any program takes to start (1ms)`},
		{func(s *api.WorkloadSpec) { s.TimeLimit = -1 }, `the time limit -1ns is negative`},
		{func(s *api.WorkloadSpec) { s.CPU = -1 }, `the CPU limit -0.001 is negative`},
		{func(s *api.WorkloadSpec) { s.Memory = -1 }, `the memory limit -1 is negative`},
		{func(s *api.WorkloadSpec) { s.Memory = 1 }, `a memory limit of 1 is less than any program takes (1Mi)`},
		{func(s *api.WorkloadSpec) { s.Share.Memory = api.Memory{Ceiling: bytes(4)} }, `4 of memory is less than any context takes (100Mi)`},
		{func(s *api.WorkloadSpec) { s.MaxLatencyClass = 10 }, "latency class 10 cannot be asked for; give 1, the fastest, to 9"},
		{func(s *api.WorkloadSpec) { s.MaxLatencyClass = -1 }, "latency class -1 cannot be asked for"},
		{func(s *api.WorkloadSpec) { s.Model = "H200\n" }, `"H200\n" is not the name of a device model`},
		{func(s *api.WorkloadSpec) { s.Command = nil }, `no command was given`},
		{func(s *api.WorkloadSpec) { s.Command = []string{""} }, `no command was given`},
		{func(s *api.WorkloadSpec) { s.Command = []string{"a", "b\x00"} }, `contains a NUL`},
		{func(s *api.WorkloadSpec) { s.Command = []string{"a", strings.Repeat("b", 1<<20)} }, `at most 1048576`},
		{func(s *api.WorkloadSpec) { s.Env = map[string]string{"A=B": ""} }, `the environment variable "A=B"`},
		{func(s *api.WorkloadSpec) { s.Env = map[string]string{"A": "\x00"} }, `the environment variable "A"`},
		{func(s *api.WorkloadSpec) { s.Dir = "train" }, `the working directory "train" is not an absolute path`},
		{func(s *api.WorkloadSpec) { s.Share.Weight = -1 }, `the weight -1 is out of range`},
		{func(s *api.WorkloadSpec) { s.Share.Compute = compute(-1, 5) }, `the compute floor -0.001 is negative`},
		{func(s *api.WorkloadSpec) { s.Share.Compute = compute(6, 5) }, `the compute floor 0.006 is over the ceiling 0.005`},
		{func(s *api.WorkloadSpec) { s.Share.Compute = compute(6, 1001) }, `the compute ceiling 1.001 is more than a whole device`},
		{func(s *api.WorkloadSpec) { s.Share.Compute = compute(-1, 0) }, `a share of no compute`},
		{func(s *api.WorkloadSpec) { s.Share.Compute = compute(0, 5) }, `for example --mem 4Gi`},
		{func(s *api.WorkloadSpec) { s.Share.Memory = api.Memory{Floor: bytes(2), Ceiling: bytes(1)} }, `the memory floor 2 is over the ceiling 1`},
		{func(s *api.WorkloadSpec) { s.Share.Memory = api.Memory{Floor: part(1001)} }, `100.1% is more than a whole device`},
		{func(s *api.WorkloadSpec) { s.Share.Memory = api.Memory{Floor: bytes(-1)} }, `the memory -1 is negative`},
		{func(s *api.WorkloadSpec) { s.Share.Memory.Floor = api.Amount{Bytes: 1, Part: 1} }, `both as 1 and as 0.1%`},
	} {
		err := spec(c.change).Validate()
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Code != api.CodeInvalid || !strings.Contains(refused.Message, c.says) {
			t.Errorf("got %v, want invalid: %s", err, c.says)
		} else if strings.Contains(refused.Message, "\n") {
			t.Errorf("not one sentence: %q", refused.Message)
		}
	}
}

func TestValidateQueue(t *testing.T) {
	for _, q := range []api.QueueSpec{{Name: "vision", Quota: 2000}, {Name: "nlp", Parent: "ml", Quota: api.Unlimited}, {Name: "x"}} {
		if err := q.Validate(); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	for says, q := range map[string]api.QueueSpec{
		`the highest priority of queue x is 1001, out of range; give 0 to 1000`: {Name: "x", MaxPriority: 1001},
		`the priority -1001 of queue x is out of range; give -1000 to 1000`:     {Name: "x", Priority: -1001},
		`the priority of queue x is 2 until a date and after it`:                {Name: "x", Priority: 2, PriorityAfter: 2, PriorityUntil: &time.Time{}},
		`the highest priority of queue x is -1, out of range`:                   {Name: "x", MaxPriority: -1},
		"a queue needs a name":             {},
		"the queue name \"a/b\"":           {Name: "a/b"},
		"the queue name \"B\"":             {Name: "a", Parent: "B"},
		"cannot be its own parent":         {Name: "a", Parent: "a"},
		"the quota of queue a is negative": {Name: "a", Quota: -2},
	} {
		if err := q.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: got %v, want %s", q, err, says)
		}
	}
}

// A specification goes over the wire unchanged, with and without a share.
func TestSpecAsJSON(t *testing.T) {
	for _, want := range []api.WorkloadSpec{
		{Command: []string{"true"}, Dir: "/"},
		spec(func(s *api.WorkloadSpec) { s.TimeLimit, s.CPU, s.Memory, s.Share.Weight = 7200e9, 1500, 8*gibi, 3 }),
	} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got api.WorkloadSpec
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nreads as %+v (%v)\nwant     %+v", text, got, err, want)
		}
	}
	text, err := json.Marshal(spec(nil).Share)
	if want := `{"gpu":"0.25..0.80","memory":"25%"}`; err != nil || string(text) != want {
		t.Errorf("got %s (%v), want %s", text, err, want)
	}
}
