package api_test

import (
	"encoding"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aliquot-dev/aliquot/api"
)

func compute(floor, ceiling api.Milli) api.Compute {
	return api.Compute{Floor: floor, Ceiling: ceiling}
}
func bytes(b api.Bytes) api.Amount { return api.Amount{Bytes: b} }
func part(m api.Milli) api.Amount  { return api.Amount{Part: m} }

const (
	mebi = 1 << 20
	gibi = 1 << 30
)

func TestParseCompute(t *testing.T) {
	for text, want := range map[string]struct {
		value   api.Compute
		printed string
	}{
		"0.25..0.80":  {compute(250, 800), "0.25..0.80"},
		"0.25":        {compute(250, 250), "0.25"},
		"0.25..":      {compute(250, 1000), "0.25..1.00"},
		"25%":         {compute(250, 250), "0.25"},
		"25%..0.8":    {compute(250, 800), "0.25..0.80"},
		"12.5%..":     {compute(125, 1000), "0.125..1.00"},
		"1":           {compute(1000, 1000), "1.00"},
		"0..0.001":    {compute(0, 1), "0.00..0.001"},
		"0..":         {compute(0, 1000), "0.00..1.00"},
		"0.5..0.5":    {compute(500, 500), "0.50"},
		"0.250000":    {compute(250, 250), "0.25"},
		"000.25..1.0": {compute(250, 1000), "0.25..1.00"},
	} {
		got, err := api.ParseCompute(text)
		if err != nil || got != want.value || got.String() != want.printed {
			t.Errorf("ParseCompute(%q) = %+v (%s), %v; want %+v (%s)", text, got, got, err, want.value, want.printed)
		}
	}
}

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]struct {
		value   api.Memory
		printed string
	}{
		"10Gi..20Gi": {api.Memory{Floor: bytes(10 * gibi), Ceiling: bytes(20 * gibi)}, "10Gi..20Gi"},
		"10Gi":       {api.Memory{Floor: bytes(10 * gibi), Ceiling: bytes(10 * gibi)}, "10Gi"},
		"10Gi..":     {api.Memory{Floor: bytes(10 * gibi), Ceiling: part(1000)}, "10Gi..100%"},
		"80%":        {api.Memory{Floor: part(800), Ceiling: part(800)}, "80%"},
		"12.5%..":    {api.Memory{Floor: part(125), Ceiling: part(1000)}, "12.5%..100%"},
		"1.5Gi..80%": {api.Memory{Floor: bytes(1536 * mebi), Ceiling: part(800)}, "1536Mi..80%"},
		"0..2G":      {api.Memory{Ceiling: bytes(2e9)}, "0..1953125Ki"},
		"1k..1M":     {api.Memory{Floor: bytes(1000), Ceiling: bytes(1e6)}, "1000..1000000"},
		"4096":       {api.Memory{Floor: bytes(4096), Ceiling: bytes(4096)}, "4Ki"},
		"1Ti":        {api.Memory{Floor: bytes(1 << 40), Ceiling: bytes(1 << 40)}, "1Ti"},
	} {
		got, err := api.ParseMemory(text)
		if err != nil || got != want.value || got.String() != want.printed {
			t.Errorf("ParseMemory(%q) = %+v (%s), %v; want %+v (%s)", text, got, got, err, want.value, want.printed)
		}
	}
}

func TestParseOthers(t *testing.T) {
	type text interface {
		encoding.TextMarshaler
	}
	same := func(parsed text, err error) string {
		if err != nil {
			return err.Error()
		}
		printed, err := parsed.MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(printed)
	}
	for _, c := range []struct{ got, want string }{
		{same(api.ParseMilli("2")), "2.00"},
		{same(api.ParseMilli("150%")), "1.50"},
		{same(api.ParseMilli("0")), "0.00"},
		{same(api.ParseBytes("1.0000001Ki")), "1025"}, // a fraction of a byte counts as a byte
		{same(api.ParseBytes("0")), "0"},
		{same(api.ParseBytes("8388607Ti")), "8388607Ti"},
		{same(api.ParseQuota("2")), "2"},
		{same(api.ParseQuota("0.5")), "0.5"},
		{same(api.ParseQuota("100.125")), "100.125"},
		{same(api.ParseQuota("0")), "0"},
		{same(api.ParseQuota("none")), "none"},
		{same(api.ParseDuration("2h30m")), "2h30m"},
		{same(api.ParseDuration("90s")), "1m30s"},
		{same(api.ParseDuration("7d")), "168h"},
		{same(api.ParseDuration("1.5h")), "1h30m"},
		{same(api.ParseDuration("0")), "0s"},
		{same(api.ParseDuration("1us500ns")), "1.5µs"},
		{same(api.ParseDuration("1.5µs")), "1.5µs"},
		{same(api.ParseDuration("1h0m5s")), "1h0m5s"},
		{same(api.ParseAmount("33.3%")), "33.3%"},
		{same(api.ParseAmount("0%")), "0"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if api.Milli(math.MinInt32).String() != "-2147483.648" || api.Bytes(math.MinInt64).String() != "-8388608Ti" {
		t.Error("negative amounts do not print as they are")
	}
}

// Every refusal is one sentence that says what is wrong and points at it: the caret's line is given as the expectation.
func TestParseErrors(t *testing.T) {
	parse := map[string]func(string) error{
		"compute":  func(s string) error { _, err := api.ParseCompute(s); return err },
		"memory":   func(s string) error { _, err := api.ParseMemory(s); return err },
		"amount":   func(s string) error { _, err := api.ParseMilli(s); return err },
		"bytes":    func(s string) error { _, err := api.ParseBytes(s); return err },
		"quota":    func(s string) error { _, err := api.ParseQuota(s); return err },
		"duration": func(s string) error { _, err := api.ParseDuration(s); return err },
	}
	for _, c := range []struct{ kind, text, caret string }{
		{"compute", "", `^ is empty`},
		{"compute", "0", `^ a share of nothing`},
		{"compute", "0%", `^ a share of nothing`},
		{"compute", "0..0", `   ^ a share of nothing`},
		{"compute", "0.5..0", `     ^ a share of nothing`},
		{"compute", "0.80..0.25", `      ^ the floor 0.80 is over the ceiling 0.25`},
		{"compute", "..0.5", `^ the floor is missing`},
		{"compute", "0.25...8", `      ^ a digit is expected, not "."`},
		{"compute", "0.25..O.8", `      ^ a digit is expected, not "O"`},
		{"compute", "0.25 ..0.8", `    ^ " " is not expected here`},
		{"compute", "0.25..0.8x", `         ^ "x" is not expected here`},
		{"compute", "0.2515", `^ 0.2515 is finer than a thousandth`},
		{"compute", "0..25.55%", `   ^ 25.55% is finer than a thousandth`},
		{"compute", "1.5", `^ 1.5 is more than a whole device`},
		{"compute", "0.5..101%", `     ^ 101% is more than a whole device`},
		{"compute", "NaN", `^ "NaN" is not an amount`},
		{"compute", "0..+Inf", `   ^ "+Inf" is not an amount`},
		{"compute", "-0.5", `^ an amount cannot be negative`},
		{"compute", "1e-1", ` ^ "e" is not expected here`},
		{"compute", "0,25", ` ^ "," is not expected here`},
		{"compute", "0.", `  ^ a number is missing`},
		{"compute", "99999999999999999999", `^ the number is too large`},
		{"compute", "9999999999", `^ the number is too large`},
		{"compute", "0.0000000000000000000001", `                    ^ more than 18 decimals`},
		{"compute", "0.5..½", `     ^ a digit is expected, not "½"`},
		{"compute", "\x00", `^ a digit is expected, not "\x00"`},
		{"compute", "\xff", `^ a digit is expected, not "\xff"`},
		{"memory", "", `^ is empty`},
		{"memory", "0", `^ a share of no memory`},
		{"memory", "4gi", ` ^ unknown unit "gi"`},
		{"memory", "1Gi..0", `     ^ a share of no memory`},
		{"memory", "20Gi..10Gi", `      ^ the floor 20Gi is over the ceiling 10Gi`},
		{"memory", "80%..20%", `     ^ the floor 80% is over the ceiling 20%`},
		{"memory", "..10Gi", `^ the floor is missing`},
		{"memory", "10GB", `  ^ unknown unit "GB"`},
		{"memory", "10gi", `  ^ unknown unit "gi"`},
		{"memory", "0.25", `    ^ a unit is missing`},
		{"memory", "10 Gi", `  ^ " " is not expected here`},
		{"memory", "101%", `^ 101% is more than a whole device`},
		{"memory", "8388608Ti", `^ the amount is too large`},
		{"memory", "-1Gi", `^ an amount cannot be negative`},
		{"memory", "NaN", `^ "NaN" is not an amount`},
		{"memory", "Gi", `^ a digit is expected, not "G"`},
		{"bytes", "0.5", `^ a part of a byte is not an amount of memory`},
		{"bytes", "1Gi..2Gi", `   ^ "." is not expected here`},
		{"amount", "99999999%%", `         ^ "%" is not expected here`},
		{"amount", "2147483.648", `^ the number is too large`},
		{"quota", "-1", `^ an amount cannot be negative`},
		{"quota", "None", `^ a digit is expected, not "N"`},
		{"quota", "0.0005", `^ 0.0005 is finer than a thousandth of a device`},
		{"quota", "9223372036854776", `^ the number is too large`},
		{"duration", "", `^ is empty`},
		{"duration", "5", ` ^ a unit is missing`},
		{"duration", "2h30", `    ^ a unit is missing`},
		{"duration", "2h 30m", `  ^ a digit is expected, not " "`},
		{"duration", "2 h", ` ^ a unit is expected, not " "`},
		{"duration", "2w", ` ^ unknown unit "w"`},
		{"duration", "-2h", `^ an amount cannot be negative`},
		{"duration", "0.5ns", `^ 0.5ns is finer than a nanosecond`},
		{"duration", "200000000h", `^ the duration is too long`},
		{"duration", "2562047h48m", `        ^ the duration is too long`},
	} {
		err := parse[c.kind](c.text)
		var wrong *api.ParseError
		if !errors.As(err, &wrong) {
			t.Errorf("%s %q: got %v, want a *ParseError", c.kind, c.text, err)
			continue
		}
		if _, line, _ := strings.Cut(wrong.Caret(), "\n"); line != c.caret {
			t.Errorf("%s %q: the caret says\n%s\nwant\n%s", c.kind, c.text, wrong.Caret(), c.caret)
		}
		if said := wrong.Error(); !strings.Contains(said, wrong.Problem) || strings.Contains(said, "\n") || !utf8.ValidString(said) {
			t.Errorf("%s %q: not one clear sentence: %q", c.kind, c.text, said)
		}
	}
}

func TestErrorNamesTheCharacter(t *testing.T) {
	_, err := api.ParseCompute("0.25..O.80")
	want := `compute "0.25..O.80": a digit is expected, not "O" (character 7); write for example 0.25, 0.25..0.80 or 25%`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = api.ParseCompute("½.." + strings.Repeat("9", 1000))
	if err == nil || len(err.Error()) > 400 {
		t.Errorf("an error about a long text is %d bytes long", len(err.Error()))
	}
}

func TestUnsetShareInText(t *testing.T) {
	var c api.Compute
	var m api.Memory
	if c.String() != "" || m.String() != "" {
		t.Errorf("the unset share prints as %q and %q", c, m)
	}
	c, m = compute(1, 2), api.Memory{Floor: part(1)}
	if err := errors.Join(c.UnmarshalText(nil), m.UnmarshalText(nil)); err != nil || !c.IsZero() || !m.IsZero() {
		t.Errorf("empty text gives %+v, %+v, %v", c, m, err)
	}
	d := api.Duration(time.Hour)
	if err := d.UnmarshalText([]byte("x")); err == nil || d != api.Duration(time.Hour) {
		t.Errorf("a refused text changed the value to %s (%v)", d, err)
	}
}
