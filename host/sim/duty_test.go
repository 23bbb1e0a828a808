package sim

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// cycles are two services of 100 samples, a minute apart, and one of two.
func cycles() (duty, memory string) {
	var d, m strings.Builder
	d.WriteString("value,timestamp_anon,container_ip\n")
	m.WriteString("timestamp_anon,value,container_ip\n")
	for i := 99; i >= 0; i-- {
		for _, name := range []string{"two", "one"} {
			fmt.Fprintf(&d, "%d.04,%d.0,%s\n", i, 6000+i*60, name)
			fmt.Fprintf(&m, "%d.0,%d.0,%s\n", 6000+i*60, 1<<30+i, name)
		}
	}
	d.WriteString("5,6000.0,short\n5,6060.0,short\n")
	return d.String(), m.String()
}

func writeDuty(t *testing.T, packed bool, duty, memory string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"a_duty_cycle": duty, "a_memory_used_bytes": memory} {
		content, file := []byte(text), name+".csv"
		if packed {
			content, file = pack(t, map[string]string{"._" + name + ".csv": "not this", name + ".csv": text}), name+".tar.gz"
		}
		if err := os.WriteFile(filepath.Join(folder, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if packed {
		return filepath.Join(folder, "a_duty_cycle.tar.gz")
	}
	return filepath.Join(folder, "a_duty_cycle.csv")
}

func pack(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	plain := gzip.NewWriter(&out)
	packed := tar.NewWriter(plain)
	for name, text := range files {
		if err := packed.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := packed.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := plain.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadDuty(t *testing.T) {
	duty, memory := cycles()
	for _, packed := range []bool{false, true} {
		d, err := ReadDuty(writeDuty(t, packed, duty, memory))
		if err != nil {
			t.Fatal(err)
		}
		if d.Step != 60_000_000 || len(d.Services) != 2 || d.Services[0].Name != "one" || d.Services[0].Memory != 1<<30+99 || len(d.Services[1].Busy) != 100 {
			t.Errorf("packed %v: it is read as %+v", packed, d)
		}
		if d.index("two") != 1 || d.index("short") != -1 {
			t.Errorf("two and short are at %d and %d", d.index("two"), d.index("short"))
		}
		var got []api.Milli
		for _, minute := range []int64{0, 1, 61, 62} {
			got = append(got, d.at(1, 38, engine.Time(minute*60_000_000)))
		}
		if want := []api.Milli{380, 390, 990, 0}; !slices.Equal(got, want) { // after the last sample the first comes again
			t.Errorf("from sample 38 on it keeps busy %v, want %v", got, want)
		}
		if d.Mean() != 495 {
			t.Errorf("on average %d", d.Mean())
		}
	}
}

func TestBrokenDutyIsTold(t *testing.T) {
	duty, memory := cycles()
	for _, c := range []struct{ duty, memory, want string }{
		{duty + "101,1.0,one\n", memory, "a_duty_cycle.csv:204: value is \"101\": it must be a number from 0 to 100"},
		{duty + "1,x,one\n", memory, "a_duty_cycle.csv:204: timestamp_anon is \"x\""},
		{duty + "1,2,\n", memory, "a_duty_cycle.csv:204: the line names no container_ip"},
		{duty + "1,6060,one\n", memory, "service one has two values at 6060 s"},
		{duty, memory + "1,-1,one\n", "a_memory_used_bytes.csv:202: value is \"-1\""},
		{duty, strings.ReplaceAll(memory, "two", "three"), "of service two the file of the memory says nothing"},
		{"value,timestamp_anon,container_ip\n1,2,one\n", memory, "has no service with 100 samples"},
		{"timestamp_anon,container_ip\n2,one\n", memory, "has no column value"},
	} {
		_, err := ReadDuty(writeDuty(t, false, c.duty, c.memory))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, want %q", err, c.want)
		}
	}
	folder := t.TempDir()
	for name, content := range map[string][]byte{
		"x_duty_cycle.tar.gz": []byte("no archive"), "y_duty_cycle.tar.gz": pack(t, map[string]string{"readme": ""}), "z_duty_cycle.tar.gz": pack(t, map[string]string{"a.csv": duty})[:60],
	} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadDuty(path); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s gives %v", name, err)
		}
	}
	if _, err := ReadDuty(filepath.Join(folder, "other.csv")); err == nil || !strings.Contains(err.Error(), "the name must have duty_cycle in it") {
		t.Errorf("another name gives %v", err)
	}
}

// Whatever is read, services keep busy from none to all of a device, at any time.
func FuzzDuty(f *testing.F) {
	duty, memory := cycles()
	f.Add("", "", int64(1<<40))
	f.Add("1,1,a\n", "1,2,a\n", int64(0))
	f.Add("99.96,5999.5,one\n", "", int64(1))
	f.Fuzz(func(t *testing.T, moreDuty, moreMemory string, at int64) {
		r := dutyReader{busy: map[string][]sample{}, memory: map[string]api.Bytes{}}
		if scanTable("duty", strings.NewReader(duty+moreDuty), r.cycle) != nil || scanTable("memory", strings.NewReader(memory+moreMemory), r.held) != nil || at < 0 || at > maxTime {
			return
		}
		d, err := r.duty("duty")
		if err != nil {
			return
		}
		for i := range d.Services {
			if busy := d.at(i, 7, engine.Time(at)); busy < 0 || busy > api.WholeDevice {
				t.Fatalf("%s keeps %d busy", d.Services[i].Name, busy)
			}
		}
	})
}

func FuzzPackedDuty(f *testing.F) {
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(_ *testing.T, content []byte) {
		if len(content) > 1<<16 {
			return
		}
		_ = scanPacked("a.tar.gz", bytes.NewReader(content), func(row) error { return nil })
	})
}
