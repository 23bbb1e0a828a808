// Package advice says of work that has run how much it used of what it asked for, and what to ask for next time. What comes in are workloads as the API
// shows them, with what each of their grants used in all, and the devices; what goes out is one Advice for each kind of work. It changes nothing: who asks
// decides.
package advice

import (
	"cmp"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

const (
	// Enough is how long work of a kind must have run, in all runs together, before anything is said of it.
	Enough = time.Minute

	spare      = 10                 // percent above what was used most, as what comes next may want a little more
	fine       = api.Milli(50)      // compute is advised in multiples of this
	fineMemory = api.Bytes(1) << 28 // and memory of this: 256Mi

	// A device of a run did hardly anything that was used for less of the time than the least floor that is advised, and held less memory than this: a
	// program that merely looks at a device takes some for its context.
	hardlyMemory = api.Bytes(1) << 30
)

// Advice is what is known of the runs of one kind: work of one user, queue and kind of name (see Kind) that asked for the same.
type Advice struct {
	Name    string    `json:"name"`
	User    string    `json:"user"`
	Queue   string    `json:"queue"`
	Share   api.Share `json:"share"`   // as it was asked for, of each device
	Devices int       `json:"devices"` // of each run

	Runs int          `json:"runs"`
	Ran  api.Duration `json:"ran"` // all runs together

	Use        api.Milli `json:"use"`        // of a device: the mean over all devices and all the time that they ran
	MostUse    api.Milli `json:"mostUse"`    // of the device that was used most: its mean over that run
	MostMemory api.Bytes `json:"mostMemory"` // held at once on one device by the run that held most

	// What their floors kept from being granted to others, and they did not use: compute as time of a whole device, memory (above what the run held at
	// its most) in GiB-hours.
	Idle       api.Duration `json:"idle"`
	IdleMemory float64      `json:"idleMemoryGiBHours"`

	// Ask is a share whose floors would have been enough for every run, on the device that it used most, with a tenth to spare; its ceilings are those
	// that were asked for. It never asks for more than Share, and is the same where that is right.
	Ask api.Share `json:"ask"`
	// AskDevices is on how many of its devices a run did something, of all runs the most; from 1 to Devices. On the others it did hardly anything.
	AskDevices int `json:"askDevices"`
	// Fits are the models here with less memory than those that it ran on, in which it would have had room, the smallest first. What is said of compute is
	// of the devices that it ran on.
	Fits []string `json:"fits,omitempty"`
}

// runs are those of one kind, with what only finding the advice needs.
type runs struct {
	Advice
	memoryFloor, ranOn api.Bytes     // the largest floor, and the largest memory of a device that it ran on
	used, held         time.Duration // of devices, and times devices
}

// Of advises on each kind of work that ran for Enough, that with most idle first. Runs that went around their shares, or whose use is not known,
// count for nothing.
func Of(works []api.Workload, devices []api.Device, now time.Time) []Advice {
	type key struct {
		user, queue, name string
		share             api.Share
		devices           int
	}
	byUUID := map[string]api.Device{}
	for _, d := range devices {
		byUUID[d.UUID] = d
	}
	kinds := map[key]*runs{}
	for i := range works {
		w := &works[i]
		ran, ok := ranFor(w, now)
		if !ok {
			continue
		}
		k := key{w.User, w.Spec.Queue, Kind(&w.Spec), w.Spec.Share, w.Spec.Devices}
		if kinds[k] == nil {
			kinds[k] = &runs{Advice: Advice{Name: k.name, User: k.user, Queue: k.queue, Share: k.share, Devices: k.devices}}
		}
		kinds[k].add(w, ran, byUUID)
	}
	all := []Advice{}
	for _, a := range kinds {
		if time.Duration(a.Ran) >= Enough {
			a.conclude(devices)
			all = append(all, a.Advice)
		}
	}
	slices.SortFunc(all, func(a, b Advice) int {
		return cmp.Or(cmp.Compare(b.Idle, a.Idle), cmp.Compare(b.IdleMemory, a.IdleMemory), cmp.Compare(a.User, b.User), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Queue, b.Queue), cmp.Compare(b.Ran, a.Ran))
	})
	return all
}

// ranFor is how long a workload has run; false: it did not, or what it used is not known or was not held to its share.
func ranFor(w *api.Workload, now time.Time) (time.Duration, bool) {
	if w.Status.Started == nil || len(w.Status.Usage) == 0 || slices.ContainsFunc(w.Status.Usage, func(u api.Usage) bool { return !u.Enforced }) {
		return 0, false
	}
	if w.Status.Ended != nil {
		now = *w.Status.Ended
	}
	ran := now.Sub(*w.Status.Started)
	return ran, ran > 0
}

// add counts a run.
func (a *runs) add(w *api.Workload, ran time.Duration, devices map[string]api.Device) {
	a.Runs++
	a.Ran += api.Duration(ran)
	busy := 0
	for _, u := range w.Status.Usage {
		use := rate(u.DeviceTime, ran)
		a.MostUse = max(a.MostUse, use)
		if use >= fine || u.MemoryPeak >= hardlyMemory {
			busy++
		}
		a.used += u.DeviceTime
		floor := time.Duration(u.Grant.ComputeFloor) * (ran / time.Duration(api.WholeDevice))
		a.Idle += api.Duration(max(0, floor-u.DeviceTime))
		a.IdleMemory += float64(max(0, u.Grant.MemoryFloor-u.MemoryPeak)) / (1 << 30) * ran.Hours()
		a.MostMemory = max(a.MostMemory, u.MemoryPeak)
		a.memoryFloor = max(a.memoryFloor, u.Grant.MemoryFloor)
		a.ranOn = max(a.ranOn, devices[u.Grant.Device].Memory)
	}
	a.held += ran * time.Duration(len(w.Status.Usage))
	a.AskDevices = max(a.AskDevices, busy, 1)
}

// conclude finds what to ask for.
func (a *runs) conclude(devices []api.Device) {
	a.Use, a.Ask = rate(a.used, a.held), a.Share
	compute := up(a.MostUse*(100+spare)/100, fine)
	a.Ask.Compute.Floor = min(a.Share.Compute.Floor, max(compute, fine))
	memory := up(a.MostMemory/100*(100+spare), fineMemory)
	if !a.Share.Memory.Floor.IsZero() && memory < a.memoryFloor {
		a.Ask.Memory.Floor = api.Amount{Bytes: max(memory, fineMemory)}
	}
	smaller := slices.Clone(devices)
	slices.SortStableFunc(smaller, func(x, y api.Device) int { return cmp.Compare(x.Memory, y.Memory) })
	for _, d := range smaller {
		if d.Health != api.Down && d.Memory < a.ranOn && d.Memory >= memory && !slices.Contains(a.Fits, d.Model) {
			a.Fits = append(a.Fits, d.Model)
		}
	}
}

// rate is a time of device use as a part of the time that devices were held: at most all, as the two are not read at one moment.
func rate(used, held time.Duration) api.Milli {
	return api.Milli(min(1, float64(used)/float64(held)) * float64(api.WholeDevice))
}

// up is the next multiple from an amount on.
func up[T ~int64 | ~int32 | ~int](amount, of T) T { return (amount + of - 1) / of * of }
