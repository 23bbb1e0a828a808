package demand

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func selectors(of ...string) (all []resourceapi.DeviceSelector) {
	for _, expression := range of {
		all = append(all, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}})
	}
	return all
}

// Whose devices may match is said by what selectors say of drivers, in whatever words.
func TestWhose(t *testing.T) {
	ours, others, either := Whose{Ours: true}, Whose{Others: true}, Whose{Ours: true, Others: true}
	const dear = `[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a+b+c+d+e < 100)))))`
	const is, net = `device.driver == "gpu.aliquot.dev"`, `device.driver == "net.example"`
	for expression, want := range map[string]Whose{
		"true": either,
		is:     ours, `device.driver == 'gpu.aliquot.dev'`: ours, `"gpu.aliquot.dev" == device.driver`: ours,
		net: others, `device.driver != "gpu.aliquot.dev"`: others, `device.driver != "net.example"`: either,
		`device.driver in ["gpu.aliquot.dev", "net.example"]`: either, is + " || " + net: either,
		`device.driver in ["ib.example", "net.example"]`: others, `device.driver.startsWith("gpu.")`: either, `device.driver.endsWith(".example")`: others,
		`device.driver.matches("^nic\\.example$")`:                                                                              others,
		is + ` && device.attributes["gpu.aliquot.dev"].model == "H200"`:                                                         ours,
		`device.attributes["gpu.aliquot.dev"].model == "H200"`:                                                                  ours, // of others it is an error
		`device.attributes["net.example"].speed > 100`:                                                                          others,
		`has(device.attributes["gpu.aliquot.dev"].model)`:                                                                       ours,
		`!has(device.attributes["gpu.aliquot.dev"].model)`:                                                                      either, // an old driver may not say
		`has(device.attributes["net.example"].speed)`:                                                                           others,
		`cel.bind(dra, device.attributes["net.example"], has(dra.speed) && dra.speed > 100)`:                                    others,
		`device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:00"`:                                                  either,
		`device.allowMultipleAllocations`:                                                                                       either,
		`device.capacity["gpu.aliquot.dev"].memory.compareTo(quantity("40Gi")) >= 0`:                                            ours,
		`device.capacity["net.example"].bandwidth.compareTo(quantity("1Gi")) >= 0`:                                              others,
		`device.driver == "net.example" && device.attributes["gpu.aliquot.dev"].model == "H200"`:                                {},
		`device.driver == "gpu.aliquot.dev" ? device.attributes["gpu.aliquot.dev"].number < 2 : device.driver == "net.example"`: either,
		`device.driver ==`: either, `device.driver == "gpu.aliquot.dev" && device.newer == "x"`: either, // to a later version it may be more
		`device.driver.matches("^gpu\\..+$")`: either, `device.driver.startsWith("gpu.") && device.driver.endsWith(".dev")`: either, `device.driver > "g" && device.driver < "h"`: either,
		`cel.bind(d, device, d.driver == "gpu.aliquot.dev")`: either, `device.driver == string(device.allowMultipleAllocations)`: either,
		`device.allowMultipleAllocations || ` + dear: either,
		is + ` && device.attributes["gpu.aliquot.dev"].uuid in ["` + strings.Join(strings.Split(strings.Repeat("GPU-1,", 200), ","), `","`) + `"]`: ours,
	} {
		if got := whoseMatch(nil, selectors(expression)); got != want {
			t.Errorf("%s: %+v, want %+v", expression, got, want)
		}
	}
	for name, one := range map[string]struct {
		selectors []resourceapi.DeviceSelector
		want      Whose
	}{
		"none":            {nil, either},
		"both":            {selectors("true", is), ours},
		"a contradiction": {selectors(net, is), Whose{}},
		"narrowed":        {selectors(`device.driver in ["gpu.aliquot.dev", "net.example"]`, `device.driver != "gpu.aliquot.dev"`), others},
	} {
		if got := whoseMatch(nil, one.selectors); got != one.want {
			t.Errorf("%s: %+v, want %+v", name, got, one.want)
		}
	}
}

// A claim may be given what any alternative of any of its requests may be.
func TestOf(t *testing.T) {
	classes := map[string]*resourceapi.DeviceClass{}
	for name, expression := range map[string]string{"ours": `device.driver == "gpu.aliquot.dev"`, "theirs": `device.driver == "net.example"`, "any": "true", "none": "false"} {
		classes[name] = &resourceapi.DeviceClass{Spec: resourceapi.DeviceClassSpec{Selectors: selectors(expression)}}
	}
	find := func(name string) *resourceapi.DeviceClass { return classes[name] }
	exactly := func(class string, change func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
		r := resourceapi.DeviceRequest{Name: "one", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}
		if change != nil {
			change(r.Exactly)
		}
		return r
	}
	wants := func(capacity resourceapi.QualifiedName) func(*resourceapi.ExactDeviceRequest) {
		return func(r *resourceapi.ExactDeviceRequest) {
			r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{capacity: resource.MustParse("1")}}
		}
	}
	choice := resourceapi.DeviceRequest{Name: "one", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "a", DeviceClassName: "ours"}, {Name: "b", DeviceClassName: "any"}, {Name: "c", DeviceClassName: "theirs"},
	}}
	for name, one := range map[string]struct {
		requests     []resourceapi.DeviceRequest
		want         Whose
		ours, surely int // of the first request
	}{
		"ours":                 {[]resourceapi.DeviceRequest{exactly("ours", nil)}, Whose{Ours: true}, 1, 1},
		"another's":            {[]resourceapi.DeviceRequest{exactly("theirs", nil)}, Whose{Others: true}, 0, 0},
		"any":                  {[]resourceapi.DeviceRequest{exactly("any", nil)}, Whose{Ours: true, Others: true}, 1, 0},
		"nobody's":             {[]resourceapi.DeviceRequest{exactly("none", nil)}, Whose{Others: true}, 0, 0},
		"unknown":              {[]resourceapi.DeviceRequest{exactly("missing", nil)}, Whose{Others: true}, 0, 0},
		"any, narrowed":        {[]resourceapi.DeviceRequest{exactly("any", func(r *resourceapi.ExactDeviceRequest) { r.Selectors = selectors(`device.driver == "gpu.aliquot.dev"`) })}, Whose{Ours: true}, 1, 1},
		"any, by our capacity": {[]resourceapi.DeviceRequest{exactly("any", wants("compute"))}, Whose{Ours: true, Others: true}, 1, 0},
		"any, by another's":    {[]resourceapi.DeviceRequest{exactly("any", wants("bandwidth"))}, Whose{Others: true}, 0, 0},
		"ours, by another's":   {[]resourceapi.DeviceRequest{exactly("ours", wants("bandwidth"))}, Whose{Ours: true}, 1, 1}, // which its user is told
		"a choice":             {[]resourceapi.DeviceRequest{choice}, Whose{Ours: true, Others: true}, 2, 1},
		"several":              {[]resourceapi.DeviceRequest{exactly("theirs", nil), exactly("ours", nil)}, Whose{Ours: true, Others: true}, 0, 0},
	} {
		spec := &resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: one.requests}}
		if got := Of(spec, find); got != one.want {
			t.Errorf("%s: %+v, want %+v", name, got, one.want)
		}
		if ours, surely := len(Ours(&one.requests[0], find)), len(Surely(&one.requests[0], find)); ours != one.ours || surely != one.surely {
			t.Errorf("%s: %d may be ours and %d surely are, want %d and %d", name, ours, surely, one.ours, one.surely)
		}
	}
}

// What tenants write is looked into no further than is soon done, and then devices of any driver may match.
func TestBounded(t *testing.T) {
	var words []string
	for i := range 800 {
		words = append(words, fmt.Sprintf("%q", fmt.Sprint(i)))
	}
	many := "device.driver in [" + strings.Join(words, ", ") + "]"
	for name, of := range map[string][]string{
		"long": {many, "false"}, "many drivers": {"device.driver in [" + strings.Join(words[:most], ", ") + "]", "false"},
		"many domains": {"false && (" + strings.Join(indexed(words[:most+1]), " || ") + ")"},
	} {
		if got := whoseMatch(nil, selectors(of...)); got != anyones {
			t.Errorf("%s: %+v, want %+v", name, got, anyones)
		}
	}
	if got := whoseMatch(nil, selectors("device.driver in ["+strings.Join(words[:most-1], ", ")+"]", "false")); got != (Whose{}) {
		t.Errorf("as many as are looked at: %+v, want neither", got)
	}
}

// indexed are conditions on an attribute of each of these domains.
func indexed(domains []string) (all []string) {
	for _, domain := range domains {
		all = append(all, "device.attributes["+domain+"].x == 1")
	}
	return all
}

func BenchmarkOf(b *testing.B) {
	class := &resourceapi.DeviceClass{Spec: resourceapi.DeviceClassSpec{Selectors: selectors(`device.driver == "gpu.aliquot.dev"`)}}
	spec := &resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "one", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu"}}}}}
	for b.Loop() {
		Of(spec, func(string) *resourceapi.DeviceClass { return class })
	}
}
