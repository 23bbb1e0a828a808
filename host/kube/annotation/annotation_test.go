package annotation_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// short are annotations by their names without the prefix.
func short(pairs ...string) map[string]string {
	all := map[string]string{"another.example/gpu": "x"}
	for i := 0; i < len(pairs); i += 2 {
		all[annotation.Prefix+pairs[i]] = pairs[i+1]
	}
	return all
}

func bytes(floor, ceiling api.Bytes) api.Memory {
	return api.Memory{Floor: api.Amount{Bytes: floor}, Ceiling: api.Amount{Bytes: ceiling}}
}

func TestParse(t *testing.T) {
	whole := api.Amount{Part: api.WholeDevice}
	for name, test := range map[string]struct {
		given map[string]string
		want  *annotation.Ask
		error string
	}{
		"nothing":          {given: short()},
		"a queue alone":    {given: short("queue", "vision")},
		"firm, by a claim": {given: short("preemptible", "false")},
		"in doubt":         {given: short("preemptible", "no"), error: `aliquot.dev/preemptible: "no"; write false`},
		"floor, ceiling":   {given: short("gpu", "0.25..0.80", "memory", "4Gi..8Gi"), want: &annotation.Ask{Devices: 1, Share: api.Share{Compute: api.Compute{Floor: 250, Ceiling: 800}, Memory: bytes(4<<30, 8<<30)}}},
		"floor is ceiling": {given: short("gpu", "25%", "memory", "4Gi"), want: &annotation.Ask{Devices: 1, Share: api.Share{Compute: api.Compute{Floor: 250, Ceiling: 250}, Memory: bytes(4<<30, 4<<30)}}},
		"a whole device":   {given: short("gpu", "1"), want: &annotation.Ask{Devices: 1, Share: api.Share{Compute: api.Compute{Floor: 1000, Ceiling: 1000}, Memory: api.Memory{Floor: whole, Ceiling: whole}}}},
		"all of it": {
			given: short("gpu", "0..1", "memory", "0..50%", "devices", "2", "class", "inference", "weight", "7", "containers", "main, worker", "queue", "vision", "max-latency-class", "2"),
			want: &annotation.Ask{
				Devices: 2, Class: api.Inference, Containers: []string{"main", "worker"}, Latency: 2,
				Share: api.Share{Compute: api.Compute{Ceiling: 1000}, Memory: api.Memory{Ceiling: api.Amount{Part: 500}}, Weight: 7},
			},
		},
		"together":             {given: short("same-topology", "topology.kubernetes.io/zone", "prefer-topology", "rack")},
		"no label":             {given: short("prefer-topology", "the same rack"), error: `aliquot.dev/prefer-topology: "the same rack" is no label of nodes`},
		"saves":                {given: short("restart-time", "5m", "checkpointed-at", "2026-11-22T05:00:09.25+01:00")},
		"starts before it did": {given: short("restart-time", "-5m"), error: `aliquot.dev/restart-time`},
		"starts at once":       {given: short("restart-time", "soon"), error: `aliquot.dev/restart-time`},
		"saved by hours":       {given: short("checkpointed-at", "05:00"), error: `aliquot.dev/checkpointed-at: "05:00" is no time; write it as 2026-11-22T05:00:09Z`},
		"misspelt":             {given: short("gpus", "1"), error: "aliquot.dev/gpus is not known"},
		"memory alone":         {given: short("memory", "4Gi"), error: "none is asked for; write aliquot.dev/gpu beside it"},
		"class alone":          {given: short("class", "batch"), error: "aliquot.dev/class: batch says something of a share"},
		"not a number":         {given: short("gpu", "O.25", "memory", "4Gi"), error: `the annotation aliquot.dev/gpu: compute "O.25": a digit is expected`},
		"over a device":        {given: short("gpu", "2", "memory", "4Gi"), error: "ask for several devices with the annotation aliquot.dev/devices"},
		"the larger one first": {given: short("gpu", "0.8..0.25", "memory", "4Gi"), error: "the floor 0.80 is over the ceiling 0.25"},
		"no memory":            {given: short("gpu", "0.25"), error: "aliquot.dev/memory: 4Gi..8Gi"},
		"a part of memory":     {given: short("gpu", "0.25", "memory", "25%"), error: "asks for a floor of 25%, and a claim consumes bytes"},
		"below all":            {given: short("gpu", "0.25", "memory", "100%..4Gi"), error: "has a ceiling below the floor"},
		"too little memory":    {given: short("gpu", "0.25", "memory", "1Mi"), error: "less than any context takes"},
		"a unit misspelt":      {given: short("gpu", "0.25", "memory", "4GB"), error: "did you mean 4G?"},
		"no devices":           {given: short("gpu", "1", "devices", "0"), error: "1 to 16"},
		"devices in words":     {given: short("gpu", "1", "devices", "two"), error: `aliquot.dev/devices: "two"`},
		"no weight":            {given: short("gpu", "1", "weight", "0"), error: "1 to 1000000"},
		"no latency class":     {given: short("gpu", "1", "max-latency-class", "0"), error: `aliquot.dev/max-latency-class: "0"; write 1, the fastest, to 9`},
		"a slower class":       {given: short("gpu", "1", "max-latency-class", "10"), error: `aliquot.dev/max-latency-class: "10"; write 1, the fastest, to 9`},
		"latency alone":        {given: short("max-latency-class", "1"), error: "aliquot.dev/max-latency-class: 1 says something of a share"},
		"no class":             {given: short("gpu", "1", "class", "urgent"), error: `"urgent" is no class`},
		"no container":         {given: short("gpu", "1", "containers", "a,,b"), error: "names of containers"},
		"a container twice":    {given: short("gpu", "1", "containers", "a,a"), error: "each once"},
	} {
		got, err := annotation.Parse(test.given)
		if test.error != "" {
			if err == nil || !strings.Contains(err.Error(), test.error) {
				t.Errorf("%s: got %+v, %v; want an error with %q", name, got, err, test.error)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, test.want)
		}
	}
}

func parsed(t *testing.T, pairs ...string) *annotation.Ask {
	t.Helper()
	ask, err := annotation.Parse(short(pairs...))
	if err != nil {
		t.Fatal(err)
	}
	return ask
}

func TestTemplate(t *testing.T) {
	for name, test := range map[string]struct {
		given []string
		want  string // of the claim
	}{
		"a part": {
			[]string{"gpu", "0.25..0.80", "memory", "4Gi..8Gi", "class", "inference", "weight", "3"},
			`{"devices":{"requests":[{"name":"gpu","exactly":{"deviceClassName":"gpu.aliquot.dev","allocationMode":"ExactCount","count":1,"capacity":{"requests":{"compute":"250","memory":"4Gi"}}}}],` +
				`"config":[{"requests":["gpu"],"opaque":{"driver":"gpu.aliquot.dev","parameters":{"apiVersion":"aliquot.dev/v1alpha1","kind":"ShareConfig","ceiling":{"compute":"0.80","memory":"8Gi"},"weight":3,"class":"inference"}}}]}}`,
		},
		"a fast device": {
			[]string{"gpu", "1", "max-latency-class", "2"},
			`{"devices":{"requests":[{"name":"gpu","exactly":{"deviceClassName":"gpu.aliquot.dev","selectors":[{"cel":{"expression":"has(device.attributes[\"gpu.aliquot.dev\"].latencyClass) \u0026\u0026 device.attributes[\"gpu.aliquot.dev\"].latencyClass \u003c= 2"}}],"allocationMode":"ExactCount","count":1,"capacity":{"requests":{"compute":"1k"}}}}],` +
				`"config":[{"requests":["gpu"],"opaque":{"driver":"gpu.aliquot.dev","parameters":{"apiVersion":"aliquot.dev/v1alpha1","kind":"ShareConfig"}}}]}}`,
		},
		"two whole devices": {
			[]string{"gpu", "1", "devices", "2"},
			`{"devices":{"requests":[{"name":"gpu","exactly":{"deviceClassName":"gpu.aliquot.dev","allocationMode":"ExactCount","count":2,"capacity":{"requests":{"compute":"1k"}}}}],` +
				`"constraints":[{"requests":["gpu"],"distinctAttribute":"gpu.aliquot.dev/uuid"}],` +
				`"config":[{"requests":["gpu"],"opaque":{"driver":"gpu.aliquot.dev","parameters":{"apiVersion":"aliquot.dev/v1alpha1","kind":"ShareConfig"}}}]}}`,
		},
	} {
		template, err := parsed(t, test.given...).Template("space")
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(template.Spec.Spec)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: got %s, %v\nwant %s", name, got, err, test.want)
		}
		if template.Namespace != "space" || len(validation.IsDNS1123Subdomain(template.Name)) > 0 || template.Labels[annotation.Made] != annotation.MadeValue {
			t.Errorf("%s: the template is %+v", name, template.ObjectMeta)
		}
		for _, c := range template.Spec.Spec.Devices.Config {
			if _, err := v1alpha1.ParseShareConfig(c.Opaque.Parameters.Raw); err != nil {
				t.Errorf("%s: the node would refuse it: %v", name, err)
			}
		}
	}
}

// The name says what is asked for: the same in whatever words, another for whatever else. Who has it is no part of the claim.
func TestName(t *testing.T) {
	base := []string{"gpu", "0.25..0.80", "memory", "4Gi..8Gi"}
	name := parsed(t, base...).Name()
	// It stands in pods, so it must not change from version to version.
	if want := "aliquot-bdd03f6cf7fddbaba102"; name != want {
		t.Errorf("the name is %s, was %s", name, want)
	}
	for _, same := range [][]string{
		{"gpu", "25%..0.8", "memory", "4096Mi..8Gi"},
		append([]string{"containers", "main"}, base...),
		append([]string{"queue", "vision", "devices", "1"}, base...),
	} {
		if got := parsed(t, same...).Name(); got != name {
			t.Errorf("%v: got %s, want %s as for %v", same, got, name, base)
		}
	}
	seen := map[string]bool{name: true}
	for _, other := range [][]string{
		{"gpu", "0.26..0.80", "memory", "4Gi..8Gi"},
		{"gpu", "0.25..0.81", "memory", "4Gi..8Gi"},
		{"gpu", "0.25..0.80", "memory", "5Gi..8Gi"},
		{"gpu", "0.25..0.80", "memory", "4Gi..9Gi"},
		append([]string{"devices", "2"}, base...),
		append([]string{"weight", "2"}, base...),
		append([]string{"class", "batch"}, base...),
		append([]string{"max-latency-class", "1"}, base...),
		append([]string{"max-latency-class", "2"}, base...),
	} {
		if got := parsed(t, other...).Name(); seen[got] {
			t.Errorf("%v has the name of another: %s", other, got)
		} else {
			seen[got] = true
		}
	}
}

func TestSame(t *testing.T) {
	spec, err := parsed(t, "gpu", "0.25..0.80", "memory", "4Gi..8Gi").Spec()
	if err != nil {
		t.Fatal(err)
	}
	written := *spec.DeepCopy()
	written.Devices.Config[0].Opaque.Parameters.Raw = []byte(`{"kind": "ShareConfig", "ceiling": {"memory": "8192Mi", "compute": "80%"}, "apiVersion": "aliquot.dev/v1alpha1"}`)
	if !annotation.Same(spec, written) {
		t.Error("a claim that says the same in other words is taken for another")
	}
	larger := *spec.DeepCopy()
	larger.Devices.Config[0].Opaque.Parameters.Raw = []byte(`{"kind":"ShareConfig","apiVersion":"aliquot.dev/v1alpha1","ceiling":{"compute":"0.90","memory":"8Gi"}}`)
	unread := *spec.DeepCopy()
	unread.Devices.Config[0].Opaque.Parameters.Raw = []byte(`{}`)
	foreign := *spec.DeepCopy()
	foreign.Devices.Config[0].Opaque.Driver = "gpu.other.example"
	more := *spec.DeepCopy()
	more.Devices.Requests[0].Exactly.Count = 2
	none := *spec.DeepCopy()
	none.Devices.Config = nil
	for name, other := range map[string]bool{
		"another ceiling": annotation.Same(spec, larger), "no ShareConfig": annotation.Same(spec, unread), "of another driver": annotation.Same(spec, foreign),
		"more devices": annotation.Same(spec, more), "without ceilings": annotation.Same(spec, none),
	} {
		if other {
			t.Errorf("%s: taken for the same claim", name)
		}
	}
}

// Whatever is taken makes a claim that the node takes, under a name that Kubernetes takes.
func FuzzParse(f *testing.F) {
	f.Add("0.25..0.80", "4Gi..8Gi", "2", "batch", "3", "main")
	f.Add("1", "100%", "1", "", "1", "a,b")
	f.Fuzz(func(t *testing.T, gpu, memory, devices, class, weight, containers string) {
		ask, err := annotation.Parse(short("gpu", gpu, "memory", memory, "devices", devices, "class", class, "weight", weight, "containers", containers))
		if err != nil {
			return
		}
		template, err := ask.Template("space")
		if err != nil {
			t.Fatal(err)
		}
		spec := template.Spec.Spec
		if _, err := v1alpha1.ParseShareConfig(spec.Devices.Config[0].Opaque.Parameters.Raw); err != nil || len(validation.IsDNS1123Subdomain(template.Name)) > 0 {
			t.Errorf("took %+v, and the node would refuse %s: %v", ask, template.Name, err)
		}
		if !annotation.Same(spec, spec) {
			t.Errorf("%+v is not the same as itself", spec)
		}
	})
}

// Labels stand for the annotations of their names; what is misspelt or says something else than the annotation is an error.
func TestLabelled(t *testing.T) {
	type pairs = map[string]string
	for _, c := range []struct {
		labels, annotations, want pairs
		wrong                     string
	}{
		{nil, nil, pairs{}, ""},
		{pairs{"app": "a", "example.com/gpu": "1", annotation.Gang: "a", annotation.GangMin: "2"}, nil, pairs{}, ""},
		{pairs{annotation.GPU: "0.25..0.80", annotation.Memory: "4Gi"}, pairs{"a": "b"}, pairs{annotation.GPU: "0.25..0.80", annotation.Memory: "4Gi"}, ""},
		{pairs{annotation.GPU: "0.25..0.80", annotation.Memory: "4Gi"}, pairs{annotation.GPU: "0.25..0.80"}, pairs{annotation.Memory: "4Gi"}, ""},
		{pairs{annotation.GPU: ""}, nil, pairs{annotation.GPU: ""}, ""},
		{pairs{annotation.GPU: "0.25"}, pairs{annotation.GPU: "0.26"}, nil, "the label aliquot.dev/gpu: 0.25 is not what the annotation of that name says, 0.26"},
		{pairs{annotation.CheckpointedAt: "x"}, nil, nil, "the label aliquot.dev/checkpointed-at is not known"},
		{pairs{"aliquot.dev/gang-of": "x"}, nil, nil, "of gangs aliquot.dev/gang and aliquot.dev/gang-min"},
	} {
		got, err := annotation.Labelled(c.labels, c.annotations)
		if !maps.Equal(got, c.want) || (c.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("the labels %v beside %v: got %v, %v; want %v, %q", c.labels, c.annotations, got, err, c.want, c.wrong)
		}
	}
}
