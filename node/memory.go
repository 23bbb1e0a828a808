package node

import (
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/page"
)

// MemoryHeld is what each grant of the prepared tasks holds now, by task. It reads the pages and nothing else, and costs about two
// microseconds a grant. A task whose page cannot be read is left out.
func (a *Agent) MemoryHeld() []MemoryHeld {
	var all []MemoryHeld
	for _, t := range a.listTasks() {
		held := make([]MemoryHeld, len(t.asked.Grants))
		if t.task.readMemory(t.asked, a.capacity, held) == nil {
			all = append(all, held...)
		}
	}
	return all
}

// readMemory reads a task's pages. It fails where they are closed.
func (t *task) readMemory(asked Task, capacity func(device string) api.Bytes, held []MemoryHeld) error {
	err := t.ctl.View(func(c *page.Ctl) error {
		for i, g := range asked.Grants {
			granted := api.Bytes(min(c.Grant[i].MemGranted.Load(), uint64(capacity(g.Device))))
			held[i] = MemoryHeld{Task: asked.UID, Grant: g, Granted: granted, Firm: granted}
			if asked.Flags.Revocable {
				held[i].Firm = min(granted, g.MemFloor)
			}
		}
		return nil
	})
	if err != nil || t.tel == nil {
		return err
	}
	return t.tel.View(func(tel *page.Tel) error {
		processes := tel.Processes()
		for i, g := range asked.Grants {
			held[i].Used = usedMemory(tel, processes, i, capacity(g.Device))
		}
		return nil
	})
}

// usedMemory is what a task's processes say they hold by one grant. A claim of more than the device has counts as all of it: it
// hurts nobody but must not overflow either.
func usedMemory(tel *page.Tel, processes []page.Process, grant int, capacity api.Bytes) api.Bytes {
	sum, most := uint64(0), uint64(capacity)
	for _, p := range processes {
		entry := &tel.Slot[p.Slot].Grant[grant]
		sum = min(sum+min(entry.MemUsed.Load(), most)+min(entry.MemOverhead.Load(), most), most)
	}
	return api.Bytes(sum)
}

// crowded says that floors of t cannot be delivered: with them more is reserved on a device than it has, even after the arbiter took
// back what nobody uses. Floors that are no higher than those of before (by device) take nothing more and are not asked about.
func (a *Agent) crowded(t Task, before map[string]api.Bytes) error {
	for _, g := range t.Grants {
		if g.MemFloor <= before[g.Device] {
			continue
		}
		a.mu.Lock()
		d := a.devices[g.Device]
		a.mu.Unlock()
		var reserved api.Bytes
		err := d.page.View(func(p *page.Device) error {
			reserved = api.Bytes(min(p.MemReserved.Load(), 1<<60))
			return nil
		})
		if err != nil {
			return err
		}
		if reserved > d.Memory {
			return fmt.Errorf("a memory floor of %s on device %d: others there hold memory above their floors, and with it %s of %s would be taken; it fits once %s are given back",
				g.MemFloor, d.Index, reserved, d.Memory, reserved-d.Memory)
		}
	}
	return nil
}

// belowUse says that a ceiling of t, lower than before, is less than what the task holds: memory that is used cannot be taken back.
func (a *Agent) belowUse(have *task, before, t Task) error {
	held := make([]MemoryHeld, len(t.Grants))
	if err := have.readMemory(t, a.capacity, held); err != nil {
		return err
	}
	for i, h := range held {
		lower := h.Grant.MemCeiling < before.Grants[i].MemCeiling
		if d, _ := a.device(h.Grant.Device); lower && h.Used > h.Grant.MemCeiling {
			return fmt.Errorf("a memory ceiling of %s on device %d: it holds %s there; ask for at least that", h.Grant.MemCeiling, d.Index, h.Used)
		}
	}
	return nil
}
