package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PolicyKind is the kind of a Policy.
const PolicyKind = "Policy"

// PolicyName is the name of the one Policy that a cluster has.
const PolicyName = "default"

// Policy is the cluster's policy: who may hold how much, in which order and where, by day, by night and at weekends.
type Policy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   PolicySpec `json:"spec"`
	Status Status     `json:"status,omitzero"`
}

// PolicySpec is what is said of the policy.
type PolicySpec struct {
	Text string `json:"text"` // a policy file, see docs/policy.md
}
