package device

import (
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// waitFor is how long a wait for faults lasts before the devices are asked whether they still answer, and so the longest time
// that Close takes.
const waitFor = 500 * time.Millisecond

// What an XID means for the device: policy. XIDs that are not here are told and leave the device as it is.
var (
	// xidGone: the device has fallen off the bus.
	xidGone = map[uint64]string{79: "it has fallen off the bus"}
	// xidSick: memory errors, and parts of the device that have stopped. What runs may go on or hang, but the device should be drained and
	// reset. Meanings and what to do are from NVIDIA's catalog of XIDs (docs.nvidia.com/deploy/xid-errors).
	xidSick = map[uint64]string{
		48:  "uncorrectable memory error",
		62:  "its internal controller has halted",
		63:  "a row of memory is being remapped and needs a reset",
		64:  "a row of memory could not be remapped",
		74:  "an NVLink connection has failed",
		94:  "contained memory error",
		95:  "uncontained memory error",
		119: "its system processor (GSP) does not answer",
		120: "its system processor (GSP) has failed",
		140: "unrecovered memory error",
	}
	// xidApplication: the program's own doing; its process dies of it or goes on.
	xidApplication = map[uint64]string{
		13: "a program's kernel failed", 31: "a program reached for memory that is not there", 43: "a program's work was stopped",
		45: "what was left of a program's work was cleared away", 68: "a program's video decoding failed", 109: "a program's work could not be switched away from in time",
	}
)

// faults turns XIDs and answers into changes of condition. It is keyed by the whole GPU's UUID.
type faults struct {
	condition map[string]Condition
	lost      map[string]bool // did not answer
}

func newFaults() *faults {
	return &faults{condition: map[string]Condition{}, lost: map[string]bool{}}
}

// xid takes an XID in; false says that the condition stays as it is.
func (f *faults) xid(uuid string, number uint64) (condition Condition, reason string, changed bool) {
	if why, ok := xidGone[number]; ok {
		return f.set(uuid, Gone, fmt.Sprintf("XID %d: %s", number, why))
	}
	if why, ok := xidSick[number]; ok && f.condition[uuid] != Gone {
		return f.set(uuid, Sick, fmt.Sprintf("XID %d: %s", number, why))
	}
	return Well, "", false
}

// answer takes in whether a GPU answers. One that answers again after it did not has been reset: whatever it had is over. One that
// reported a fatal XID and answers on is not believed.
func (f *faults) answer(uuid string, ret nvml.Return) (condition Condition, reason string, changed bool) {
	switch ret {
	case nvml.SUCCESS:
		if !f.lost[uuid] {
			return Well, "", false
		}
		f.lost[uuid] = false
		return f.set(uuid, Well, "it answers again")
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_GPU_NOT_FOUND:
		f.lost[uuid] = true
		return f.set(uuid, Gone, "it does not answer: "+ret.Error())
	}
	return Well, "", false
}

func (f *faults) set(uuid string, condition Condition, reason string) (Condition, string, bool) {
	if f.condition[uuid] == condition {
		return condition, reason, false
	}
	f.condition[uuid] = condition
	return condition, reason, true
}

// errors takes in that a GPU has memory errors which only a reset clears.
func (f *faults) errors(uuid, reason string) (changed bool) {
	if f.condition[uuid] != Well {
		return false
	}
	_, _, changed = f.set(uuid, Sick, reason)
	return changed
}

// standing says what memory errors a GPU has had since it was last reset; empty: none, or it does not tell. The driver reports an
// XID only to those who listen when it happens; what it counts is there also for those who come later.
func (b *nvmlBackend) standing(handle nvml.Device) string {
	if b.has("nvmlDeviceGetRemappedRows") {
		_, _, pending, failed, ret := handle.GetRemappedRows()
		switch {
		case ret != nvml.SUCCESS:
		case failed:
			return "a row of memory could not be remapped: the GPU should be replaced"
		case pending:
			return "a row of memory is being remapped and needs a reset"
		}
	}
	if b.has("nvmlDeviceGetTotalEccErrors") {
		count, ret := handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		if ret == nvml.SUCCESS && count > 0 {
			return fmt.Sprintf("uncorrectable memory errors since its last reset: %d", count)
		}
	}
	return ""
}

// askStanding tells of every GPU that has memory errors from before anybody listened.
func (b *nvmlBackend) askStanding() {
	for uuid, handle := range b.wholes() {
		if reason := b.standing(handle); reason != "" && b.faults.errors(uuid, reason) {
			b.tell(uuid, Sick, reason)
		}
	}
}

// watch listens for faults until Close.
func (b *nvmlBackend) watch() {
	b.askStanding()
	if b.listens {
		defer b.listening.Free()
	}
	for {
		select {
		case <-b.stop:
			return
		default:
		}
		waited := nvml.ERROR_NOT_SUPPORTED
		if b.listens {
			var data nvml.EventData
			if data, waited = b.listening.Wait(uint32(waitFor.Milliseconds())); waited == nvml.SUCCESS {
				b.fault(data)
				continue
			}
		}
		b.ask()
		if waited == nvml.ERROR_TIMEOUT {
			continue
		}
		// The wait did not wait (a lost device makes it fail at once): pace ourselves.
		select {
		case <-b.stop:
			return
		case <-time.After(waitFor):
		}
	}
}

// register asks for XIDs of every GPU; false where the library has no events.
func (b *nvmlBackend) register() (nvml.EventSet, bool) {
	if !b.has("nvmlEventSetCreate") || !b.has("nvmlDeviceRegisterEvents") || !b.has("nvmlEventSetFree") {
		return nil, false
	}
	set, ret := b.library.EventSetCreate()
	if ret != nvml.SUCCESS {
		b.log.Warn("GPU faults cannot be listened for; only devices that stop answering are noticed", "nvml", ret.Error())
		return nil, false
	}
	for _, handle := range b.wholes() {
		if ret := handle.RegisterEvents(nvml.EventTypeXidCriticalError, set); ret != nvml.SUCCESS {
			b.log.Warn("a GPU does not report faults; only that it stops answering is noticed", "nvml", ret.Error())
		}
	}
	return set, true
}

// wholes is one handle for each GPU.
func (b *nvmlBackend) wholes() map[string]nvml.Device {
	handles := map[string]nvml.Device{}
	for _, g := range b.gpus {
		handle := g.handle
		if g.Parent != "" {
			if parent, ret := b.library.DeviceGetHandleByUUID(g.whole); ret == nvml.SUCCESS {
				handle = parent
			}
		}
		handles[g.whole] = handle
	}
	return handles
}

func (b *nvmlBackend) fault(data nvml.EventData) {
	if data.EventType&nvml.EventTypeXidCriticalError == 0 || data.Device == nil {
		return
	}
	uuid, ret := data.Device.GetUUID()
	if ret != nvml.SUCCESS {
		for whole, handle := range b.wholes() {
			if handle == data.Device {
				uuid = whole
			}
		}
	}
	condition, reason, changed := b.faults.xid(uuid, data.EventData)
	why, application := xidApplication[data.EventData]
	b.log.Warn("GPU fault", "device", uuid, "xid", data.EventData, "application", application)
	switch {
	case changed:
		b.tell(uuid, condition, reason)
	case application:
		b.tell(uuid, Same, fmt.Sprintf("XID %d: %s", data.EventData, why))
	case !known(data.EventData):
		b.tell(uuid, Same, fmt.Sprintf("XID %d: not one that Aliquot knows; NVIDIA's catalog of XIDs says what to do", data.EventData))
	}
}

// known says that an XID stands for a condition of the device, also where that is as it was.
func known(xid uint64) bool { return xidGone[xid] != "" || xidSick[xid] != "" }

// ask asks every GPU whether it answers.
func (b *nvmlBackend) ask() {
	asked := map[string]bool{}
	for _, g := range b.gpus {
		if asked[g.whole] {
			continue
		}
		asked[g.whole] = true
		_, ret := g.handle.GetMemoryInfo()
		if condition, reason, changed := b.faults.answer(g.whole, ret); changed {
			b.tell(g.whole, condition, reason)
		}
	}
}

// tell sends a change of a GPU for it or each of its parts.
func (b *nvmlBackend) tell(whole string, condition Condition, reason string) {
	for _, g := range b.gpus {
		if g.whole != whole {
			continue
		}
		select {
		case b.events <- Event{UUID: g.UUID, Condition: condition, Reason: reason}:
		case <-b.stop:
			return
		}
	}
}
