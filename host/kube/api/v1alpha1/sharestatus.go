package v1alpha1

import "github.com/aliquot-dev/aliquot/api"

// ShareStatusKind is the kind of a ShareStatus.
const ShareStatusKind = "ShareStatus"

// ShareStatus is what a node says of one share that it holds containers to, in the claim's status.devices.
type ShareStatus struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	UUID    string      `json:"uuid"`    // of the device
	Compute api.Compute `json:"compute"` // "0.25..0.80", of the device
	Memory  api.Memory  `json:"memory"`  // "4Gi..8Gi", in bytes
	Weight  int32       `json:"weight"`
}
