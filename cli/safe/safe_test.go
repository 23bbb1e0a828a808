package safe

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"train.py --name über 日本 █→": "train.py --name über 日本 █→",
		`a "quoted" \ word`:          `a "quoted" \ word`,
		"\x1b]0;gone\x07":            `\x1b]0;gone\a`,
		"\x1b[2Jall\rdone":           `\x1b[2Jall\rdone`,
		"a\nb\tc":                    `a\nb\tc`,
		"\u009b31m":                  `\u009b31m`, // the same as ESC [ in one character
		"abc\u202egnp.exe":           `abc\u202egnp.exe`,
		"\xff\xfe\ufffd":             `\xff\xfe` + "\ufffd",
		"\x00\x7f":                   `\x00\x7f`,
	} {
		if got := Line(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if Is(text) != (text == want) {
			t.Errorf("%q: Is says %v", text, Is(text))
		}
	}
	if got := Lines("a\x1b\nb"); got != "a\\x1b\nb" {
		t.Errorf("lines: %q", got)
	}
}

// Whatever comes in, what goes out can be printed, and is left alone the second time.
func FuzzLine(f *testing.F) {
	f.Add("\x1b[31mred")
	f.Add("\xc2")
	f.Fuzz(func(t *testing.T, text string) {
		got := Line(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q became %q", text, got)
		}
		if Line(got) != got {
			t.Errorf("%q is changed again", got)
		}
		if Lines(strings.ReplaceAll(text, "\n", "")) != Line(strings.ReplaceAll(text, "\n", "")) {
			t.Errorf("%q: a line and lines differ", text)
		}
	})
}
