package main

import (
	"context"
	"errors"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
)

// ran is a program that ran to its end beside others.
type ran struct {
	printed string
	window  time.Duration // from before it was submitted until after it ended
	others  time.Duration // device time that the others got in that window
}

// beside runs a program to its end in a share, beside tenants that run before it starts and until it has ended. line makes its command
// line of their processes.
func (b *bench) beside(ctx context.Context, tenants []judge.Tenant, share api.Share, class api.Class, line func([]int) []string) (r ran, err error) {
	var uids []string
	defer func() { err = errors.Join(err, b.daemon.end(uids)) }()
	var pids []int
	for _, t := range tenants {
		other, err := b.daemon.submit(ctx, t.Share(), api.Training, t.Line(b.trainer))
		if err != nil {
			return r, err
		}
		uids = append(uids, other.UID)
		if other, err = b.daemon.running(ctx, other.UID); err != nil {
			return r, err
		}
		pids = append(pids, other.Status.PID)
	}
	if err := b.allWork(ctx, pids); err != nil {
		return r, err
	}
	before, err := b.daemon.record.read(ctx, 0)
	if err != nil {
		return r, err
	}
	program, err := b.daemon.submit(ctx, share, class, line(pids))
	if err != nil {
		return r, err
	}
	if r.printed, err = b.daemon.ended(ctx, program.UID); err != nil {
		return r, err
	}
	after, err := b.daemon.record.read(ctx, 0)
	if err != nil {
		return r, err
	}
	r.window = after.At - before.At
	for _, pid := range pids {
		r.others += after.Busy[pid] - before.Busy[pid]
	}
	return r, nil
}
