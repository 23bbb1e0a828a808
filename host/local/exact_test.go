package local

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// What a program is given reaches it byte for byte, whatever the bytes: through the API, the store and the recipe.
func TestBytesReachTheProgram(t *testing.T) {
	s := newSite(t, nil)
	every := ""
	for b := 255; b > 0; b-- {
		every += string([]byte{byte(b)})
	}
	folder := filepath.Join(s.root, "f\xff")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "p\xfe"), []byte("#!/bin/sh\nprintf '%s\\n' \"$PWD\" \"$X\" \"$@\"; tr '\\0' '\\n' </proc/$$/environ | grep -a ^Y\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, word := range []string{"q\xff", every, "\xed\xa0\x80", "\ufffd", `{"base64":"eA=="}`, ""} {
		name := fmt.Sprintf("odd-%d", i)
		asked := spec("0.1", "")
		asked.Name, asked.Dir, asked.Command = name, folder, []string{"./p\xfe", word}
		asked.Env["X"], asked.Env["Y\xff"] = "\xff\xfe", "y"
		text, err := json.Marshal(asked)
		if err != nil {
			t.Fatal(err)
		}
		var sent api.WorkloadSpec
		if err := json.Unmarshal(text, &sent); err != nil {
			t.Fatal(err)
		}
		s.submit(sent)
		if status := s.ended(name).Status; status.Outcome != api.Succeeded {
			t.Fatalf("%q: %+v", word, status)
		}
		if want := strings.Join([]string{folder, "\xff\xfe", word, "Y\xff=y", ""}, "\n"); s.log(name) != want {
			t.Errorf("printed %q, want %q", s.log(name), want)
		}
	}
	s.restart()
	if kept, err := s.Workload(context.Background(), "odd-1"); err != nil || kept.Spec.Command[1] != every || kept.Spec.Dir != folder {
		t.Errorf("kept is %q, %v", kept.Spec.Command, err)
	}
}
