package annotation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// The names that stand in claims and pods.
const (
	Driver    = "gpu.aliquot.dev" // also of the device class
	ClaimName = "aliquot"         // of the claim among a pod's

	// The capacities of a device, which a claim requests a part of.
	DeviceCompute = "compute" // thousandths of the device
	DeviceMemory  = "memory"  // bytes

	// Made is the label of templates that were made for annotations.
	Made      = "aliquot.dev/made-for"
	MadeValue = "annotations"

	request = "gpu"
)

// Name is that of the template: the same for all who ask for the same, by whatever words. It is made from what is asked for and not from what
// Spec makes of it, so that one version of the webhook and another of the controller agree.
func (a Ask) Name() string {
	says := fmt.Sprintf("compute=%s memory=%s devices=%d weight=%d class=%s", a.Share.Compute, a.Share.Memory, a.Devices, a.Share.Weight, a.Class)
	if a.Latency > 0 { // else the name is as it was before there were classes
		says += fmt.Sprintf(" latency=%d", a.Latency)
	}
	sum := sha256.Sum256([]byte(says))
	return "aliquot-" + hex.EncodeToString(sum[:10])
}

// Spec is what a claim says that asks for the same. What the API server would fill in is filled in.
func (a Ask) Spec() (resourceapi.ResourceClaimSpec, error) {
	// A capacity that is not requested is all of a device's.
	requested := map[resourceapi.QualifiedName]resource.Quantity{DeviceCompute: *resource.NewQuantity(int64(a.Share.Compute.Floor), resource.DecimalSI)}
	if a.Share.Memory.Floor.Part != api.WholeDevice {
		requested[DeviceMemory] = *resource.NewQuantity(int64(a.Share.Memory.Floor.Bytes), resource.BinarySI)
	}
	spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: request,
		Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: Driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(a.Devices),
			Capacity: &resourceapi.CapacityRequirements{Requests: requested},
		},
	}}}}
	if a.Latency > 0 { // a device of which no class is declared has no such attribute
		class := fmt.Sprintf("device.attributes[%q].latencyClass", Driver)
		spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("has(%s) && %s <= %d", class, class, a.Latency),
		}}}
	}
	if a.Devices > 1 { // a claim has at most one share of a device
		uuid := resourceapi.FullyQualifiedName(Driver + "/uuid")
		spec.Devices.Constraints = []resourceapi.DeviceConstraint{{Requests: []string{request}, DistinctAttribute: &uuid}}
	}
	config := v1alpha1.ShareConfig{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ShareConfigKind, Weight: a.Share.Weight, Class: a.Class}
	if c := a.Share.Compute; c.Ceiling != c.Floor {
		config.Ceiling.Compute = c.Ceiling
	}
	if m := a.Share.Memory; m.Ceiling != m.Floor {
		config.Ceiling.Memory = m.Ceiling
	}
	raw, err := json.Marshal(config)
	spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{Requests: []string{request}, DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: Driver, Parameters: runtime.RawExtension{Raw: raw}},
	}}}
	return spec, err
}

// Template is the claim's template in a namespace.
func (a Ask) Template(namespace string) (*resourceapi.ResourceClaimTemplate, error) {
	spec, err := a.Spec()
	return &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: a.Name(), Labels: map[string]string{Made: MadeValue}},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	}, err
}

// Same says whether two claims ask for the same, however the parameters of drivers are written.
func Same(a, b resourceapi.ResourceClaimSpec) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	one, first := takeConfigs(x)
	two, second := takeConfigs(y)
	return first && second && slices.Equal(one, two) && equality.Semantic.DeepEqual(x, y)
}

// takeConfigs takes the ShareConfigs out of a claim; false where one is of another driver, or not to be read.
func takeConfigs(spec *resourceapi.ResourceClaimSpec) ([]v1alpha1.ShareConfig, bool) {
	var all []v1alpha1.ShareConfig
	for i := range spec.Devices.Config {
		opaque := spec.Devices.Config[i].Opaque
		if opaque == nil || opaque.Driver != Driver {
			return nil, false
		}
		config, err := v1alpha1.ParseShareConfig(opaque.Parameters.Raw)
		if err != nil {
			return nil, false
		}
		all = append(all, config)
		opaque.Parameters = runtime.RawExtension{}
	}
	return all, true
}
