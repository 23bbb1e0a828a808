// Package exact keeps text of any bytes in JSON. Words of commands, paths and environments need not be UTF-8, and encoding/json writes
// U+FFFD for what is not. In comes a string of any bytes, out goes the same one: as text where it is UTF-8, else as
// {"base64":"…"}. It never changes a byte.
package exact

import (
	"encoding/json"
	"unicode/utf8"
)

// Text is a string of any bytes.
type Text string

type encoded struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON writes text, or base64 where it is not UTF-8.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(encoded{[]byte(t)})
}

// UnmarshalJSON reads either.
func (t *Text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var read encoded
		err := json.Unmarshal(data, &read)
		*t = Text(read.Base64)
		return err
	}
	return json.Unmarshal(data, (*string)(t))
}

// Texts makes Text of each string.
func Texts(from []string) []Text { return each[Text](from) }

// Strings makes a string of each Text.
func Strings(from []Text) []string { return each[string](from) }

func each[To, From ~string](from []From) []To {
	if from == nil {
		return nil
	}
	to := make([]To, len(from))
	for i, one := range from {
		to[i] = To(one)
	}
	return to
}
