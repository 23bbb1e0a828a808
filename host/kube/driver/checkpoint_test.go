package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/aliquot-dev/aliquot/node"
)

// A checkpoint of a newer driver is not guessed at, nor mended, whatever that has made of its fields.
func TestNewerCheckpoint(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	s.prepare(p, claimOf("a", 250, 1<<30, ""))
	raw, err := os.ReadFile(p.checkpoints.path("a"))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(raw), "\n")
	newer := strings.Replace(body, `"Version":1`, `"Version":2`, 1)
	for _, newer := range []string{newer, strings.Replace(newer, `"Phase":"prepared"`, `"Phase":{"Prepared":true}`, 1)} {
		s.damage(p, "a", summed([]byte(newer)))
		if _, err := prepareDriver(t.Context(), s.config); err == nil || !strings.Contains(err.Error(), "has version 2") {
			t.Errorf("of %s: got %v", newer, err)
		}
	}
}

// damage writes something else into a claim's checkpoint.
func (s *site) damage(p plugin, uid string, content []byte) {
	s.Helper()
	if err := os.WriteFile(p.checkpoints.path(uid), content, 0o600); err != nil {
		s.Fatal(err)
	}
}

// Of what is no checkpoint nothing is taken.
func FuzzParseCheckpoint(f *testing.F) {
	f.Add([]byte("0\n{}"))
	f.Fuzz(func(t *testing.T, content []byte) { checkParsed(t, content, nil) })
}

// With the right checksum before it a body is read as what it says, or refused: one of a newer version with its number.
func FuzzParseCheckpointBody(f *testing.F) {
	for _, one := range []checkpoint{
		{Phase: prepared, Namespace: "default", Name: "claim-a", Task: node.Task{UID: "a", UserUnknown: true, Grants: []node.Grant{{UID: "share", Device: h200.UUID, Floor: 250, Ceiling: 1000, Weight: 7, MemFloor: 1 << 30, MemCeiling: 4 << 30}}}},
		{Phase: unpreparing, Task: node.Task{UID: "b"}, Access: []string{h200.UUID}},
	} {
		content, err := one.content()
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := strings.Cut(string(content), "\n")
		f.Add([]byte(body))
		f.Add([]byte(strings.Replace(body, `"Version":1`, `"Version":2`, 1)))
	}
	f.Add([]byte(`{"Version":3,"Task":[]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) { checkParsed(t, summed(body), body) })
}

// checkParsed checks what is made of a file, whose body, where its checksum is right, is known to the test.
func checkParsed(t *testing.T, content, body []byte) {
	t.Helper()
	one, err := parseCheckpoint(content)
	var format struct{ Version int }
	if body != nil && json.Unmarshal(body, &format) == nil && (format.Version < 1 || format.Version > checkpointVersion) {
		if err == nil || errors.Is(err, errDamaged) || !strings.Contains(err.Error(), fmt.Sprintf("has version %d,", format.Version)) {
			t.Errorf("%s, of version %d, is not refused for that: %+v, %v", content, format.Version, one, err)
		}
		return
	}
	if err != nil {
		if !errors.Is(err, errDamaged) {
			t.Errorf("%s is refused by %v", content, err)
		}
		return
	}
	if one.Version != checkpointVersion {
		t.Errorf("of %s it took %+v", content, one)
	}
	written, err := one.content()
	if err != nil {
		t.Fatalf("%+v was read and is not to be written: %v", one, err)
	}
	if again, err := parseCheckpoint(written); err != nil || !equality.Semantic.DeepEqual(again, one) {
		t.Errorf("%+v is written and read again %+v (%v)", one, again, err)
	}
}
