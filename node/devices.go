package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/node/device"
	"github.com/aliquot-dev/aliquot/node/page"
)

// deviceState is a device with its page.
type deviceState struct {
	Device
	page *page.Map[page.Device]
	last DeviceUsage // as last read

	stopped, doubts uint64 // of DeviceUsage

	stall       page.Stall // what it is draining of; zero: not of that
	stallRead   uint64     // when this agent first read of it, by the pages' clock
	stallTold   bool       // that its task is to be ended
	stallGone   uint64     // when it first read of none again; 0: it still does
	stallSaid   page.Stall // whose work it was last said to be sick of
	stallSaidAt uint64     // when that was, by the pages' clock; 0: never since it was well

	wanted     page.Wanted // memory that owners wait for, as last read
	wantedTold uint64      // when a notice was given of it, by the pages' clock
}

// faulty is a device's health by its driver's word alone.
func (d *deviceState) faulty() api.DeviceHealth {
	if d.stall.Since != 0 {
		return api.Healthy
	}
	return d.Health
}

// loadDevices makes the pages of the devices that were found, or opens those that an earlier agent made, and marks as down those
// that are no longer found.
func (a *Agent) loadDevices() error {
	for _, info := range a.backend.Devices() {
		if err := fileName("use device", info.UUID, page.UUIDLen-1); err != nil {
			return err
		}
		d := &deviceState{Device: Device{
			UUID: info.UUID, Index: info.Index, Model: info.Model, Memory: info.Memory, Simulated: a.sim != nil, Health: api.Healthy, About: info.About,
		}}
		if err := a.openDevicePage(d); err != nil {
			return err
		}
		a.devices[d.UUID] = d
		a.order = append(a.order, d.UUID)
	}
	entries, err := os.ReadDir(a.run.devices())
	if err != nil {
		return fmt.Errorf("list the device pages: %w", err)
	}
	for _, entry := range entries {
		uuid := entry.Name()
		if a.devices[uuid] != nil {
			continue
		}
		if strings.HasPrefix(uuid, ".") || !a.used(uuid) {
			if err := os.Remove(a.run.device(uuid)); err != nil {
				return fmt.Errorf("remove the page of a device that is gone: %w", err)
			}
			continue
		}
		if err := a.loadGone(uuid); err != nil {
			return err
		}
	}
	return nil
}

// loadGone keeps a device that the driver no longer lists but that tasks were prepared on.
func (a *Agent) loadGone(uuid string) error {
	m, err := page.Open[page.Device](a.run.device(uuid), true)
	if errors.Is(err, page.ErrDamaged) {
		m, err = a.remakeDevicePage(uuid, 0, err)
	}
	if err != nil {
		return err
	}
	d := &deviceState{page: m, Device: Device{UUID: uuid, Index: -1, Health: api.Down, Reason: "the driver does not list it any more"}}
	err = m.View(func(p *page.Device) error {
		d.Memory = api.Bytes(p.MemCapacity.Load())
		p.State.Store(page.DeviceDown)
		return nil
	})
	if err != nil {
		m.Close()
		return err
	}
	a.devices[uuid] = d
	a.order = append(a.order, uuid)
	a.notify(Notice{Kind: DeviceDown, Device: uuid, Reason: d.Reason, Message: fmt.Sprintf("Device %s is down: %s.", uuid, d.Reason)})
	return nil
}

// used says whether a task is prepared on a device.
func (a *Agent) used(uuid string) bool {
	for _, t := range a.tasks {
		for _, g := range t.Task.Grants {
			if g.Device == uuid {
				return true
			}
		}
	}
	return false
}

func (a *Agent) openDevicePage(d *deviceState) error {
	name := a.run.device(d.UUID)
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		if err := a.makeDevicePage(d.UUID, d.Memory, 0); err != nil {
			return err
		}
	}
	m, err := page.Open[page.Device](name, true)
	if errors.Is(err, page.ErrDamaged) {
		m, err = a.remakeDevicePage(d.UUID, d.Memory, err)
	}
	if err != nil {
		return fmt.Errorf("open the page of device %s: %w", d.UUID, err)
	}
	d.page = m
	return m.View(func(p *page.Device) error {
		p.MemCapacity.Store(uint64(d.Memory))
		if p.State.Load() == page.DeviceDraining {
			// Memory errors do not go away by restarting an agent.
			d.Health, d.Reason = api.Draining, fmt.Sprintf("an earlier fault; end what runs on it, reset the device, remove %s (`aliquot down --all` ends all and removes it), and start Aliquot again", name)
			return nil
		}
		p.State.Store(page.DeviceOK)
		return nil
	})
}

// makeDevicePage makes a device's page, in place of any that is there. Its books begin at a time of the pages' clock; 0: when an arbiter
// first writes them.
func (a *Agent) makeDevicePage(uuid string, memory api.Bytes, began uint64) error {
	temporary := a.run.path("devices", making+uuid)
	if err := os.RemoveAll(temporary); err != nil {
		return fmt.Errorf("make the page of device %s: %w", uuid, err)
	}
	err := page.Create(temporary, 0o600, uuid, 0, monotonic(), func(p *page.Device) {
		copy(p.UUID[:page.UUIDLen-1], uuid)
		p.MemCapacity.Store(uint64(memory))
		p.SinceNS.Store(began)
		p.UpdatedNS.Store(began)
	})
	if err != nil {
		return err
	}
	point.Here("node.device.made")
	if err := os.Rename(temporary, a.run.device(uuid)); err != nil {
		return fmt.Errorf("make the page of device %s: %w", uuid, err)
	}
	return nil
}

// remakeDevicePage puts a new page in the place of a damaged one. What its tasks have used stands in their own books; the arbiter moves
// the start of the device's so that the rows add up. One that has the damaged page in use is to be replaced.
func (a *Agent) remakeDevicePage(uuid string, memory api.Bytes, damage error) (*page.Map[page.Device], error) {
	if err := a.makeDevicePage(uuid, memory, monotonic()); err != nil {
		return nil, err
	}
	a.arbiter.anew = true
	const reason = "the page with its books was damaged and is made anew; what ended tasks used, and what was held against the device, is forgotten"
	a.notify(Notice{Kind: DeviceFault, Device: uuid, Reason: reason, Message: fmt.Sprintf("Device %s: %s (%v).", uuid, reason, damage)})
	return page.Open[page.Device](a.run.device(uuid), true)
}

// watchDevices takes in what the backend says of the devices' condition, until it is closed.
func (a *Agent) watchDevices(ctx context.Context) {
	for event := range a.backend.Events() {
		switch event.Condition {
		case device.Gone:
			a.setHealth(ctx, event.UUID, api.Down, cmp.Or(a.simulatorGone(), event.Reason))
		case device.Sick:
			a.setHealth(ctx, event.UUID, api.Draining, event.Reason)
		case device.Well:
			a.setHealth(ctx, event.UUID, api.Healthy, event.Reason)
		case device.Same:
			a.notify(Notice{
				Kind: DeviceFault, Device: event.UUID, Reason: event.Reason,
				Message: fmt.Sprintf("A program failed on device %s: %s.", event.UUID, event.Reason),
			})
		}
	}
}

// setHealth changes a device's health in the books and its page and tells everyone, if it is a change.
func (a *Agent) setHealth(ctx context.Context, uuid string, health api.DeviceHealth, reason string) {
	if !a.changeHealth(uuid, health, reason) {
		return
	}
	// The arbiter looks at the page when it is told, or when it starts.
	if _, err := a.arbiter.request(ctx, "device "+uuid); err != nil {
		a.log.Warn("the arbiter could not be told of a device's health", "device", uuid, "error", err)
	}
}

// changeHealth changes a device's health and tells everyone, in one: what is told last is what is so. False: it is no change.
func (a *Agent) changeHealth(uuid string, health api.DeviceHealth, reason string) bool {
	a.telling.Lock()
	defer a.telling.Unlock()
	a.mu.Lock()
	d := a.devices[uuid]
	if d == nil || d.faulty() == health || d.faulty() == api.Down && health == api.Draining {
		a.mu.Unlock()
		return false
	}
	d.Health, d.Reason = health, reason
	d.forgetStall()
	if health == api.Healthy {
		d.Reason = ""
	}
	a.mu.Unlock()

	state := map[api.DeviceHealth]uint32{api.Healthy: page.DeviceOK, api.Draining: page.DeviceDraining, api.Down: page.DeviceDown}[health]
	if err := d.page.View(func(p *page.Device) error { p.State.Store(state); return nil }); err != nil {
		a.log.Error("a device's health could not be written into its page", "device", uuid, "error", err)
	}
	notice := Notice{Device: uuid, Reason: reason}
	switch health {
	case api.Down:
		notice.Kind, notice.Message = DeviceDown, fmt.Sprintf("Device %s is down: %s.", uuid, reason)
	case api.Draining:
		notice.Kind, notice.Message = DeviceSick, fmt.Sprintf("Device %s takes no new work: %s.", uuid, reason)
	default:
		notice.Kind, notice.Message = DeviceBack, fmt.Sprintf("Device %s is back: %s.", uuid, reason)
	}
	a.notify(notice)
	return true
}
