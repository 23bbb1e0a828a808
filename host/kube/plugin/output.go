package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/aliquot-dev/aliquot/api"
)

// The formats of Plugin.Format.
const (
	Table = "table"
	JSON  = "json"
	YAML  = "yaml"
)

// Formats are all of them.
var Formats = []string{Table, JSON, YAML}

// CheckFormat fails where there is no such format, and says which there are.
func CheckFormat(format string) error {
	if slices.Contains(Formats, format) {
		return nil
	}
	return fmt.Errorf("-o %s: there is no such format: use table, json or yaml", format)
}

// encodes says whether values are printed as they are, and not as tables and sentences.
func (p Plugin) encodes() bool { return p.Format == JSON || p.Format == YAML }

// encode prints a value as JSON or YAML.
func (p Plugin) encode(value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil && p.Format == YAML {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", p.Format, err)
	}
	_, err = fmt.Fprintln(p.Out, strings.TrimRight(string(text), "\n"))
	return err
}

// What is printed so has the names that `aliquot -o json` gives the same things on one server. Amounts are numbers: compute in devices, memory in bytes.

// devices is an amount in thousandths of a device, or of a device-hour, printed as a number of wholes: 250 as 0.25.
type devices int64

// MarshalJSON is the number, with as many decimals as it has.
func (d devices) MarshalJSON() ([]byte, error) {
	return []byte(strconv.FormatFloat(float64(d)/float64(api.WholeDevice), 'f', -1, 64)), nil
}

// usageShown is one share of a device, with what it uses where that was asked and is known.
type usageShown struct {
	Namespace string     `json:"namespace"`
	Claim     string     `json:"claim"`
	Pods      []string   `json:"pods"` // that the claim is reserved for
	Grant     grantShown `json:"grant"`
	Compute   *devices   `json:"compute,omitempty"`   // of the device's time
	Memory    *int64     `json:"memory,omitempty"`    // held
	Borrowing *devices   `json:"borrowing,omitempty"` // of Compute, above the floor
	Lending   *devices   `json:"lending,omitempty"`   // of the floor, to others
	State     string     `json:"state"`               // Preparing, Ready, or the reason why it is not
	Message   string     `json:"message,omitempty"`   // why it is not ready
}

// grantShown is where a share is and what containers are held to. What its node has not said yet is left out.
type grantShown struct {
	Node           string   `json:"node"`
	Name           string   `json:"name"`             // of the device, on its node
	Device         string   `json:"device,omitempty"` // UUID
	Administrator  bool     `json:"administrator,omitempty"`
	ComputeFloor   *devices `json:"computeFloor,omitempty"`
	ComputeCeiling *devices `json:"computeCeiling,omitempty"`
	MemoryFloor    *int64   `json:"memoryFloor,omitempty"`
	MemoryCeiling  *int64   `json:"memoryCeiling,omitempty"`
	Weight         int32    `json:"weight,omitempty"`
}

// shown is a share as it is printed.
func (h holding) shown() usageShown {
	out := usageShown{Namespace: h.claim.Namespace, Claim: h.claim.Name, Pods: append([]string{}, h.pods()...), State: h.state(), Grant: grantShown{Node: h.at.Pool, Name: h.at.Device}}
	if h.ready != nil && h.ready.Status != metav1.ConditionTrue {
		out.Message = h.ready.Message
	}
	if out.Grant.Administrator = h.administers(); h.said == nil {
		return out
	}
	out.Grant.Device = h.said.UUID
	if h.administers() {
		return out
	}
	compute, memory := h.said.Compute, h.said.Memory
	out.Grant.ComputeFloor, out.Grant.ComputeCeiling = new(devices(compute.Floor)), new(devices(compute.Ceiling))
	out.Grant.MemoryFloor, out.Grant.MemoryCeiling = new(int64(memory.Floor.Bytes)), new(int64(memory.Ceiling.Bytes))
	out.Grant.Weight = h.said.Weight
	return out
}

// using is a share with what it uses.
func (u usageShown) using(now usage) usageShown {
	u.Compute, u.Memory, u.Borrowing, u.Lending = new(devices(now.compute)), new(int64(now.memory)), new(devices(now.borrowed)), new(devices(now.lent))
	return u
}

// queueShown is a queue. A bound that is not set is left out, and so is all that it has where the scheduler has not said it.
type queueShown struct {
	Name         string       `json:"name"`
	Parent       string       `json:"parent,omitempty"`
	Refused      string       `json:"refused,omitempty"` // why it does not hold; then nothing else is said of it
	Quota        *devices     `json:"quota,omitempty"`
	QuotaMemory  *int64       `json:"quotaMemory,omitempty"`
	QuotaDevices *int64       `json:"quotaDevices,omitempty"` // shares, each on one device
	Limit        amountsShown `json:"limit,omitzero"`

	Weight        api.QueueWeight      `json:"weight,omitzero"`
	Models        []modelShown         `json:"models,omitempty"`
	MaxPriority   *int32               `json:"maxPriority,omitempty"`
	Priority      int32                `json:"priority,omitempty"`
	PriorityUntil *metav1.Time         `json:"priorityUntil,omitempty"`
	PriorityAfter int32                `json:"priorityAfter,omitempty"`
	LongestRun    api.Duration         `json:"longestRun,omitempty"` // "8h"
	MinRun        api.Duration         `json:"minRun,omitempty"`
	Disruptions   api.DisruptionBudget `json:"disruptions,omitzero"`
	Hours         api.HoursQuota       `json:"hours,omitzero"` // "100/week"
	Order         string               `json:"order,omitempty"`
	*usesShown
}

// amountsShown are amounts of each resource; nil: there is none.
type amountsShown struct {
	Compute *devices `json:"compute,omitempty"`
	Memory  *int64   `json:"memory,omitempty"`
	Devices *int64   `json:"devices,omitempty"` // shares, each on one device
}

// modelShown is what a queue is guaranteed and may not pass on devices of one model.
type modelShown struct {
	Model  string          `json:"model"`
	Quota  amountsShown    `json:"quota,omitzero"`
	Limit  amountsShown    `json:"limit,omitzero"`
	Weight api.QueueWeight `json:"weight,omitzero"`
}

// usesShown is what a queue has.
type usesShown struct {
	At        metav1.Time    `json:"at"` // when the scheduler said so
	Running   int            `json:"running"`
	Waiting   int            `json:"waiting"`
	Held      devices        `json:"held"` // of Use
	Use       useShown       `json:"use"`
	Fair      useShown       `json:"fair"`
	Borrowed  useShown       `json:"borrowed"`
	AtRisk    useShown       `json:"atRisk"`
	Lent      useShown       `json:"lent"`
	OnModels  []onModelShown `json:"onModels,omitempty"`
	HoursUsed *hoursShown    `json:"hoursUsed,omitempty"`
}

// useShown is an amount of each resource.
type useShown struct {
	Compute devices `json:"compute"`
	Memory  int64   `json:"memory"`
	Devices int64   `json:"devices"`
}

// onModelShown is what a queue holds and is due on devices of one model.
type onModelShown struct {
	Model string   `json:"model"`
	Use   useShown `json:"use"`
	Fair  useShown `json:"fair"`
}

// hoursShown is what was used of device-hours in a period.
type hoursShown struct {
	Amount devices     `json:"amount"`
	Begin  metav1.Time `json:"begin"`
	End    metav1.Time `json:"end"`
}

func useOf(use api.QueueUse) useShown {
	return useShown{devices(use.Compute), int64(use.Memory), use.Devices}
}

func amountsOf(of api.QueueAmounts) amountsShown {
	out := amountsShown{Devices: of.Devices}
	if of.Compute != nil && *of.Compute != api.Unlimited {
		out.Compute = new(devices(*of.Compute))
	}
	if of.Memory != nil {
		out.Memory = new(int64(*of.Memory))
	}
	return out
}
