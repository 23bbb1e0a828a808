// Package cover gives a container its share's pages, and lays the shim over a driver that its image brings itself. It is what a hook of the container runtime does after
// a container's file systems are mounted and before its program begins: in come the container's state and configuration, by the runtime, and by the agent where the
// share's pages are and which libraries lie over which. What comes out is that the pages are the user's whom the program runs as, also where only the image
// says who that is, and mounts in that container; nothing else. It runs nothing of the image, writes nothing there and leaves the node's mounts alone.
//
// Everything in the image is its maker's: it is opened as the container would see it, never out of its root (openat2), each file by what was opened and not by
// its name a second time, and no more of it is read than limits say. A container in which there is more than that does not start.
//
// It finds what the dynamic linker finds, and what images are known to bring. Who loads a driver by a path of its own, or brings one later, passes the shim, which
// the agent sees.
package cover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/node/page"
)

// Order is what is to be done in a container. All paths but that of the pages are the container's.
type Order struct {
	Pages     string // the task's folder on the node, which is given to the container's user; empty: it has none
	Libraries []Library
	Behind    []string // files whose mounts are left alone: by them the shim finds the driver
}

// Library says what lies over each file of a name, whatever version follows that.
type Library struct {
	Name string // libcuda.so, as an example
	By   string // the file that lies over it, itself mounted by the agent
}

// The options by which an order is given to the program.
const (
	pagesOption   = "--pages="
	libraryOption = "--library="
	behindOption  = "--behind="
)

// Arguments are the order as the program takes it.
func (o Order) Arguments() []string {
	var arguments []string
	if o.Pages != "" {
		arguments = append(arguments, pagesOption+o.Pages)
	}
	for _, one := range o.Libraries {
		arguments = append(arguments, libraryOption+one.Name+"="+one.By)
	}
	for _, file := range o.Behind {
		arguments = append(arguments, behindOption+file)
	}
	return arguments
}

// ParseOrder is the order that the program was given.
func ParseOrder(arguments []string) (Order, error) {
	var order Order
	for _, argument := range arguments {
		if file, is := strings.CutPrefix(argument, behindOption); is {
			order.Behind = append(order.Behind, file)
			continue
		}
		if folder, is := strings.CutPrefix(argument, pagesOption); is && filepath.IsAbs(folder) {
			order.Pages = folder
			continue
		}
		library, is := strings.CutPrefix(argument, libraryOption)
		name, by, whole := strings.Cut(library, "=")
		if !is || !whole || name == "" || !path.IsAbs(by) {
			return Order{}, fmt.Errorf("%q is not understood; it is called by container runtimes, as the agent's CDI files say", argument)
		}
		order.Libraries = append(order.Libraries, Library{Name: name, By: by})
	}
	return order, nil
}

// of is the library that a file is, by its name; nil: none.
func (o Order) of(name string) *Library {
	for i, one := range o.Libraries {
		if name == one.Name || strings.HasPrefix(name, one.Name+".") {
			return &o.Libraries[i]
		}
	}
	return nil
}

// state is what the runtime says on standard input.
type state struct {
	Bundle string `json:"bundle"`
}

// config is the part of a container's configuration that counts here.
type config struct {
	Root struct {
		Path string `json:"path"`
	} `json:"root"`
	Process struct {
		Env  []string `json:"env"`
		Cwd  string   `json:"cwd"`
		User struct {
			UID *uint32 `json:"uid"`
		} `json:"user"`
	} `json:"process"`
	Linux struct {
		Users []struct{} `json:"uidMappings"` // of its own
	} `json:"linux"`
}

// configMax is how large the runtime's own words may be; the kernel takes no environment that is larger.
const configMax = 16 << 20

// Run does what is ordered in the container of which the runtime says the state.
func Run(said io.Reader, order Order) error {
	if err := apart("/proc/1/ns/mnt"); err != nil {
		return err
	}
	var is state
	if err := decode(said, &is); err != nil {
		return fmt.Errorf("read the container's state: %w", err)
	}
	file, err := os.Open(filepath.Join(is.Bundle, "config.json"))
	if err != nil {
		return fmt.Errorf("read the container's configuration: %w", err)
	}
	defer file.Close()
	var has config
	if err := decode(file, &has); err != nil {
		return fmt.Errorf("read the container's configuration: %w", err)
	}
	if order.Pages != "" {
		if err := has.give(order.Pages); err != nil {
			return fmt.Errorf("the container could not be given its share: %w", err)
		}
	}
	if len(order.Libraries) > 0 {
		if err := has.cover(is.Bundle, order); err != nil {
			return fmt.Errorf("the driver that the image brings could not be replaced by the share's: %w", err)
		}
	}
	return nil
}

// give gives a share's pages to the user that the container's program begins as.
func (c config) give(folder string) error {
	if len(c.Linux.Users) > 0 {
		return errors.New("it has users of its own (hostUsers: false), who cannot open pages that belong to users of the node; leave hostUsers out")
	}
	if c.Process.User.UID == nil {
		return errors.New("its configuration does not say which user it runs as; this is for container runtimes that keep to OCI")
	}
	err := page.Give(folder, page.User(*c.Process.User.UID))
	if other, is := errors.AsType[*page.UserError](err); is {
		return fmt.Errorf("it runs as user %d, and the pages of its claim are user %d's, by the runAsUser of a pod or by a container that began before; give all containers that share the claim the same runAsUser, or make a claim for each",
			other.Asked, other.Has)
	}
	return err
}

// cover lays libraries over those of the container.
func (c config) cover(bundle string, order Order) error {
	top := c.Root.Path
	if !filepath.IsAbs(top) {
		top = filepath.Join(bundle, top)
	}
	r, err := openRoot(top)
	if err != nil {
		return err
	}
	defer r.close()
	folders, err := r.folders(c.Process.Env, c.Process.Cwd)
	if err != nil {
		return err
	}
	return r.cover(order, folders)
}

func decode(from io.Reader, into any) error {
	raw, err := io.ReadAll(io.LimitReader(from, configMax+1))
	if err != nil {
		return err
	}
	if len(raw) > configMax {
		return fmt.Errorf("it has more than %d bytes", configMax)
	}
	return json.Unmarshal(raw, into)
}

// apart makes sure that this process has other mounts than the node: there they would outlast the container.
func apart(ofNode string) error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("look for this process' mounts: %w", err)
	}
	first, err := os.Readlink(ofNode)
	if errors.Is(err, unix.EACCES) { // of a user namespace, which has mounts of its own
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the node's mounts: %w", err)
	}
	if own == first {
		return errors.New("this process has the node's mounts, and not a container's; it is a createContainer hook, for container runtimes that keep to OCI")
	}
	return nil
}
