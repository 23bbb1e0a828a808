package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// HandleError is told of what goes wrong behind kubelet's back: slices that the API server does not take, which is tried again; that it takes them without
// fields which it does not know, and then they stay so until they are offered anew; and that a server which kubelet calls has ended.
func (p plugin) HandleError(_ context.Context, err error, message string) {
	var dropped *resourceslice.DroppedFieldsError
	if errors.As(err, &dropped) {
		p.tellOfDropped(dropped)
		return
	}
	p.log.Error(message, "error", err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		select {
		case p.failed <- fmt.Errorf("kubelet cannot be served any more: %s: %w", message, err):
		default: // one reason is enough
		}
	}
}

// tellOfDropped says what goes wrong without the fields that the API server drops of a slice, in an event for each of its features that are off.
func (d *Driver) tellOfDropped(dropped *resourceslice.DroppedFieldsError) {
	features := dropped.DisabledFeatures()
	if len(features) == 0 {
		features = []string{"unknown"}
	}
	for _, feature := range features {
		reason, what := "FieldsDropped", "The API server drops fields of this node's ResourceSlices, and not all is known of its devices; turn this feature on"
		switch feature {
		case "DRAConsumableCapacity":
			reason, what = "WholeDevices", "The API server drops fields that shares need; this node's devices are whole ones until this feature is on"
		case "DRADeviceTaints":
			reason, what = "TaintsDropped", "The API server drops the taints of devices; those of this node that are sick or down are not kept from new pods, which do not start there, and pods are not evicted from one that is down. Turn this feature on, and cordon the node until then"
		}
		d.log.Error(strings.ToLower(what[:1])+what[1:], "feature", feature, "error", dropped)
		d.tellOfNode(corev1.EventTypeWarning, reason, what+": "+feature+".")
	}
}
