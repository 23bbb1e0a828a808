package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/api"
)

// ShareKind is the kind of a Share.
const ShareKind = "Share"

// Share is the share that a prepared claim has of each of its devices, and where its ceiling is changed while containers run. It has the
// claim's name and belongs to it. The claim's node agent makes it, and again with the claim's own ceiling when it was deleted.
type Share struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   ShareSpec  `json:"spec"`
	Status ShareState `json:"status,omitzero"`
}

// ShareSpec is what is asked for.
type ShareSpec struct {
	NodeName string `json:"nodeName"` // where the claim is prepared; its agent sets it
	Floor    Limits `json:"floor"`    // what the claim consumes; it cannot be changed
	Ceiling  Limits `json:"ceiling"`  // what may never be passed, at least the floor
}

// Limits are one end of a share, of each of a claim's devices.
type Limits struct {
	Compute api.Milli `json:"compute"` // "0.80", of a device
	Memory  api.Bytes `json:"memory"`  // "20Gi"
}

// ShareState is what the node agent says of a Share.
type ShareState struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"` // of the spec that the conditions are about

	// What containers are held to now, also where the ceiling asked for was refused.
	Compute api.Compute `json:"compute,omitzero"` // "0.25..0.80"
	Memory  api.Memory  `json:"memory,omitzero"`  // "4Gi..8Gi"

	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ShareApplied is the condition that says whether containers are held to the ceiling of a Share's spec.
const ShareApplied = "Applied"

// The reasons of ShareApplied.
const (
	ReasonApplied   = "Applied"
	ReasonRefused   = "Refused"   // by the node: its message says why; tried again
	ReasonNotTheirs = "NotTheirs" // the floor of the spec is not the claim's
)

// Holds is the ceiling that containers are held to, as far as that is known: not the spec's where that was refused, or is not applied yet.
func (s *Share) Holds() Limits {
	if s.Status.Compute.IsZero() || s.Status.Memory.Ceiling.Bytes == 0 {
		return s.Spec.Ceiling
	}
	return Limits{Compute: s.Status.Compute.Ceiling, Memory: s.Status.Memory.Ceiling.Bytes}
}
