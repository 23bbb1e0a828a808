// Package safe makes text of others safe to print on a terminal. What comes in is text that any user of the machine may have
// chosen: the words of a command, the name of a process, a reason; what goes out shows on the terminal as characters and nothing
// else. It decides nothing about what is stored or sent: JSON and YAML have their own way of writing such text.
package safe

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is text with everything that a terminal would act upon written as Go writes it in a string: `\x1b`, `\n`, `\u202e`. What can be
// printed stays as it is.
func Line(text string) string { return written(text, "") }

// Lines is Line for text of several lines: their ends stay.
func Lines(text string) string { return written(text, "\n") }

// Is says whether Line leaves text as it is.
func Is(text string) bool {
	for i, r := range text {
		if !shows(text[i:], r) {
			return false
		}
	}
	return true
}

// shows says whether r, with which rest begins, is a character and not an order to the terminal or a byte of no character.
func shows(rest string, r rune) bool {
	if r == utf8.RuneError {
		_, size := utf8.DecodeRuneInString(rest)
		return size > 1
	}
	return unicode.IsPrint(r)
}

func written(text, keep string) string {
	if Is(text) {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if one := text[:size]; shows(text, r) || strings.Contains(keep, one) {
			out.WriteString(one)
		} else {
			out.WriteString(strings.Trim(strconv.Quote(one), `"`))
		}
		text = text[size:]
	}
	return out.String()
}

// Writer writes to To what is written to it as Lines does, with tabs left as they are too. A character that is cut in two is written
// once all of it is there: Flush writes what is left at the end.
type Writer struct {
	To   io.Writer
	half []byte // the beginning of a character
}

// Write takes all of chunk, or says why it could not be written.
func (w *Writer) Write(chunk []byte) (int, error) {
	text := append(w.half, chunk...)
	whole := len(text) - halfAtEnd(text)
	w.half = append([]byte(nil), text[whole:]...)
	if _, err := io.WriteString(w.To, written(string(text[:whole]), "\n\t")); err != nil {
		return 0, err
	}
	return len(chunk), nil
}

// Flush writes what is left of a character that never became whole.
func (w *Writer) Flush() error {
	text := written(string(w.half), "")
	w.half = nil
	_, err := io.WriteString(w.To, text)
	return err
}

// halfAtEnd is how many bytes at the end of text may be the beginning of a character.
func halfAtEnd(text []byte) int {
	for size := 1; size < utf8.UTFMax && size <= len(text); size++ {
		if last := text[len(text)-size:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return size
		}
	}
	return 0
}
