package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/dbus" // systemd is asked for a scope over its own protocol
	godbus "github.com/godbus/dbus/v5"
)

const (
	systemdRuns = "/run/systemd/system" // where systemd is the machine's first process (sd_booted(3))

	// scope is the unit in which tasks with limits are. It is not the service itself: systemd could not start that again while it has groups
	// below it, nor does it end with it. It lives while anything in it does.
	scope = "aliquot-tasks.scope"

	unitExists  = "org.freedesktop.systemd1.UnitExists"
	scopeWithin = 20 * time.Second
)

// scopeFolders is where the scope is, of the machine's systemd and of this user's, whether it is there or not.
func scopeFolders(mount string) []string {
	uid := os.Getuid()
	return []string{
		filepath.Join(mount, "system.slice", scope),
		filepath.Join(mount, "user.slice", fmt.Sprintf("user-%d.slice/user@%d.service/app.slice", uid, uid), scope),
	}
}

// openScope has systemd make the scope, or finds the one that an earlier server left with its tasks, and keeps it until this process ends. It
// returns its folder, whose processes are all in a leaf.
func openScope(mount string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scopeWithin)
	defer cancel()
	connect := dbus.NewUserConnectionContext
	if os.Getuid() == 0 {
		connect = dbus.NewSystemdConnectionContext
	}
	conn, err := connect(ctx)
	if err != nil {
		return "", fmt.Errorf("systemd could not be asked for a control group: %w", err)
	}
	defer conn.Close()
	keeper, err := startKeeper()
	if err != nil {
		return "", err
	}
	folder, err := askScope(ctx, conn, mount, keeper)
	if err != nil {
		return "", fmt.Errorf("systemd made no control group for tasks with limits: %w", err)
	}
	return folder, nil
}

// startKeeper starts a process that does nothing and ends when this one does: a scope without any process ends, too.
func startKeeper() (pid int, err error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	keeper := exec.Command("/bin/cat")
	keeper.Stdin = reader
	if err := keeper.Start(); err != nil {
		return 0, errors.Join(err, writer.Close())
	}
	go func() {
		_ = keeper.Wait()
		_ = writer.Close() // kept open until then
	}()
	return keeper.Process.Pid, nil
}

func askScope(ctx context.Context, conn *dbus.Conn, mount string, keeper int) (string, error) {
	done := make(chan string, 1)
	properties := []dbus.Property{
		dbus.PropDescription("Tasks of Aliquot that have limits of CPU and memory"),
		dbus.PropPids(uint32(keeper)),
		{Name: "Delegate", Value: godbus.MakeVariant(true)},
		{Name: "TasksMax", Value: godbus.MakeVariant(^uint64(0))},
		{Name: "CollectMode", Value: godbus.MakeVariant("inactive-or-failed")},
		{Name: "OOMPolicy", Value: godbus.MakeVariant("continue")}, // one task's end is not the others'
	}
	_, err := conn.StartTransientUnitContext(ctx, scope, "fail", properties, done)
	var known godbus.Error
	if errors.As(err, &known) && known.Name != unitExists { // before version 253 scopes have no OOMPolicy, and go on anyway
		_, err = conn.StartTransientUnitContext(ctx, scope, "fail", properties[:len(properties)-1], done)
	}
	found := errors.As(err, &known) && known.Name == unitExists
	if err != nil && !found {
		return "", err
	}
	if !found {
		select {
		case result := <-done:
			if result != "done" {
				return "", fmt.Errorf("the job to start %s ended as %q", scope, result)
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	property, err := conn.GetUnitTypePropertyContext(ctx, scope, "Scope", "ControlGroup")
	if err != nil {
		return "", err
	}
	path, _ := property.Value.Value().(string)
	if path == "" {
		return "", fmt.Errorf("%s has no control group", scope)
	}
	folder := filepath.Join(mount, path)
	return folder, move(filepath.Join(folder, leaf), keeper)
}
