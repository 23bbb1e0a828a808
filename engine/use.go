package engine

import (
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/engine/predict"
)

func validUsed(u *Used) error {
	if u != nil && (u.Compute < 0 || u.Compute > api.WholeDevice || u.Memory < 0 || u.Memory > maxMemory) {
		return fmt.Errorf("use of %d thousandths and %d bytes of a device cannot be: it is 0 to 1000, and 0 to %s", int32(u.Compute), int64(u.Memory), maxMemory)
	}
	return nil
}

// usedMost bounds what is summed up of a workload's tasks.
const usedMost = int64(MaxTasks) * MaxDevices

func (u *savedUse) valid() bool {
	return u.Devices >= 1 && u.Devices <= 2*usedMost && u.Compute >= 0 && u.Compute <= u.Devices*int64(api.WholeDevice) && u.Memory >= 0 && u.Memory <= int64(maxMemory)
}

// addUsed notes what a task used that is over now.
func (w *workload) addUsed(t *task, used *Used) {
	if used == nil || !t.started {
		return
	}
	if w.base != nil {
		w = w.base
	}
	w.setRarely(func(r *rare) {
		if r.used.Devices > usedMost {
			return // replicas came and went for so long that more of them say nothing new
		}
		r.used.Compute += int64(used.Compute) * int64(len(t.grants))
		r.used.Devices += int64(len(t.grants))
		r.used.Memory = max(r.used.Memory, int64(used.Memory))
	})
}

// learnUse has predictions learn what a workload used whose last task just ended. Why it ended does not count, for what was stopped or evicted had used
// as much all the same.
func (e *Engine) learnUse(w *workload) {
	if used := w.rarely().used; used.Devices > 0 {
		e.uses.Learn(w.predictedBy(), predict.Use{Compute: used.Compute / used.Devices, Memory: used.Memory}, int64(e.now))
	}
}

// PredictUse tells what a workload uses of each of its devices, live or to be submitted, by what has ended; false: too little is known.
func (e *Engine) PredictUse(w *Workload) (predict.Expected, bool) {
	return e.uses.Predict(PredictedBy(w), int64(e.now))
}

// weighsUse says that a policy of placement weighs what work is predicted to use.
func weighsUse(p *place.Policy) bool { return p != nil && p.Weights[place.Interference] != 0 }

// busyStep is in what steps predicted use is told apart where places are scored: finer ones would make more kinds of requests of the same work.
const busyStep = api.WholeDevice / 10

// busyOf is what a workload is predicted to use of the compute of each device, to the nearest step; of one of which too little is known its floor. 0 where
// nobody weighs that.
func (e *Engine) busyOf(w *workload) api.Milli {
	if !weighsUse(e.placement()) {
		return 0
	}
	busy := w.Share.Compute.Floor
	if said, ok := e.uses.Predict(w.predictedBy(), int64(e.now)); ok {
		busy = min(api.Milli(said.Compute.Median), w.Share.Compute.Ceiling) //nolint:gosec // at most a whole device
	}
	return (busy + busyStep/2) / busyStep * busyStep
}

// requestOfUse is a workload's request with what it is predicted to use.
func (e *Engine) requestOfUse(w *workload) *place.Request {
	if busy := e.busyOf(w); busy != 0 {
		s := w.shape
		if s.using == nil || s.using.Busy != busy {
			s.using = s.Using(busy)
		}
		return s.using
	}
	return &w.shape.Request
}

// addBusy books what a grant is predicted to use of its device, or books it back.
func (e *Engine) addBusy(g *grant, sign api.Milli) {
	if g.busy != 0 {
		e.fleet.AddBusy(g.device, sign*g.busy)
	}
}

// rebusy predicts anew what everything that runs uses, after a policy began to weigh that, or ended.
func (e *Engine) rebusy() {
	for _, w := range e.byID() {
		busy := e.busyOf(w)
		for _, t := range w.tasks {
			for i := range t.grants {
				g := &t.grants[i]
				e.addBusy(g, -1)
				g.busy = busy
				e.addBusy(g, 1)
			}
		}
	}
}
