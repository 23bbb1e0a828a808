package cli

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aliquot-dev/aliquot/cli/safe"
)

// escaped is a word as it stands between $' and ' in a shell, in whatever locale: bytes that a terminal would act upon by their numbers.
func escaped(word string) string {
	var out strings.Builder
	for len(word) > 0 {
		_, size := utf8.DecodeRuneInString(word)
		switch one := word[:size]; {
		case one == `\` || one == "'":
			out.WriteString(`\` + one)
		case safe.Is(one):
			out.WriteString(one)
		default:
			for _, b := range []byte(one) {
				fmt.Fprintf(&out, `\x%02x`, b)
			}
		}
		word = word[size:]
	}
	return out.String()
}

// shellWords takes a text apart as a shell would a line: at spaces that are not quoted, by ', " or \. Nothing in it is expanded.
func shellWords(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote byte
	begun, escaped := false, false
	for i := range len(text) {
		switch b := text[i]; {
		case escaped:
			if quote == '"' && !strings.ContainsRune("\"\\$`", rune(b)) {
				word.WriteByte('\\')
			}
			word.WriteByte(b)
			escaped = false
		case b == '\\' && quote != '\'':
			begun, escaped = true, true
		case b == quote:
			quote = 0
		case quote == 0 && (b == '\'' || b == '"'):
			begun, quote = true, b
		case quote == 0 && strings.IndexByte(" \t\n", b) >= 0:
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
		default:
			begun = true
			word.WriteByte(b)
		}
	}
	switch {
	case quote != 0:
		return nil, fmt.Errorf("a quote %c is not closed: close it, or write \\%c for the character", quote, quote)
	case escaped:
		return nil, errors.New("nothing follows the \\ at its end: write \\\\ for the character")
	case begun:
		words = append(words, word.String())
	}
	return words, nil
}

// commandText prints a command in one line, so that a shell would read it back.
func commandText(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		switch {
		case !safe.Is(word):
			word = "$'" + escaped(word) + "'"
		case word == "" || strings.ContainsAny(word, " \t\n\"'\\$`|&;<>()*?[]{}~#"):
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}
