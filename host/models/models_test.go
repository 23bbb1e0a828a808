package models

import (
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// What drivers and traces call a model is found, and a partition or what nobody knows is not taken for a whole device.
func TestOf(t *testing.T) {
	for name, want := range map[string]fleet.Traits{
		"NVIDIA H100 80GB HBM3":             {Capability: 90, Bandwidth: 3350, Cost: 100, Idle: 70, Peak: 700},
		"H100":                              {Capability: 90, Bandwidth: 3350, Cost: 100, Idle: 70, Peak: 700},
		"Tesla T4":                          {Capability: 75, Bandwidth: 320, Cost: 10, Idle: 10, Peak: 70},
		"t4":                                {Capability: 75, Bandwidth: 320, Cost: 10, Idle: 10, Peak: 70},
		"NVIDIA A100-SXM4-80GB":             {Capability: 80, Bandwidth: 2039, Cost: 55, Idle: 60, Peak: 400},
		"V100M32":                           {Capability: 70, Bandwidth: 900, Cost: 30, Idle: 40, Peak: 300},
		"NVIDIA H100 80GB HBM3 MIG 1g.10gb": {}, "G2": {}, "": {}, "NVIDIA": {},
	} {
		got, ok := Of(name)
		if got != want || ok != (want != fleet.Traits{}) {
			t.Errorf("%q is known as %+v (%v), want %+v", name, got, ok, want)
		}
	}
}

// What the driver tells goes before the table, and is known without it.
func TestTold(t *testing.T) {
	known, _ := Of("T4")
	other := known
	other.Capability = 76
	for words, want := range map[[2]string]fleet.Traits{
		{"T4", ""}: known, {"T4", "7.5"}: known, {"T4", "7.6"}: other, {"T4", "new"}: known, {"X", "12.1"}: {Capability: 121}, {"X", ""}: {},
	} {
		if got := Told(words[0], words[1]); got != want {
			t.Errorf("%q with capability %q has %+v, want %+v", words[0], words[1], got, want)
		}
	}
}

// Each model draws less with nothing on it than at its peak, as the engine wants it.
func TestTable(t *testing.T) {
	if len(known) < 30 {
		t.Errorf("only %d names are known", len(known))
	}
	for name, of := range known {
		if of.Wakes() <= 0 || of.Idle*4 > of.Peak || of.Capability < 60 || of.Bandwidth < 100 || of.Cost < 1 {
			t.Errorf("%s has %+v", name, of)
		}
		if of.memory < 8<<30 || of.memory > 288<<30 {
			t.Errorf("%s has %v of memory", name, of.memory)
		}
	}
}

// Names of one model are told from those of another, and nothing is known of what is not in the table.
func TestSame(t *testing.T) {
	for names, want := range map[[2]string]bool{
		{"H100", "NVIDIA H100 80GB HBM3"}: true, {"h200", "NVIDIA H200"}: true, {"A100", "NVIDIA A100-SXM4-80GB"}: true, {"X", "X"}: true, {"A new one", "a-NEW one"}: true,
		{"H100", "NVIDIA H100 PCIe"}: false, {"A100", "NVIDIA A100-SXM4-40GB"}: false, {"X", "Y"}: false, {"GPU", "H100"}: false,
		{"NVIDIA H100 80GB HBM3 MIG 1g.10gb", "H100"}: false,
	} {
		if Same(names[0], names[1]) != want || Same(names[1], names[0]) != want {
			t.Errorf("%q and %q are one model: want %v", names[0], names[1], want)
		}
	}
}

// A latency class is declared of one device, of a model by any of its names, or of all others; what is not declared is not known.
func TestLatency(t *testing.T) {
	declared, err := api.ParseLatencyClasses("4,1@H200,2@nvidia a10,3@gpu-BB")
	if err != nil {
		t.Fatal(err)
	}
	for device, want := range map[[2]string]int32{
		{"GPU-aa", "NVIDIA H200"}: 1, {"GPU-bb", "NVIDIA H200"}: 3, {"GPU-aa", "NVIDIA H200 NVL"}: 4, {"GPU-aa", "A10"}: 2, {"GPU-aa", "NVIDIA A100-SXM4-80GB"}: 4,
		{"GPU-bb", "a new one"}: 3, {"GPU-aa", "a new one"}: 4, {"GPU-aa", "NVIDIA H200 MIG 1g.18gb"}: 4,
	} {
		if got := Latency(declared, device[0], device[1]); got != want {
			t.Errorf("%q has class %d, want %d", device, got, want)
		}
		if got, without := Latency(declared[1:], device[0], device[1]), want%4; got != without {
			t.Errorf("%q has class %d where nothing is said of all, want %d", device, got, without)
		}
	}
	if got := Latency(nil, "GPU-aa", "H200"); got != 0 {
		t.Errorf("class %d is known of what nobody declared", got)
	}
}

// A model is found however it is written, and called as the table writes it.
func TestNamed(t *testing.T) {
	for written, want := range map[string]string{"h100": "H100", "nvidia h100 80gb hbm3": "NVIDIA H100 80GB HBM3", "v100m32": "V100M32", "V100": "V100", "tesla-t4": "T4", "new": ""} {
		if got, ok := Named(written); got != want || ok != (want != "") {
			t.Errorf("%s is called %q (%v), want %q", written, got, ok, want)
		}
	}
	for written, want := range map[string]api.Bytes{"h100": 80 << 30, "V100": 16 << 30, "v100m32": 32 << 30, "new": 0} {
		if got := Memory(written); got != want {
			t.Errorf("%s has %v, want %v", written, got, want)
		}
	}
	names := Names()
	for _, name := range names {
		if got, ok := Named(name); !ok || got != name {
			t.Errorf("%s is called %q", name, got)
		}
	}
	if !slices.Contains(names, "H100") || slices.Contains(names, "NVIDIA H100 80GB HBM3") || !slices.Contains(names, "NVIDIA H100 PCIe") {
		t.Errorf("the names are %q", names)
	}
}

func TestBrokenTable(t *testing.T) {
	const head = "name|memory|capability|bandwidth|peak|idle|cost\n"
	for text, want := range map[string]string{
		head + "A|8.0|1":                                     "models.csv:2: there are 3 fields",
		head + "A|9|8|1|2|1|1":                               `compute capability "8"`,
		head + "A|0|8.0|1|2|1|1":                             `"0" is no memory`,
		head + "A|9|8.0|much|2|1|1":                          `"much" is no figure`,
		"# so\n" + head + "A|9|8.0|1|2|1|1\nA|8|8.0|1|2|1|1": "models.csv:4: A is there twice",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want something of %q", text, err, want)
		}
	}
}
