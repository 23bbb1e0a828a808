package v1alpha1_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// whole is a queue of which everything is said.
const whole = `{"apiVersion":"aliquot.dev/v1alpha1","kind":"Queue","metadata":{"name":"vision"},"spec":{
	"parent":"org","quota":{"compute":"4.5","memory":"320Gi","devices":8},"limit":{"compute":"8","memory":"640Gi","devices":16},
	"weight":{"all":2,"compute":3,"memory":4,"devices":5},"models":[{"model":"H200","quota":{"compute":"2"},"limit":{"memory":"1Ti"},"weight":{"all":6,"memory":7}}],
	"hours":"100/week","order":"priority:1h+shortest:2.5","longestRun":"8h","minRun":"10m","maxPriority":100000,"priority":-5,"priorityUntil":"2026-12-01T18:00:00+01:00","priorityAfter":7}}`

func queue(t *testing.T, text string) *v1alpha1.Queue {
	t.Helper()
	var q v1alpha1.Queue
	if err := json.Unmarshal([]byte(text), &q); err != nil {
		t.Fatal(err)
	}
	return &q
}

// Each field of the engine's queue has one here, but for what the engine is told by its host, and Disruptions: the pods that come again are others, and PodDisruptionBudgets hold.
func TestQueueEngine(t *testing.T) {
	got, err := queue(t, whole).Engine()
	if err != nil {
		t.Fatal(err)
	}
	until := time.Date(2026, 12, 1, 17, 0, 0, 0, time.UTC)
	want := api.QueueSpec{
		Name: "vision", Parent: "org", Quota: 4500, QuotaMemory: new(api.Bytes(320 << 30)), QuotaDevices: new(int64(8)),
		Limit:  api.QueueAmounts{Compute: new(api.Quota(8000)), Memory: new(api.Bytes(640 << 30)), Devices: new(int64(16))},
		Weight: api.QueueWeight{All: 2, Compute: 3, Memory: 4, Devices: 5},
		Models: []api.QueueModel{{Model: "H200", Quota: api.QueueAmounts{Compute: new(api.Quota(2000))}, Limit: api.QueueAmounts{Memory: new(api.Bytes(1 << 40))}, Weight: api.QueueWeight{All: 6, Memory: 7}}},
		Hours:  api.HoursQuota{Amount: 100_000, Per: api.Week}, Order: api.QueueOrder{OneLine: true, PriorityWorth: api.Duration(time.Hour)}, ShortestFirst: 2500,
		LongestRun: api.Duration(8 * time.Hour), MinRun: api.Duration(10 * time.Minute), MaxPriority: 100_000, Priority: -5, PriorityUntil: &until, PriorityAfter: 7,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for value, i := reflect.ValueOf(got), 0; i < value.NumField(); i++ {
		if name := value.Type().Field(i).Name; value.Field(i).IsZero() && name != "HoursSpent" && name != "Disruptions" {
			t.Errorf("nothing in a Queue says %s", name)
		}
	}
	none, err := queue(t, `{"metadata":{"name":"free"},"spec":{}}`).Engine()
	if err != nil || !reflect.DeepEqual(none, api.QueueSpec{Name: "free", Quota: api.Unlimited, MaxPriority: v1alpha1.NoMaxPriority}) {
		t.Errorf("a queue of which nothing is said is %+v, %v", none, err)
	}
}

// What is written is read again the same.
func TestQueueJSON(t *testing.T) {
	first := queue(t, whole)
	text, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	again := queue(t, string(text))
	one, oneErr := first.Engine()
	two, twoErr := again.Engine()
	if oneErr != nil || twoErr != nil || !reflect.DeepEqual(one, two) {
		t.Errorf("%s is read as %+v, %v", text, two, twoErr)
	}
}

func TestQueueInvalid(t *testing.T) {
	for text, want := range map[string]string{
		`{"metadata":{"name":"a"},"spec":{"parent":"a"}}`:       "cannot be its own parent",
		`{"metadata":{"name":"a"},"spec":{"order":"fastest"}}`:  `spec.order: order "fastest"`,
		`{"metadata":{"name":"a.b"},"spec":{}}`:                 "cannot have '.'",
		`{"metadata":{"name":"a"},"spec":{"priority":2000}}`:    "out of range",
		`{"metadata":{"name":"a"},"spec":{"priorityAfter":1}}`:  "no date",
		`{"metadata":{"name":"a"},"spec":{"longestRun":"1us"}}`: "no time to run",
		`{"metadata":{"name":"a"},"spec":{"maxPriority":-1}}`:   "highest priority",
	} {
		if got, err := queue(t, text).Engine(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v; want an error with %q", text, got, err, want)
		}
	}
}
