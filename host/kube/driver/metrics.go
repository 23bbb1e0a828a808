package driver

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// scrapePatience is how long the meters may take to answer a scrape.
const scrapePatience = 5 * time.Second

var (
	deviceLabels = []string{"device", "index", "model"}
	shareLabels  = []string{"device", "index", "namespace", "claim"}

	agentUp = describe("agent_up", "Whether the meters answered this scrape.")

	deviceMemory     = describe("device_memory_bytes", "Memory that may be granted.", deviceLabels...)
	deviceMemoryUsed = describe("device_memory_used_bytes", "Memory in use by the driver's word; absent when not known.", deviceLabels...)
	deviceBusy       = describe("device_busy_ratio", "Part of the time the device was busy, by the driver's word; absent when not known.", deviceLabels...)
	deviceHealthy    = describe("device_healthy", "1 if the device takes work.", deviceLabels...)
	deviceUnenforced = describe("device_unenforced_processes", "Processes on the device that no share covers; absent when not known.", deviceLabels...)
	deviceStopped    = describe("device_stopped_processes_total", "Processes that were ended on the device because no share held them, since the agent started.", deviceLabels...)
	deviceDoubts     = describe("device_memory_doubts_total", "Times that a share held more memory of the device by the driver's word than it may, since the agent started.", deviceLabels...)

	shareReady      = describe("share_ready", "1 if containers are held to the share, else 0; reason is that of the claim's condition Ready.", append(shareLabels, "reason")...)
	shareFloor      = describe("share_compute_floor_ratio", "Compute floor, as a part of the device.", shareLabels...)
	shareCeiling    = describe("share_compute_ceiling_ratio", "Compute ceiling, as a part of the device.", shareLabels...)
	shareMemFloor   = describe("share_memory_floor_bytes", "Memory floor.", shareLabels...)
	shareMemCeiling = describe("share_memory_ceiling_bytes", "Memory ceiling.", shareLabels...)
	shareMemory     = describe("share_memory_bytes", "Memory held, overhead included.", shareLabels...)
	shareDeviceTime = describe("share_device_seconds_total", "Device time held since the claim was prepared.", shareLabels...)
	shareOwnTime    = describe("share_own_seconds_total", "Device time held within the floor since the claim was prepared.", shareLabels...)
	shareBurstTime  = describe("share_burst_seconds_total", "Device time held above the floor since the claim was prepared.", shareLabels...)
	shareLent       = describe("share_lent_seconds_total", "Device time of the floor that others used since the claim was prepared.", shareLabels...)
	shareWaited     = describe("share_waited_seconds_total", "Time spent waiting at the gate since the claim was prepared, summed over processes.", shareLabels...)
	shareLaunches   = describe("share_launches_total", "Launches let through since the claim was prepared.", shareLabels...)
	shareProcesses  = describe("share_processes", "Processes that are held to the share.", shareLabels...)
	claimUnknown    = describe("claim_unknown_calls", "How often the claim's processes looked up functions of the driver that the shim does not know: calls of those are not held to the share.", "namespace", "claim")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("aliquot_"+name, help, labels, nil)
}

// Metrics are the node's devices and shares for Prometheus, by the names that one server has. What is not known is absent, never zero.
func (d *Driver) Metrics() prometheus.Collector { return collector{d} }

type collector struct{ driver *Driver }

// Describe describes nothing: labels come and go with devices and claims.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads all meters.
func (c collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	for _, device := range c.driver.config.Agent.Devices() {
		labels := labelsOf(device)
		gauge(to, deviceMemory, float64(device.Memory), labels...)
		gauge(to, deviceHealthy, yes(device.Health == api.Healthy), labels...)
	}
	sample, err := c.driver.config.Agent.Sample(ctx)
	gauge(to, agentUp, yes(err == nil))
	if err != nil {
		c.driver.log.Warn("the meters did not answer a scrape", "error", err)
		return
	}
	for _, usage := range sample.Devices {
		collectDevice(to, usage, labelsOf(c.driver.deviceNow(usage.UUID)))
	}
	told := map[string]bool{} // claims whose unknown calls were, which are of the whole claim
	for _, usage := range sample.Tasks {
		one, found, err := c.driver.checkpoints.read(usage.Task)
		if err != nil || !found || one.Name == "" {
			continue // being taken back, or damaged: whose it is nobody knows
		}
		device := c.driver.deviceNow(usage.Grant.Device)
		c.collectShare(to, usage, device, device.UUID, strconv.Itoa(device.Index), one.Namespace, one.Name)
		if !told[usage.Task] {
			told[usage.Task] = true
			gauge(to, claimUnknown, float64(usage.UnknownCalls), one.Namespace, one.Name)
		}
	}
}

func labelsOf(device node.Device) []string {
	return []string{device.UUID, strconv.Itoa(device.Index), device.Model}
}

func collectDevice(to chan<- prometheus.Metric, usage node.DeviceUsage, labels []string) {
	counter(to, deviceStopped, float64(usage.Stopped), labels...)
	counter(to, deviceDoubts, float64(usage.MemoryDoubts), labels...)
	answered := usage.MemoryUsed != nil || usage.Busy != nil || len(usage.Unenforced) > 0 // else its driver was not asked, or did not answer
	if answered && usage.Unseen != api.UnseenProcesses {
		gauge(to, deviceUnenforced, float64(len(usage.Unenforced)), labels...)
	}
	if usage.MemoryUsed != nil {
		gauge(to, deviceMemoryUsed, float64(*usage.MemoryUsed), labels...)
	}
	if usage.Busy != nil {
		gauge(to, deviceBusy, part(*usage.Busy), labels...)
	}
}

func (c collector) collectShare(to chan<- prometheus.Metric, usage node.Usage, device node.Device, labels ...string) {
	ready, reason := 1.0, "Prepared"
	if wrong := c.driver.troubles.worst(usage.Task, device); wrong != nil {
		ready, reason = 0, wrong.reason
	}
	gauge(to, shareReady, ready, append(labels, reason)...)
	grant := usage.Grant
	gauge(to, shareFloor, part(grant.Floor), labels...)
	gauge(to, shareCeiling, part(grant.Ceiling), labels...)
	gauge(to, shareMemFloor, float64(grant.MemFloor), labels...)
	gauge(to, shareMemCeiling, float64(grant.MemCeiling), labels...)
	gauge(to, shareMemory, float64(usage.Memory), labels...)
	gauge(to, shareProcesses, float64(len(usage.Processes)), labels...)
	counter(to, shareDeviceTime, usage.Held.Seconds(), labels...)
	counter(to, shareOwnTime, usage.Own.Seconds(), labels...)
	counter(to, shareBurstTime, usage.Burst.Seconds(), labels...)
	counter(to, shareLent, usage.Lent.Seconds(), labels...)
	counter(to, shareWaited, usage.Waited.Seconds(), labels...)
	counter(to, shareLaunches, float64(usage.Launches), labels...)
}

func gauge(to chan<- prometheus.Metric, what *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...)
}

func counter(to chan<- prometheus.Metric, what *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(what, prometheus.CounterValue, value, labels...)
}

func part(milli api.Milli) float64 { return float64(milli) / float64(api.WholeDevice) }

func yes(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
