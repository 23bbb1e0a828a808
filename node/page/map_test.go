package page

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func create[T Layout](t *testing.T, grants int, fill func(*T)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page")
	if err := Create(path, 0o600, "task-1", grants, 42, fill); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCreateAndOpen(t *testing.T) {
	path := create(t, 2, func(c *Ctl) {
		copy(c.Grant[1].Device[:], "GPU-1")
		c.Grant[1].SetPolicy(Policy{Floor: 250, Ceiling: 800, Weight: 3, MemFloor: 1 << 30, MemCeiling: 2 << 30})
	})
	m, err := Open[Ctl](path, false)
	if err != nil {
		t.Fatal(err)
	}
	err = m.View(func(c *Ctl) error {
		if got := Text(c.Header.UID[:]); got != "task-1" || c.Header.Grants != 2 || c.Header.CreatedNS != 42 {
			t.Errorf("header of %q with %d grants made at %d", got, c.Header.Grants, c.Header.CreatedNS)
		}
		p, ok := c.Grant[1].Policy()
		if want := (Policy{Floor: 250, Ceiling: 800, Weight: 3, MemFloor: 1 << 30, MemCeiling: 2 << 30}); !ok || p != want {
			t.Errorf("policy %+v, %v; want %+v", p, ok, want)
		}
		if got := Text(c.Grant[1].Device[:]); got != "GPU-1" {
			t.Errorf("device %q", got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := Create[Ctl](path, 0o600, "task-1", 1, 0, nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("made over a page that exists: %v", err)
	}
	m.Close()
	m.Close()
	if err := m.View(func(*Ctl) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("view of a closed page: %v", err)
	}
}

func TestCreateRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	if err := Create[Ctl](path, 0o600, strings.Repeat("u", UIDLen), 1, 0, nil); err == nil {
		t.Error("took a UID that does not fit")
	}
	if err := Create[Ctl](path, 0o600, "u", MaxGrants+1, 0, nil); err == nil {
		t.Error("took more grants than a page has")
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left a file behind: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	header := func(change func(*Header)) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			m, err := Open[Book](path, true)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			_ = m.View(func(b *Book) error { change(&b.Header); return nil })
		}
	}
	tests := []struct {
		name   string
		damage func(t *testing.T, path string)
		says   string
	}{
		{"empty", func(t *testing.T, path string) { truncate(t, path, 0) }, "0 bytes"},
		{"short", func(t *testing.T, path string) { truncate(t, path, 128) }, "128 bytes"},
		{"long", func(t *testing.T, path string) { truncate(t, path, 1<<20) }, "1048576 bytes"},
		{"magic", header(func(h *Header) { h.Magic++ }), "no page of Aliquot"},
		{"version", header(func(h *Header) { h.Version++ }), "version 2, this program speaks version 1"},
		{"kind", header(func(h *Header) { h.Kind = uint32(KindCtl) }), "a ctl page"},
		{"kind unknown", header(func(h *Header) { h.Kind = 99 }), "kind 99"},
		{"size", header(func(h *Header) { h.Size-- }), "says that it has"},
		{"no grants", header(func(h *Header) { h.Grants = 0 }), "0 grants"},
		{"too many grants", header(func(h *Header) { h.Grants = MaxGrants + 1 }), "17 grants"},
		{"endless UID", header(func(h *Header) { copy(h.UID[:], strings.Repeat("x", UIDLen)) }), "UID has no end"},
		{"a link", func(t *testing.T, path string) {
			if err := errors.Join(os.Rename(path, path+"2"), os.Symlink(path+"2", path)); err != nil {
				t.Fatal(err)
			}
		}, "symbolic link"},
		{"a FIFO", func(t *testing.T, path string) {
			if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := create[Book](t, 1, nil)
			test.damage(t, path)
			m, err := Open[Book](path, false)
			if err == nil {
				m.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), test.says) && !strings.Contains(err.Error(), "too many levels") {
				t.Errorf("error %q does not say %q", err, test.says)
			}
		})
	}
}

// TestMinor: a page says the minor version of who made it, and one of a newer maker opens as it is.
func TestMinor(t *testing.T) {
	path := create[Ctl](t, 1, nil)
	for _, minor := range []uint32{Minor, Minor + 1} {
		m, err := Open[Ctl](path, true)
		if err != nil {
			t.Fatalf("minor version %d: %v", minor, err)
		}
		if err := errors.Join(m.Check(), m.View(func(c *Ctl) error {
			if c.Header.Minor != minor {
				t.Errorf("minor version %d, want %d", c.Header.Minor, minor)
			}
			c.Header.Minor = Minor + 1
			return nil
		})); err != nil {
			t.Errorf("minor version %d: %v", minor, err)
		}
		m.Close()
	}
}

// TestCutShort: a tenant that truncates its own page while it is mapped gives an error, not a dead agent.
func TestCutShort(t *testing.T) {
	path := create[Tel](t, 1, nil)
	m, err := Open[Tel](path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	err = m.View(func(tel *Tel) error {
		truncate(t, path, 0)
		_ = tel.Processes()
		return nil
	})
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("cut short in view: %v", err)
	}
	if err := m.View(func(*Tel) error { t.Error("saw a page that is too short"); return nil }); !errors.Is(err, ErrDamaged) {
		t.Errorf("cut short before view: %v", err)
	}
	truncate(t, path, int64(unsafe.Sizeof(Tel{})))
	if err := m.View(func(tel *Tel) error { _ = tel.Processes(); return nil }); err != nil {
		t.Errorf("whole again: %v", err)
	}
}

// TestViewPanics: only faults of memory become errors.
func TestViewPanics(t *testing.T) {
	m, err := Open[Book](create[Book](t, 1, nil), false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	defer func() {
		if recover() == nil {
			t.Error("a panic of the reader was swallowed")
		}
	}()
	_ = m.View(func(*Book) error { panic("mine") })
}

func TestPolicyIsNeverTorn(t *testing.T) {
	m, err := Open[Ctl](create[Ctl](t, 1, func(c *Ctl) { c.Grant[0].SetPolicy(Policy{}) }), true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_ = m.View(func(c *Ctl) error {
		var done sync.WaitGroup
		stop := make(chan struct{})
		done.Go(func() {
			for n := uint32(1); ; n++ {
				select {
				case <-stop:
					return
				default:
					c.Grant[0].SetPolicy(Policy{Floor: n, Ceiling: n, Weight: n, MemFloor: uint64(n), MemCeiling: uint64(n), MemDevice: uint64(n), Flags: n})
				}
			}
		})
		seen := 0
		for seen < 2000 {
			p, ok := c.Grant[0].Policy()
			if !ok {
				continue
			}
			seen++
			n := p.Floor
			if (p != Policy{Floor: n, Ceiling: n, Weight: n, MemFloor: uint64(n), MemCeiling: uint64(n), MemDevice: uint64(n), Flags: n}) {
				t.Errorf("torn: %+v", p)
				break
			}
		}
		close(stop)
		done.Wait()
		return nil
	})
}

func TestHalfWritten(t *testing.T) {
	m, err := Open[Ctl](create[Ctl](t, 1, nil), true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_ = m.View(func(c *Ctl) error {
		g := &c.Grant[0]
		g.PolicySeq.Store(7)
		if _, ok := g.Policy(); ok {
			t.Error("read a policy that was left half written")
		}
		g.SetPolicy(Policy{Floor: 5})
		if p, ok := g.Policy(); !ok || p.Floor != 5 || g.PolicySeq.Load() != 8 {
			t.Errorf("after repair: %+v, %v, sequence %d", p, ok, g.PolicySeq.Load())
		}
		return nil
	})
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// FuzzOpen: whatever a file holds, opening and reading it as any kind of page ends with a reading or an error.
func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	for i, makePage := range []func(path string) error{
		func(path string) error { return Create[Ctl](path, 0o600, "u", 1, 1, nil) },
		func(path string) error { return Create[Tel](path, 0o600, "u", 16, 1, nil) },
		func(path string) error { return Create[Book](path, 0o600, "u", 2, 1, nil) },
		func(path string) error { return Create[Device](path, 0o600, "GPU-1", 0, 1, nil) },
	} {
		path := filepath.Join(dir, string(rune('a'+i)))
		if err := makePage(path); err != nil {
			f.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content[:128], len(content))
	}
	f.Fuzz(func(t *testing.T, content []byte, size int) {
		path := filepath.Join(t.TempDir(), "page")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		// The fuzzer supplies the beginning; the rest repeats it, so that every field gets random bytes.
		if size > len(content) && size <= 1<<19 && len(content) > 0 {
			whole := make([]byte, size)
			for n := 0; n < size; {
				n += copy(whole[n:], content)
			}
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if m, err := Open[Ctl](path, false); err == nil {
			_ = m.View(func(c *Ctl) error {
				for i := range c.Header.Grants {
					_, _ = c.Grant[i].Policy()
					_ = Text(c.Grant[i].Device[:])
				}
				return nil
			})
			m.Close()
		}
		if m, err := Open[Tel](path, false); err == nil {
			_ = m.View(func(tel *Tel) error {
				for _, p := range tel.Processes() {
					if p.Slot < 0 || p.Slot >= MaxProcs {
						t.Errorf("slot %d", p.Slot)
					}
				}
				return nil
			})
			m.Close()
		}
		if m, err := Open[Book](path, false); err == nil {
			_ = m.View(func(b *Book) error { _, _ = b.Grant[b.Header.Grants-1].Read(); return nil })
			m.Close()
		}
		if m, err := Open[Device](path, false); err == nil {
			_ = m.View(func(d *Device) error { _, _ = d.Read(); return nil })
			m.Close()
		}
	})
}
