package page

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// mirrored says which Go type mirrors which C struct.
var mirrored = []struct {
	c      string
	golang reflect.Type
}{
	{"alq_header", reflect.TypeFor[Header]()},
	{"alq_ctl_grant", reflect.TypeFor[CtlGrant]()},
	{"alq_ctl", reflect.TypeFor[Ctl]()},
	{"alq_tel_grant", reflect.TypeFor[TelGrant]()},
	{"alq_slot", reflect.TypeFor[Slot]()},
	{"alq_tel", reflect.TypeFor[Tel]()},
	{"alq_split", reflect.TypeFor[Split]()},
	{"alq_book_grant", reflect.TypeFor[BookGrant]()},
	{"alq_book", reflect.TypeFor[Book]()},
	{"alq_device", reflect.TypeFor[Device]()},
}

var constants = []struct {
	c      string
	golang uint64
}{
	{"ALQ_ABI_MAGIC", Magic},
	{"ALQ_ABI_VERSION", Version},
	{"ALQ_ABI_MINOR", Minor},
	{"ALQ_MAX_GRANTS", MaxGrants},
	{"ALQ_MAX_PROCS", MaxProcs},
	{"ALQ_UUID_LEN", UUIDLen},
	{"ALQ_UID_LEN", UIDLen},
	{"ALQ_KIND_CTL", uint64(KindCtl)},
	{"ALQ_KIND_TEL", uint64(KindTel)},
	{"ALQ_KIND_BOOK", uint64(KindBook)},
	{"ALQ_KIND_DEVICE", uint64(KindDevice)},
	{"ALQ_POLICY_LATENCY", uint64(PolicyLatency)},
	{"ALQ_POLICY_LEND_MEM", uint64(PolicyLendMem)},
	{"ALQ_POLICY_STOPPED", uint64(PolicyStopped)},
	{"ALQ_POLICY_CLOCK", uint64(PolicyClock)},
	{"ALQ_SLOT_FREE", uint64(SlotFree)},
	{"ALQ_SLOT_LIVE", uint64(SlotLive)},
	{"ALQ_DEVICE_OK", uint64(DeviceOK)},
	{"ALQ_DEVICE_DRAINING", uint64(DeviceDraining)},
	{"ALQ_DEVICE_DOWN", uint64(DeviceDown)},
}

// TestMirror compares the Go types with native/abi.h as the C compiler lays it out. A field is named by its tag, so that one
// renamed or moved in C does not compile or does not match; that none is left out follows from equal sizes without gaps.
func TestMirror(t *testing.T) {
	var program, want strings.Builder
	program.WriteString("#include <stdio.h>\n#include <stddef.h>\n#include \"abi.h\"\n" +
		"#define SIZE(s) printf(#s \" %zu\\n\", sizeof(struct s))\n" +
		"#define FIELD(s, f) printf(#s \".\" #f \" %zu %zu\\n\", offsetof(struct s, f), sizeof(((struct s *)0)->f))\n" +
		"#define CONSTANT(c) printf(#c \" %llu\\n\", (unsigned long long)(c))\n" +
		"int main(void)\n{\n")
	for _, m := range mirrored {
		fmt.Fprintf(&program, "\tSIZE(%s);\n", m.c)
		fmt.Fprintf(&want, "%s %d\n", m.c, m.golang.Size())
		end := uintptr(0)
		for i := range m.golang.NumField() {
			field := m.golang.Field(i)
			name := field.Tag.Get("abi")
			if name == "" {
				t.Fatalf("%s.%s has no abi tag", m.golang, field.Name)
			}
			if field.Offset != end {
				t.Errorf("%s.%s begins at %d, the field before it ends at %d: name the gap", m.golang, field.Name, field.Offset, end)
			}
			end = field.Offset + field.Type.Size()
			fmt.Fprintf(&program, "\tFIELD(%s, %s);\n", m.c, name)
			fmt.Fprintf(&want, "%s.%s %d %d\n", m.c, name, field.Offset, field.Type.Size())
		}
		if end != m.golang.Size() {
			t.Errorf("%s ends at %d but has %d bytes: name the gap", m.golang, end, m.golang.Size())
		}
	}
	for _, c := range constants {
		fmt.Fprintf(&program, "\tCONSTANT(%s);\n", c.c)
		fmt.Fprintf(&want, "%s %d\n", c.c, c.golang)
	}
	program.WriteString("\treturn 0;\n}\n")

	if got := compileAndRun(t, program.String()); got != want.String() {
		t.Errorf("native/abi.h and node/page disagree:\n%s", difference(got, want.String()))
	}
}

func compileAndRun(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	compile := exec.Command("cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I../../native", "-o", binary, source)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", compile, err, out)
	}
	out, err := exec.Command(binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func difference(c, golang string) string {
	var out strings.Builder
	cs, gos := strings.Split(c, "\n"), strings.Split(golang, "\n")
	for i := range max(len(cs), len(gos)) {
		var a, b string
		if i < len(cs) {
			a = cs[i]
		}
		if i < len(gos) {
			b = gos[i]
		}
		if a != b {
			fmt.Fprintf(&out, "C: %s, Go: %s\n", a, b)
		}
	}
	return out.String()
}
