package api

import (
	"reflect"
	"strings"
	"testing"
)

func TestLatencyClasses(t *testing.T) {
	for text, want := range map[string]LatencyClasses{
		"": nil, " ": nil, "2": {{2, ""}}, "1@H200, 9 @ NVIDIA A10,3": {{1, "H200"}, {9, "NVIDIA A10"}, {3, ""}}, "1@GPU-aa@b": {{1, "GPU-aa@b"}},
	} {
		got, err := ParseLatencyClasses(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %v: %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"0":             "a class from 1, which answers fastest, to 9 is expected (character 1); write for example 2, or 1@H200,2@A10",
		"10":            "a class from 1, which answers fastest, to 9 is expected (character 1)",
		"-1":            "from 1, which answers fastest, to 9",
		"H200":          "from 1, which answers fastest, to 9",
		"1@H200,@A10":   "to 9 is expected (character 8)",
		"1,":            "to 9 is expected (character 3)",
		"1@":            "a model or the UUID of a device is expected (character 3)",
		"1@ ,2":         "a model or the UUID of a device is expected (character 4)",
		"1@H200,2@h200": `"h200" has a class already (character 8)`,
		"1@H200,2,3":    "all devices have a class already (character 10)",
	} {
		if got, err := ParseLatencyClasses(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is read as %v: %v, want something of %q", text, got, err, want)
		}
	}
}

func FuzzParseLatencyClasses(f *testing.F) {
	for _, text := range []string{"", "2", "1@H200,2@A10,3", "1@,", "1@a@b", "01@ x ,"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		classes, err := ParseLatencyClasses(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is refused in more than a sentence: %v", text, err)
			}
			return
		}
		for _, one := range classes {
			if one.Class < 1 || one.Class > SlowestLatency {
				t.Errorf("%q has class %d", text, one.Class)
			}
		}
		if again, err := ParseLatencyClasses(classes.String()); err != nil || !reflect.DeepEqual(again, classes) {
			t.Errorf("%q is written %q, which is read as %v: %v", text, classes, again, err)
		}
	})
}
