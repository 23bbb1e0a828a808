package page

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrDamaged is a page that is not what native/abi.h says: of another size, kind or version, or cut short while it was read.
var ErrDamaged = errors.New("damaged page")

// ErrClosed is a page that was closed before it was read.
var ErrClosed = errors.New("page is closed")

// Layout is the type of a page.
type Layout interface{ Ctl | Tel | Book | Device }

func kindOf[T Layout]() Kind {
	switch any((*T)(nil)).(type) {
	case *Ctl:
		return KindCtl
	case *Tel:
		return KindTel
	case *Book:
		return KindBook
	default:
		return KindDevice
	}
}

// Map is a page in memory. It may be used by several goroutines; Close waits for those that are in View.
type Map[T Layout] struct {
	mu   sync.RWMutex
	file *os.File
	data []byte // nil once closed
}

// Create makes a page at path, which must not exist, and fills it: the header first, then what fill does. All of its memory is
// allocated here, so that a full file system is an error now and not a fault in whoever touches the page later. The page is not
// to be opened by others before its folder has been renamed into place.
func Create[T Layout](path string, mode fs.FileMode, uid string, grants int, createdNS uint64, fill func(*T)) error {
	if grants < 0 || grants > MaxGrants {
		return fmt.Errorf("make page %s: %d grants; a task has at most %d devices on one node", path, grants, MaxGrants)
	}
	if len(uid) >= UIDLen && kindOf[T]() != KindDevice {
		return fmt.Errorf("make page %s: UID %q is longer than %d bytes", path, uid, UIDLen-1)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		return fmt.Errorf("make page: %w", err)
	}
	size := int(unsafe.Sizeof(*new(T)))
	if err := errors.Join(file.Chmod(mode), unix.Fallocate(int(file.Fd()), 0, 0, int64(size))); err != nil {
		_ = file.Close()
		_ = os.Remove(path)
		return fmt.Errorf("make page %s: %w; free space there and try again", path, err)
	}
	m, err := mapFile[T](file, size, true)
	if err != nil {
		_ = os.Remove(path)
		return err
	}
	defer m.Close()
	return m.View(func(p *T) error {
		header := (*Header)(unsafe.Pointer(p))
		header.Magic, header.Version, header.Minor = Magic, Version, Minor
		header.Kind, header.Size, header.Grants = uint32(kindOf[T]()), uint32(size), uint32(grants)
		header.CreatedNS = createdNS
		copy(header.UID[:UIDLen-1], uid)
		if fill != nil {
			fill(p)
		}
		return nil
	})
}

// Open maps the page at path after checking that it is one: the file's size, then magic, version, kind and the size the page
// itself states. It wraps ErrDamaged where the content is wrong.
func Open[T Layout](path string, writable bool) (*Map[T], error) {
	flags := os.O_RDONLY
	if writable {
		flags = os.O_RDWR
	}
	// O_NONBLOCK so that a FIFO put in a page's place cannot hold us up.
	file, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open page: %w", err)
	}
	size := int(unsafe.Sizeof(*new(T)))
	if err := checkSize(file, size); err != nil {
		_ = file.Close()
		return nil, err
	}
	m, err := mapFile[T](file, size, writable)
	if err != nil {
		return nil, err
	}
	err = m.View(func(p *T) error { return check((*Header)(unsafe.Pointer(p)), path, kindOf[T](), size) })
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Check looks again at what Open looked at: whoever may write to a page may have spoiled it since. It wraps ErrDamaged where the
// content is wrong.
func (m *Map[T]) Check() error {
	return m.View(func(p *T) error {
		return check((*Header)(unsafe.Pointer(p)), m.file.Name(), kindOf[T](), len(m.data))
	})
}

func checkSize(file *os.File, size int) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("open page: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w: not a regular file", file.Name(), ErrDamaged)
	}
	if info.Size() != int64(size) {
		return fmt.Errorf("%s: %w: %d bytes, a page of this kind and version has %d", file.Name(), ErrDamaged, info.Size(), size)
	}
	return nil
}

func check(h *Header, path string, kind Kind, size int) error {
	switch {
	case h.Magic != Magic:
		return fmt.Errorf("%s: %w: no page of Aliquot (magic %#x)", path, ErrDamaged, h.Magic)
	case h.Version != Version:
		return fmt.Errorf("%s: %w: version %d, this program speaks version %d", path, ErrDamaged, h.Version, Version)
	case Kind(h.Kind) != kind:
		return fmt.Errorf("%s: %w: a %s page (kind %d) where a %s page belongs", path, ErrDamaged, Kind(h.Kind), h.Kind, kind)
	case h.Size != uint32(size):
		return fmt.Errorf("%s: %w: says that it has %d bytes, a %s page has %d", path, ErrDamaged, h.Size, kind, size)
	case kind == KindDevice && h.Grants != 0:
		return fmt.Errorf("%s: %w: a device page with %d grants", path, ErrDamaged, h.Grants)
	case kind != KindDevice && (h.Grants == 0 || h.Grants > MaxGrants):
		return fmt.Errorf("%s: %w: %d grants, a task has 1 to %d", path, ErrDamaged, h.Grants, MaxGrants)
	case bytes.IndexByte(h.UID[:], 0) < 0:
		return fmt.Errorf("%s: %w: the UID has no end", path, ErrDamaged)
	}
	return nil
}

// mapFile takes the file over, also when it fails.
func mapFile[T Layout](file *os.File, size int, writable bool) (*Map[T], error) {
	protection := unix.PROT_READ
	if writable {
		protection |= unix.PROT_WRITE
	}
	data, err := unix.Mmap(int(file.Fd()), 0, size, protection, unix.MAP_SHARED)
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("map page %s: %w", file.Name(), err)
	}
	return &Map[T]{file: file, data: data}, nil
}

// View calls read with the page. A page that is cut short, before or meanwhile, is ErrDamaged; one that was closed is ErrClosed.
// So is a nil page, which is one that could not be opened. The page must not be used after read returns.
func (m *Map[T]) View(read func(*T) error) (err error) {
	if m == nil {
		return ErrClosed
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.data == nil {
		return ErrClosed
	}
	if err := checkSize(m.file, len(m.data)); err != nil {
		return err
	}
	// The tenant can still cut its page between the check and the read: the fault becomes a panic with the address.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, fault := r.(interface{ Addr() uintptr }); !fault {
				panic(r)
			}
			err = fmt.Errorf("%s: %w: cut short while it was read", m.file.Name(), ErrDamaged)
		}
	}()
	return read((*T)(unsafe.Pointer(&m.data[0])))
}

// Close unmaps the page. Closing again does nothing.
func (m *Map[T]) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data == nil {
		return
	}
	_ = unix.Munmap(m.data)
	_ = m.file.Close()
	m.data = nil
}

// Text is the string in a NUL-terminated field.
func Text(field []byte) string {
	if end := bytes.IndexByte(field, 0); end >= 0 {
		field = field[:end]
	}
	return string(field)
}
