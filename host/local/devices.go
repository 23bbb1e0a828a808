package local

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/host/models"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/server"
)

// Info says what this server is.
func (h *Host) Info(ctx context.Context, who server.Caller) (api.Info, error) {
	info := api.Info{
		Version: h.Version, Node: h.name, Simulated: h.Agent.Simulated(), User: who.Name, AllUsers: h.uid == 0,
		Warnings: []string{}, ShimMode: "library path", Native: h.Run, State: h.State, Unenforced: cmp.Or(h.Unenforced, api.ShowUnenforced),
		LatencyClass: h.LatencyClasses.String(),
	}
	if h.Agent.Mounts() {
		info.ShimMode = "mounts"
	}
	if info.Simulated {
		info.SimSocket = h.Run + "/sim/simgpu.sock"
		if names, err := os.ReadFile(filepath.Join(h.Run, "sim", "devices")); err == nil { // else they are not known, and not shown
			info.Simulate = strings.TrimSpace(string(names))
		}
	}
	info.Warnings = append(info.Warnings, h.Agent.Notes()...)
	info.Warnings = append(info.Warnings, h.undeclarable()...)
	err := h.look(ctx, func() {
		info.Devices = len(h.order)
		for _, uuid := range h.order {
			if device := h.devices[uuid]; device.Health != api.Healthy {
				info.Warnings = append(info.Warnings, fmt.Sprintf("device %d (%s) is %s: %s", device.Index, device.Model, device.Health, device.Reason))
			}
		}
		for _, message := range h.alarms {
			info.Warnings = append(info.Warnings, message)
		}
		for _, warning := range []string{h.ruling.failed, h.ruling.doubt} {
			if warning != "" {
				info.Warnings = append(info.Warnings, warning)
			}
		}
		if h.broken != nil {
			info.Warnings = append(info.Warnings, h.cannotStore().Error())
		}
		for _, uid := range h.orphaned {
			info.Warnings = append(info.Warnings, "a task without a workload was found at the start and cleaned up: "+uid)
		}
	})
	return info, err
}

// traitsOf is what is known of what a device can do, costs and draws, and what is declared of it.
func (h *Host) traitsOf(d *node.Device) fleet.Traits {
	traits := models.Told(d.Model, d.About.Capability)
	traits.Latency = models.Latency(h.LatencyClasses, d.UUID, d.Model)
	return traits
}

// undeclarable says which latency classes are declared of devices that there are not.
func (h *Host) undeclarable() (warnings []string) {
	for _, one := range h.LatencyClasses {
		there := slices.ContainsFunc(h.Agent.Devices(), func(d node.Device) bool { return models.Latency(api.LatencyClasses{one}, d.UUID, d.Model) > 0 })
		if !there && one.Of != "" {
			warnings = append(warnings, fmt.Sprintf("latency class %d is declared of %s, and no device is called so: name a model or a UUID as `aliquot devices -o wide` prints it, with `aliquot up --latency-class`", one.Class, one.Of))
		}
	}
	return warnings
}

// linkOf names what a device is linked with: devices of the same name are with each other; empty: with none, or it is not known.
func linkOf(d *node.Device) string { return cmp.Or(d.About.LinkDomain, d.About.Links) }

// numaOf is the memory node of a device; empty: it is not known.
func numaOf(d *node.Device) string {
	if d.About.NUMANode == nil {
		return ""
	}
	return strconv.Itoa(*d.About.NUMANode)
}

// Devices lists the devices with what is granted on them and used now.
func (h *Host) Devices(ctx context.Context) ([]api.Device, error) {
	metered, seen, err := h.meters(ctx)
	if err != nil {
		return nil, err
	}
	list := []api.Device{}
	err = h.look(ctx, func() {
		h.measure()
		books := map[string]engine.DeviceBook{}
		for _, book := range h.engine.Devices() {
			books[book.UUID] = book
		}
		for _, uuid := range h.order {
			device, book := h.devices[uuid], books[uuid]
			traits := h.traitsOf(device)
			if device.Health != api.Healthy { // it takes no work: nothing of it can be had
				book.ComputeFree, book.MemoryFree = 0, 0
			}
			list = append(list, api.Device{
				UUID: uuid, Index: device.Index, Model: device.Model, Simulated: device.Simulated, Memory: device.Memory,
				ComputeFree: max(0, book.ComputeFree), MemoryFree: max(0, book.MemoryFree), Health: device.Health,
				HealthReason: device.Reason, Grants: []api.Usage{}, Capability: api.Capability(traits.Capability), Bandwidth: traits.Bandwidth, LatencyClass: traits.Latency,
				Link: linkOf(device), NUMA: numaOf(device),
			})
		}
		h.addUsage(list, metered, seen)
	})
	return list, err
}

// outOfService says which devices take no work, and why, and whether that is all of them; empty: all do.
func (h *Host) outOfService() (text string, all bool) {
	var indices []string
	health, reason, same := api.Healthy, "", true
	for _, uuid := range h.order {
		device := h.devices[uuid]
		if device.Health == api.Healthy {
			continue
		}
		same = same && (len(indices) == 0 || health == device.Health && reason == device.Reason)
		health, reason = device.Health, device.Reason
		indices = append(indices, strconv.Itoa(device.Index))
		text += fmt.Sprintf("; device %d (%s) is %s: %s", device.Index, device.Model, health, reason)
	}
	text = strings.TrimPrefix(text, "; ")
	if same && len(indices) > 1 {
		text = fmt.Sprintf("devices %s are %s: %s", strings.Join(indices, " and "), health, reason)
	}
	return text, len(indices) == len(h.order)
}

// addUsage puts meters and grants on devices.
func (h *Host) addUsage(list []api.Device, metered meters, seen []node.DeviceUsage) {
	at := map[string]*api.Device{}
	for i := range list {
		at[list[i].UUID] = &list[i]
	}
	for _, usage := range seen {
		if device := at[usage.UUID]; device != nil {
			device.MemoryUsed, device.Busy, device.Unenforced = usage.MemoryUsed, usage.Busy, usage.Unenforced
			device.Unseen, device.Stopped, device.MemoryDoubts = usage.Unseen, usage.Stopped, usage.MemoryDoubts
		}
	}
	for _, uid := range h.byOrder() {
		for _, usage := range metered.usage(h.work[uid]) {
			if device := at[usage.Grant.Device]; device != nil {
				device.Grants = append(device.Grants, usage)
			}
		}
	}
}

// UserName is the name of a user, or its number where it has none.
func UserName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if found, err := user.LookupId(number); err == nil {
		return found.Username
	}
	return number
}
