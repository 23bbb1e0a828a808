package cover

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountedBy is what the agent's mounts are: a library over another is to be no less.
const mountedBy = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV

// cover lays libraries over the files of their names in these folders.
func (r *root) cover(order Order, folders []string) error {
	c := covering{root: r, order: order, seen: map[mounted]bool{}, left: map[uint64]bool{}, by: map[string]source{}}
	defer c.close()
	if err := c.leave(order.Behind); err != nil {
		return err
	}
	for _, folder := range folders {
		if err := c.folder(folder); err != nil {
			return err
		}
		for _, first := range better {
			if err := c.folder(below(folder, first)); err != nil {
				return err
			}
		}
	}
	return nil
}

// covering is what was done so far.
type covering struct {
	*root
	order Order
	seen  map[mounted]bool // folders that were looked into
	left  map[uint64]bool  // mounts that are left alone
	by    map[string]source
}

// mounted is a file in one of the places where it is mounted.
type mounted struct {
	node
	mount uint64
}

// source is a library that lies over others.
type source struct {
	file int
	is   node
}

func (c *covering) close() {
	for _, one := range c.by {
		_ = unix.Close(one.file)
	}
}

// leave has the mounts left alone by which the shim finds the driver, and those that the node has, too: what is mounted on these comes to the node.
func (c *covering) leave(behind []string) error {
	for _, name := range behind {
		file, err := c.open(name)
		if err != nil {
			return fmt.Errorf("look for the driver behind the shim, %s: %w", name, err)
		}
		is, err := about(file)
		_ = unix.Close(file)
		if err != nil {
			return err
		}
		c.left[is.Mnt_id] = true
	}
	all, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("look at the container's mounts: %w", err)
	}
	for line := range strings.Lines(string(all)) {
		before, _, _ := strings.Cut(line, " - ")
		words := strings.Fields(before)
		for i, word := range words {
			if i < 6 || !strings.HasPrefix(word, "shared:") {
				continue
			}
			mount, err := strconv.ParseUint(words[0], 10, 64)
			if err != nil {
				return fmt.Errorf("look at the container's mounts: %w", err)
			}
			c.left[mount] = true
		}
	}
	return nil
}

// folder lays libraries over the files of their names in one folder.
func (c *covering) folder(name string) error {
	opened, err := c.open(name)
	if errors.Is(err, errNothing) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(opened) }()
	is, err := about(opened)
	if err != nil {
		return err
	}
	one := mounted{nodeOf(is), is.Mnt_id}
	if is.Mode&unix.S_IFMT != unix.S_IFDIR || c.seen[one] {
		return nil
	}
	c.seen[one] = true
	return c.listOpen(opened, name, func(file string) error {
		if library := c.order.of(file); library != nil {
			return c.file(below(name, file), *library)
		}
		return nil
	})
}

// file lays a library over a file, unless it lies there.
func (c *covering) file(name string, library Library) error {
	opened, err := c.open(name)
	if errors.Is(err, errNothing) {
		return nil // a link that leads nowhere
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(opened) }()
	is, err := about(opened)
	if err != nil || is.Mode&unix.S_IFMT != unix.S_IFREG || c.left[is.Mnt_id] {
		return err
	}
	over, err := c.source(library.By)
	if err != nil || nodeOf(is) == over.is {
		return err
	}
	tree, err := unix.OpenTree(over.file, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err == nil {
		err = unix.MoveMount(tree, "", opened, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
		_ = unix.Close(tree)
	}
	if err != nil {
		return fmt.Errorf("lay %s over %s of the image: %w", library.By, name, err)
	}
	return nil
}

// source opens a library that lies over others, which has to be what the agent mounted.
func (c *covering) source(by string) (source, error) {
	if one, have := c.by[by]; have {
		return one, nil
	}
	file, err := c.open(by)
	if err != nil {
		return source{}, fmt.Errorf("look for %s, which the container was to be given: %w", by, err)
	}
	is, err := about(file)
	var of unix.Statfs_t
	if err = errors.Join(err, unix.Fstatfs(file, &of)); err == nil && (is.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 || of.Flags&mountedBy != mountedBy) {
		err = errors.New("something else is mounted there; mount no volume over the driver's libraries")
	}
	if err != nil {
		_ = unix.Close(file)
		return source{}, fmt.Errorf("look at %s, which the container was to be given: %w", by, err)
	}
	c.by[by] = source{file, nodeOf(is)}
	return c.by[by], nil
}
