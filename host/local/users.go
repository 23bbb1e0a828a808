package local

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
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

// reason is the bare errno of an error, without the path that the sentence names already.
func reason(err, otherwise error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return errors.Join(err, otherwise)
}
