package cli

import (
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
