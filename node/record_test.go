package node

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestRecord(t *testing.T) {
	name := filepath.Join(t.TempDir(), recordName)
	want := record{Version: recordVersion, Task: aTask("w.0", 250, 800, "GPU-a"), Ending: true}
	want.Task.Flags.LatencyClass = true
	if err := want.write(name); err != nil {
		t.Fatal(err)
	}
	got, err := readRecord(name)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v; wrote %+v", got, err, want)
	}
	body := `{"Version":2}`
	if _, err := parseRecord("task.json", []byte(checksum([]byte(body))+"\n"+body)); !errors.Is(err, errDamagedRecord) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("of another version: %v", err)
	}
}

// FuzzRecord: whatever a record's file holds, reading it ends with a record or an error; a checksum that fits is never refused as
// wrong.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"Version":1,"Task":{"UID":"a","Grants":[{}]}}`), true)
	f.Add([]byte("x\n{}"), false)
	f.Fuzz(func(t *testing.T, content []byte, signed bool) {
		if signed {
			content = append([]byte(checksum(content)+"\n"), content...)
		}
		r, err := parseRecord("task.json", content)
		if err == nil && r.Version != recordVersion {
			t.Errorf("took version %d", r.Version)
		}
		if err != nil && !errors.Is(err, errDamagedRecord) {
			t.Errorf("an error that does not say damaged: %v", err)
		}
		if signed && err != nil && strings.Contains(err.Error(), "checksum") {
			t.Errorf("a right checksum: %v", err)
		}
	})
}
