package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/predict"
)

// A gang used what its tasks did on average of each device, and held the most that one of them held. Tasks of which nothing is said count for nothing, and
// that it was stopped does not matter.
func TestUseOfAGang(t *testing.T) {
	w := annsWorld(t)
	for i := range 4 {
		gang := annsWork(fmt.Sprint("gang", i), "gang")
		gang.Tasks, gang.Share.Compute.Floor = 4, 250
		place := w.step(Submit{At: w.at(), Workload: gang})[0].(Place)
		w.step(Done{w.at(), place.ID})
		for task := range 4 {
			w.step(Started{w.at(), gang.ID, task})
		}
		w.step(Cancel{w.at(), gang.ID, "enough"})
		w.now += 10 * second
		w.step(Ended{w.at(), gang.ID, 0, &Used{100, 3 * gi}})
		w.step(Ended{w.at(), gang.ID, 1, nil})
		w.step(Ended{w.at(), gang.ID, 2, &Used{500, gi}})
		w.step(Ended{w.at(), gang.ID, 3, &Used{301, 2 * gi}})
	}
	next := annsWork("next", "gang")
	next.Tasks, next.Share.Compute.Floor = 4, 250
	got, ok := w.engine.PredictUse(&next)
	all := predict.Quantiles{Low: 300, Median: 300, High: 300, Like: predict.SameName, Samples: 4}
	if !ok || got.Compute != all || got.Memory.Median != int64(3*gi) {
		t.Errorf("it is predicted to use %+v %v", got, ok)
	}
	if _, ok := w.engine.Predict(&next); ok {
		t.Error("work that was stopped says how long its like runs")
	}
}

// Replicas that came and went count for their workload.
func TestUseOfReplicas(t *testing.T) {
	w := annsWorld(t)
	for i := range 4 {
		one := annsWork(fmt.Sprint("one", i), "serve")
		one.Max = 2
		w.step(Submit{At: w.at(), Workload: one})
		w.settle()
		if _, sure, _ := w.engine.Replicas(one.ID); sure != 1 || len(w.engine.Grants(one.ID)) != 2 {
			t.Fatalf("it did not grow: %+v", w.engine.Grants(one.ID))
		}
		w.step(Ended{w.at(), one.ID, 1, &Used{600, gi}})
		w.step(Ended{w.at(), one.ID, 0, &Used{200, 2 * gi}})
	}
	next := annsWork("next", "serve")
	if got, ok := w.engine.PredictUse(&next); !ok || got.Compute.Median != 400 || got.Memory.Median != int64(2*gi) {
		t.Errorf("it is predicted to use %+v %v", got, ok)
	}
}

// What ended before the engine knew of it teaches what its like use, also where it was stopped, which says nothing of how long they run.
func TestPastUse(t *testing.T) {
	w := annsWorld(t)
	var past []Past
	for i := range 4 {
		past = append(past, Past{Workload: annsWork(fmt.Sprint("p", i), "train"), Ago: Time(9-i) * second, Ran: second, Stopped: true, Used: &Used{api.Milli(100 * i), gi}})
	}
	w.step(Learn{w.at(), past})
	next := annsWork("next", "train")
	if got, ok := w.engine.PredictUse(&next); !ok || got.Compute.Low != 0 || got.Compute.High != 300 {
		t.Errorf("it is predicted to use %+v %v", got, ok)
	}
	if got, ok := w.engine.Predict(&next); ok {
		t.Errorf("it is predicted to run %+v", got)
	}
}

// Use that cannot be is refused, and the task runs on in the books: its host says again how it ended.
func TestUseThatCannotBe(t *testing.T) {
	for i, bad := range []Used{{-1, 0}, {0, -1}, {1001, 0}, {0, maxMemory + 1}} {
		w := annsWorld(t)
		w.step(Submit{At: w.at(), Workload: annsWork("a", "")})
		w.settle()
		for _, ev := range []Event{Ended{w.at(), "a", 0, &bad}, Learn{w.at(), []Past{{Workload: annsWork("b", ""), Used: &bad}}}} {
			out := w.step(ev)
			if len(out) != 1 || !strings.Contains(out[0].(Reject).Reason, "cannot be: it is 0 to 1000") {
				t.Errorf("%+v: %s", bad, show(out))
			}
			if _, err := MarshalEvent(ev); err == nil && i < 2 {
				t.Errorf("%+v is written", bad)
			}
		}
		if out := w.step(Ended{w.at(), "a", 0, nil}); len(out) != 0 {
			t.Errorf("its end: %s", show(out))
		}
	}
}
