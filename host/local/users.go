package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
)

// identity is whom the program of a caller runs as: nil for the daemon's own user.
func (h *Host) identity(uid uint32) (*supervise.User, error) {
	if uid == h.uid {
		return nil, nil
	}
	if h.uid != 0 {
		return nil, refuse(api.CodeForbidden, "this server runs for user %d alone and you are user %d: start one of your own with `aliquot up`", h.uid, uid)
	}
	found, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return nil, refuse(api.CodeForbidden, "user %d is not known on this machine: its program has nobody to run as", uid)
	}
	one := &supervise.User{UID: uid}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("the group of user %d: %w", uid, err)
	}
	one.GID = uint32(gid)
	groups, err := found.GroupIds()
	if err != nil {
		return nil, refuse(api.CodeUnavailable, "the groups of user %s cannot be found: %v", found.Username, err)
	}
	for _, text := range groups {
		if group, err := strconv.ParseUint(text, 10, 32); err == nil {
			one.Groups = append(one.Groups, uint32(group))
		}
	}
	return one, nil
}

// may says whether a caller may do as it likes with what belongs to uid.
func (h *Host) may(uid, owner uint32) bool { return h.rules(uid) || uid == owner }

// rules says that a user may do everything here: root, and the user that the server runs as.
func (h *Host) rules(uid uint32) bool { return uid == 0 || uid == h.uid }

// findProgram is program, with the eyes of whom it is to run as.
func findProgram(spec api.WorkloadSpec, as *supervise.User) (path string, err error) {
	if failed := asUser(as, func() { path, err = program(spec, as) }); failed != nil {
		return "", refuse(api.CodeUnavailable, "the program %s cannot be looked for: %v", spec.Command[0], failed)
	}
	return path, err
}

// program finds the file that a command names, as a shell would: by its path, else along the PATH of its environment. It refuses
// one that is missing or that the user may not execute.
func program(spec api.WorkloadSpec, as *supervise.User) (string, error) {
	name := spec.Command[0]
	if info, err := os.Stat(spec.Dir); (err != nil || !info.IsDir()) && !unseen(spec.Dir, err) {
		return "", api.Invalid("the folder %s cannot be entered: %v", spec.Dir, reason(err, syscall.ENOTDIR))
	}
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(spec.Dir, path)
		}
		if err := executable(path, as); err != nil && !unseen(path, err) {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w; check its path, which is looked for from %s", err, spec.Dir)
			}
			return "", api.Invalid("the program %s cannot be run: %v", name, err)
		}
		return path, nil
	}
	var denied error
	for _, folder := range filepath.SplitList(spec.Env["PATH"]) {
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(spec.Dir, folder)
		}
		path := filepath.Join(folder, name)
		err := executable(path, as)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			denied = errors.Join(denied, fmt.Errorf("%s: %w", path, err))
		}
	}
	if denied != nil {
		return "", api.Invalid("the program %s cannot be run: %v", name, denied)
	}
	folders := len(filepath.SplitList(spec.Env["PATH"]))
	if folders == 0 {
		return "", api.Invalid("the program %s cannot be run: there is no PATH to look for it in; name its path", name)
	}
	return "", api.Invalid("the program %s cannot be run: it is in none of the %d folders of PATH; name its path, or change PATH", name, folders)
}

// executable says why a user could not execute a file. It judges by the file's mode; what else stands in the way is found when it
// is started.
func executable(path string, as *supervise.User) error {
	info, err := os.Stat(path)
	if err != nil {
		return reason(err, nil)
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	mode := info.Mode().Perm()
	owner, ok := info.Sys().(*syscall.Stat_t)
	uid, gid, groups := uint32(os.Geteuid()), uint32(os.Getegid()), []uint32(nil)
	if as != nil {
		uid, gid, groups = as.UID, as.GID, as.Groups
	} else if list, err := os.Getgroups(); err == nil {
		for _, group := range list {
			groups = append(groups, uint32(group))
		}
	}
	allowed := mode&0o001 != 0
	switch {
	case !ok:
	case uid == 0:
		allowed = mode&0o111 != 0
	case owner.Uid == uid:
		allowed = mode&0o100 != 0
	case owner.Gid == gid || slices.Contains(groups, owner.Gid):
		allowed = mode&0o010 != 0
	}
	if !allowed {
		return fmt.Errorf("%w; `chmod +x %s` lets it be run", syscall.EACCES, path)
	}
	return nil
}

// reason is the bare errno of an error, without the path that the sentence names already.
func reason(err, otherwise error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return errors.Join(err, otherwise)
}
