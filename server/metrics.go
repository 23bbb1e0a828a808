package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/aliquot-dev/aliquot/api"
)

// scrapePatience is how long the host may take to answer a scrape.
const scrapePatience = 5 * time.Second

// metricsHandler serves what the host knows as Prometheus metrics. What is not known is absent, never zero.
func metricsHandler(config Config) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{config.Host, config.Version}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: nil, ErrorHandling: promhttp.ContinueOnError})
}

type collector struct {
	host    Host
	version string
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("aliquot_"+name, help, labels, nil)
}

var (
	deviceLabels = []string{"device", "index", "model"}
	grantLabels  = []string{"device", "index", "workload"}
	queueLabels  = []string{"queue"}

	infoMetric = describe("info", "Always 1; what this server is.", "version")
	upMetric   = describe("host_up", "Whether the host answered this scrape.")

	deviceMemory      = describe("device_memory_bytes", "Memory that may be granted.", deviceLabels...)
	deviceMemoryUsed  = describe("device_memory_used_bytes", "Memory in use by the driver's word; absent when not known.", deviceLabels...)
	deviceMemoryFree  = describe("device_memory_unreserved_bytes", "Memory under no floor.", deviceLabels...)
	deviceComputeFree = describe("device_compute_unreserved_ratio", "Compute under no floor, as a part of the device.", deviceLabels...)
	deviceBusy        = describe("device_busy_ratio", "Part of the time the device was busy, by the driver's word; absent when not known.", deviceLabels...)
	deviceHealthy     = describe("device_healthy", "1 if the device takes work.", deviceLabels...)
	deviceUnenforced  = describe("device_unenforced_processes", "Processes on the device that no share covers; absent when not known.", deviceLabels...)
	deviceStopped     = describe("device_stopped_processes_total", "Processes that were ended on the device because no share held them, since the server started.", deviceLabels...)
	deviceDoubts      = describe("device_memory_doubts_total", "Times that a share held more memory of the device by the driver's word than it may, since the server started.", deviceLabels...)

	grantFloor       = describe("share_compute_floor_ratio", "Compute floor, as a part of the device.", grantLabels...)
	grantCeiling     = describe("share_compute_ceiling_ratio", "Compute ceiling, as a part of the device.", grantLabels...)
	grantMemFloor    = describe("share_memory_floor_bytes", "Memory floor.", grantLabels...)
	grantMemCeiling  = describe("share_memory_ceiling_bytes", "Memory ceiling.", grantLabels...)
	grantMemory      = describe("share_memory_bytes", "Memory held, overhead included; absent when not known.", grantLabels...)
	grantByDriver    = describe("share_memory_by_driver_bytes", "Memory that the share's processes hold by the driver's word; absent when not known.", grantLabels...)
	grantDeviceTime  = describe("share_device_seconds_total", "Device time held since the grant.", grantLabels...)
	grantOwnTime     = describe("share_own_seconds_total", "Device time held within the floor since the grant.", grantLabels...)
	grantBurstTime   = describe("share_burst_seconds_total", "Device time held above the floor since the grant.", grantLabels...)
	grantWaited      = describe("share_waited_ratio", "Part of the last 10 seconds, or of less where it was not watched so long, spent waiting at the gate.", grantLabels...)
	grantLaunches    = describe("share_launches_total", "Launches let through since the grant.", grantLabels...)
	grantProcesses   = describe("share_processes", "Processes that are held to the share.", grantLabels...)
	grantEnforced    = describe("share_enforced", "1 if nothing was seen to evade the share; absent when its meters are not known.", grantLabels...)
	workloadsByPhase = describe("workloads", "Live workloads by phase and queue.", "phase", "queue")
	workloadUnknown  = describe("workload_unknown_calls", "How often the workload's processes looked up functions of the driver that the shim does not know: calls of those are not held to the share; absent when its meters are not known.", "workload")
	oldestWaiting    = describe("oldest_waiting_seconds", "How long the oldest workload that waits has waited; absent when none does.")

	estimatesCounted = describe("start_estimates", "How many of the last starts, 256 at the most, an estimate had been given of; absent when none.")
	estimatesLate    = describe("start_estimates_late", "How many of these started later than was said.")
	estimateError    = describe("start_estimate_error_seconds", "How far these starts were from what was said, sooner or later, by quantile.", "quantile")

	queueHeld    = describe("queue_held_devices", "Compute floors held by the queue, in devices, subtree included.", queueLabels...)
	queueQuota   = describe("queue_quota_devices", "The queue's quota in devices; absent when none is set.", queueLabels...)
	queueWaiting = describe("queue_waiting", "Workloads of the queue that wait.", queueLabels...)
	queueRunning = describe("queue_running", "Workloads of the queue that hold grants.", queueLabels...)
)

// Describe describes nothing: labels come and go with the devices and workloads.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect asks the host.
func (c collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	gauge(to, infoMetric, 1, c.version)
	answered := true
	devices, err := c.host.Devices(ctx)
	answered = answered && err == nil
	for _, device := range devices {
		collectDevice(to, device)
	}
	workloads, err := c.host.Workloads(ctx, false)
	if answered = answered && err == nil; err == nil {
		collectWorkloads(to, workloads)
	}
	queues, err := c.host.Queues(ctx)
	answered = answered && err == nil
	for _, queue := range queues {
		gauge(to, queueHeld, part(queue.Held), queue.Name)
		gauge(to, queueWaiting, float64(queue.Waiting), queue.Name)
		gauge(to, queueRunning, float64(queue.Running), queue.Name)
		if queue.Quota != api.Unlimited {
			gauge(to, queueQuota, float64(queue.Quota)/float64(api.WholeDevice), queue.Name)
		}
	}
	past, err := c.host.Starts(ctx)
	if answered = answered && err == nil; past != nil {
		gauge(to, estimatesCounted, float64(past.Starts))
		gauge(to, estimatesLate, float64(past.Late))
		gauge(to, estimateError, time.Duration(past.Median).Seconds(), "0.5")
		gauge(to, estimateError, time.Duration(past.P90).Seconds(), "0.9")
	}
	gauge(to, upMetric, yes(answered))
}

func collectDevice(to chan<- prometheus.Metric, device api.Device) {
	labels := []string{device.UUID, strconv.Itoa(device.Index), device.Model}
	gauge(to, deviceMemory, float64(device.Memory), labels...)
	gauge(to, deviceMemoryFree, float64(device.MemoryFree), labels...)
	gauge(to, deviceComputeFree, part(device.ComputeFree), labels...)
	gauge(to, deviceHealthy, yes(device.Health == api.Healthy), labels...)
	counter(to, deviceStopped, float64(device.Stopped), labels...)
	counter(to, deviceDoubts, float64(device.MemoryDoubts), labels...)
	answered := device.MemoryUsed != nil || device.Busy != nil || len(device.Unenforced) > 0 // else its driver was not asked, or did not answer
	if answered && device.Unseen != api.UnseenProcesses {
		gauge(to, deviceUnenforced, float64(len(device.Unenforced)), labels...)
	}
	if device.MemoryUsed != nil {
		gauge(to, deviceMemoryUsed, float64(*device.MemoryUsed), labels...)
	}
	if device.Busy != nil {
		gauge(to, deviceBusy, part(*device.Busy), labels...)
	}
	for _, usage := range device.Grants {
		collectGrant(to, usage, device.UUID, strconv.Itoa(device.Index), usage.Workload)
	}
}

func collectGrant(to chan<- prometheus.Metric, usage api.Usage, labels ...string) {
	gauge(to, grantFloor, part(usage.Grant.ComputeFloor), labels...)
	gauge(to, grantCeiling, part(usage.Grant.ComputeLimit), labels...)
	gauge(to, grantMemFloor, float64(usage.Grant.MemoryFloor), labels...)
	gauge(to, grantMemCeiling, float64(usage.Grant.MemoryCeiling), labels...)
	if usage.Memory != nil || !usage.Enforced { // that nothing was seen says nothing where nobody could look
		gauge(to, grantEnforced, yes(usage.Enforced), labels...)
	}
	if usage.Memory == nil {
		return // its meters are not known
	}
	gauge(to, grantMemory, float64(*usage.Memory), labels...)
	if usage.MemoryByDriver != nil {
		gauge(to, grantByDriver, float64(*usage.MemoryByDriver), labels...)
	}
	gauge(to, grantProcesses, float64(usage.Processes), labels...)
	counter(to, grantDeviceTime, usage.DeviceTime.Seconds(), labels...)
	counter(to, grantOwnTime, usage.Own.Seconds(), labels...)
	counter(to, grantBurstTime, usage.Burst.Seconds(), labels...)
	counter(to, grantLaunches, float64(usage.Launches), labels...)
	if usage.Compute != nil {
		gauge(to, grantWaited, part(usage.WaitedShare), labels...)
	}
}

func collectWorkloads(to chan<- prometheus.Metric, workloads []api.Workload) {
	type key struct {
		phase api.Phase
		queue string
	}
	counts := map[key]int{}
	var oldest time.Time
	for _, work := range workloads {
		counts[key{work.Status.Phase, work.Spec.Queue}]++
		for _, usage := range work.Status.Usage {
			if usage.Memory != nil { // its meters are known; what they say of it is of the whole workload
				gauge(to, workloadUnknown, float64(usage.UnknownCalls), work.Spec.Name)
				break
			}
		}
		if work.Status.Phase == api.Waiting && (oldest.IsZero() || work.Status.Submitted.Before(oldest)) {
			oldest = work.Status.Submitted
		}
	}
	for at, count := range counts {
		gauge(to, workloadsByPhase, float64(count), string(at.phase), at.queue)
	}
	if !oldest.IsZero() {
		gauge(to, oldestWaiting, time.Since(oldest).Seconds())
	}
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
