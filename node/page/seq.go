package page

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"

	"github.com/aliquot-dev/aliquot/internal/point"
)

// readTries bounds how often a reader looks at a sequence that is odd or moves. A writer holds it for well under a microsecond, so
// one that stays odd belongs to a process that died while writing.
const readTries = 200

// consistent calls read until the sequence was even and the same before and after. It says whether that happened.
func consistent(seq *atomic.Uint32, read func()) bool {
	for range readTries {
		before := seq.Load()
		if before&1 == 0 {
			read()
			if seq.Load() == before {
				return true
			}
		}
		runtime.Gosched()
	}
	return false
}

// Policy is what the agent orders for one grant. Compute in thousandths of a device, memory in bytes.
type Policy struct {
	Flags                           uint32
	Floor, Ceiling, Weight          uint32
	MemFloor, MemCeiling, MemDevice uint64
}

// SetPolicy orders p in place. Only the agent calls it. A sequence left odd by an agent that died in the middle is taken over.
func (g *CtlGrant) SetPolicy(p Policy) {
	seq := g.PolicySeq.Load() | 1
	g.PolicySeq.Store(seq)
	g.PolicyFlags.Store(p.Flags)
	g.ComputeFloor.Store(p.Floor)
	point.Here("page.policy.half")
	g.ComputeCeiling.Store(p.Ceiling)
	g.Weight.Store(p.Weight)
	g.MemFloor.Store(p.MemFloor)
	g.MemCeiling.Store(p.MemCeiling)
	g.MemDevice.Store(p.MemDevice)
	g.PolicySeq.Store(seq + 1)
}

// Policy is what stands in the page; false when it was left half written.
func (g *CtlGrant) Policy() (p Policy, ok bool) {
	ok = consistent(&g.PolicySeq, func() {
		p = Policy{
			Flags: g.PolicyFlags.Load(),
			Floor: g.ComputeFloor.Load(), Ceiling: g.ComputeCeiling.Load(), Weight: g.Weight.Load(),
			MemFloor: g.MemFloor.Load(), MemCeiling: g.MemCeiling.Load(), MemDevice: g.MemDevice.Load(),
		}
	})
	return p, ok
}

// SplitEntry is a reading of Split, in nanoseconds.
type SplitEntry struct {
	Own, Lent, ReservedIdle, BurstFree, BurstLent uint64
}

func (s *Split) read() SplitEntry {
	return SplitEntry{
		Own: s.OwnNS.Load(), Lent: s.LentNS.Load(), ReservedIdle: s.ReservedIdleNS.Load(),
		BurstFree: s.BurstFreeNS.Load(), BurstLent: s.BurstLentNS.Load(),
	}
}

// BookEntry is a reading of BookGrant. Times in nanoseconds, memory in bytes.
type BookEntry struct {
	Credit, Bucket              int64
	Held, Wait, WakeWorst       uint64
	Leases, Overlapped, Revoked uint64
	Wakes                       uint64
	MemGranted, MemPeak         uint64
	LaunchesEnded               uint64
	Split                       SplitEntry
	Updated                     uint64
}

// Read reads the entry; false when it stayed half written, which is an arbiter that died.
func (g *BookGrant) Read() (b BookEntry, ok bool) {
	ok = consistent(&g.Seq, func() {
		b = BookEntry{
			Credit: g.CreditNS.Load(), Bucket: g.BucketNS.Load(),
			Held: g.HeldNS.Load(), Wait: g.WaitNS.Load(), WakeWorst: g.WakeWorstNS.Load(),
			Leases: g.Leases.Load(), Overlapped: g.Overlapped.Load(), Revoked: g.Revoked.Load(), Wakes: g.Wakes.Load(),
			MemGranted: g.MemGranted.Load(), MemPeak: g.MemPeak.Load(),
			LaunchesEnded: g.LaunchesEnded.Load(),
			Split:         g.Split.read(),
			Updated:       g.UpdatedNS.Load(),
		}
	})
	return b, ok
}

// DeviceEntry is a reading of what the arbiter writes into a device page. Times in nanoseconds, memory in bytes.
type DeviceEntry struct {
	Active                               uint32
	Since, Updated, UnreservedIdle, Down uint64
	Switches, MemReserved                uint64
	Ended                                SplitEntry
	Stall                                Stall
	Wanted                               Wanted
}

// Wanted is memory within floors that is lent and that its owners wait for; the zero Wanted: nobody waits.
type Wanted struct {
	Memory uint64 // bytes beyond what is free
	Since  uint64 // when the one who has waited longest began to, nanoseconds
	Task   string // its task's UID
}

// Stall is work that does not end and takes others' floors; the zero Stall: there is none.
type Stall struct {
	Since uint64 // when none of it had ended for the first time, nanoseconds
	Task  string // its UID
	PID   int    // 0: not known
}

func (d *Device) stall() Stall {
	return Stall{Since: d.StallSinceNS.Load(), Task: uidText(&d.StallUID), PID: int(d.StallPID.Load())}
}

func (d *Device) wanted() Wanted {
	return Wanted{Memory: d.MemWanted.Load(), Since: d.MemWantedSinceNS.Load(), Task: uidText(&d.MemWantedUID)}
}

// uidText is a UID that stands in a device's page.
func uidText(words *[UIDLen / 8]atomic.Uint64) string {
	var uid []byte
	for i := range words {
		uid = binary.LittleEndian.AppendUint64(uid, words[i].Load())
	}
	return Text(uid)
}

// Read reads the arbiter's fields; false when they stayed half written, which is an arbiter that died.
func (d *Device) Read() (e DeviceEntry, ok bool) {
	ok = consistent(&d.Seq, func() {
		e = DeviceEntry{
			Active: d.Active.Load(),
			Since:  d.SinceNS.Load(), Updated: d.UpdatedNS.Load(),
			UnreservedIdle: d.UnreservedIdleNS.Load(), Down: d.DownNS.Load(),
			Switches: d.Switches.Load(), MemReserved: d.MemReserved.Load(),
			Ended: d.Ended.read(), Stall: d.stall(), Wanted: d.wanted(),
		}
	})
	return e, ok
}

// Process is a live slot of a tel page. Its identity is the arbiter's word as long as the page's owner does not write over it, so it
// is believed only where that hurts nobody else.
type Process struct {
	Slot       int
	PID        int
	StartTime  uint64 // field 22 of /proc/PID/stat
	Registered uint64
}

// Processes lists the live slots.
func (t *Tel) Processes() []Process {
	var live []Process
	for i := range t.Slot {
		s := &t.Slot[i]
		if s.State.Load() == SlotLive {
			live = append(live, Process{Slot: i, PID: int(s.PID.Load()), StartTime: s.StartTime.Load(), Registered: s.RegisteredNS.Load()})
		}
	}
	return live
}
