package safe

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
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

// However a text is cut into pieces, it comes out the same, and the terminal gets no orders.
func TestWriterOfPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.OneOf(
			rapid.SampledFrom([]string{"\x1b[2J", "ü", "\xe2\x82", "\xac", "€", "\xff", "\u202e", "a\n", "\t", "\r\n", "\xf0\x9f", "\x98\x80"}),
			rapid.StringN(0, 4, 16),
		)).Draw(t, "pieces")
		var out strings.Builder
		writer := &Writer{To: &out}
		for _, piece := range pieces {
			if n, err := writer.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Fatalf("wrote %d of %d, %v", n, len(piece), err)
			}
		}
		if err := writer.Flush(); err != nil {
			t.Fatal(err)
		}
		whole := strings.Join(pieces, "")
		if want := written(whole, "\n\t"); out.String() != want {
			t.Errorf("%q became %q, want %q", whole, out.String(), want)
		}
		if bad := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); bad >= 0 {
			t.Errorf("the terminal gets %q", out.String()[bad:])
		}
	})
}

// What can be written is written at once: a log that is followed shows each line as it comes.
func TestWriterKeepsNothingBack(t *testing.T) {
	var out strings.Builder
	writer := &Writer{To: &out}
	for _, step := range []struct{ in, out string }{{"half a line", "half a line"}, {"\xe2", ""}, {"\x82", ""}, {"\xac!", "€!"}, {"\xe2", ""}, {"x", "\\xe2x"}} {
		out.Reset()
		if _, err := writer.Write([]byte(step.in)); err != nil || out.String() != step.out {
			t.Errorf("%q: %q, %v; want %q", step.in, out.String(), err, step.out)
		}
	}
}
