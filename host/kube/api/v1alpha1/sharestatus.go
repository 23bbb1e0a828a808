package v1alpha1

import "github.com/aliquot-dev/aliquot/api"

// ShareStatusKind is the kind of a ShareStatus.
const ShareStatusKind = "ShareStatus"

// ShareStatus is what a node says of one share that it holds containers to, in the claim's status.devices.
type ShareStatus struct {
	APIVersion string `json:"apiVersion"` // always aliquot.dev/v1alpha1
	Kind       string `json:"kind"`       // always ShareStatus

	UUID    string      `json:"uuid"`    // of the device, as its maker names it
	Compute api.Compute `json:"compute"` // floor and ceiling of the device's time, as "0.25..0.80"
	Memory  api.Memory  `json:"memory"`  // floor and ceiling in bytes, as "4Gi..8Gi"
	Weight  int32       `json:"weight"`  // by which what is lent is divided among those who want it
}
