package api_test

import (
	"encoding"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

func anyCompute(t *rapid.T) api.Compute {
	ceiling := rapid.IntRange(1, 1000).Draw(t, "ceiling")
	return compute(api.Milli(rapid.IntRange(0, ceiling).Draw(t, "floor")), api.Milli(ceiling))
}

func anyAmount(t *rapid.T, name string) api.Amount {
	if rapid.Bool().Draw(t, name+" in parts") {
		return part(api.Milli(rapid.IntRange(1, 1000).Draw(t, name)))
	}
	return bytes(anyBytes(t, name))
}

// anyBytes draws round amounts as often as crooked ones.
func anyBytes(t *rapid.T, name string) api.Bytes {
	unit := rapid.SampledFrom([]int64{1, 1000, 1 << 10, 1e6, 1 << 20, 1e9, 1 << 30, 1 << 40}).Draw(t, name+" unit")
	return api.Bytes(rapid.Int64Range(1, math.MaxInt64/unit).Draw(t, name) * unit)
}

func anyMemory(t *rapid.T) api.Memory {
	m := api.Memory{Floor: anyAmount(t, "floor"), Ceiling: anyAmount(t, "ceiling")}
	if m.Floor.Part == 0 && m.Ceiling.Part == 0 && m.Floor.Bytes > m.Ceiling.Bytes || m.Floor.Part > m.Ceiling.Part && m.Ceiling.Part > 0 {
		m.Floor, m.Ceiling = m.Ceiling, m.Floor
	}
	if rapid.Bool().Draw(t, "no floor") {
		m.Floor = api.Amount{}
	}
	return m
}

// roundTrip prints a value, parses the text and wants the value back; then through JSON as well.
func roundTrip[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](t *rapid.T, value T,
) {
	text, err := any(value).(encoding.TextMarshaler).MarshalText()
	if err != nil {
		t.Fatalf("%+v does not print: %v", value, err)
	}
	var back T
	if err := P(&back).UnmarshalText(text); err != nil || !reflect.DeepEqual(back, value) {
		t.Fatalf("%+v prints as %s, which reads as %+v (%v)", value, text, back, err)
	}
	encoded, err := json.Marshal(map[string]T{"v": value})
	if err != nil {
		t.Fatalf("%+v: %v", value, err)
	}
	var decoded map[string]T
	if err := json.Unmarshal(encoded, &decoded); err != nil || !reflect.DeepEqual(decoded["v"], value) {
		t.Fatalf("%+v is %s in JSON, which reads as %+v (%v)", value, encoded, decoded["v"], err)
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roundTrip(t, anyCompute(t))
		roundTrip(t, anyMemory(t))
		roundTrip(t, anyAmount(t, "amount"))
		roundTrip(t, anyBytes(t, "bytes"))
		roundTrip(t, api.Bytes(rapid.Int64Range(0, math.MaxInt64).Draw(t, "crooked")))
		roundTrip(t, api.Milli(rapid.Int32Range(0, math.MaxInt32).Draw(t, "milli")))
		roundTrip(t, api.Quota(rapid.Int64Range(-1, math.MaxInt64).Draw(t, "quota")))
		roundTrip(t, api.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "duration")))
	})
}

func TestComputeAlwaysHasTwoDecimals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for end := range strings.SplitSeq(anyCompute(t).String(), "..") {
			_, decimals, _ := strings.Cut(end, ".")
			if len(decimals) < 2 || len(decimals) > 3 || len(decimals) == 3 && decimals[2] == '0' {
				t.Fatalf("%q", end)
			}
		}
	})
}

// What is drawn as a part of a device always fits on it, however often it is drawn, and no part is nothing.
func TestPartsFitTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		device := api.Bytes(rapid.Int64Range(1000*int64(api.Granule), 1<<62).Draw(t, "device"))
		left, sum := 1000, api.Bytes(0)
		for left > 0 {
			m := rapid.IntRange(1, left).Draw(t, "part")
			left -= m
			size := part(api.Milli(m)).Of(device)
			exact := device/1000*api.Bytes(m) + device%1000*api.Bytes(m)/1000
			if size <= 0 || size > exact && size != api.Granule || exact-size >= api.Granule {
				t.Fatalf("%d thousandths of %d are %d", m, device, size)
			}
			sum += size
		}
		if sum > device {
			t.Fatalf("parts of a device of %d bytes add up to %d", device, sum)
		}
		if part(1000).Of(device) != device {
			t.Fatalf("100%% of %d is %d", device, part(1000).Of(device))
		}
	})
}

func TestBytesAreRoundedUpToGranules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBytes(t, "bytes")
		got := bytes(b).Of(1 << 37)
		if got%api.Granule != 0 || got-b >= api.Granule || got < b && b <= math.MaxInt64-api.Granule {
			t.Fatalf("%d becomes %d", b, got)
		}
	})
}

func TestMemoryOnADevice(t *testing.T) {
	const device = 24 * gibi
	for text, want := range map[string][2]api.Bytes{
		"10Gi..20Gi": {10 * gibi, 20 * gibi},
		"10Gi..40Gi": {10 * gibi, device}, // the ceiling is never over the device
		"10Gi..10%":  {10 * gibi, 10 * gibi},
		"30Gi":       {30 * gibi, 30 * gibi}, // does not fit, and says so
		"1..":        {api.Granule, device},
		"0..1Mi":     {0, api.Granule},
		"25%":        {6 * gibi, 6 * gibi},
		"0.1%":       {24 * mebi, 24 * mebi},
		"33.3%":      {8182 * mebi, 8182 * mebi},
	} {
		m, err := api.ParseMemory(text)
		if err != nil {
			t.Fatal(err)
		}
		if floor, ceiling := m.On(device); floor != want[0] || ceiling != want[1] {
			t.Errorf("%s of 24Gi is %s..%s, want %s..%s", text, floor, ceiling, want[0], want[1])
		}
	}
}

// The zero before a fraction may be left out, in floor and unit alike, and changes nothing.
func TestAFractionNeedsNoZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fraction := rapid.StringMatching(`\.[0-9]{1,3}`).Draw(t, "fraction")
		unit := rapid.SampledFrom([]string{"", "Gi", "M", "h"}).Draw(t, "unit")
		same(t, api.ParseCompute, fraction+unit)
		same(t, api.ParseMemory, fraction+unit)
		same(t, api.ParseQuota, fraction+unit)
		same(t, api.ParseDuration, fraction+unit)
		same(t, api.ParseCompute, fraction+"..")
		if _, err := api.ParseCompute("0.001.." + fraction); err == nil {
			t.Fatalf("three dots before %s are taken", fraction)
		}
	})
}

// same holds a text that begins with a dot to what it means with a zero before it.
func same[T comparable](t *rapid.T, parse func(string) (T, error), text string) {
	short, shortErr := parse(text)
	long, longErr := parse("0" + text)
	if short != long || (shortErr == nil) != (longErr == nil) {
		t.Fatalf("%s reads as %+v (%v), 0%s as %+v (%v)", text, short, shortErr, text, long, longErr)
	}
}

// fuzz holds one parser to this: what it takes it prints, and reads back as the same; what it refuses it explains.
func fuzz[T comparable](f *testing.F, parse func(string) (T, error), print func(T) string, seeds ...string) {
	for _, seed := range append(seeds, "", "0", "-1", "NaN", "0.0.0", "½", "\xff", "9999999999999999999999", "0.0000000000000000000000001", "..") {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value, err := parse(text)
		if err != nil {
			wrong, is := err.(*api.ParseError)
			if !is || wrong.Offset < 0 || wrong.Offset > len(text) || wrong.Problem == "" {
				t.Fatalf("%q is refused with %#v", text, err)
			}
			if strings.Contains(wrong.Error(), "\n") || strings.Count(wrong.Caret(), "\n") != 1 {
				t.Fatalf("%q is refused with %q and\n%s", text, wrong.Error(), wrong.Caret())
			}
			return
		}
		if back, err := parse(print(value)); err != nil || back != value {
			t.Fatalf("%q reads as %+v and prints as %q, which reads as %+v (%v)", text, value, print(value), back, err)
		}
	})
}

func FuzzCompute(f *testing.F) {
	fuzz(f, api.ParseCompute, api.Compute.String, "0.25..0.80", "25%..", "0..12.5%", "1", ".25", ".25...5", ".25..0.5")
}

func FuzzMemory(f *testing.F) {
	fuzz(f, api.ParseMemory, api.Memory.String, "10Gi..20Gi", "80%", "1.5G..", "0%..10Ki", "10Gi..0.1%", ".5Gi..")
}

func FuzzMilli(f *testing.F) {
	fuzz(f, api.ParseMilli, api.Milli.String, "0.25", "400%", "2147483.647")
}

func FuzzBytes(f *testing.F) {
	fuzz(f, api.ParseBytes, api.Bytes.String, "10Gi", ".5Gi", "1.3T", "8388607.9Ti")
}

func FuzzQuota(f *testing.F) { fuzz(f, api.ParseQuota, api.Quota.String, "none", "2", "0.125", ".5") }

func FuzzDuration(f *testing.F) {
	fuzz(f, api.ParseDuration, api.Duration.String, "2h30m", "1.5d", ".5h", "0", "1µs1μs1us", "2562047h47m16.854775807s")
}
